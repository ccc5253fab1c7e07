//! Usage of the znodes below each znode: their number, and the length of their data.
//!
//! A create, a delete and a change of data update every ancestor, so that reading a usage costs
//! O(log n). Neither setting a quota nor ZooKeeper's `getAllChildrenNumber` walks a subtree,
//! however large it is. The root keeps no usage, because it contains everything. Bytes below
//! `/zookeeper` are not counted: no quota can be there, and the texts of quotas would have to be
//! counted for each of them. Snapshots do not contain usages: they are computed anew as the znodes
//! come back.

use std::fmt;

/// Number of znodes, and the length of their data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Number of znodes.
    pub count: u64,
    /// The length of their data, in bytes.
    pub bytes: u64,
}

impl Usage {
    pub(crate) fn add(&mut self, other: Usage) {
        self.count += other.count;
        self.bytes += other.bytes;
    }

    pub(crate) fn take(&mut self, other: Usage) {
        self.count -= other.count;
        self.bytes -= other.bytes;
    }
}

/// The text that `zookeeper_stats` has (StatsTrack.toString).
impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "count={},bytes={}", self.count, self.bytes)
    }
}
