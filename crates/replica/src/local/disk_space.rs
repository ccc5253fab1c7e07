//! Check whether the disk has enough free space for writes.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use accept::Mutex;
use storage::DiskGuard;

use crate::Error;

/// Whether the disk has too little free space, by the last measurement.
pub(crate) struct DiskSpace {
    min_bytes: u64,
    /// Handle that measures the free space; `None` in a simulation, and once the node is stopped.
    guard: Mutex<Option<DiskGuard>>,
    low: AtomicBool,
    /// True if the system could not tell how much space is free.
    unknown: AtomicBool,
}

impl DiskSpace {
    /// Measures the free space for the first time.
    pub(crate) fn new(min_bytes: u64, guard: Option<DiskGuard>) -> DiskSpace {
        let is_low = guard.as_ref().map(DiskGuard::is_low);
        let (low, unknown) = (AtomicBool::new(false), AtomicBool::new(false));
        let space = DiskSpace { min_bytes, guard: Mutex::new(guard), low, unknown };
        is_low.into_iter().for_each(|is_low| space.note(is_low));
        space
    }

    pub(crate) fn guard(&self) -> Option<DiskGuard> {
        self.guard.lock().clone()
    }

    /// Drops the handle that measures the free space, because the node stops.
    pub(crate) fn release(&self) {
        self.guard.lock().take();
    }

    pub(crate) fn is_low(&self) -> bool {
        self.low.load(Ordering::Relaxed)
    }

    /// Fails with `Unavailable` while too little space is free for writes.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.is_low() {
            let reason = "the disk is low on free space; this node takes no writes".into();
            return Err(Error::Unavailable { reason, retry_after_ms: 5_000 });
        }
        Ok(())
    }

    /// Notes a measurement, true for too little space, and logs each change.
    pub(crate) fn note(&self, is_low: io::Result<bool>) {
        let was_unknown = self.unknown.swap(is_low.is_err(), Ordering::Relaxed);
        match is_low {
            Ok(low) if self.low.swap(low, Ordering::Relaxed) != low => {
                let free_disk_min_bytes = self.min_bytes;
                if low {
                    tracing::warn!(free_disk_min_bytes, "the disk is low on space: clients' writes are refused");
                } else {
                    tracing::info!(free_disk_min_bytes, "the disk has space again");
                }
            }
            Ok(_) => {}
            Err(error) if !was_unknown => tracing::warn!(%error, "free disk space cannot be read"),
            Err(_) => {}
        }
    }
}
