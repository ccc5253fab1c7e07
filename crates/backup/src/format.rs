//! Sizes, and the order of things in a file.

/// What each file begins with.
pub(crate) const MAGIC: [u8; 8] = *b"zlockbak";
/// The version of the format that is written, and the newest that can be read.
pub const VERSION: u32 = 1;
/// Raw bytes in a chunk, but for the last one.
pub(crate) const CHUNK_RAW_BYTES: usize = 256 << 10;
/// No stored chunk is longer: what lz4 cannot make shorter grows a little, and the raw length
/// stands before it.
pub(crate) const CHUNK_BYTES_MAX: usize = CHUNK_RAW_BYTES + CHUNK_RAW_BYTES / 128 + 64;
/// No manifest is longer.
pub(crate) const MANIFEST_BYTES_MAX: usize = 1 << 20;
/// No record is longer: the same bound as in snapshots.
pub(crate) const RECORD_BYTES_MAX: usize = 64 << 20;
/// The length of the hash at the end.
pub(crate) const HASH_BYTES: usize = 32;
