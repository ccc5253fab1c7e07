//! Facts about a lock node beyond ZooKeeper's Stat.

use bincode::{Decode, Encode};

use crate::words::weight::{HOLD, text};
use crate::{Attempt, LockMode, RequestKey, ZPath};

/// Facts about a lock node beyond ZooKeeper's Stat. The label is the znode's data.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Contender {
    /// The mode in which the ticket wants the lock.
    pub mode: LockMode,
    /// The owner within the session; empty for none.
    pub owner: String,
    /// Time for which the node stays when its session expires while the node holds, in
    /// milliseconds.
    pub lock_delay_ms: u32,
    /// One hold for each acquire that was not given back, oldest first, and [`Contender::released`]
    /// holds that were.
    pub holds: Vec<Hold>,
    /// Number of holds in the list that were given back. They stay in the list because a release
    /// does not say which hold it ends, while a withdrawal does, and must find its hold after a
    /// release by another client of the owner. Always below the number of holds.
    pub released: u32,
    /// Time at which the node may be collected, in milliseconds since 1970. Set when the session
    /// expired while the node held; `None` before.
    pub lingers_until_ms: Option<u64>,
    /// True if the ticket was acquired without key and owner.
    pub keyless: bool,
    /// True if the ticket is part of a multi-lock.
    pub in_multi_lock: bool,
}

/// Most released holds in a list of holds, so that it stays short when an owner acquires and
/// releases often.
const RELEASED_MAX: u32 = 64;

impl Contender {
    /// Number of holds that the owner has, or will have when the waiting ticket holds.
    pub fn count(&self) -> u32 {
        u32::try_from(self.holds.len()).unwrap_or(u32::MAX).saturating_sub(self.released)
    }

    /// Gives one hold back.
    pub(crate) fn release(&mut self) {
        self.released += 1;
        if self.released > RELEASED_MAX {
            // The oldest hold goes, because its acquire was answered first.
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
    /// The client may have made them in another order: a retry may be applied before the try that
    /// the client gave up. So the hold stays as long as one of its tries does.
    pub attempts: Vec<Attempt>,
}

/// Tries of one acquire that are kept. The oldest is forgotten first.
const ATTEMPTS_MAX: usize = 16;

impl Hold {
    /// Adds a try of this acquire.
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

    /// Estimated memory of the contender of the lock node at `path`, in bytes.
    pub(crate) fn weight(&self, path: &ZPath) -> u64 {
        // A ticket without key and owner is in an index of such tickets, too.
        let indexed = if self.keyless { 2 * text(path.as_str()) } else { 0 };
        2 * text(&self.owner) + 2 * text(path.as_str()) + self.holds_weight() + indexed
    }
}
