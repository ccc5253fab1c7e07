//! Sizes and constants of the file format.

/// First bytes of each file.
pub(crate) const MAGIC: [u8; 8] = *b"zlockbak";
/// The version of the format that is written, and the newest one that can be read.
pub const VERSION: u32 = 1;
/// Raw bytes in every chunk but the last one.
pub(crate) const CHUNK_RAW_BYTES: usize = 256 << 10;
/// Largest size of a stored chunk: bytes that lz4 cannot compress grow a little, and the raw length
/// stands before them.
pub(crate) const CHUNK_BYTES_MAX: usize = CHUNK_RAW_BYTES + CHUNK_RAW_BYTES / 128 + 64;
/// Largest size of a manifest.
pub(crate) const MANIFEST_BYTES_MAX: usize = 1 << 20;
/// Largest size of a record: the same bound as in snapshots.
pub(crate) const RECORD_BYTES_MAX: usize = 64 << 20;
/// Length of the hash at the end of the file.
pub(crate) const HASH_BYTES: usize = 32;
