//! After the expiry of a holder with a lock-delay, no other contender gets the lock before the
//! delay is over. The delay is measured by the replicated time, which log entries carry.
//!
//! Source: Consul's lock-delay (sessions, "lock-delay"), and docs/recipes.md.

use std::collections::BTreeMap;

use znode::lock::{self, LockStatus};
use znode::{Op, SessionId, ZPath};

use super::Invariant;
use crate::history::History;
use crate::observation::{Commit, Observation};

#[derive(Default)]
pub(super) struct DelaysLast {
    asked: BTreeMap<ZPath, u32>,
    /// Locks whose holder's session has expired, each with that holder's ticket and the replicated
    /// time in milliseconds until which no other ticket may get the lock.
    closed: BTreeMap<ZPath, (ZPath, u64)>,
}

impl DelaysLast {
    fn close(&mut self, commit: &Commit<'_>, sessions: &[SessionId]) {
        for session in sessions {
            let Some(session) = commit.before.session(*session) else { continue };
            for ticket in session.ephemerals() {
                let (Some(delay_ms), Some(lock)) = (self.asked.get(ticket), ticket.parent()) else { continue };
                let held = matches!(lock::status(commit.before, ticket), Ok(LockStatus::Held { .. }));
                if held && commit.after.session(session.id).is_none() {
                    let until_ms = commit.after.time_ms() + u64::from(*delay_ms);
                    self.closed.insert(lock, (ticket.clone(), until_ms));
                }
            }
        }
    }
}

impl Invariant for DelaysLast {
    fn name(&self) -> &'static str {
        "delays last"
    }

    fn client(&mut self, seen: &Observation, _: &History, _: u64) -> Result<(), String> {
        if let Observation::AskedForDelay { ticket, delay_ms } = seen {
            self.asked.insert(ticket.clone(), *delay_ms);
        }
        Ok(())
    }

    fn committed(&mut self, commit: &Commit<'_>, _: &History) -> Result<(), String> {
        let time_ms = commit.after.time_ms();
        self.closed.retain(|_, (_, until_ms)| time_ms < *until_ms);
        if let Some(Op::ExpireSessions { sessions, .. }) = commit.txn.map(|txn| &txn.request.op) {
            self.close(commit, sessions);
        }
        for (lock, (dead, until_ms)) in &self.closed {
            for name in commit.after.children(lock).into_iter().flatten() {
                let Ok(ticket) = lock.child(name) else { continue };
                let newly = lock::status(commit.before, &ticket);
                let newly = !matches!(newly, Ok(LockStatus::Held { .. }));
                if ticket != *dead
                    && newly
                    && matches!(lock::status(commit.after, &ticket), Ok(LockStatus::Held { .. }))
                {
                    return Err(format!("{ticket} holds {} ms before the delay of {dead} is over", until_ms - time_ms));
                }
            }
        }
        Ok(())
    }
}
