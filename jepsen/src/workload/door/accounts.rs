//! Operations on accounts: znodes with a number each, which transactions change together.

use jute::{MultiOp, MultiResult, PathVersion};
use testkit::zookeeper::{Failure, Reply};
use zlock_client::api::{Txn, TxnAnswer, TxnOp, ZnodeInfo};

use super::{Door, Told, ZooKeeper, answer, at, marked, set, told, transact, zxid};
use crate::answer::{Answer, Effect};
use crate::client::Client;
use crate::history::Kind;
use crate::http::Call;

/// A balance, and the version of its znode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// Balance of the account.
    pub(crate) balance: i64,
    /// The znode's version.
    pub(crate) version: i32,
}

/// Operations on accounts over HTTP or ZooKeeper's protocol. An account is named by its path.
impl Door {
    /// Tells whether a read shows all accounts as they were at one moment, perhaps in the past, as
    /// a multiRead of ZooKeeper's protocol does. Otherwise the accounts are read one after the
    /// other.
    pub(crate) fn looks_at_once(&self) -> bool {
        matches!(self, Door::ZooKeeper(_))
    }

    /// Reads the accounts at these paths.
    pub(crate) async fn look(&self, client: &mut Client, paths: &[String]) -> Told<Vec<Seen>> {
        if let Door::ZooKeeper(door) = self {
            return told(Effect::Read, door.read_all(paths).await.map(|(reply, seen)| (seen, reply, None)));
        }
        let mut all = Vec::new();
        let mut last = Answer::refused("there are no accounts".into());
        for path in paths {
            last = client.send(Call::get(format!("/v1/znodes{path}"))).await;
            let seen = last.read::<ZnodeInfo>(Effect::Read).and_then(|node| {
                let balance = node.data?.parse().ok()?;
                Some(Seen { balance, version: node.stat.version })
            });
            let Some(seen) = seen else {
                // The whole read fails if one account cannot be read or holds no number.
                last.outcome = Kind::Fail;
                return Err(last);
            };
            all.push(seen);
        }
        Ok((all, last))
    }

    /// Sets these accounts to these balances, if they still have these versions.
    pub(crate) async fn set_all(&self, client: &mut Client, sides: &[(String, Seen)]) -> Answer {
        let Door::ZooKeeper(door) = self else {
            let side = |(path, side): &(String, Seen)| TxnOp::Set {
                path: path.clone(),
                data: Some(side.balance.to_string()),
                data_base64: None,
                version: side.version,
            };
            return transact_over_http(client, sides.iter().map(side).collect(), Effect::Write).await;
        };
        let side = |(path, side): &(String, Seen)| MultiOp::SetData(set(path, &side.balance.to_string(), side.version));
        let done = async {
            let (reply, results) = transact(door.zk()?, sides.iter().map(side).collect()).await?;
            match results.first() {
                Some(MultiResult::Set(stat)) => Ok(((), reply, zxid(stat.mzxid))),
                _ => Err(Failure::Wrong(format!("the result of a set is {results:?}"))),
            }
        };
        answer(told(Effect::Write, done.await))
    }

    /// Checks by a transaction whether all accounts still have these versions. Over ZooKeeper's
    /// protocol the transaction also sets the znode `marker`, whose data does not matter.
    pub(crate) async fn check(&self, client: &mut Client, seen: &[(String, Seen)], marker: &str) -> Answer {
        let Door::ZooKeeper(door) = self else {
            let check = |(path, seen): &(String, Seen)| TxnOp::Check { path: path.clone(), version: seen.version };
            return transact_over_http(client, seen.iter().map(check).collect(), Effect::Read).await;
        };
        let check =
            |(path, seen): &(String, Seen)| MultiOp::Check(PathVersion { path: path.clone(), version: seen.version });
        let done = async { marked(door.zk()?, seen.iter().map(check).collect(), marker).await };
        answer(told(Effect::Read, done.await))
    }
}

async fn transact_over_http(client: &mut Client, ops: Vec<TxnOp>, effect: Effect) -> Answer {
    let call = Call::post("/v1/txn").json(&Txn { ops });
    let mut answer = client.send(if effect == Effect::Read { call.harmless() } else { call }).await;
    answer.zxid = answer.read::<TxnAnswer>(effect).map(|done| done.zxid);
    answer
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
