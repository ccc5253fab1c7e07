//! Clients of the workload `multi`: they transfer money between two accounts in one transaction,
//! and read all accounts in one transaction.

use serde_json::json;

use super::door::{Door, Doors, Seen};
use super::{ROOT, Work};
use crate::answer::Answer;
use crate::client::{Client, Patience};
use crate::history::Kind;

const ACCOUNTS: u64 = 5;
const INITIAL: i64 = 100;

/// The workload `multi`, with the accounts in one znode each.
pub struct Bank {
    doors: Doors,
}

fn path(account: u64) -> String {
    format!("{ROOT}/multi/a{account}")
}

/// Returns the path of the znode that transactions over ZooKeeper's protocol set in addition to
/// their checks, because the results of checks have no zxid.
fn marker() -> String {
    format!("{ROOT}/multi/marker")
}

impl Bank {
    /// Returns the workload for workers that use these doors (HTTP or ZooKeeper's protocol).
    pub fn new(doors: Doors) -> Bank {
        Bank { doors }
    }

    async fn transfer(&self, door: &Door, client: &mut Client) -> Answer {
        let from = client.rng.u64(..ACCOUNTS);
        let to = (from + client.rng.u64(1..ACCOUNTS)) % ACCOUNTS;
        let amount = client.rng.i64(1..=10);
        let mut value = json!({"from": from, "to": to, "amount": amount});
        client.invoke("transfer", value.clone());
        let answer = match door.look(client, &[path(from), path(to)]).await {
            Err(answer) => answer,
            Ok((seen, _)) if seen[0].balance < amount => Answer::refused("too-poor".into()),
            Ok((seen, _)) => {
                let after = |i: usize, by: i64| Seen { balance: seen[i].balance + by, ..seen[i] };
                let (paid, got) = (after(0, -amount), after(1, amount));
                // The effect is recorded for the checker, in case the transfer has no answer.
                let version = |side: Seen| i64::from(side.version) + 1;
                value["sides"] = json!([[from, paid.balance, version(paid)], [to, got.balance, version(got)]]);
                door.set_all(client, &[(path(from), paid), (path(to), got)]).await
            }
        };
        client.end_as(&answer, "transfer", value);
        answer
    }

    /// Reads all accounts, and then checks by a transaction whether all values hold at the same
    /// time. If the protocol can read all accounts at one moment (ZooKeeper's multiRead), that read
    /// is also recorded, as a `snapshot`.
    async fn read(&self, door: &Door, client: &mut Client) -> Answer {
        let look = if door.looks_at_once() { "snapshot" } else { "read" };
        client.invoke(look, json!({}));
        let paths: Vec<String> = (0..ACCOUNTS).map(path).collect();
        let (seen, looked) = match door.look(client, &paths).await {
            Ok(told) => told,
            Err(answer) => {
                client.end_as(&answer, look, json!({}));
                return answer;
            }
        };
        let balances: Vec<i64> = seen.iter().map(|seen| seen.balance).collect();
        let versions: Vec<i32> = seen.iter().map(|seen| seen.version).collect();
        let value = json!({"balances": balances, "versions": versions});
        if door.looks_at_once() {
            client.end_as(&looked, look, value.clone());
            client.invoke("read", json!({}));
        }
        let seen: Vec<(String, Seen)> = paths.into_iter().zip(seen).collect();
        let answer = door.check(client, &seen, &marker()).await;
        client.end_as(&answer, "read", if answer.is_ok() { value } else { json!({}) });
        answer
    }
}

impl Work for Bank {
    type Worker = Door;

    async fn prepare(&self, client: &mut Client) -> Result<(), String> {
        client.ensure(&marker(), "").await?;
        client.invoke("open-accounts", json!({}));
        for account in 0..ACCOUNTS {
            client.ensure(&path(account), &INITIAL.to_string()).await?;
        }
        client.end(Kind::Ok, "open-accounts", json!({"accounts": ACCOUNTS, "initial": INITIAL}), None, None);
        Ok(())
    }

    fn worker(&self, index: usize) -> Door {
        self.doors.of_worker(index)
    }

    async fn step(&self, door: &mut Door, client: &mut Client) -> Result<(), String> {
        door.enter(client).await?;
        let answer = match client.rng.u8(..3) {
            0 => self.read(door, client).await,
            _ => self.transfer(door, client).await,
        };
        door.after(&answer);
        Ok(())
    }

    async fn finish(&self, client: &mut Client) -> Result<(), String> {
        let (mut door, patience) = (self.doors.of_worker(0), Patience::new());
        loop {
            door.enter(client).await?;
            let answer = self.read(&door, client).await;
            door.after(&answer);
            if answer.is_ok() {
                return Ok(());
            }
            patience.after("the last read of the accounts", &answer).await?;
        }
    }
}
