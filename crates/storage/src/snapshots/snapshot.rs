//! A finished snapshot, which is read as records or chunk by chunk.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use crate::codec;
use crate::databases::copying::{CopyFailed, FileRecord};
use crate::databases::database::{Database, Databases};
use crate::error::damaged;
use crate::raft::types::SnapshotMeta;
use crate::snapshots::manifest::{Manifest, Tally, unpack_chunk};

/// A finished snapshot. Clones share it. The snapshot stays readable while a clone exists, even if
/// a newer snapshot has become current. Its disk space is freed after the last clone is dropped.
#[derive(Clone)]
pub struct Snapshot(pub(crate) Arc<Parts>);

pub(crate) struct Parts {
    pub(crate) number: u64,
    pub(crate) manifest: Manifest,
    pub(crate) meta: SnapshotMeta,
    pub(crate) files: Vec<FileRecord>,
    pub(crate) databases: Databases,
    /// Open copy for reading; `None` before the first read, as most snapshots are never read.
    pub(crate) database: Mutex<Option<Database>>,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("id", &self.id()).field("manifest", &self.0.manifest).finish()
    }
}

impl Snapshot {
    /// Position of the snapshot's last entry, and the membership at that position.
    pub fn meta(&self) -> &SnapshotMeta {
        &self.0.meta
    }

    /// Name of the snapshot for logs: term, index, and a number that is unique on this node.
    pub fn id(&self) -> String {
        match &self.0.manifest.meta.last_log_id {
            Some(id) => format!("{}-{}-{}", id.term, id.index, self.0.number),
            None => format!("0-0-{}", self.0.number),
        }
    }

    /// Description of the snapshot. A receiver on another node needs it before the chunks.
    pub fn manifest(&self) -> &Manifest {
        &self.0.manifest
    }

    /// Total size in bytes of all chunks, as stored.
    pub fn bytes(&self) -> u64 {
        self.0.manifest.bytes
    }

    /// Number of chunks.
    pub fn chunk_count(&self) -> u32 {
        self.0.manifest.chunk_count
    }

    /// Copies the whole snapshot for reading, unless a copy exists. Blocking. Without this call,
    /// the first read makes the copy. The copy leaves enough of the disk free for clients' writes
    /// to be accepted.
    ///
    /// # Errors
    /// A lack of space for the copy, after which the node goes on and a later call may succeed.
    /// Otherwise `InvalidData` and other errors of [`Snapshot::chunk`].
    pub fn prepare(&self) -> io::Result<()> {
        let Parts { number, files, databases, database, .. } = &*self.0;
        let mut database = database.lock().unwrap_or_else(PoisonError::into_inner);
        if database.is_none() {
            *database = Some(self.note(databases.open(*number, files, databases.spare_bytes()))?);
        }
        Ok(())
    }

    /// Returns chunk `index` as stored: 24 KiB at most, or a little more when it does not compress.
    /// Blocking; the first call copies the whole snapshot.
    ///
    /// # Errors
    /// `InvalidData` if the chunk is not what was written; then [`crate::Fatal`] has a reason and
    /// the node must stop. Otherwise the errors of [`Snapshot::prepare`].
    pub fn chunk(&self, index: u32) -> io::Result<Vec<u8>> {
        self.prepare()?;
        self.note(self.read_chunk(index))
    }

    /// Returns `result` and keeps its error as the node's reason to stop, unless the error is a
    /// lack of space for the copy.
    fn note<T>(&self, result: io::Result<T>) -> io::Result<T> {
        match result {
            Err(error) if CopyFailed::is(&error) => Err(error),
            result => self.0.databases.fatal().note("reading a snapshot", result),
        }
    }

    /// Reads a chunk from the copy, which must exist.
    fn read_chunk(&self, index: u32) -> io::Result<Vec<u8>> {
        let database = self.0.database.lock().unwrap_or_else(PoisonError::into_inner);
        let found = database.as_ref().map(|database| database.get(index.to_be_bytes())).transpose()?.flatten();
        found.ok_or_else(|| damaged(format!("chunk {index} is missing")))
    }

    /// Returns the records in the order in which they were pushed. Blocking; takes memory for one
    /// chunk and one record.
    pub fn records(&self) -> Records {
        Records { snapshot: self.clone(), next_chunk: 0, raw: Vec::new(), at: 0, failed: false }
    }

    /// Compares all chunks with the manifest's hash. An error is not kept as the node's reason to
    /// stop, as the log or another node's snapshot can replace a damaged snapshot.
    pub(crate) fn verify(&self) -> io::Result<()> {
        let Parts { number, files, databases, database, .. } = &*self.0;
        // The node cannot start without the copy, so the copy may use all free space.
        *database.lock().unwrap_or_else(PoisonError::into_inner) = Some(databases.open(*number, files, 0)?);
        let Manifest { meta, chunk_count, records, .. } = self.manifest();
        let mut tally = Tally::default();
        for index in 0..*chunk_count {
            tally.add(&self.read_chunk(index)?);
        }
        if tally.finish(meta.clone(), *records) != *self.manifest() {
            return Err(damaged(format!("the hash of snapshot {} does not match", self.id())));
        }
        Ok(())
    }
}

/// Iterator over a snapshot's records. Ends after the first error.
pub struct Records {
    snapshot: Snapshot,
    next_chunk: u32,
    raw: Vec<u8>,
    at: usize,
    failed: bool,
}

impl Records {
    /// Appends uncompressed bytes to `into` until its length is `wanted`, or until the snapshot
    /// ends.
    fn take(&mut self, wanted: usize, into: &mut Vec<u8>) -> io::Result<()> {
        while into.len() < wanted {
            if self.at == self.raw.len() {
                if self.next_chunk == self.snapshot.chunk_count() {
                    return Ok(());
                }
                let chunk = self.snapshot.chunk(self.next_chunk)?;
                self.raw = unpack_chunk(&chunk).map_err(damaged)?;
                self.next_chunk += 1;
                self.at = 0;
            }
            let end = self.raw.len().min(self.at + wanted - into.len());
            into.extend_from_slice(&self.raw[self.at..end]);
            self.at = end;
        }
        Ok(())
    }

    fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut len = Vec::with_capacity(4);
        self.take(4, &mut len)?;
        if len.is_empty() {
            return Ok(None);
        }
        let len = len.first_chunk::<4>().ok_or_else(|| damaged("a record's length is cut off".into()))?;
        let len = u32::from_le_bytes(*len) as usize;
        if len > codec::RECORD_BYTES_MAX {
            return Err(damaged(format!("a record claims {len} bytes")));
        }
        let mut record = Vec::new();
        self.take(len, &mut record)?;
        if record.len() < len {
            return Err(damaged("the last record is cut off".into()));
        }
        Ok(Some(record))
    }
}

impl Iterator for Records {
    type Item = io::Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let record = self.read();
        self.failed = record.is_err();
        self.snapshot.note(record).transpose()
    }
}
