//! Writes to the Raft log that wait for the disk, counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many writes of one log were begun, and how many of these are on disk: appends, votes, cuts.
/// Clones are the same.
///
/// The disk takes them in their order. So the oldest that waits is the one behind those that are
/// done, and a node that looks now and then knows how long it has waited. No clock is read here:
/// this is on the way of every write.
#[derive(Clone, Debug, Default)]
pub struct LogWrites(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    begun: AtomicU64,
    done: AtomicU64,
}

impl LogWrites {
    /// A write is on its way to the disk.
    pub fn begin(&self) {
        self.0.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// So many of the oldest writes are on disk, or have failed for good.
    pub fn end(&self, count: usize) {
        self.0.done.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Writes that were begun, and those of them that are done.
    pub fn counts(&self) -> (u64, u64) {
        let done = self.0.done.load(Ordering::Relaxed);
        (self.0.begun.load(Ordering::Relaxed).max(done), done)
    }
}
