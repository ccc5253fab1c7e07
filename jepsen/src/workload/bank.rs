//! `multi`: transfers between accounts in one transaction, and reads of all accounts in one transaction.

use serde_json::{Value, json};
use zlock_client::api::{Txn, TxnDone, TxnOp, ZnodeInfo};

use super::patience::Patience;
use super::{Work, make_root};
use crate::answer::{Answer, Effect};
use crate::client::Client;
use crate::history::Kind;
use crate::http::Call;

const ACCOUNTS: u64 = 5;
const INITIAL: i64 = 100;

/// Accounts in znodes.
#[derive(Default)]
pub struct Bank;

/// A balance with the version that it was seen at.
#[derive(Clone, Copy)]
struct Seen {
    balance: i64,
    version: i32,
}

fn path(account: u64) -> String {
    format!("{}/multi/a{account}", super::ROOT)
}

/// Reads one account; `Err` carries what went wrong.
async fn look(client: &mut Client, account: u64) -> Result<Seen, Answer> {
    let node = client.any_node();
    let mut answer = client.http.send(node, Call::get(format!("/v1/znodes{}", path(account)))).await;
    let seen = answer.read::<ZnodeInfo>(Effect::Read).and_then(|node| {
        let balance = node.data?.parse().ok()?;
        Some(Seen { balance, version: node.stat.version })
    });
    seen.ok_or(answer)
}

async fn transact(client: &mut Client, ops: Vec<TxnOp>, only_looks: bool) -> Answer {
    let call = Call::post("/v1/txn").json(&Txn { ops });
    let node = client.any_node();
    let mut answer = client.http.send(node, if only_looks { call.harmless() } else { call }).await;
    let effect = if only_looks { Effect::Read } else { Effect::Write };
    answer.zxid = answer.read::<TxnDone>(effect).map(|done| done.zxid);
    answer
}

impl Bank {
    async fn transfer(&self, client: &mut Client) {
        let from = client.rng.u64(..ACCOUNTS);
        let to = (from + client.rng.u64(1..ACCOUNTS)) % ACCOUNTS;
        let amount = client.rng.i64(1..=10);
        let value = json!({"from": from, "to": to, "amount": amount});
        client.invoke("transfer", value.clone());
        let mut seen = Vec::new();
        for account in [from, to] {
            match look(client, account).await {
                Ok(one) => seen.push(one),
                Err(answer) => return client.end(Kind::Fail, "transfer", value, answer.error.clone(), None),
            }
        }
        let after = [seen[0].balance - amount, seen[1].balance + amount];
        if after[0] < 0 {
            return client.end(Kind::Fail, "transfer", value, Some("too-poor".into()), None);
        }
        let side = |i: usize, account: u64| TxnOp::Set {
            path: path(account),
            data: Some(after[i].to_string()),
            data_base64: None,
            version: seen[i].version,
        };
        let answer = transact(client, vec![side(0, from), side(1, to)], false).await;
        let sides: Value =
            json!([[from, after[0], i64::from(seen[0].version) + 1], [to, after[1], i64::from(seen[1].version) + 1]]);
        let done = json!({"from": from, "to": to, "amount": amount, "sides": sides});
        client.end_as(&answer, "transfer", done);
    }

    /// Looks at one account after the other; the transaction says whether all of it was true at once.
    async fn read(&self, client: &mut Client) -> Answer {
        client.invoke("read", json!({}));
        let (mut balances, mut versions, mut checks) = (Vec::new(), Vec::new(), Vec::new());
        for account in 0..ACCOUNTS {
            match look(client, account).await {
                Ok(seen) => {
                    balances.push(seen.balance);
                    versions.push(seen.version);
                    checks.push(TxnOp::Check { path: path(account), version: seen.version });
                }
                Err(mut answer) => {
                    // Also of an account that holds no number: it says nothing about the others.
                    answer.outcome = Kind::Fail;
                    client.end(Kind::Fail, "read", json!({}), answer.error.clone(), None);
                    return answer;
                }
            }
        }
        let answer = transact(client, checks, true).await;
        client.end_as(&answer, "read", json!({"balances": balances, "versions": versions}));
        answer
    }
}

impl Work for Bank {
    type Worker = ();

    async fn prepare(&self, client: &mut Client) -> Result<(), String> {
        make_root(client, "multi").await?;
        client.invoke("open-accounts", json!({}));
        for account in 0..ACCOUNTS {
            client.ensure(&path(account), &INITIAL.to_string()).await?;
        }
        client.end(Kind::Ok, "open-accounts", json!({"accounts": ACCOUNTS, "initial": INITIAL}), None, None);
        Ok(())
    }

    fn worker(&self, _index: usize) {}

    async fn step(&self, (): &mut (), client: &mut Client) -> Result<(), String> {
        match client.rng.u8(..3) {
            0 => _ = self.read(client).await,
            _ => self.transfer(client).await,
        }
        Ok(())
    }

    async fn finish(&self, client: &mut Client) -> Result<(), String> {
        let patience = Patience::new();
        loop {
            let answer = self.read(client).await;
            if answer.is_ok() {
                return Ok(());
            }
            patience.after("the accounts", &answer).await?;
        }
    }
}
