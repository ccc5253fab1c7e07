//! Values that are fixed when a cluster is founded.

use std::fmt;

use bincode::{Decode, Encode};

use crate::words::ids::write_uuid;

/// The highest zxid base, which keeps zxids below 2^53: a JSON number holds those exactly.
pub const ZXID_BASE_MAX: u64 = 1 << 52;

/// An id that tells the cluster from all others, drawn at random when the cluster is founded.
/// Printed with dashes, in lower case.
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

/// Values that are fixed when a cluster is founded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Founding {
    /// The id that tells the cluster from all others.
    pub uuid: ClusterUuid,
    /// The number that is added to the index of an entry to make it a zxid; at most
    /// [`ZXID_BASE_MAX`].
    pub zxid_base: u64,
    /// Number of the Raft group within the cluster, reserved for a later division into several
    /// groups. Always 0 now.
    pub group: u32,
}
