//! Backups that this node serves: one at a time, and what became of the last one.

use std::sync::{Arc, Mutex};

use tokio::sync::Semaphore;

/// What all requests for a backup share.
pub(crate) struct Backups {
    pub(crate) turn: Arc<Semaphore>,
    pub(crate) last: Arc<Mutex<LastBackup>>,
}

/// The last backup that was written here from end to end; zeros when there was none since the node
/// started.
#[derive(Clone, Copy, Default)]
pub(crate) struct LastBackup {
    /// When it ended, in seconds since 1970.
    pub(crate) at_seconds: u64,
    pub(crate) bytes: u64,
}

impl Default for Backups {
    fn default() -> Backups {
        Backups { turn: Arc::new(Semaphore::new(1)), last: Arc::default() }
    }
}
