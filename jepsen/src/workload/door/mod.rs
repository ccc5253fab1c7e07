//! Operations of workloads over either door. A door is a server of zlock for clients: HTTP, or
//! ZooKeeper's protocol.
//!
//! A workload says what clients do and what the history contains. Each file here implements one
//! kind of operation over HTTP and over ZooKeeper's protocol. Znodes that an operation needs are
//! created over HTTP before the workload begins.

mod accounts;
mod locks;
mod registers;
mod watching;

use std::sync::Arc;
use std::time::Duration;

use jute::{
    Acl, CreateRequest, MultiOp, MultiResult, PathStat, PathVersion, PathWatch, Request, SetDataRequest, Stat,
    create_flags, error, op,
};
use testkit::zookeeper::{Failure, Reply, Zk};

use crate::answer::{Answer, Effect, WRONG, judge_failure};
use crate::client::Client;
use crate::history::Kind;

pub(crate) use accounts::Seen;
pub(crate) use locks::{Taken, Wish, held};
pub(crate) use watching::{Change, Following, Poll};

/// Timeout of sessions, longer than any fault, so that they do not expire.
const SESSION_TIMEOUT: Duration = Duration::from_secs(60);
/// Share of steps before which a client of ZooKeeper's protocol changes to another node: one in
/// this many.
const HOP_EVERY: u32 = 20;

/// Result of an operation together with its answer, or the answer alone after a failure.
pub(crate) type Told<T> = Result<(T, Answer), Answer>;

/// Choice of the doors (HTTP, ZooKeeper's protocol) that the workers use; HTTP by default.
#[derive(Default)]
pub struct Doors {
    /// Protocol of the workers: HTTP, ZooKeeper's protocol, or both, each for every second worker.
    pub which: crate::options::Door,
    /// Address (`host:port`) of each node for ZooKeeper's protocol.
    pub zookeeper: Arc<[String]>,
}

impl Doors {
    /// Returns the door (HTTP or ZooKeeper's protocol) of the worker with this index, without a
    /// session. If both are in use, workers with an even index use HTTP.
    pub(super) fn of_worker(&self, index: usize) -> Door {
        let http = match self.which {
            crate::options::Door::Http => true,
            crate::options::Door::Zookeeper => false,
            crate::options::Door::Both => index.is_multiple_of(2),
        };
        if http { Door::Http } else { Door::ZooKeeper(ZooKeeper { addrs: self.zookeeper.clone(), zk: None }) }
    }
}

/// Door of the cluster that one worker uses: HTTP or ZooKeeper's protocol.
#[derive(Default)]
pub enum Door {
    /// HTTP: each request goes to a random node.
    #[default]
    Http,
    /// ZooKeeper's protocol.
    ZooKeeper(ZooKeeper),
}

impl Door {
    /// Prepares a worker's next step over ZooKeeper's protocol: opens a session if there is none,
    /// and sometimes moves to another node.
    pub(super) async fn enter(&mut self, client: &mut Client) -> Result<(), String> {
        if let Door::ZooKeeper(door) = self {
            if door.zk.is_none() {
                door.zk = Some(door.connect(client).await?);
            }
            door.zk.iter().for_each(|zk| maybe_hop(zk, client));
        }
        Ok(())
    }

    /// Drops the session of ZooKeeper's protocol if this answer shows that the session is over.
    pub(super) fn after(&mut self, answer: &Answer) {
        if let Door::ZooKeeper(door) = self
            && is_over(answer)
        {
            door.zk = None;
        }
    }
}

/// A client of ZooKeeper's protocol. Its session is opened when it is first needed, and anew when
/// the session is over.
pub struct ZooKeeper {
    addrs: Arc<[String]>,
    zk: Option<Zk>,
}

impl ZooKeeper {
    async fn connect(&self, client: &mut Client) -> Result<Zk, String> {
        Zk::open(&self.addrs, client.rng.u64(..), SESSION_TIMEOUT).await
    }

    fn zk(&self) -> Result<&Zk, Failure> {
        self.zk.as_ref().ok_or_else(none_open)
    }

    fn zk_mut(&mut self) -> Result<&mut Zk, Failure> {
        self.zk.as_mut().ok_or_else(none_open)
    }
}

fn none_open() -> Failure {
    Failure::NotSent("no session is open".into())
}

/// Moves a client to the next node, in one of [`HOP_EVERY`] calls.
fn maybe_hop(zk: &Zk, client: &mut Client) {
    if client.rng.u32(..HOP_EVERY) == 0 {
        zk.hop();
    }
}

/// Tells whether an answer shows that the session cannot be used any more: it has ended, or the
/// node violated the protocol.
pub(super) fn is_over(answer: &Answer) -> bool {
    answer.is_problem("session-expired")
        || answer.is_problem("auth-failed")
        || answer.error.as_deref().is_some_and(|error| error.starts_with(WRONG))
}

/// Judges from the outcome of a request over ZooKeeper's protocol whether it was executed, was not,
/// or may have been. A success has the result, the reply and the zxid of the write.
fn told<T>(effect: Effect, result: Result<(T, Reply, Option<u64>), Failure>) -> Told<T> {
    match result {
        Ok((told, reply, zxid)) => {
            let (outcome, body) = (Kind::Ok, bytes::Bytes::new());
            Ok((told, Answer { outcome, error: None, status: 0, body, zxid, node: reply.node }))
        }
        Err(failure) => Err(judge_failure(&failure, effect, 0)),
    }
}

/// Returns the answer alone, without the result.
fn answer<T>(told: Told<T>) -> Answer {
    told.map_or_else(|answer| answer, |(_, answer)| answer)
}

/// Returns a zxid from the stat of a written znode; `None` if it is negative. The zxid in the
/// header of the reply is not used, because it may be later than the write.
fn zxid(number: i64) -> Option<u64> {
    u64::try_from(number).ok()
}

fn create(path: &str, flags: i32) -> CreateRequest {
    let acl = vec![Acl { perms: 31, scheme: "world".into(), id: "anyone".into() }];
    CreateRequest { path: path.into(), data: Vec::new().into(), acl, flags }
}

/// Creates a persistent znode unless it exists.
async fn ensure(zk: &Zk, path: &str) -> Result<(), Failure> {
    match zk.ask(Request::Create(op::CREATE, create(path, create_flags::PERSISTENT))).await {
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

/// Makes a transaction that also sets the znode `marker`, to get the zxid of the transaction from
/// its stat.
///
/// The zxid in the header of a multi's reply may be later than the transaction, and the results of
/// checks and deletes have no zxid.
async fn marked(zk: &Zk, mut ops: Vec<MultiOp>, marker: &str) -> Result<((), Reply, Option<u64>), Failure> {
    ops.push(MultiOp::SetData(set(marker, "", -1)));
    let (reply, results) = transact(zk, ops).await?;
    match results.last() {
        Some(MultiResult::Set(stat)) => Ok(((), reply, zxid(stat.mzxid))),
        other => Err(Failure::Wrong(format!("the result of a set is {other:?}"))),
    }
}

/// Makes a transaction. Returns all results, or the error of the operation that failed.
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

/// Creates a znode. Returns the reply with the znode's path and stat.
async fn create2(zk: &Zk, path: &str, flags: i32) -> Result<(Reply, PathStat), Failure> {
    let reply = zk.ask(Request::Create(op::CREATE2, create(path, flags))).await?;
    let created = reply.read()?;
    Ok((reply, created))
}

/// Sets a znode's data. Returns the reply and the zxid of the write.
async fn set_data(zk: &Zk, path: &str, data: &str, version: i32) -> Result<((), Reply, Option<u64>), Failure> {
    let reply = zk.ask(Request::SetData(set(path, data, version))).await?;
    let stat: Stat = reply.read()?;
    Ok(((), reply, zxid(stat.mzxid)))
}
