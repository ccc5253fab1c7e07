//! The file of a backup: the state of a cluster at one zxid, on its own. It has no log, and knows
//! no vote and no member.
//!
//! ```text
//! magic (8 bytes) | version (4) | frame: manifest (JSON) | frames: chunks | an empty frame | SHA-256 of all that (32)
//! frame = length (4) | bytes
//! chunk = raw length (4) | lz4 block; the raw bytes of all chunks in order are the state's records, each behind its length (4)
//! ```
//!
//! All numbers are little endian. The records are those of snapshots ([`znode::State::records`]),
//! written at the cluster's level. docs/storage-format.md describes the bytes for those who read
//! them with other programs.
//!
//! A **seed** is the backup of a state that was restored ([`znode::State::restore`]): its manifest
//! also has what was decided, and each member of the new cluster begins with it.
//!
//! Invariants:
//!
//! * Nothing of a file is believed before its hash was compared: [`Backup::open`] reads it once
//!   from end to end.
//! * Memory is bounded by one chunk and one record, however long the file is, but for the state
//!   itself in [`Backup::state`].
//!
//! ```text
//! manifest.rs  what is told of a backup     writer.rs  writes one from a state
//! error.rs     why a file is refused        reader.rs  checks one and reads the state back
//! format.rs    sizes and the order of things
//! ```

mod error;
mod format;
mod manifest;
mod reader;
mod writer;

pub use error::Error;
pub use format::VERSION;
pub use manifest::{Counts, Decided, Manifest, Member, Origin, Saved};
pub use reader::Backup;
pub use writer::{Written, write};
