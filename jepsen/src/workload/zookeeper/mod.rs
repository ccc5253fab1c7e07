//! The workloads over the ZooKeeper door: the same promises, histories and checkers, another client.
//!
//! What they need is made over HTTP before they begin.

mod bank;
mod lock;
mod register;
mod watchers;

use std::time::Duration;

use jute::{
    Acl, CreateRequest, MultiOp, MultiResult, PathStat, PathVersion, PathWatch, Request, SetDataRequest, Stat,
    create_flags, error, op,
};
use serde_json::Value;

use crate::answer::{Answer, Effect, WRONG, judge_failure};
use crate::client::Client;
use testkit::zookeeper::{Failure, Reply, Zk};

pub use bank::Bank;
pub use lock::Locks;
pub use register::Registers;
pub use watchers::Watchers;

/// Longer than any fault lasts: these sessions are not meant to end by themselves.
const SESSION_TIMEOUT: Duration = Duration::from_secs(60);
/// One step in so many is taken at another node.
const HOP_EVERY: u32 = 20;

/// A worker's client, which is opened when it is first needed and again when its session is over.
#[derive(Default)]
pub struct Seat {
    zk: Option<Zk>,
}

impl Seat {
    /// The client, now and then on its way to another node.
    async fn zk(&mut self, doors: &[String], client: &mut Client) -> Result<&mut Zk, String> {
        if self.zk.is_none() {
            self.zk = Some(Zk::open(doors, client.rng.u64(..), SESSION_TIMEOUT).await?);
        }
        let zk = self.zk.as_mut().ok_or("no client")?;
        if client.rng.u32(..HOP_EVERY) == 0 {
            zk.hop();
        }
        Ok(zk)
    }

    /// Leaves a client that is of no more use.
    fn after(&mut self, answer: &Answer) {
        if is_over(answer) {
            self.zk = None;
        }
    }
}

/// Whether no request of the client will ever be answered again.
fn is_over(answer: &Answer) -> bool {
    answer.is_problem("session-expired") || answer.error.as_deref().is_some_and(|error| error.starts_with(WRONG))
}

/// An operation's end in the history. `done` makes its value and its zxid out of a yes.
fn end(
    client: &mut Client,
    f: &str,
    value: Value,
    effect: Effect,
    result: Result<(Reply, Value, Option<u64>), Failure>,
) -> Answer {
    match result {
        Ok((reply, value, zxid)) => {
            let answer = yes(&reply, zxid);
            client.end_as(&answer, f, value);
            answer
        }
        Err(failure) => {
            let answer = judge_failure(&failure, effect, 0);
            client.end_as(&answer, f, value);
            answer
        }
    }
}

fn yes(reply: &Reply, zxid: Option<u64>) -> Answer {
    let kind = crate::history::Kind::Ok;
    Answer { outcome: kind, error: None, status: 0, body: bytes::Bytes::new(), zxid, node: reply.node }
}

/// The zxid of a write, as its facts have it: a header may tell a later one.
fn zxid(number: i64) -> Option<u64> {
    u64::try_from(number).ok()
}

fn create(path: &str, data: &str, flags: i32) -> CreateRequest {
    let acl = vec![Acl { perms: 31, scheme: "world".into(), id: "anyone".into() }];
    CreateRequest { path: path.into(), data: data.as_bytes().into(), acl, flags }
}

/// Makes a persistent znode unless it is there.
async fn ensure(zk: &Zk, path: &str) -> Result<(), Failure> {
    match zk.ask(Request::Create(op::CREATE, create(path, "", create_flags::PERSISTENT))).await {
        Ok(_) | Err(Failure::Refused(error::NODE_EXISTS)) => Ok(()),
        Err(failure) => Err(failure),
    }
}

fn set(path: &str, data: &str, version: i32) -> SetDataRequest {
    SetDataRequest { path: path.into(), data: data.as_bytes().into(), version }
}

fn at(path: &str) -> PathWatch {
    PathWatch { path: path.into(), watch: false }
}

fn any_version(path: &str) -> PathVersion {
    PathVersion { path: path.into(), version: -1 }
}

/// A transaction that ends with a set of `marker`: its facts tell the zxid of the whole.
///
/// A multi's header tells a zxid that is not below its own, and the results of checks and deletes tell none.
async fn marked(zk: &Zk, mut ops: Vec<MultiOp>, marker: &str) -> Result<(Reply, Stat), Failure> {
    ops.push(MultiOp::SetData(set(marker, "", -1)));
    let (reply, results) = transact(zk, ops).await?;
    match results.last() {
        Some(MultiResult::Set(stat)) => Ok((reply, stat.clone())),
        other => Err(Failure::Wrong(format!("the result of a set is {other:?}"))),
    }
}

/// A transaction: all results, or the error of the operation that failed.
async fn transact(zk: &Zk, ops: Vec<MultiOp>) -> Result<(Reply, Vec<MultiResult>), Failure> {
    let count = ops.len();
    let request = if ops.iter().all(MultiOp::is_read) { Request::MultiRead(ops) } else { Request::Multi(ops) };
    let reply = zk.ask(request).await?;
    let results = jute::read_multi_results(&mut jute::Input::new(&reply.body));
    let results = results.map_err(|error| Failure::Wrong(format!("results cannot be read: {error}")))?;
    let failed = results.iter().find_map(|result| match result {
        MultiResult::Error(code) if *code != error::OK => Some(*code),
        _ => None,
    });
    match failed {
        Some(code) => Err(Failure::Refused(code)),
        None if results.len() == count => Ok((reply, results)),
        None => Err(Failure::Wrong(format!("{} results of {count} operations", results.len()))),
    }
}

/// Creates a znode; its path and facts.
async fn create2(zk: &Zk, path: &str, flags: i32) -> Result<(Reply, PathStat), Failure> {
    let reply = zk.ask(Request::Create(op::CREATE2, create(path, "", flags))).await?;
    let created = reply.read()?;
    Ok((reply, created))
}
