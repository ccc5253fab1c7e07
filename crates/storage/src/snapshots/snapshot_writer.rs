//! Writes a new snapshot, record by record.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use crate::codec;
use crate::databases::database::Database;
use crate::failpoint;
use crate::fatal::Fatal;
use crate::raft::types::SnapshotMeta;
use crate::snapshots::manifest::{CHUNK_RAW_BYTES, Manifest, Tally, pack_chunk};
use crate::snapshots::snapshot::{Parts, Snapshot};
use crate::snapshots::snapshot_store::SnapshotStore;

/// So much is written between two flushes; it bounds what sled holds in memory.
pub(crate) const FLUSH_EVERY_BYTES: u64 = 8 << 20;

/// A snapshot in the making. Dropped before [`SnapshotWriter::finish`], it is as if it had never
/// begun. Blocking; memory for one chunk and what sled holds between two flushes.
pub struct SnapshotWriter {
    chunks: ChunkWriter,
    raw: Vec<u8>,
    records: u64,
}

impl SnapshotWriter {
    pub(crate) fn new(store: SnapshotStore, number: u64, database: Database) -> Self {
        let raw = Vec::with_capacity(CHUNK_RAW_BYTES);
        SnapshotWriter { chunks: ChunkWriter::new(store, number, database, "snapshot.chunk"), raw, records: 0 }
    }

    /// Adds one record; `Snapshot::records` gives it back as it is.
    ///
    /// # Errors
    /// Any disk error, now or earlier. `InvalidInput` for a record beyond 64 MiB.
    pub fn push(&mut self, record: &[u8]) -> io::Result<()> {
        if record.len() > codec::RECORD_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a snapshot record beyond 64 MiB"));
        }
        self.records += 1;
        self.push_raw(&(record.len() as u32).to_le_bytes())?;
        self.push_raw(record)
    }

    fn push_raw(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let (fits, rest) = bytes.split_at(bytes.len().min(CHUNK_RAW_BYTES - self.raw.len()));
            self.raw.extend_from_slice(fits);
            bytes = rest;
            if self.raw.len() == CHUNK_RAW_BYTES {
                self.close_chunk()?;
            }
        }
        Ok(())
    }

    fn close_chunk(&mut self) -> io::Result<()> {
        self.chunks.write(&pack_chunk(&self.raw))?;
        self.raw.clear();
        Ok(())
    }

    /// Makes the snapshot durable and current. Answers the current snapshot, which is another one
    /// if a newer one was received in the meantime.
    ///
    /// # Errors
    /// Any disk error, now or earlier; the snapshot that was current still is, and the node must
    /// stop.
    pub fn finish(mut self, meta: &SnapshotMeta) -> io::Result<Snapshot> {
        if !self.raw.is_empty() {
            self.close_chunk()?;
        }
        failpoint::pass("snapshot.manifest")?;
        let tally = std::mem::take(&mut self.chunks.tally);
        self.chunks.flip(tally.finish(meta.into(), self.records))
    }
}

/// Writes chunks into a database that is not current. Left behind when dropped, unless it was
/// flipped to.
pub(crate) struct ChunkWriter {
    store: SnapshotStore,
    number: u64,
    /// Until it is finished.
    database: Option<Database>,
    pub(crate) tally: Tally,
    since_flush: u64,
    failpoint: &'static str,
    flipped: bool,
}

impl ChunkWriter {
    pub(crate) fn new(store: SnapshotStore, number: u64, database: Database, failpoint: &'static str) -> Self {
        ChunkWriter {
            store,
            number,
            database: Some(database),
            tally: Tally::default(),
            since_flush: 0,
            failpoint,
            flipped: false,
        }
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

    /// Has `check` read all chunks that were written before they become current. What cannot be
    /// read is the sender's fault and not the disk's: it is not remembered.
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
        // From here on the store removes the database if it does not become current; after an error
        // the next open does.
        self.flipped = true;
        self.store.flip(self.number, database, manifest)
    }
}

impl Drop for ChunkWriter {
    fn drop(&mut self) {
        if !self.flipped {
            // Closed before it is removed.
            drop(self.database.take());
            self.store.abandon(self.number);
        }
    }
}
