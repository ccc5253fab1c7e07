//! Counts of writes to the Raft log that wait for the disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers of the writes to one log that were begun and that are on disk: appends, votes and cuts.
/// Clones share the counts.
///
/// Writes reach the disk in order, so the oldest that waits is the one with the number `done`. A
/// node that looks at the counts now and then knows how long that one has waited. The counts read
/// no clock, as they are on the way of every write.
#[derive(Clone, Debug, Default)]
pub struct LogWrites(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    begun: AtomicU64,
    done: AtomicU64,
}

impl LogWrites {
    /// Counts a write that is on its way to the disk.
    pub fn begin(&self) {
        self.0.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the `count` oldest writes as on disk, or as failed for good.
    pub fn end(&self, count: usize) {
        self.0.done.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Returns the numbers of writes that were begun and that are done.
    pub fn counts(&self) -> (u64, u64) {
        let done = self.0.done.load(Ordering::Relaxed);
        (self.0.begun.load(Ordering::Relaxed).max(done), done)
    }
}
