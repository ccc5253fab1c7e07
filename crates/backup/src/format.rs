//! Sizes and constants of the file format.

/// First bytes of every backup.
pub(crate) const MAGIC: [u8; 8] = *b"zlockbak";
/// The version of the format that is written, and the newest one that can be read.
pub const VERSION: u32 = 1;
/// Number of uncompressed bytes in every chunk except the last chunk, which may be shorter.
pub(crate) const CHUNK_RAW_BYTES: usize = 256 << 10;
/// Largest size of a chunk in the file, in bytes. Bytes that lz4 cannot compress grow a little, and
/// the uncompressed length is stored before them.
pub(crate) const CHUNK_BYTES_MAX: usize = CHUNK_RAW_BYTES + CHUNK_RAW_BYTES / 128 + 64;
/// Largest size of a manifest in bytes.
pub(crate) const MANIFEST_BYTES_MAX: usize = 1 << 20;
/// Largest size of a record in bytes. Snapshots have the same limit.
pub(crate) const RECORD_BYTES_MAX: usize = 64 << 20;
/// Length of the SHA-256 at the end of the file.
pub(crate) const HASH_BYTES: usize = 32;
