//! What a node keeps on disk: the Raft log, snapshots and its own identity. Durable before it says
//! so.
//!
//! ```text
//! Storage::open ─┬─ LogStore       entries, vote, committed position     raft-log   log/
//!                ├─ SnapshotStore  one current snapshot, chunk by chunk  sled       sled/, snapshot
//!                ├─ NodeMeta       whose data this is                    a record   node
//!                └─ DiskGuard      free space, ballast                              ballast
//! ```
//!
//! `replica` opens it, gives [`LogStore`] to openraft and writes and reads snapshots through
//! [`SnapshotStore`]. The log is async and groups the flushes of many appends into one; the rest
//! blocks on the disk and belongs on a thread that may. What an entry or a record means is none of
//! this crate's business.
//!
//! Invariants:
//!
//! * What was reported durable survives the end of the process and of the machine, as far as the
//!   disk keeps its word.
//! * The first failed write, flush or fsync is the last: [`Fatal`] keeps its reason, and every
//!   later call is refused.
//! * `current` names a whole snapshot whose hash was verified, and never an older one than before.
//! * The log begins no later than behind the current snapshot. A node whose snapshot is lost gives
//!   its log up, but for its vote, and has no say before it has everything from a leader again.
//! * A directory that is damaged, newer or another node's is refused with a message that says what
//!   to do.
//!
//! No two files use each other:
//!
//! ```text
//! storage.rs   opens a data directory and checks that its parts fit together
//! seeding.rs   makes one whose whole past is a snapshot
//! memory.rs    a disk in memory, for simulations; no other file knows it
//!
//! log/         log_store.rs the log as openraft sees it · flushes.rs who waits for which flush
//!              callback.rs the end of a flush · wal.rs records as raft-log wants them
//!              tail.rs the end of the log after a power cut · log_writes.rs how much waits for the disk
//! snapshots/   snapshot_store.rs which one is current · snapshot.rs reading one · snapshot_writer.rs making one
//!              snapshot_receiver.rs taking one from a peer · chunk_writer.rs what both write
//!              manifest.rs what one consists of
//! databases/   database.rs the chunks of each snapshot · engine.rs what holds them · sled_engine.rs sled does
//!              copying.rs the copy through which they are read · closers.rs databases that are being closed
//! directory/   layout.rs names and lock · place.rs small records · node_meta.rs whose data it is
//!              disk_guard.rs free space, ballast · page_cache.rs what only the page cache has
//!              descriptors.rs a process that may open no more files
//! raft/        types.rs the types of Raft · responder.rs the way of an answer · runtime.rs where it runs
//!              watch.rs its watch channel
//!
//! codec.rs     the bytes of records    error.rs      why a storage does not open
//! fatal.rs     the first disk error    failpoint.rs  where crash tests strike
//! ```
//!
//! docs/storage-format.md describes the bytes, docs/storage-trouble.md each fault and its remedy.

pub mod codec;
mod databases;
mod directory;
mod error;
mod failpoint;
mod fatal;
mod log;
pub mod memory;
mod raft;
mod seeding;
mod snapshots;
mod storage;

pub use directory::descriptors::{descriptors_wanted, want_descriptors};
pub use directory::disk_guard::DiskGuard;
pub use directory::node_meta::{FORMAT, Identity, NodeMeta};
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
pub use seeding::{Seed, owner_of};
pub use snapshots::manifest::Manifest;
pub use snapshots::snapshot::{Records, Snapshot};
pub use snapshots::snapshot_receiver::SnapshotReceiver;
pub use snapshots::snapshot_store::SnapshotStore;
pub use snapshots::snapshot_writer::SnapshotWriter;
pub use storage::{Closing, Storage, StorageConfig};
