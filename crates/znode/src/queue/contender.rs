//! The record of a lock node that an acquire made: mode, owner and holds.

use bincode::{Decode, Encode};

use crate::words::weight::{HOLD, text};
use crate::{Attempt, LockMode, RequestKey, ZPath};

/// The record of a lock node that an acquire made. ZooKeeper's Stat does not show this record. The
/// acquire's label is the znode's data.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Contender {
    /// The mode in which the ticket wants the lock.
    pub mode: LockMode,
    /// The owner (a user of the lock within the session); empty for none.
    pub owner: String,
    /// Lock-delay: time for which the lock node stays if its session expires while the ticket
    /// holds, in milliseconds.
    pub lock_delay_ms: u32,
    /// The holds, one for each acquire that shares the ticket, oldest first. The list also contains
    /// holds that were given back: their number is [`Contender::released`].
    pub holds: Vec<Hold>,
    /// Number of holds in the list that were given back. They stay in the list, because a release
    /// does not say which of the holds it ends, and a later `Withdraw` must still find the hold of
    /// the attempt that it names. Always below the number of holds.
    pub released: u32,
    /// Time at which the lock node may be deleted, in milliseconds since 1970. Set when the session
    /// expires while the ticket holds; `None` before.
    pub lingers_until_ms: Option<u64>,
    /// True if the ticket was acquired without idempotency key and owner.
    pub keyless: bool,
    /// True if the ticket is part of a multi-lock.
    pub in_multi_lock: bool,
}

/// Maximum number of released holds in a list of holds. The limit keeps the list short when an
/// owner acquires and releases often.
const RELEASED_MAX: u32 = 64;

impl Contender {
    /// Number of holds that the owner has, or will have when its waiting ticket is granted the
    /// lock.
    pub fn count(&self) -> u32 {
        u32::try_from(self.holds.len()).unwrap_or(u32::MAX).saturating_sub(self.released)
    }

    /// Gives one hold back: ends one of the acquires that share the ticket.
    pub(crate) fn release(&mut self) {
        self.released += 1;
        if self.released > RELEASED_MAX {
            // The oldest hold after the first one is removed, because its acquire was answered
            // earlier than the others. A retry of the acquire that made the ticket finds the first.
            self.holds.remove(1);
            self.released -= 1;
        }
    }
}

/// One acquire of a ticket. Several acquires of an owner (a user of the lock within the session)
/// share one ticket.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Hold {
    /// The idempotency key of the acquire.
    pub key: RequestKey,
    /// The attempts (request and retries) of the acquire that were not withdrawn, in the order of
    /// the log; never empty.
    ///
    /// The client may have made the attempts in another order: a retry may be applied before the
    /// attempt that the client gave up. So the hold stays as long as one of its attempts does.
    pub attempts: Vec<Attempt>,
}

/// Maximum number of attempts that are kept of one acquire. The oldest is forgotten first.
const ATTEMPTS_MAX: usize = 16;

impl Hold {
    /// Adds an attempt of this acquire.
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
    /// Estimated memory of the holds, in bytes.
    pub(crate) fn holds_weight(&self) -> u64 {
        self.holds.len() as u64 * HOLD
    }

    /// Estimated memory of the record and its index entries, in bytes.
    pub(crate) fn weight(&self, path: &ZPath) -> u64 {
        // The index of tickets without key and owner has the path twice.
        let indexed = if self.keyless { 2 * text(path.as_str()) } else { 0 };
        2 * text(&self.owner) + 2 * text(path.as_str()) + self.holds_weight() + indexed
    }
}
