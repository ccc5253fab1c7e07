//! Accounts: numbers in znodes that change together.

use std::future::Future;

use jute::{MultiOp, MultiResult, PathVersion};
use testkit::zookeeper::{Failure, Reply};
use zlock_client::api::{Txn, TxnDone, TxnOp, ZnodeInfo};

use super::{Door, Http, Told, ZooKeeper, answer, at, marked, set, told, transact, zxid};
use crate::answer::{Answer, Effect};
use crate::client::Client;
use crate::history::Kind;
use crate::http::Call;

/// A balance with the version that it was seen at.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// How much there was.
    pub balance: i64,
    /// The znode's version.
    pub version: i32,
}

/// How accounts are looked at and changed. An account is named by its path.
pub trait AccountDoor: Door {
    /// Whether a look shows all accounts as they were at one moment, perhaps some time ago.
    /// Otherwise it is one after the other.
    fn looks_at_once(&self) -> bool;

    /// Looks at accounts.
    fn look(&self, client: &mut Client, paths: &[String]) -> impl Future<Output = Told<Vec<Seen>>> + Send;

    /// Gives these accounts these balances, if they still have these versions.
    fn set_all(&self, client: &mut Client, sides: &[(String, Seen)]) -> impl Future<Output = Answer> + Send;

    /// Finds out whether all of it is still true. `marker` is a znode that may be set with it.
    fn check(&self, client: &mut Client, seen: &[(String, Seen)], marker: &str) -> impl Future<Output = Answer> + Send;
}

/// A check is a transaction of checks.
impl AccountDoor for Http {
    fn looks_at_once(&self) -> bool {
        false
    }

    async fn look(&self, client: &mut Client, paths: &[String]) -> Told<Vec<Seen>> {
        let mut all = Vec::new();
        let mut last = Answer::refused("there are no accounts".into());
        for path in paths {
            let node = client.any_node();
            last = client.http.send(node, Call::get(format!("/v1/znodes{path}"))).await;
            let seen = last.read::<ZnodeInfo>(Effect::Read).and_then(|node| {
                let balance = node.data?.parse().ok()?;
                Some(Seen { balance, version: node.stat.version })
            });
            let Some(seen) = seen else {
                // Also of an account that holds no number: it says nothing about the others.
                last.outcome = Kind::Fail;
                return Err(last);
            };
            all.push(seen);
        }
        Ok((all, last))
    }

    async fn set_all(&self, client: &mut Client, sides: &[(String, Seen)]) -> Answer {
        let side = |(path, side): &(String, Seen)| TxnOp::Set {
            path: path.clone(),
            data: Some(side.balance.to_string()),
            data_base64: None,
            version: side.version,
        };
        transact_over_http(client, sides.iter().map(side).collect(), Effect::Write).await
    }

    async fn check(&self, client: &mut Client, seen: &[(String, Seen)], _marker: &str) -> Answer {
        let check = |(path, seen): &(String, Seen)| TxnOp::Check { path: path.clone(), version: seen.version };
        transact_over_http(client, seen.iter().map(check).collect(), Effect::Read).await
    }
}

async fn transact_over_http(client: &mut Client, ops: Vec<TxnOp>, effect: Effect) -> Answer {
    let call = Call::post("/v1/txn").json(&Txn { ops });
    let node = client.any_node();
    let mut answer = client.http.send(node, if effect == Effect::Read { call.harmless() } else { call }).await;
    answer.zxid = answer.read::<TxnDone>(effect).map(|done| done.zxid);
    answer
}

/// A look is a multiRead, and a check is a multi of checks.
impl AccountDoor for ZooKeeper {
    fn looks_at_once(&self) -> bool {
        true
    }

    async fn look(&self, _client: &mut Client, paths: &[String]) -> Told<Vec<Seen>> {
        told(Effect::Read, self.read_all(paths).await.map(|(reply, seen)| (seen, reply, None)))
    }

    async fn set_all(&self, _client: &mut Client, sides: &[(String, Seen)]) -> Answer {
        let side = |(path, side): &(String, Seen)| MultiOp::SetData(set(path, &side.balance.to_string(), side.version));
        let done = async {
            let (reply, results) = transact(self.zk()?, sides.iter().map(side).collect()).await?;
            match results.first() {
                Some(MultiResult::Set(stat)) => Ok(((), reply, zxid(stat.mzxid))),
                _ => Err(Failure::Wrong(format!("the result of a set is {results:?}"))),
            }
        };
        answer(told(Effect::Write, done.await))
    }

    async fn check(&self, _client: &mut Client, seen: &[(String, Seen)], marker: &str) -> Answer {
        let check =
            |(path, seen): &(String, Seen)| MultiOp::Check(PathVersion { path: path.clone(), version: seen.version });
        let done = async { marked(self.zk()?, seen.iter().map(check).collect(), marker).await };
        // What its marker has becomes of no account.
        answer(told(Effect::Read, done.await))
    }
}

impl ZooKeeper {
    async fn read_all(&self, paths: &[String]) -> Result<(Reply, Vec<Seen>), Failure> {
        let reads = paths.iter().map(|path| MultiOp::GetData(at(path))).collect();
        let (reply, results) = transact(self.zk()?, reads).await?;
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
}
