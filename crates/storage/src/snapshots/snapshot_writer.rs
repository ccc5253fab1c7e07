//! Writes a new snapshot, record by record.

use std::io;

use crate::codec;
use crate::failpoint;
use crate::raft::types::SnapshotMeta;
use crate::snapshots::chunk_writer::ChunkWriter;
use crate::snapshots::manifest::{CHUNK_RAW_BYTES, pack_chunk};
use crate::snapshots::snapshot::Snapshot;
use crate::snapshots::snapshot_store::SnapshotStore;

impl SnapshotStore {
    /// Begins a new snapshot.
    ///
    /// # Errors
    /// Any disk error, of this call or an earlier one.
    pub fn writer(&self) -> io::Result<SnapshotWriter> {
        self.collect()?;
        failpoint::pass("snapshot.begin")?;
        let chunks = ChunkWriter::begin(self, "snapshot.chunk")?;
        Ok(SnapshotWriter { chunks, raw: Vec::with_capacity(CHUNK_RAW_BYTES), records: 0 })
    }
}

/// A snapshot that is being written. A drop before [`SnapshotWriter::finish`] discards it.
/// Blocking; takes memory for one chunk and for the bytes that sled holds between two flushes.
pub struct SnapshotWriter {
    chunks: ChunkWriter,
    raw: Vec<u8>,
    records: u64,
}

impl SnapshotWriter {
    /// Appends one record to the snapshot. `Snapshot::records` later returns the same bytes.
    ///
    /// # Errors
    /// Any disk error, of this call or an earlier one. `InvalidInput` for a record beyond 64 MiB.
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

    /// Makes the snapshot durable and current. Returns the current snapshot: this one, or a newer
    /// one that was received in the meantime.
    ///
    /// # Errors
    /// Any disk error, of this call or an earlier one. The previous snapshot stays current, and the
    /// node must stop.
    pub fn finish(mut self, meta: &SnapshotMeta) -> io::Result<Snapshot> {
        if !self.raw.is_empty() {
            self.close_chunk()?;
        }
        failpoint::pass("snapshot.manifest")?;
        let tally = std::mem::take(&mut self.chunks.tally);
        self.chunks.flip(tally.finish(meta.into(), self.records))
    }
}
