//! Modes in which an acquire wants a lock.

use bincode::{Decode, Encode};

/// Mode in which a contender wants a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub enum LockMode {
    /// Alone.
    Exclusive,
    /// Together with other readers.
    Read,
    /// Alone, beside tickets that read.
    Write,
    /// Alone, as the leader of an election.
    Latch,
    /// Permits of a semaphore.
    Lease {
        /// Number of them at once; all or none.
        permits: u32,
        /// Number of permits in all. The first acquire sets it, the others must say the same, or 0
        /// for as many as are set.
        limit: u32,
    },
}

impl LockMode {
    /// The mode without a semaphore's limit, which may change while a ticket stands.
    pub(crate) fn of_any_limit(self) -> LockMode {
        match self {
            LockMode::Lease { permits, .. } => LockMode::Lease { permits, limit: 0 },
            mode => mode,
        }
    }
}
