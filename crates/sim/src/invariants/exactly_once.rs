//! A request with an idempotency key is applied once, for any number of tries.
//!
//! Source: the promise of `Idempotency-Key` in docs/http-api.md; Ongaro's dissertation, section
//! 6.3. There is one exception: after the ticket of an acquire was withdrawn, the acquire's key can
//! be applied again. A try that was under way during the withdrawal finds the key unused and queues
//! a new ticket, until its server withdraws that ticket, too. A repeated acquire whose ticket
//! exists changes nothing, and reports the state of the ticket.

use std::collections::BTreeMap;

use znode::{Attempt, Op, Reply, RequestKey, SessionId, Zxid};

use super::Invariant;
use crate::history::History;
use crate::observation::{Commit, Observation};

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
    fn name(&self) -> &'static str {
        "exactly once"
    }

    fn committed(&mut self, commit: &Commit<'_>, _: &History) -> Result<(), String> {
        let (Some(txn), Some(applied)) = (commit.txn, commit.applied) else { return Ok(()) };
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
        if applied.zxid != commit.zxid || !changed || matches!(txn.request.op, Op::Withdraw { .. }) {
            return Ok(());
        }
        let attempt = Some(txn.request.attempt).filter(|_| matches!(txn.request.op, Op::Acquire(_)));
        let done = self.done.entry((credential.session, key)).or_insert(Done {
            at: commit.zxid,
            attempts: Vec::new(),
            withdrawn: true,
        });
        // It is wrong to apply one attempt twice, or another attempt while the ticket still queues.
        if done.at != commit.zxid
            && !(done.withdrawn && attempt.is_some_and(|attempt| !done.attempts.contains(&attempt)))
        {
            return Err(format!("request {} was done at {} and again at {}", key, done.at, commit.zxid));
        }
        *done = Done { at: commit.zxid, withdrawn: false, attempts: std::mem::take(&mut done.attempts) };
        done.attempts.extend(attempt);
        self.by_key.insert(key, commit.zxid);
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
