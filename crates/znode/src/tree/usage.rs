//! Usage of what is below each znode, kept as it changes: how many znodes, and how much data.
//!
//! A create, a delete and a change of data cost a step for each ancestor; asking costs a look. So
//! neither setting a quota nor ZooKeeper's `getAllChildrenNumber` walks a subtree, however large.
//! Nothing is kept at the root, which has everything, and no bytes are kept of what is below
//! `/zookeeper`: no quota can be there, and what quotas write there would have to be counted for
//! each of them. It is no part of snapshots: it comes back as the znodes do.

use std::fmt;

/// Znodes and their data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Znodes.
    pub count: u64,
    /// The length of their data.
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

/// The text as `zookeeper_stats` has it (StatsTrack.toString).
impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "count={},bytes={}", self.count, self.bytes)
    }
}
