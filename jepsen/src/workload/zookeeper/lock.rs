//! `lock`: the recipe of ZooKeeper's documentation with Curator's names. A client makes an ephemeral sequential child of the
//! lock, and holds it when no other child has a lower number; until then it watches the one before it.

use std::time::Duration;

use jute::{Names, PathStat, PathWatch, Request, create_flags, error, event};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{SESSION_TIMEOUT, any_version, at, create2, end, ensure, is_over, yes};
use crate::answer::{Answer, Effect};
use crate::client::Client;
use crate::workload::{ROOT, Work, epoch, make_root, waits};
use testkit::zookeeper::{Failure, Reply, Zk};

/// How long an acquire waits in the queue.
const WAIT: Duration = Duration::from_millis(400);
/// How long a lock is in use.
const EPOCH: Duration = Duration::from_secs(10);
/// What Curator puts between a lock node's id and its number.
const INFIX: &str = "-lock-";

/// Locks that many workers want.
pub struct Locks {
    doors: Vec<String>,
    /// Locks in use at the same time.
    count: u64,
}

/// A lock that a worker holds.
struct Held {
    lock: String,
    node: String,
}

/// A worker with its session.
#[derive(Default)]
pub struct Holder {
    zk: Option<Zk>,
    held: Option<Held>,
    /// Sessions in which something of unknown outcome was done: closing them ends the doubt.
    to_close: Vec<Zk>,
}

impl Locks {
    /// Locks for so many workers: few enough that they meet.
    pub fn new(doors: Vec<String>, concurrency: usize) -> Locks {
        Locks { doors, count: (concurrency as u64 / 4).max(1) }
    }

    async fn acquire(&self, client: &mut Client, zk: &mut Zk) -> (Answer, Option<Held>) {
        let lock = format!("{ROOT}/lock/{}-{}", epoch(client, EPOCH), client.rng.u64(..self.count));
        let value = json!({"lock": lock, "owner": zk.session(), "mode": "exclusive"});
        client.invoke("acquire", value.clone());
        let created = match enqueue(zk, &lock, client.rng.u64(..)).await {
            Ok((_, created)) => created,
            Err(failure) => return (end(client, "acquire", value, Effect::Write, Err(failure)), None),
        };
        let failure = match wait(zk, &lock, &created, waits::next(WAIT, &mut client.rng)).await {
            Ok(reply) => {
                let mut done = value;
                done["token"] = created.stat.czxid.into();
                let answer = yes(&reply, None);
                client.end_as(&answer, "acquire", done);
                return (answer, Some(Held { lock, node: created.path }));
            }
            Err(failure) => failure,
        };
        // Whatever kept it from the lock, its node must not stay in the queue.
        let failure = match give_up(zk, &created.path, failure).await {
            Ok(failure) => return (end(client, "acquire", value, Effect::Read, Err(failure)), None),
            Err(failure) => failure,
        };
        (end(client, "acquire", value, Effect::Write, Err(failure)), None)
    }

    async fn release(&self, client: &mut Client, zk: &Zk, held: Held) -> (Answer, Option<Held>) {
        let value = json!({"lock": held.lock, "owner": zk.session(), "mode": "exclusive"});
        client.invoke("release", value.clone());
        let result = zk.ask(Request::Delete(any_version(&held.node))).await.map_err(vanished);
        let answer = end(client, "release", value.clone(), Effect::Write, result.map(|reply| (reply, value, None)));
        // What was not even sent is tried again in the next step.
        let kept = answer.outcome == crate::history::Kind::Fail && !is_over(&answer);
        (answer, kept.then_some(held))
    }
}

/// A session is looked at before the znode: when that is gone, and nobody else deletes it, its session should be gone too.
fn vanished(failure: Failure) -> Failure {
    match failure {
        Failure::Refused(error::NO_NODE) => Failure::Wrong("a lock node is gone while its session lives".into()),
        other => other,
    }
}

/// Joins the queue. The lock itself is made when it is missing.
async fn enqueue(zk: &Zk, lock: &str, id: u64) -> Result<(Reply, PathStat), Failure> {
    let node = format!("{lock}/_c_{id:08x}-{:04x}-4{:03x}-8000-{id:012x}{INFIX}", id >> 48, id >> 52);
    match create2(zk, &node, create_flags::EPHEMERAL_SEQUENTIAL).await {
        Err(Failure::Refused(error::NO_NODE)) => {
            // This one has no effect worth knowing.
            ensure(zk, lock)
                .await
                .map_err(|failure| Failure::NotSent(format!("the lock was not made: {failure:?}")))?;
            create2(zk, &node, create_flags::EPHEMERAL_SEQUENTIAL).await
        }
        other => other,
    }
}

/// Waits until no child of the lock is before this one: the answer that showed it.
async fn wait(zk: &mut Zk, lock: &str, created: &PathStat, time: Duration) -> Result<Reply, Failure> {
    let deadline = Instant::now() + time;
    let own = created.path.rsplit('/').next().unwrap_or_default();
    loop {
        let reply = zk.ask(Request::GetChildren(at(lock))).await?;
        let mut names: Vec<String> = reply.read::<Names>()?.names;
        names.retain(|name| name.contains(INFIX));
        names.sort_by_key(|name| name[name.len().saturating_sub(10)..].to_owned());
        let Some(place) = names.iter().position(|name| name == own) else {
            return Err(still_there(zk, &created.path).await);
        };
        let Some(before) = place.checked_sub(1).map(|before| format!("{lock}/{}", names[before])) else {
            return Ok(reply);
        };
        zk.take_events();
        match zk.ask(Request::GetData(PathWatch { path: before.clone(), watch: true })).await {
            Ok(_) => {}
            Err(Failure::Refused(error::NO_NODE)) => continue,
            Err(failure) => return Err(failure),
        }
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match zk.event(left).await {
                Some(told) if told.path == before && told.kind == event::NODE_DELETED => break,
                Some(_) => {}
                None => return Err(Failure::NotSent("somebody else has it".into())),
            }
        }
    }
}

/// A lock node that its own client does not see: a write says why.
async fn still_there(zk: &Zk, node: &str) -> Failure {
    match zk.ask(Request::Delete(any_version(node))).await {
        Ok(_) => Failure::Wrong("a client does not see its own lock node".into()),
        Err(failure) => vanished(failure),
    }
}

/// Takes the own node out of the queue: `Ok` with the reason for giving up when that is certain, `Err` when it is not.
async fn give_up(zk: &Zk, node: &str, why: Failure) -> Result<Failure, Failure> {
    if matches!(why, Failure::Expired) {
        return Ok(why);
    }
    if matches!(why, Failure::Wrong(_)) {
        return Err(why);
    }
    match zk.ask(Request::Delete(any_version(node))).await.map_err(vanished) {
        Ok(_) => Ok(why),
        Err(Failure::Expired) => Ok(Failure::Expired),
        // Its node is still there, as far as anybody knows.
        Err(Failure::NotSent(why)) => Err(Failure::Broken(why)),
        Err(failure) => Err(failure),
    }
}

/// Closes a session of which something is not known. True when that is over.
async fn close(client: &mut Client, zk: &Zk) -> bool {
    let value: Value = json!({"owner": zk.session()});
    client.invoke("close", value.clone());
    let result = zk.ask(Request::CloseSession).await;
    let answer = end(client, "close", value.clone(), Effect::Write, result.map(|reply| (reply, value, None)));
    client.take_crashed();
    answer.is_ok() || is_over(&answer)
}

impl Work for Locks {
    type Worker = Holder;

    async fn prepare(&self, client: &mut Client) -> Result<(), String> {
        make_root(client, "lock").await.map(|_| ())
    }

    fn worker(&self, _index: usize) -> Holder {
        Holder::default()
    }

    async fn step(&self, worker: &mut Holder, client: &mut Client) -> Result<(), String> {
        if let Some(zk) = worker.to_close.pop() {
            if !close(client, &zk).await {
                worker.to_close.push(zk);
            }
            return Ok(());
        }
        let mut zk = match worker.zk.take() {
            Some(zk) => zk,
            None => Zk::open(&self.doors, client.rng.u64(..), SESSION_TIMEOUT).await?,
        };
        if client.rng.u32(..super::HOP_EVERY) == 0 {
            zk.hop();
        }
        let (answer, held) = match worker.held.take() {
            Some(held) => self.release(client, &zk, held).await,
            None => self.acquire(client, &mut zk).await,
        };
        if client.take_crashed() {
            worker.to_close.push(zk);
        } else if !is_over(&answer) {
            (worker.zk, worker.held) = (Some(zk), held);
        }
        Ok(())
    }
}
