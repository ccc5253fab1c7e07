//! Writes the chunks of a snapshot that is made here or received from another node.

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use crate::databases::database::Database;
use crate::failpoint;
use crate::fatal::Fatal;
use crate::raft::types::SnapshotMeta;
use crate::snapshots::manifest::{Manifest, Tally};
use crate::snapshots::snapshot::{Parts, Snapshot};
use crate::snapshots::snapshot_store::SnapshotStore;

/// Number of bytes written between two flushes, which bounds the memory that sled takes.
const FLUSH_EVERY_BYTES: u64 = 8 << 20;

/// Writer of chunks into the database of a new snapshot. A drop before [`ChunkWriter::flip`] marks
/// the database for removal.
pub(crate) struct ChunkWriter {
    store: SnapshotStore,
    number: u64,
    /// `None` once the database is finished.
    database: Option<Database>,
    pub(crate) tally: Tally,
    since_flush: u64,
    failpoint: &'static str,
    flipped: bool,
    /// Lock of the data directory. It is the last field, so that it drops after the database:
    /// another process must not open the directory before the database is closed.
    _lock: Option<Arc<File>>,
}

impl ChunkWriter {
    /// Begins a new snapshot in the store. `failpoint` is the name of the failpoint that each
    /// written chunk passes.
    pub(crate) fn begin(store: &SnapshotStore, failpoint: &'static str) -> io::Result<Self> {
        let lock = store.databases().lock()?;
        let (number, database) = store.begin()?;
        Ok(ChunkWriter {
            store: store.clone(),
            number,
            database: Some(database),
            tally: Tally::default(),
            since_flush: 0,
            failpoint,
            flipped: false,
            _lock: lock,
        })
    }

    pub(crate) fn write(&mut self, chunk: &[u8]) -> io::Result<()> {
        let fatal = self.store.databases().fatal();
        fatal.check()?;
        let database = self.database.as_ref().ok_or_else(|| io::Error::other("the snapshot is finished"))?;
        let key = self.tally.chunk_count.to_be_bytes();
        let result = failpoint::pass(self.failpoint);
        let result = result.and_then(|()| database.insert(key, chunk));
        fatal.note("writing a snapshot", result)?;
        self.tally.add(chunk);
        self.since_flush += chunk.len() as u64;
        if self.since_flush >= FLUSH_EVERY_BYTES {
            self.since_flush = 0;
            database.flush()?;
        }
        Ok(())
    }

    /// Lets `check` read the unfinished snapshot, and returns the error of `check`. Such an error
    /// comes from the sender's data and not from this disk, so the store's [`Fatal`] does not keep
    /// it.
    pub(crate) fn check(
        &mut self,
        manifest: &Manifest,
        meta: &SnapshotMeta,
        check: impl FnOnce(&Snapshot) -> io::Result<()>,
    ) -> io::Result<()> {
        let unfinished = Snapshot(Arc::new(Parts {
            number: self.number,
            manifest: manifest.clone(),
            meta: meta.clone(),
            files: Vec::new(),
            databases: self.store.databases().with_fatal(Fatal::new()),
            database: Mutex::new(self.database.take()),
        }));
        let checked = check(&unfinished);
        self.database = unfinished.0.database.lock().unwrap_or_else(PoisonError::into_inner).take();
        checked
    }

    pub(crate) fn flip(mut self, manifest: Manifest) -> io::Result<Snapshot> {
        let database = self.database.take().ok_or_else(|| io::Error::other("the snapshot is finished"))?;
        // From here on the store removes a database that does not become current; after an error,
        // the next open does.
        self.flipped = true;
        self.store.flip(self.number, database, manifest)
    }
}

impl Drop for ChunkWriter {
    fn drop(&mut self) {
        if !self.flipped {
            // The database must be closed before it is removed.
            drop(self.database.take());
            self.store.abandon(self.number);
        }
    }
}
