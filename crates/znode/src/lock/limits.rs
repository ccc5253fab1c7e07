//! The bounds of what the state remembers about locks beyond their queues.

use bincode::{Decode, Encode};

/// Bounds that are apart from [`crate::Limits`] because they came later: a log that has never heard of them goes by
/// [`LockLimits::FIRST`]. Replicated; a new leader proposes its configured ones when they differ.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct LockLimits {
    /// Past grants that each lock remembers, and as many past waits. At most [`LockLimits::HISTORY_MOST`] count.
    pub history_max: u32,
    /// Locks that remember any. The one where nothing ended for longest is forgotten first.
    pub histories_max: u32,
    /// Ended sessions that are remembered.
    pub ended_sessions_max: u32,
    /// For how long, in milliseconds by the time on entries.
    pub ended_sessions_ms: u32,
    /// Tickets that one acquire looks at to find a deadlock. With more to look at it is let in. At most
    /// [`LockLimits::LOOKS_MOST`] count.
    pub deadlock_looks_max: u32,
}

impl LockLimits {
    /// What counts until a leader says otherwise. Never changes: a log that was written under it must mean the same
    /// to every version.
    pub const FIRST: LockLimits = LockLimits {
        history_max: 16,
        histories_max: 10_000,
        ended_sessions_max: 10_000,
        ended_sessions_ms: 3_600_000,
        deadlock_looks_max: 256,
    };

    /// More of a lock's past than this is kept by nobody: it is one record of a snapshot.
    pub const HISTORY_MOST: u32 = 512;

    /// A longer circle could not be kept as an answer.
    pub const LOOKS_MOST: u32 = 1024;

    pub(crate) fn deadlock_looks_max(&self) -> u32 {
        self.deadlock_looks_max.min(Self::LOOKS_MOST)
    }

    pub(crate) fn history_max(&self) -> usize {
        self.history_max.min(Self::HISTORY_MOST) as usize
    }
}

impl Default for LockLimits {
    fn default() -> Self {
        LockLimits::FIRST
    }
}
