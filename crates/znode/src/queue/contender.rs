//! The facts that a lock node knows beyond ZooKeeper's facts.

use bincode::{Decode, Encode};

use crate::words::weight::{HOLD, text};
use crate::{Attempt, LockMode, RequestKey, ZPath};

/// The facts that a lock node knows beyond ZooKeeper's facts. Its label is the znode's data.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Contender {
    /// The mode in which it wants the lock.
    pub mode: LockMode,
    /// The owner within the session; empty for none.
    pub owner: String,
    /// Time for which the node outlives its session if that expires while it holds.
    pub lock_delay_ms: u32,
    /// One for each acquire that was not given back, oldest first, and [`Contender::released`]
    /// more.
    pub holds: Vec<Hold>,
    /// Number of the holds that were given back. A release does not say which; a withdrawal does,
    /// and must find its own also after a release by another of the same owner. Always fewer than
    /// the holds.
    pub released: u32,
    /// Time at which the node may be collected; set when the session expired while it held.
    pub lingers_until_ms: Option<u64>,
    /// Set when it was acquired without key and owner.
    pub keyless: bool,
    /// Set when it was acquired together with others, as one multi-lock.
    pub in_multi_lock: bool,
}

/// Released holds that are kept in a list of holds, so that it stays short when an owner comes and
/// goes.
const RELEASED_MAX: u32 = 64;

impl Contender {
    /// Number of times that the owner holds it, or waits with it.
    pub fn count(&self) -> u32 {
        u32::try_from(self.holds.len()).unwrap_or(u32::MAX).saturating_sub(self.released)
    }

    /// Gives one hold back.
    pub(crate) fn release(&mut self) {
        self.released += 1;
        if self.released > RELEASED_MAX {
            // The oldest: it is the one whose acquire was answered first.
            self.holds.remove(0);
            self.released -= 1;
        }
    }
}

/// One acquire that shares a ticket.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Hold {
    /// The idempotency key of the acquire.
    pub key: RequestKey,
    /// The tries that were not withdrawn, in the order of the log; never empty.
    ///
    /// That is not the order in which the client made them: a try that it gave up may overtake the
    /// retry that it was told about. So the hold stays as long as one of them does.
    pub attempts: Vec<Attempt>,
}

/// Tries of one acquire that are kept; the oldest is forgotten first.
const ATTEMPTS_MAX: usize = 16;

impl Hold {
    /// Notes a try of the same acquire.
    pub(crate) fn retry(&mut self, attempt: Attempt) {
        if self.attempts.contains(&attempt) {
            return;
        }
        if self.attempts.len() >= ATTEMPTS_MAX {
            self.attempts.remove(0);
        }
        self.attempts.push(attempt);
    }
}

impl Contender {
    /// Weight of the holds.
    pub(crate) fn holds_weight(&self) -> u64 {
        self.holds.len() as u64 * HOLD
    }

    /// Weight of all of it, in the lock node at that path.
    pub(crate) fn weight(&self, path: &ZPath) -> u64 {
        // Among those without key and owner it has a place, too.
        let indexed = if self.keyless { 2 * text(path.as_str()) } else { 0 };
        2 * text(&self.owner) + 2 * text(path.as_str()) + self.holds_weight() + indexed
    }
}
