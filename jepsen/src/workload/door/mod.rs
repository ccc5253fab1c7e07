//! The doors of a node, as far as workloads can do without knowing through which one they came.
//!
//! A workload says what clients do and what goes into the history. Each file here says how one kind
//! of it is done over HTTP and over ZooKeeper's protocol. What either needs to be there is made
//! over HTTP before it begins.

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

/// Longer than any fault lasts: these sessions are not meant to end by themselves.
const SESSION_TIMEOUT: Duration = Duration::from_secs(60);
/// One step in so many is taken at another node.
const HOP_EVERY: u32 = 20;

/// Outcome of an operation: a result and the answer that told it, or an answer that is no yes.
pub(crate) type Told<T> = Result<(T, Answer), Answer>;

/// The doors of a cluster, and which of them workers use; HTTP by default.
#[derive(Default)]
pub struct Doors {
    /// Kind of door that workers use.
    pub which: crate::runner::Door,
    /// `host:port` of ZooKeeper's doors, one of each node.
    pub zookeeper: Arc<[String]>,
}

impl Doors {
    /// The way in of a worker, with nothing open yet.
    pub(super) fn of_worker(&self, index: usize) -> Door {
        let http = match self.which {
            crate::runner::Door::Http => true,
            crate::runner::Door::Zookeeper => false,
            crate::runner::Door::Both => index.is_multiple_of(2),
        };
        if http { Door::Http } else { Door::ZooKeeper(ZooKeeper { addrs: self.zookeeper.clone(), zk: None }) }
    }
}

/// A worker's way in.
pub enum Door {
    /// The HTTP door: each request goes to any node.
    Http,
    /// The ZooKeeper door.
    ZooKeeper(ZooKeeper),
}

impl Door {
    /// Opens what a step needs.
    pub(super) async fn enter(&mut self, client: &mut Client) -> Result<(), String> {
        if let Door::ZooKeeper(door) = self {
            if door.zk.is_none() {
                door.zk = Some(door.connect(client).await?);
            }
            door.zk.iter().for_each(|zk| maybe_hop(zk, client));
        }
        Ok(())
    }

    /// Leaves what is of no more use after this answer.
    pub(super) fn after(&mut self, answer: &Answer) {
        if let Door::ZooKeeper(door) = self
            && is_over(answer)
        {
            door.zk = None;
        }
    }
}

/// A client with a session at one node, opened when it is first needed and again when its session
/// is over.
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

/// Lets a client leave for another node now and then.
fn maybe_hop(zk: &Zk, client: &mut Client) {
    if client.rng.u32(..HOP_EVERY) == 0 {
        zk.hop();
    }
}

/// Tells whether no more answers will come in the session: it has ended, or its node broke the
/// protocol.
pub(super) fn is_over(answer: &Answer) -> bool {
    answer.is_problem("session-expired")
        || answer.is_problem("auth-failed")
        || answer.error.as_deref().is_some_and(|error| error.starts_with(WRONG))
}

/// Judges what came over ZooKeeper's protocol: a result, the reply that told it, and the zxid of
/// what was done.
fn told<T>(effect: Effect, result: Result<(T, Reply, Option<u64>), Failure>) -> Told<T> {
    match result {
        Ok((told, reply, zxid)) => {
            let (outcome, body) = (Kind::Ok, bytes::Bytes::new());
            Ok((told, Answer { outcome, error: None, status: 0, body, zxid, node: reply.node }))
        }
        Err(failure) => Err(judge_failure(&failure, effect, 0)),
    }
}

/// The answer alone, whatever it says.
fn answer<T>(told: Told<T>) -> Answer {
    told.map_or_else(|answer| answer, |(_, answer)| answer)
}

/// The zxid of a write, as its facts have it: a header may tell a later one.
fn zxid(number: i64) -> Option<u64> {
    u64::try_from(number).ok()
}

fn create(path: &str, flags: i32) -> CreateRequest {
    let acl = vec![Acl { perms: 31, scheme: "world".into(), id: "anyone".into() }];
    CreateRequest { path: path.into(), data: Vec::new().into(), acl, flags }
}

/// Makes a persistent znode unless it is there.
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

/// A transaction that ends with a set of `marker`: its facts tell the zxid of the whole.
///
/// A multi's header tells a zxid that is not below its own, and the results of checks and deletes
/// tell none.
async fn marked(zk: &Zk, mut ops: Vec<MultiOp>, marker: &str) -> Result<((), Reply, Option<u64>), Failure> {
    ops.push(MultiOp::SetData(set(marker, "", -1)));
    let (reply, results) = transact(zk, ops).await?;
    match results.last() {
        Some(MultiResult::Set(stat)) => Ok(((), reply, zxid(stat.mzxid))),
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
    let reply = zk.ask(Request::Create(op::CREATE2, create(path, flags))).await?;
    let created = reply.read()?;
    Ok((reply, created))
}

/// Sets a znode's data; the zxid of that.
async fn set_data(zk: &Zk, path: &str, data: &str, version: i32) -> Result<((), Reply, Option<u64>), Failure> {
    let reply = zk.ask(Request::SetData(set(path, data, version))).await?;
    let stat: Stat = reply.read()?;
    Ok(((), reply, zxid(stat.mzxid)))
}
