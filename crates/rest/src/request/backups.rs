//! Backups that this node serves: one at a time, and what became of the last one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::Semaphore;

/// What all requests for a backup share.
pub(crate) struct Backups {
    pub(crate) turn: Arc<Semaphore>,
    pub(crate) last: Arc<LastBackup>,
}

/// The last backup that was written here from end to end; zeros when there was none since the node
/// started.
#[derive(Default)]
pub(crate) struct LastBackup {
    at_seconds: AtomicU64,
    bytes: AtomicU64,
}

impl Default for Backups {
    fn default() -> Backups {
        Backups { turn: Arc::new(Semaphore::new(1)), last: Arc::default() }
    }
}

impl LastBackup {
    /// One has ended well.
    pub(crate) fn note(&self, bytes: u64) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.bytes.store(bytes, Ordering::Relaxed);
        self.at_seconds.store(now.as_secs(), Ordering::Relaxed);
    }

    /// When it ended, in seconds since 1970, and how long it was.
    pub(crate) fn read(&self) -> (u64, u64) {
        (self.at_seconds.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}
