//! Weights: the estimated memory of the state's parts, whose sum `state_bytes_max` bounds.
//!
//! Everything that a client can make many of, or make long, has a weight: a fixed one for the thing
//! and its index entries, and the length of its texts. The sum is computed from counters and the
//! lengths of maps, so it costs next to nothing. It is the same on every replica and after a
//! snapshot. The fixed weights were measured: `tests/it/memory.rs` fills a state with one kind of
//! thing after the other, and compares the sum with the memory of the process.
//!
//! At the bound, a request that would make the state grow is refused (`QuotaExceeded`). A request
//! that frees memory is never refused for its weight. To make room, the state first forgets
//! histories of locks, then answers kept for idempotency keys, but not the keys. An eighth above
//! the bound is reserved for the answers to requests that are refused or free memory. When that
//! eighth is full, too, a request with a new key that frees no memory is refused, and its key is
//! not remembered.

use crate::ZPath;

/// Estimated bytes of a znode, ephemeral or not, with its entries in the tree and in its parent's
/// list of children.
pub(crate) const ZNODE: u64 = 560;
/// Estimated bytes of a znode's list of children, if it has children.
pub(crate) const FAMILY: u64 = 320;
/// Estimated bytes of a queue, added to the weight of its directory. A queue's indexes begin with
/// room for several tickets.
pub(crate) const QUEUE: u64 = 2_600;
/// Estimated bytes of a ticket, added to the weight of its znode: its entries in the queue's
/// indexes.
pub(crate) const CONTENDER: u64 = 420;
/// Estimated bytes of a hold (one acquire that shares a ticket), with the largest number of
/// attempts that a hold keeps.
pub(crate) const HOLD: u64 = 200;
/// Estimated bytes of a multi-lock, without its lock nodes.
pub(crate) const MULTI: u64 = 160;
/// Estimated bytes of a quota, with its path.
pub(crate) const QUOTA: u64 = 1_300;
/// Estimated bytes of the entry of a child of the root in the index of subtrees' weights.
pub(crate) const SUBTREE: u64 = 160;
/// Estimated bytes of the entry of a znode that may be deleted later, in the index by time.
pub(crate) const TIMED: u64 = 80;
/// Estimated bytes of a session, with the first entries of its maps, and the counter of its
/// address.
pub(crate) const SESSION: u64 = 1_540;
/// Estimated bytes of the description of a client, without its texts.
pub(crate) const CLIENT: u64 = 160;
/// Estimated bytes of a used idempotency key, without its answer.
pub(crate) const KEY: u64 = 400;
/// Estimated bytes of a revocation (a request to release a ticket).
pub(crate) const REVOCATION: u64 = 240;
/// Estimated bytes of a lock's history, without its tickets.
pub(crate) const HISTORY: u64 = 360;
/// Estimated bytes of an ended ticket in a history.
pub(crate) const PAST_TICKET: u64 = 300;
/// Estimated bytes of the record of an ended session.
pub(crate) const ENDED: u64 = 280;
/// Estimated bytes of a text with an allocation of its own, besides the text's bytes.
pub(crate) const TEXT: u64 = 24;

/// Counters for the memory estimate of the tree, updated as znodes come and go; see
/// [`crate::State::state_bytes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weight {
    /// Estimated bytes of the znodes' paths, and of the records of acquires.
    pub(crate) bytes: u64,
    /// Number of znodes with children.
    pub(crate) families: u64,
    /// Number of znodes with a queue.
    pub(crate) queues: u64,
}

impl Weight {
    /// Estimated bytes of a tree with `nodes` znodes; `timed` of them are in the index by time.
    pub(crate) fn of_tree(&self, nodes: usize, timed: usize) -> u64 {
        self.bytes + self.families * FAMILY + self.queues * QUEUE + nodes as u64 * ZNODE + timed as u64 * TIMED
    }

    /// Counts a znode that got or lost its children or its queue. Each pair of flags tells whether
    /// the znode has children, and whether it has a queue.
    pub(crate) fn change(&mut self, before: (bool, bool), now: (bool, bool)) {
        self.families = self.families + u64::from(now.0) - u64::from(before.0);
        self.queues = self.queues + u64::from(now.1) - u64::from(before.1);
    }
}

pub(crate) fn text(text: &str) -> u64 {
    text.len() as u64 + TEXT
}

/// Estimated bytes by which the state grows when a znode with `data` bytes is made, with its
/// missing ancestors: `count` znodes in all.
pub(crate) fn made(path: &ZPath, data: usize, count: u64) -> u64 {
    data as u64 + count * (ZNODE + FAMILY + 4 * text(path.as_str()))
}

/// Maximum memory that a new ticket adds to the estimate besides its path and data ([`made`]), in
/// bytes.
pub(crate) const QUEUED: u64 = QUEUE + CONTENDER + HOLD;

/// Estimated bytes of tickets and multi-locks, without their histories.
pub(crate) fn locks(tickets: u64, multis: usize) -> u64 {
    tickets * CONTENDER + multis as u64 * MULTI
}
