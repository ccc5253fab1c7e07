//! Receives a snapshot from another node, chunk by chunk.

use std::io;

use crate::error::damaged;
use crate::failpoint;
use crate::raft::types::SnapshotMeta;
use crate::snapshots::chunk_writer::ChunkWriter;
use crate::snapshots::manifest::{Manifest, unpack_chunk};
use crate::snapshots::snapshot::Snapshot;
use crate::snapshots::snapshot_store::SnapshotStore;

impl SnapshotStore {
    /// Begins to receive the snapshot with this `manifest` from another node.
    ///
    /// # Errors
    /// `InvalidData` for an invalid manifest; otherwise any disk error, of this call or an earlier
    /// one.
    pub fn receive(&self, manifest: Manifest) -> io::Result<SnapshotReceiver> {
        self.collect()?;
        failpoint::pass("receive.begin")?;
        let meta = manifest.meta.clone().try_into()?;
        Ok(SnapshotReceiver { chunks: ChunkWriter::begin(self, "receive.chunk")?, manifest, meta })
    }
}

/// A snapshot that is being received. A drop before [`SnapshotReceiver::finish`] discards it.
/// Blocking.
///
/// Wrong data from the sender is an error of this transfer only and not of this node's disk, so it
/// is not kept in [`crate::Fatal`].
pub struct SnapshotReceiver {
    chunks: ChunkWriter,
    manifest: Manifest,
    meta: SnapshotMeta,
}

impl SnapshotReceiver {
    /// Position of the snapshot's last entry, and the membership at that position.
    pub fn meta(&self) -> &SnapshotMeta {
        &self.meta
    }

    /// Number of chunks received, which is the index of the next one.
    pub fn chunks_received(&self) -> u32 {
        self.chunks.tally.chunk_count
    }

    /// Adds the next chunk, as returned by `Snapshot::chunk` on the sender.
    ///
    /// # Errors
    /// `InvalidData` when the chunk is damaged or beyond the manifest's count; otherwise any disk
    /// error, of this call or an earlier one.
    pub fn push_chunk(&mut self, chunk: &[u8]) -> io::Result<()> {
        if self.chunks_received() == self.manifest.chunk_count {
            return Err(damaged(format!("more than the {} chunks announced", self.manifest.chunk_count)));
        }
        unpack_chunk(chunk).map_err(damaged)?;
        self.chunks.write(chunk)
    }

    /// Compares all chunks with the sender's hash, lets `check` read the snapshot, and makes it
    /// durable and current. Returns the current snapshot: the received one, or a newer one that
    /// this node already has.
    ///
    /// # Errors
    /// `InvalidData` when a chunk is missing or the hash differs; the error of `check`; otherwise
    /// any disk error, of this call or an earlier one.
    pub fn finish(mut self, check: impl FnOnce(&Snapshot) -> io::Result<()>) -> io::Result<Snapshot> {
        failpoint::pass("receive.verify")?;
        let tally = std::mem::take(&mut self.chunks.tally);
        let received = tally.finish(self.manifest.meta.clone(), self.manifest.records);
        if received != self.manifest {
            return Err(damaged(format!(
                "{} of {} chunks came, and the hash is {}",
                received.chunk_count,
                self.manifest.chunk_count,
                if received.sha256 == self.manifest.sha256 { "right" } else { "wrong" }
            )));
        }
        failpoint::pass("receive.verified")?;
        self.chunks.check(&self.manifest, &self.meta, check)?;
        self.chunks.flip(self.manifest)
    }
}
