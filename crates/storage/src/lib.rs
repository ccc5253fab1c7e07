//! Storage of one node: the Raft log, snapshots and the node's identity. A call reports success
//! only after its data is durable.
//!
//! ```text
//! Storage::open ─┬─ LogStore       entries, vote, committed position  raft-log   log/
//!                ├─ SnapshotStore  current snapshot, in chunks        sled       sled/, snapshot
//!                ├─ NodeMeta       identity of the node               a record   node
//!                └─ DiskGuard      free space, ballast                           ballast
//! ```
//!
//! The crate `replica` opens the storage, gives [`LogStore`] to openraft, and writes and reads
//! snapshots through [`SnapshotStore`]. The log is async and groups the flushes of many appends
//! into one. All other calls block on the disk and belong on a thread that may block. Entries and
//! snapshot records are opaque bytes to this crate.
//!
//! Invariants:
//!
//! * Data that was reported durable survives the end of the process and of the machine, as long as
//!   the disk keeps data that it reported as synced.
//! * After the first failed write, flush or fsync, [`Fatal`] keeps its reason and every later call
//!   is refused.
//! * The record `snapshot` names a complete snapshot with a verified hash. It never goes back to an
//!   older snapshot.
//! * The log has every entry after the last entry of the current snapshot. A node that has lost its
//!   snapshot gives up its log except for its vote. It does not vote again before a leader has sent
//!   it the whole state.
//! * A data directory that is damaged, in a newer format, or owned by another node is refused
//!   with a message that says what to do.
//!
//! No two files import each other:
//!
//! ```text
//! storage.rs   opens a data directory and checks that its parts fit together
//! seeding.rs   makes a data directory whose whole history is a snapshot
//! simulation.rs  opens the storage of a simulated node; no other file uses it
//!
//! log/         log_store.rs the log as openraft sees it · flushes.rs groups appends into flushes
//!              callback.rs the end of a flush · wal.rs records in raft-log's types
//!              tail.rs the end of the log after a power cut · log_writes.rs counts of writes
//! snapshots/   snapshot_store.rs the current snapshot · snapshot.rs reading a snapshot
//!              snapshot_writer.rs writing · snapshot_receiver.rs receiving from a peer
//!              chunk_writer.rs writes the chunks of written and received snapshots
//!              manifest.rs description and hash
//! databases/   database.rs the chunks of each snapshot · engine.rs the trait of engines
//!              sled_engine.rs sled · copying.rs copies for reading
//!              closers.rs closes dropped databases
//! directory/   layout.rs names, lock · place.rs small records · node_meta.rs identity of the node
//!              disk_guard.rs free space, ballast · page_cache.rs drops unwritten pages
//!              descriptors.rs spare file descriptors
//! raft/        types.rs the types of Raft · responder.rs answers to proposers
//!              runtime.rs the async runtime · watch.rs its watch channel
//!
//! codec.rs     the bytes of records    error.rs      errors of opening
//! fatal.rs     the first disk error    failpoint.rs  places where crash tests stop or kill
//! ```
//!
//! docs/dev/storage-format.md describes the bytes, docs/storage-trouble.md each fault and its
//! remedy.

pub mod codec;
mod databases;
mod directory;
mod durations;
mod error;
mod failpoint;
mod fatal;
mod log;
mod raft;
mod seeding;
pub mod simulation;
mod snapshots;
mod storage;

pub use directory::descriptors::{descriptors_wanted, want_descriptors};
pub use directory::disk_guard::DiskGuard;
pub use directory::node_meta::{FORMAT, Identity, NodeMeta};
pub use durations::{Durations, TENURE, WORK};
pub use error::Error;
#[cfg(feature = "failpoints")]
pub use failpoint::FAILPOINTS;
pub use fatal::Fatal;
pub use log::log_store::{LogStore, without_a_gap};
pub use log::log_writes::LogWrites;
pub use raft::responder::Responder;
pub use raft::runtime::{Random, Runtime, random_uuid, seed_random};
pub use raft::types::{
    Command, Entry, LogId, Member, Membership, Outcome, Payload, SnapshotMeta, StoredMembership, TypeConfig, Vote,
};
pub use seeding::Seed;
pub use snapshots::manifest::Manifest;
pub use snapshots::snapshot::{Records, Snapshot};
pub use snapshots::snapshot_receiver::SnapshotReceiver;
pub use snapshots::snapshot_store::SnapshotStore;
pub use snapshots::snapshot_writer::SnapshotWriter;
pub use storage::{Closing, Storage, StorageConfig};
