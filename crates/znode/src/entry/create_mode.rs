//! Modes in which a client creates a znode.

use bincode::{Decode, Encode};

/// ZooKeeper's create modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum CreateMode {
    /// Stays until a client deletes it.
    Persistent,
    /// Deleted when its session ends.
    Ephemeral,
    /// Persistent; the parent's create counter is appended to the name.
    PersistentSequential,
    /// Ephemeral; the parent's create counter is appended to the name.
    EphemeralSequential,
    /// Deleted some time after its last child was deleted (`container_idle_ms`).
    Container,
    /// Deleted when it has no children and its data was not set for `ttl_ms`.
    PersistentTtl {
        /// The time to live: 1 to 2^40 - 1 milliseconds, as in ZooKeeper.
        ttl_ms: u64,
    },
    /// As [`CreateMode::PersistentTtl`]; the parent's create counter is appended to the name.
    PersistentSequentialTtl {
        /// The time to live: 1 to 2^40 - 1 milliseconds.
        ttl_ms: u64,
    },
}

impl CreateMode {
    /// Tells whether ten digits are appended to the name.
    pub fn is_sequential(self) -> bool {
        matches!(
            self,
            CreateMode::PersistentSequential
                | CreateMode::EphemeralSequential
                | CreateMode::PersistentSequentialTtl { .. }
        )
    }

    /// Tells whether the znode belongs to a session.
    pub fn is_ephemeral(self) -> bool {
        matches!(self, CreateMode::Ephemeral | CreateMode::EphemeralSequential)
    }
}
