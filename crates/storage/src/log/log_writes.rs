//! Counts of writes to the Raft log that wait for the disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::durations::{Durations, WORK};

/// Counts of the writes to one log (appends, votes, cuts) that were begun and that have ended.
/// Clones share the counts.
///
/// Writes reach the disk in order, so the number of ended writes identifies the oldest waiting
/// write. A task of the node polls the counts and measures how long this write has waited. The
/// counts themselves read no clock, to keep every write cheap.
#[derive(Clone, Debug, Default)]
pub struct LogWrites(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    begun: AtomicU64,
    done: AtomicU64,
    /// Durations of the log's syncs. One sync makes all writes durable that waited for it.
    syncs: Durations,
}

impl Default for Counts {
    fn default() -> Counts {
        Counts { begun: AtomicU64::new(0), done: AtomicU64::new(0), syncs: Durations::new(WORK) }
    }
}

impl LogWrites {
    /// Counts a write that now waits for the disk.
    pub fn begin(&self) {
        self.0.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the `count` oldest waiting writes as ended: on disk or failed.
    pub fn end(&self, count: usize) {
        self.0.done.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Counts a sync of the log that took `time`.
    pub fn synced(&self, time: Duration) {
        self.0.syncs.note(time);
    }

    /// Durations of the log's syncs since the log was opened.
    pub fn syncs(&self) -> &Durations {
        &self.0.syncs
    }

    /// Returns the number of writes begun and the number of writes ended since the log was opened.
    pub fn counts(&self) -> (u64, u64) {
        let done = self.0.done.load(Ordering::Relaxed);
        (self.0.begun.load(Ordering::Relaxed).max(done), done)
    }
}
