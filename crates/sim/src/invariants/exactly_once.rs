//! A request with an idempotency key is done once, however often it was tried.
//!
//! Source: the promise of `Idempotency-Key` in docs/http-api.md; Ongaro's dissertation, section 6.3. A key that was
//! withdrawn may be used afresh, and an acquire that is repeated only tells where its ticket stands.

use std::collections::BTreeMap;

use znode::{Op, Reply, RequestKey, SessionId, Zxid};

use super::Invariant;
use crate::history::History;
use crate::observation::{Commit, Observation};

#[derive(Default)]
pub(super) struct ExactlyOnce {
    /// Where each key changed something.
    done: BTreeMap<(SessionId, RequestKey), Zxid>,
    /// The same by key alone: in this workload no two sessions share one.
    by_key: BTreeMap<RequestKey, Zxid>,
}

impl Invariant for ExactlyOnce {
    fn name(&self) -> &'static str {
        "exactly once"
    }

    fn committed(&mut self, commit: &Commit<'_>, _: &History) -> Result<(), String> {
        let (Some(txn), Some(applied)) = (commit.txn, commit.applied) else { return Ok(()) };
        if let (Op::Withdraw { ticket, .. }, Ok(Reply::Withdrawn)) = (&txn.request.op, &applied.reply) {
            // The key stands in the ticket's name. A try of it that is still on its way may find it unused now: whoever
            // made that try, a door, withdraws it in its turn.
            self.done.retain(|(_, key), _| !ticket.as_str().contains(&format!("/_c_{key}-")));
        }
        let (Some(credential), Some(idempotency)) = (&txn.request.credential, &txn.request.idempotency) else {
            return Ok(());
        };
        // A repeated acquire has no events: its ticket is there already.
        let changed = !applied.events.is_empty() || matches!(applied.reply, Ok(Reply::Released { .. }));
        if applied.zxid != commit.zxid || !changed || matches!(txn.request.op, Op::Withdraw { .. }) {
            return Ok(());
        }
        let key = (credential.session, idempotency.key);
        self.by_key.insert(idempotency.key, commit.zxid);
        match self.done.insert(key, commit.zxid) {
            None => Ok(()),
            Some(before) => {
                Err(format!("request {} was done at {before} and again at {}", idempotency.key, commit.zxid))
            }
        }
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
