//! Manifest of a snapshot with the hash over all its chunks, and the format of a chunk.

use bincode::{Decode, Encode};
use sha2::{Digest, Sha256};

use crate::codec::{self, SnapshotMetaRecord};

/// Description of a snapshot. A node that sends a snapshot sends the manifest before the chunks.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Manifest {
    /// Position of the last log entry that the snapshot contains, and the membership.
    pub meta: SnapshotMetaRecord,
    /// Number of chunks.
    pub chunk_count: u32,
    /// Total size in bytes of all chunks, as stored.
    pub bytes: u64,
    /// Number of records in the snapshot.
    pub records: u64,
    /// SHA-256 over all chunks in order, each preceded by its length, and then the encoded `meta`.
    pub sha256: [u8; 32],
}

/// Running count, size and hash of a snapshot's chunks.
#[derive(Default)]
pub(crate) struct Tally {
    hash: Sha256,
    pub(crate) chunk_count: u32,
    pub(crate) bytes: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, chunk: &[u8]) {
        self.hash.update((chunk.len() as u32).to_le_bytes());
        self.hash.update(chunk);
        self.chunk_count += 1;
        self.bytes += chunk.len() as u64;
    }

    pub(crate) fn finish(self, meta: SnapshotMetaRecord, records: u64) -> Manifest {
        let sha256 = self.hash.chain_update(codec::encode(&meta)).finalize().into();
        Manifest { meta, chunk_count: self.chunk_count, bytes: self.bytes, records, sha256 }
    }
}

/// Number of uncompressed bytes in every chunk but the last one, which may have fewer.
pub(crate) const CHUNK_RAW_BYTES: usize = 24 << 10;
/// Largest size in bytes of a stored chunk. lz4 makes incompressible bytes a little longer, and a
/// checksum and a length precede them.
pub(crate) const CHUNK_BYTES_MAX: usize = CHUNK_RAW_BYTES + CHUNK_RAW_BYTES / 128 + 64;

/// Returns the stored form of up to [`CHUNK_RAW_BYTES`] uncompressed bytes: CRC-32 of the remaining
/// fields, uncompressed length, lz4 block.
pub(crate) fn pack_chunk(raw: &[u8]) -> Vec<u8> {
    debug_assert!(raw.len() <= CHUNK_RAW_BYTES);
    let packed = lz4_flex::block::compress_prepend_size(raw);
    let mut chunk = Vec::with_capacity(4 + packed.len());
    chunk.extend_from_slice(&crc32fast::hash(&packed).to_le_bytes());
    chunk.extend_from_slice(&packed);
    chunk
}

/// Checks a stored chunk and returns its uncompressed bytes.
///
/// # Errors
/// A description of the damage. A forged length is refused before any allocation.
pub(crate) fn unpack_chunk(chunk: &[u8]) -> Result<Vec<u8>, String> {
    let (checksum, packed) = chunk.split_first_chunk::<4>().ok_or("a chunk is too short")?;
    if chunk.len() > CHUNK_BYTES_MAX {
        return Err(format!("a chunk of {} bytes is too long", chunk.len()));
    }
    if crc32fast::hash(packed) != u32::from_le_bytes(*checksum) {
        return Err("a chunk's checksum does not match".into());
    }
    let raw_len = packed.first_chunk::<4>().map(|len| u32::from_le_bytes(*len) as usize);
    if raw_len.is_none_or(|len| len > CHUNK_RAW_BYTES) {
        return Err(format!("a chunk claims {raw_len:?} raw bytes"));
    }
    lz4_flex::block::decompress_size_prepended(packed).map_err(|error| error.to_string())
}
