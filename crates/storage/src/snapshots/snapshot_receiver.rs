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
    /// Begins to receive the snapshot that `manifest` describes from another node.
    ///
    /// # Errors
    /// `InvalidData` when the manifest makes no sense; else any disk error, now or earlier.
    pub fn receive(&self, manifest: Manifest) -> io::Result<SnapshotReceiver> {
        self.collect()?;
        failpoint::pass("receive.begin")?;
        let meta = manifest.meta.clone().try_into()?;
        Ok(SnapshotReceiver { chunks: ChunkWriter::begin(self, "receive.chunk")?, manifest, meta })
    }
}

/// A snapshot on its way in. Dropped before [`SnapshotReceiver::finish`], it is as if it had never
/// begun. Blocking.
///
/// What a sender gets wrong is an error of this one transfer and not of this node's disk: it is not
/// remembered.
pub struct SnapshotReceiver {
    chunks: ChunkWriter,
    manifest: Manifest,
    meta: SnapshotMeta,
}

impl SnapshotReceiver {
    /// The last entry and the membership that the snapshot contains.
    pub fn meta(&self) -> &SnapshotMeta {
        &self.meta
    }

    /// How many chunks have come; the next one's index.
    pub fn chunks_received(&self) -> u32 {
        self.chunks.tally.chunk_count
    }

    /// Adds the next chunk, as `Snapshot::chunk` gave it on the sender.
    ///
    /// # Errors
    /// `InvalidData` when the chunk is damaged or one too many; else any disk error, now or
    /// earlier.
    pub fn push_chunk(&mut self, chunk: &[u8]) -> io::Result<()> {
        if self.chunks_received() == self.manifest.chunk_count {
            return Err(damaged(format!("more than the {} chunks announced", self.manifest.chunk_count)));
        }
        unpack_chunk(chunk).map_err(damaged)?;
        self.chunks.write(chunk)
    }

    /// Compares everything with the sender's hash and has `check` read it, then makes the snapshot
    /// durable and current. Answers the current snapshot, which is another one if this node has had
    /// a newer one all along.
    ///
    /// # Errors
    /// `InvalidData` when a chunk is missing or the hash differs, and the error of `check`; else
    /// any disk error, now or earlier.
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
