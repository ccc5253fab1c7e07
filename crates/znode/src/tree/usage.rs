//! Usage of each subtree: the number of its znodes, and the sum of the lengths of their data.
//!
//! A create, a delete and a change of data update every ancestor, so that reading a usage costs
//! O(log n). Neither setting a quota nor ZooKeeper's `getAllChildrenNumber` walks a subtree. The
//! root keeps no usage, because it contains all znodes. Bytes below `/zookeeper` are not counted:
//! no quota applies there, and writing the text of a quota would change usages again. Snapshots do
//! not contain usages, which are computed anew as the znodes are read.

use std::fmt;

/// Number of znodes, and the sum of the lengths of their data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Number of znodes.
    pub count: u64,
    /// Sum of the lengths of the znodes' data, in bytes.
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

/// The text of a `zookeeper_stats` znode, as ZooKeeper's StatsTrack.toString writes it.
impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "count={},bytes={}", self.count, self.bytes)
    }
}
