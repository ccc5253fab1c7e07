//! `multi`: as over HTTP. The accounts are looked at by multiRead, and a read is a multi of checks.

use jute::{MultiOp, MultiResult, PathVersion};
use serde_json::json;

use super::{Seat, at, end, marked, set, transact, zxid};
use crate::answer::{Answer, Effect};
use crate::client::Client;
use crate::history::Kind;
use crate::workload::patience::Patience;
use crate::workload::{ROOT, Work, make_root};
use testkit::zookeeper::{Failure, Reply, Zk};

const ACCOUNTS: u64 = 5;
const INITIAL: i64 = 100;

/// Accounts in znodes.
pub struct Bank {
    doors: Vec<String>,
}

/// A balance with the version that it was seen at.
#[derive(Clone, Copy)]
struct Seen {
    balance: i64,
    version: i32,
}

fn path(account: u64) -> String {
    format!("{ROOT}/multi/a{account}")
}

fn marker() -> String {
    format!("{ROOT}/multi/marker")
}

/// All accounts as they were at one moment, perhaps some time ago.
async fn look(zk: &Zk) -> Result<(Reply, Vec<Seen>), Failure> {
    let reads = (0..ACCOUNTS).map(|account| MultiOp::GetData(at(&path(account)))).collect();
    let (reply, results) = transact(zk, reads).await?;
    let one = |result: MultiResult| match result {
        MultiResult::Data(data) => {
            let balance = String::from_utf8_lossy(&data.data.into_bytes()).parse();
            let balance = balance.map_err(|_| Failure::Wrong("an account holds no number".into()))?;
            Ok(Seen { balance, version: data.stat.version })
        }
        other => Err(Failure::Wrong(format!("the result of a getData is {other:?}"))),
    };
    let seen = results.into_iter().map(one).collect::<Result<_, _>>()?;
    Ok((reply, seen))
}

impl Bank {
    /// Accounts that are reached at these doors.
    pub fn new(doors: Vec<String>) -> Bank {
        Bank { doors }
    }

    async fn transfer(&self, client: &mut Client, zk: &Zk) -> Answer {
        let from = client.rng.u64(..ACCOUNTS);
        let to = (from + client.rng.u64(1..ACCOUNTS)) % ACCOUNTS;
        let amount = client.rng.i64(1..=10);
        let value = json!({"from": from, "to": to, "amount": amount});
        client.invoke("transfer", value.clone());
        let seen = match look(zk).await {
            Ok((_, seen)) => [seen[from as usize], seen[to as usize]],
            Err(failure) => return end(client, "transfer", value, Effect::Read, Err(failure)),
        };
        let after = [seen[0].balance - amount, seen[1].balance + amount];
        if after[0] < 0 {
            return end(client, "transfer", value, Effect::Read, Err(Failure::NotSent("too poor".into())));
        }
        let side =
            |i: usize, account: u64| MultiOp::SetData(set(&path(account), &after[i].to_string(), seen[i].version));
        let sides =
            json!([[from, after[0], i64::from(seen[0].version) + 1], [to, after[1], i64::from(seen[1].version) + 1]]);
        let done = json!({"from": from, "to": to, "amount": amount, "sides": sides});
        let result = transact(zk, vec![side(0, from), side(1, to)]).await.and_then(|(reply, results)| {
            let Some(MultiResult::Set(stat)) = results.first() else {
                return Err(Failure::Wrong(format!("the result of a set is {results:?}")));
            };
            Ok((reply, done.clone(), zxid(stat.mzxid)))
        });
        // Should it have happened without an answer, this is what it did.
        end(client, "transfer", done, Effect::Write, result)
    }

    /// Looks at all accounts; the transaction says whether that is still true.
    async fn read(&self, client: &mut Client, zk: &Zk) -> Answer {
        client.invoke("snapshot", json!({}));
        let (reply, seen) = match look(zk).await {
            Ok(looked) => looked,
            Err(failure) => return end(client, "snapshot", json!({}), Effect::Read, Err(failure)),
        };
        let balances: Vec<i64> = seen.iter().map(|seen| seen.balance).collect();
        let versions: Vec<i32> = seen.iter().map(|seen| seen.version).collect();
        let value = json!({"balances": balances, "versions": versions});
        end(client, "snapshot", value.clone(), Effect::Read, Ok((reply, value.clone(), None)));
        client.invoke("read", json!({}));
        let check =
            |(account, seen): (u64, &Seen)| MultiOp::Check(PathVersion { path: path(account), version: seen.version });
        let checks = (0..).zip(&seen).map(check).collect();
        let result = marked(zk, checks, &marker()).await.map(|(reply, stat)| (reply, value, zxid(stat.mzxid)));
        // What its marker has becomes of no account.
        end(client, "read", json!({}), Effect::Read, result)
    }
}

impl Work for Bank {
    type Worker = Seat;

    async fn prepare(&self, client: &mut Client) -> Result<(), String> {
        make_root(client, "multi").await?;
        client.ensure(&marker(), "").await?;
        client.invoke("open-accounts", json!({}));
        for account in 0..ACCOUNTS {
            client.ensure(&path(account), &INITIAL.to_string()).await?;
        }
        client.end(Kind::Ok, "open-accounts", json!({"accounts": ACCOUNTS, "initial": INITIAL}), None, None);
        Ok(())
    }

    fn worker(&self, _index: usize) -> Seat {
        Seat::default()
    }

    async fn step(&self, seat: &mut Seat, client: &mut Client) -> Result<(), String> {
        let zk = seat.zk(&self.doors, client).await?;
        let answer = match client.rng.u8(..3) {
            0 => self.read(client, zk).await,
            _ => self.transfer(client, zk).await,
        };
        seat.after(&answer);
        Ok(())
    }

    async fn finish(&self, client: &mut Client) -> Result<(), String> {
        let (mut seat, patience) = (Seat::default(), Patience::new());
        loop {
            let zk = seat.zk(&self.doors, client).await?;
            let answer = self.read(client, zk).await;
            seat.after(&answer);
            if answer.is_ok() {
                return Ok(());
            }
            patience.after("the accounts", &answer).await?;
        }
    }
}
