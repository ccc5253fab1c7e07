//! After all faults are repaired, a client that waits for a lock is soon told that it holds the
//! lock.
//!
//! Source: a waiter whose turn has come is woken, the promise of ZooKeeper's lock recipe
//! (zookeeperRecipes, "Locks"). It does not matter how the client is woken: the committed log has
//! the time of the grant, and the client has the time at which it was told.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use znode::lock::{self, LockStatus};
use znode::{State, ZPath};

use super::{Calm, Invariant};
use crate::history::History;
use crate::observation::{Commit, Observation};

/// Time within which a client is told after the commit of the entry that made it the holder. It is
/// shorter than one wait at a node (700 ms), so that a wait that sleeps through the grant is found.
/// It is longer than the possible delays: a heartbeat tells the client's node of the commit (at
/// most 75 ms), two packets may be late by 100 ms each, and a client may do a read before its next
/// wait.
const TOLD_MS: u64 = 600;

struct Waiter {
    client: u64,
    since_ms: u64,
    /// The commit time of the entry that made the client the holder.
    held_ms: Option<u64>,
}

pub(super) struct GrantsAreTold {
    calm: Rc<RefCell<Calm>>,
    waiters: BTreeMap<ZPath, Waiter>,
}

impl GrantsAreTold {
    pub(super) fn new(calm: Rc<RefCell<Calm>>) -> GrantsAreTold {
        GrantsAreTold { calm, waiters: BTreeMap::new() }
    }

    /// Checks that the client of a wait was told in time. Returns whether the wait lay wholly in
    /// the calm, the time after all faults are repaired.
    fn judge(&self, ticket: &ZPath, waiter: &Waiter, now_ms: u64) -> Result<bool, String> {
        let (Some(held_ms), Some(calm_ms)) = (waiter.held_ms, self.calm.borrow().from_ms) else { return Ok(false) };
        if now_ms > held_ms.max(waiter.since_ms).max(calm_ms) + TOLD_MS {
            return Err(format!(
                "client {} waits for {ticket} since {} ms, which holds since {held_ms} ms, and was not told by {now_ms} ms",
                waiter.client, waiter.since_ms
            ));
        }
        Ok(calm_ms <= waiter.since_ms)
    }
}

fn holds(state: &State, ticket: &ZPath) -> bool {
    matches!(lock::status(state, ticket), Ok(LockStatus::Held { .. }))
}

impl Invariant for GrantsAreTold {
    fn name(&self) -> &'static str {
        "grants are told"
    }

    fn committed(&mut self, commit: &Commit<'_>, _: &History) -> Result<(), String> {
        for (ticket, waiter) in &mut self.waiters {
            // A ticket that ended with its session holds nothing, so its client need not be told.
            let held_ms = waiter.held_ms.unwrap_or(commit.now_ms);
            waiter.held_ms = holds(commit.after, ticket).then_some(held_ms);
        }
        Ok(())
    }

    fn client(&mut self, seen: &Observation, history: &History, now_ms: u64) -> Result<(), String> {
        match seen {
            Observation::Waits { client, ticket } => {
                let held = history.state(history.last()).is_some_and(|state| holds(state, ticket));
                let waiter = Waiter { client: *client, since_ms: now_ms, held_ms: held.then_some(now_ms) };
                self.waiters.insert(ticket.clone(), waiter);
            }
            Observation::Granted { ticket, .. } => {
                if let Some(waiter) = self.waiters.remove(ticket) {
                    let in_calm = self.judge(ticket, &waiter, now_ms)?;
                    self.calm.borrow_mut().grants += u64::from(in_calm);
                }
            }
            Observation::GaveUp { ticket } => {
                if let Some(waiter) = self.waiters.remove(ticket) {
                    self.judge(ticket, &waiter, now_ms)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, _: &mut History) -> Result<(), String> {
        match self.waiters.first_key_value() {
            Some((ticket, waiter)) => Err(format!("client {} never came to an end with {ticket}", waiter.client)),
            None => Ok(()),
        }
    }
}
