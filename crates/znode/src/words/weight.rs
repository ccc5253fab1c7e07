//! Weight: how much memory the state takes, by estimate: what `state_bytes_max` bounds.
//!
//! All that a client can make many or long has its weight here: a fixed one for each thing, with
//! its places in the indexes, and the length of its texts. The sum is kept as the state changes,
//! mostly in the lengths of its maps, so it costs next to nothing, and it is the same on every
//! replica and after a snapshot. The weights were found by filling a state with one kind of thing
//! after the other; `tests/it/memory.rs` does it again and compares with what the process takes.
//!
//! At the bound, what would make the state grow is refused (`QuotaExceeded`). Giving something back
//! never is. What is remembered of the past goes first: the histories of locks, then answers kept
//! for idempotency keys, of which the keys stay. An eighth more is left for the answers to what is
//! refused or given back. When that is full, too, a request with a new key that gives nothing back
//! is refused without a trace.

use crate::ZPath;

/// A znode, ephemeral or not, in the tree and in its parent's list.
pub(crate) const ZNODE: u64 = 560;
/// The list of children of a znode that has any.
pub(crate) const FAMILY: u64 = 320;
/// A queue, on top of its directory: its indexes begin with room for several.
pub(crate) const QUEUE: u64 = 2_600;
/// A ticket, on top of its znode: its positions in the queue's indexes.
pub(crate) const CONTENDER: u64 = 420;
/// One acquire that shares a ticket, with all the attempts that it may keep.
pub(crate) const HOLD: u64 = 200;
/// A multi-lock, beside its lock nodes.
pub(crate) const MULTI: u64 = 160;
/// A quota, path included.
pub(crate) const QUOTA: u64 = 1_300;
/// A subtree below the root, in the indexes of what each weighs.
pub(crate) const SUBTREE: u64 = 160;
/// A znode that is collected at a time, in the index of those.
pub(crate) const TIMED: u64 = 80;
/// A session, with the first entries of its maps, and the count of its address.
pub(crate) const SESSION: u64 = 1_540;
/// Record of a client, its texts apart.
pub(crate) const CLIENT: u64 = 160;
/// An idempotency key that was used, without its answer.
pub(crate) const KEY: u64 = 400;
/// A request to give a ticket up.
pub(crate) const REVOCATION: u64 = 240;
/// A lock that remembers any tickets.
pub(crate) const HISTORY: u64 = 360;
/// A ticket that has ended.
pub(crate) const PAST_TICKET: u64 = 300;
/// A session that has ended.
pub(crate) const ENDED: u64 = 280;
/// A text of its own, without its bytes.
pub(crate) const TEXT: u64 = 24;

/// Sums, counted as things come and go; see [`crate::State::state_bytes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weight {
    /// Texts, and what is kept in maps of its own.
    pub(crate) bytes: u64,
    /// Znodes with children.
    pub(crate) families: u64,
    /// Znodes with a queue.
    pub(crate) queues: u64,
}

impl Weight {
    /// Weight of a tree of so many znodes, of which so many are collected at a time.
    pub(crate) fn of_tree(&self, nodes: usize, timed: usize) -> u64 {
        self.bytes + self.families * FAMILY + self.queues * QUEUE + nodes as u64 * ZNODE + timed as u64 * TIMED
    }

    /// Counts a znode that has other children or another queue.
    pub(crate) fn change(&mut self, before: (bool, bool), now: (bool, bool)) {
        self.families = self.families + u64::from(now.0) - u64::from(before.0);
        self.queues = self.queues + u64::from(now.1) - u64::from(before.1);
    }
}

pub(crate) fn text(text: &str) -> u64 {
    text.len() as u64 + TEXT
}

/// Weight that comes with a path that is made, and with so many znodes in all on the way to it.
pub(crate) fn made(path: &ZPath, data: usize, count: u64) -> u64 {
    data as u64 + count * (ZNODE + FAMILY + 4 * text(path.as_str()))
}

/// Weight that comes with a ticket besides, at most.
pub(crate) const QUEUED: u64 = QUEUE + CONTENDER + HOLD;

/// Weight of so many tickets and multi-locks, beside what is remembered of them.
pub(crate) fn locks(tickets: u64, multis: usize) -> u64 {
    tickets * CONTENDER + multis as u64 * MULTI
}
