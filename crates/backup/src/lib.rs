//! Format of a backup: a file with the state of a cluster at one zxid. The Raft log, votes and
//! members of the cluster are not in the file.
//!
//! ```text
//! file  = magic (8 bytes) | version (4) | frame: manifest (JSON) | a frame for each chunk
//!         | an empty frame | SHA-256 of all bytes before (32)
//! frame = length (4) | bytes
//! chunk = uncompressed length (4) | lz4 block
//! The uncompressed bytes of all chunks in order are the records, each after its length (4).
//! ```
//!
//! All numbers are little endian. The records are those of snapshots ([`znode::State::records`]),
//! in the format version ("level") that the cluster writes. docs/dev/storage-format.md describes
//! the bytes for readers in other programs.
//!
//! A **seed** is the backup of a restored state ([`znode::State::restore`]). Its manifest also has
//! the decisions of the restore. Each member of the new cluster starts from the seed.
//!
//! Invariants:
//!
//! * The state of a file is used only after its hash was compared: [`Backup::open`] reads the file
//!   once from end to end. [`read_manifest`] reads no more than the beginning.
//! * Memory is bounded by one chunk and one record for a file of any length, except for the state
//!   itself in [`Backup::state`].
//!
//! ```text
//! manifest.rs  description of a backup      writer.rs  writes a backup of a state
//! error.rs     reasons of a refusal         reader.rs  checks a backup and reads its state
//! format.rs    sizes and constants
//! ```

mod error;
mod format;
mod manifest;
mod reader;
mod writer;

pub use error::Error;
pub use format::VERSION;
pub use manifest::{Counts, Decided, Manifest, Member, Origin, Saved};
pub use reader::{Backup, digest, read_manifest};
pub use writer::{Written, write};
