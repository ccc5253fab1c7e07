//! Invariants of what clients are told: answers to writes and reads, and events.

use std::collections::BTreeMap;

use replica::WatchKey;
use znode::{Attempt, Event, Op, Reply, RequestKey, SessionId, Zxid};

use super::Invariant;
use crate::history::{Commit, History};
use crate::observation::Observation;

/// An acknowledged write survives: the committed log contains the write, with the outcome that its
/// client was told.
///
/// Source: durability, ZooKeeper's "Reliability" (zookeeperOver, "Guarantees"): once an update has
/// been applied, it persists. A node that acknowledges a write before the entry is on its disk
/// violates the invariant at the next loss of power.
pub(super) struct AcknowledgedSurvive;

impl Invariant for AcknowledgedSurvive {
    fn client(&mut self, seen: &Observation, history: &History, _: u64) -> Result<(), String> {
        let Observation::Acknowledged { applied, .. } = seen else { return Ok(()) };
        let Some(committed) = history.entry(applied.zxid).and_then(|entry| entry.applied.as_ref()) else {
            return Err(format!("a write was acknowledged at {}, and there is another entry", applied.zxid));
        };
        // A retry is answered with the zxid and the reply of the first try. A repeated acquire is
        // answered with those of its own entry.
        if committed.zxid == applied.zxid && committed.reply != applied.reply {
            return Err(format!(
                "at {} a client was told {:?}, not {:?}",
                applied.zxid, applied.reply, committed.reply
            ));
        }
        Ok(())
    }
}

/// A request with an idempotency key is applied once, for any number of tries.
///
/// Source: the promise of `Idempotency-Key` in docs/http-api.md; Ongaro's dissertation, section
/// 6.3. There is one exception: after the ticket of an acquire was withdrawn, the acquire's key can
/// be applied again. A try that was under way during the withdrawal finds the key unused and queues
/// a new ticket, until its server withdraws that ticket, too. A repeated acquire whose ticket
/// exists changes nothing, and reports the state of the ticket.
#[derive(Default)]
pub(super) struct ExactlyOnce {
    /// The log entry that applied a request, by session and idempotency key.
    done: BTreeMap<(SessionId, RequestKey), Done>,
    /// Zxid of the log entry that applied a request, by idempotency key alone: in this workload no
    /// two sessions share a key.
    by_key: BTreeMap<RequestKey, Zxid>,
}

struct Done {
    at: Zxid,
    /// Attempts of an acquire that have queued a ticket; empty for a request that is no acquire.
    attempts: Vec<Attempt>,
    /// Whether another attempt of the acquire may queue a ticket, because a log entry has removed
    /// the ticket of the previous attempt from the queue.
    withdrawn: bool,
}

impl Invariant for ExactlyOnce {
    fn committed(&mut self, commit: &Commit<'_>, _: &History) -> Result<(), String> {
        let (Some(txn), Some(applied)) = (&commit.entry.txn, &commit.entry.applied) else { return Ok(()) };
        if let (Op::Withdraw { ticket, .. }, Ok(Reply::Withdrawn)) = (&txn.request.op, &applied.reply) {
            // The name of a ticket contains its key.
            let named = |key: &RequestKey| {
                let dashed = key.to_string();
                ticket.as_str().contains(&dashed) || ticket.as_str().contains(&dashed.replace('-', ""))
            };
            let withdrawn = self.done.iter_mut().filter(|((_, key), _)| named(key));
            withdrawn.for_each(|(_, done)| done.withdrawn = true);
        }
        let (Some(credential), Some(key)) = (&txn.request.credential, txn.request.key) else {
            return Ok(());
        };
        // A repeated acquire has no events, as its ticket already exists.
        let changed = !applied.events.is_empty() || matches!(applied.reply, Ok(Reply::Released { .. }));
        if applied.zxid != commit.entry.zxid || !changed || matches!(txn.request.op, Op::Withdraw { .. }) {
            return Ok(());
        }
        let attempt = Some(txn.request.attempt).filter(|_| matches!(txn.request.op, Op::Acquire(_)));
        let done = self.done.entry((credential.session, key)).or_insert(Done {
            at: commit.entry.zxid,
            attempts: Vec::new(),
            withdrawn: true,
        });
        // It is wrong to apply one attempt twice, or another attempt while the ticket still queues.
        if done.at != commit.entry.zxid
            && !(done.withdrawn && attempt.is_some_and(|attempt| !done.attempts.contains(&attempt)))
        {
            return Err(format!("request {} was done at {} and again at {}", key, done.at, commit.entry.zxid));
        }
        *done = Done { at: commit.entry.zxid, withdrawn: false, attempts: std::mem::take(&mut done.attempts) };
        done.attempts.extend(attempt);
        self.by_key.insert(key, commit.entry.zxid);
        Ok(())
    }

    fn client(&mut self, seen: &Observation, _: &History, _: u64) -> Result<(), String> {
        let Observation::Acknowledged { key: Some(key), applied, client, .. } = seen else { return Ok(()) };
        if !matches!(applied.reply, Ok(Reply::Created { .. } | Reply::Set { .. } | Reply::Multi(_))) {
            return Ok(());
        }
        match self.by_key.get(key) {
            Some(done) if *done == applied.zxid => Ok(()),
            done => {
                Err(format!("client {client} was told that {key} was done at {}, and it was {done:?}", applied.zxid))
            }
        }
    }
}

/// A linearizable read shows everything that any client was told before the read began. A local
/// read shows everything that its own client has seen.
///
/// Source: linearizability (Herlihy and Wing 1990), by Raft's read index (Ongaro's dissertation,
/// section 6.4); and ZooKeeper's single system image for local reads with a minimum zxid.
pub(super) struct ReadsAreFresh;

impl Invariant for ReadsAreFresh {
    fn client(&mut self, seen: &Observation, _: &History, _: u64) -> Result<(), String> {
        match seen {
            Observation::Read { client, linearizable, floor, zxid } if zxid < floor => {
                let kind = if *linearizable { "linearizable" } else { "local" };
                Err(format!("client {client} got state {zxid} by a {kind} read that must not be older than {floor}"))
            }
            _ => Ok(()),
        }
    }
}

/// Watchers get every event once, in order, over all nodes and restarts. No wait misses the change
/// that it waits for.
///
/// Source: ZooKeeper (zookeeperProgrammers, "ZooKeeper Watches"), and `Replica::events`, which
/// promises more: no event between `since` and `upto` is missing.
pub(super) struct WatchesFireOnce;

impl Invariant for WatchesFireOnce {
    fn client(&mut self, seen: &Observation, history: &History, _: u64) -> Result<(), String> {
        match seen {
            Observation::Missed { client, what, zxid } => {
                Err(format!("client {client} waited in vain for {what}, which was so at {zxid}"))
            }
            Observation::Batch { client, key, since, batch } => {
                if batch.upto < *since {
                    return Err(format!("client {client} asked for events since {since} and got up to {}", batch.upto));
                }
                let expected = expected(key, *since, batch.upto, history);
                if batch.events == expected {
                    return Ok(());
                }
                let (got, wanted) = (batch.events.len(), expected.len());
                Err(format!(
                    "client {client} got {got} events of {key:?} in ({since}, {}], and there were {wanted}",
                    batch.upto
                ))
            }
            _ => Ok(()),
        }
    }
}

fn expected(key: &WatchKey, since: Zxid, upto: Zxid, history: &History) -> Vec<Event> {
    let events = history.between(since, upto).flat_map(|entry| &entry.applied).flat_map(|applied| &applied.events);
    events.filter(|event| concerns(key, event)).cloned().collect()
}

fn concerns(key: &WatchKey, event: &Event) -> bool {
    match key {
        WatchKey::Node(path) | WatchKey::Children(path) => event.path == *path,
        WatchKey::Subtree(path) => {
            let below = event.path.as_str().strip_prefix(path.as_str());
            path.is_root() || below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        }
    }
}
