//! Modes in which an acquire wants a lock.

use bincode::{Decode, Encode};

/// Mode in which a contender wants a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub enum LockMode {
    /// The whole lock for one holder.
    Exclusive,
    /// The lock shared with other readers.
    Read,
    /// The whole lock for one holder. Only a read ticket of the same session may hold beside it, in
    /// an upgrade or a downgrade.
    Write,
    /// The whole lock, for the leader of an election.
    Latch,
    /// A number of permits of a semaphore.
    Lease {
        /// Number of permits that this acquire takes, all at once.
        permits: u32,
        /// Number of permits that the semaphore has. The first acquire sets this number. Later
        /// acquires must give the same number, or 0 for the number that was set.
        limit: u32,
    },
}

impl LockMode {
    /// The mode with a semaphore's limit set to 0, for comparisons: the limit may change while a
    /// ticket exists.
    pub(crate) fn of_any_limit(self) -> LockMode {
        match self {
            LockMode::Lease { permits, .. } => LockMode::Lease { permits, limit: 0 },
            mode => mode,
        }
    }
}
