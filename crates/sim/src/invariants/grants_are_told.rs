//! When everything is mended, a client that waits for a lock is told soon that it holds it.
//!
//! Source: a waiter whose turn has come is woken, the promise of ZooKeeper's lock recipe
//! (zookeeperRecipes, "Locks"). By what it is woken does not matter here: the committed log says
//! when the lock node holds, and the client when it heard of it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use znode::lock::{self, LockStatus};
use znode::{State, ZPath};

use super::{Calm, Invariant};
use crate::history::History;
use crate::observation::{Commit, Observation};

/// A client is told this soon after the entry that made it the holder was committed. That is less
/// than one wait at a node takes (700 ms), so that a wait which sleeps through the grant is found,
/// and more than what may lie between: a heartbeat tells the client's node of the commit (75 ms at
/// most), two packets may be late by 100 ms each, and a client between two waits reads first.
const TOLD_MS: u64 = 600;

struct Waiter {
    client: u64,
    since_ms: u64,
    /// When the entry that made it the holder was committed.
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

    /// Judges a wait that has come to its end, or goes on. In time: whether it was one in which
    /// nothing went wrong.
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
            // One that has gone again, with its session, is not told.
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
