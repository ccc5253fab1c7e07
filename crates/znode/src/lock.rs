//! Locks as readings of znodes: who holds, who waits. A lock has no state of its own.

use bincode::{Decode, Encode};

use crate::{FencingToken, ZPath};

/// Where a ticket stands.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum LockStatus {
    /// It holds the lock.
    Held {
        /// What to show to resources.
        token: FencingToken,
        /// How often the owner holds it.
        holds: u32,
    },
    /// It waits.
    Waiting {
        /// The contender whose going may make it the holder: the one to watch.
        predecessor: ZPath,
    },
}
