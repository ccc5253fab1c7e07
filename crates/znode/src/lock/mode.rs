//! How an acquire wants a lock.

use bincode::{Decode, Encode};

/// How a contender wants a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub enum LockMode {
    /// Alone. Lock node `_c_<uuid>-lock-<10 digits>`, as Curator's mutex.
    Exclusive,
    /// Together with other readers. `_c_<uuid>-__READ__<10 digits>`, as Curator's read/write lock.
    Read,
    /// Alone. `_c_<uuid>-__WRIT__<10 digits>`.
    Write,
    /// Alone, as the leader of an election. `_c_<uuid>-latch-<10 digits>`, as Curator's
    /// LeaderLatch.
    Latch,
    /// So many permits of a semaphore. `_c_<uuid>-lease-<10 digits>`, as the leases of Curator's
    /// InterProcessSemaphoreV2.
    Lease {
        /// How many at once; all or none.
        permits: u32,
        /// How many there are in all. The first acquire sets it, the others must say the same, or 0
        /// for as many as are set.
        limit: u32,
    },
}

impl LockMode {
    /// The same of any limit: that of a semaphore may change while a ticket stands.
    pub(crate) fn of_any_limit(self) -> LockMode {
        match self {
            LockMode::Lease { permits, .. } => LockMode::Lease { permits, limit: 0 },
            mode => mode,
        }
    }
}
