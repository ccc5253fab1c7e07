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

/// A znode, ephemeral or not, with its entries in the tree and in the list of its parent's
/// children.
pub(crate) const ZNODE: u64 = 560;
/// The list of children of a znode that has at least one.
pub(crate) const FAMILY: u64 = 320;
/// A queue, added to the weight of its directory: its indexes begin with room for several tickets.
pub(crate) const QUEUE: u64 = 2_600;
/// A ticket, added to the weight of its znode: its entries in the queue's indexes.
pub(crate) const CONTENDER: u64 = 420;
/// A hold (one acquire that shares a ticket), with as many attempts as it may keep.
pub(crate) const HOLD: u64 = 200;
/// A multi-lock, without its lock nodes.
pub(crate) const MULTI: u64 = 160;
/// A quota, with its path.
pub(crate) const QUOTA: u64 = 1_300;
/// A child of the root: its entry in the index of subtrees' weights.
pub(crate) const SUBTREE: u64 = 160;
/// A znode that may be deleted later: its entry in the index by time.
pub(crate) const TIMED: u64 = 80;
/// A session, with the first entries of its maps, and the counter of its address.
pub(crate) const SESSION: u64 = 1_540;
/// The record of a client, without its texts.
pub(crate) const CLIENT: u64 = 160;
/// A used idempotency key, without its answer.
pub(crate) const KEY: u64 = 400;
/// A revocation: a request to give a ticket up.
pub(crate) const REVOCATION: u64 = 240;
/// A lock's history, without its tickets.
pub(crate) const HISTORY: u64 = 360;
/// A ticket that has ended, in a history.
pub(crate) const PAST_TICKET: u64 = 300;
/// The record of a session that has ended.
pub(crate) const ENDED: u64 = 280;
/// A text with an allocation of its own, without its bytes.
pub(crate) const TEXT: u64 = 24;

/// Counters behind the estimate, updated as znodes and sessions come and go; see
/// [`crate::State::state_bytes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weight {
    /// Bytes of texts, and of things that the other counters do not count.
    pub(crate) bytes: u64,
    /// Number of znodes with children.
    pub(crate) families: u64,
    /// Number of znodes with a queue.
    pub(crate) queues: u64,
}

impl Weight {
    /// Weight of a tree with `nodes` znodes; `timed` of them are in the index by time.
    pub(crate) fn of_tree(&self, nodes: usize, timed: usize) -> u64 {
        self.bytes + self.families * FAMILY + self.queues * QUEUE + nodes as u64 * ZNODE + timed as u64 * TIMED
    }

    /// Counts a znode that got or lost its children or its queue. Each pair says whether the znode
    /// has children, and whether it has a queue.
    pub(crate) fn change(&mut self, before: (bool, bool), now: (bool, bool)) {
        self.families = self.families + u64::from(now.0) - u64::from(before.0);
        self.queues = self.queues + u64::from(now.1) - u64::from(before.1);
    }
}

pub(crate) fn text(text: &str) -> u64 {
    text.len() as u64 + TEXT
}

/// Estimated weight of making a znode with `data` bytes and its missing ancestors: `count` znodes
/// in all.
pub(crate) fn made(path: &ZPath, data: usize, count: u64) -> u64 {
    data as u64 + count * (ZNODE + FAMILY + 4 * text(path.as_str()))
}

/// Most memory that a new ticket adds to the estimate besides its path and data ([`made`]), in
/// bytes.
pub(crate) const QUEUED: u64 = QUEUE + CONTENDER + HOLD;

/// Weight of tickets and multi-locks, without their history.
pub(crate) fn locks(tickets: u64, multis: usize) -> u64 {
    tickets * CONTENDER + multis as u64 * MULTI
}
