//! Decisions that are made when a cluster is founded.

use std::fmt;

use bincode::{Decode, Encode};

use crate::words::ids::write_uuid;

/// Zxids begin no higher, so that they stay below 2^53.
pub const ZXID_BASE_MAX: u64 = 1 << 52;

/// Id that tells a cluster from all others. Drawn at random when it was founded; printed with
/// dashes, in lower case.
#[derive(Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ClusterUuid(pub [u8; 16]);

impl fmt::Display for ClusterUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_uuid(&self.0, f)
    }
}

impl fmt::Debug for ClusterUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Decisions that are made when a cluster is founded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Founding {
    /// The cluster's uuid.
    pub uuid: ClusterUuid,
    /// The number that is added to the index of an entry to make it a zxid; at most
    /// [`ZXID_BASE_MAX`].
    pub zxid_base: u64,
    /// The group of this cluster, of several; 0 is the only one.
    pub group: u32,
}
