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
//! docs/storage-format.md describes the bytes, docs/storage-trouble.md each fault and its remedy.

mod closers;
pub mod codec;
mod copying;
mod database;
mod disk_guard;
mod error;
mod failpoint;
mod fatal;
mod flushes;
mod layout;
mod log_store;
mod log_writes;
mod manifest;
pub mod memory;
mod node_meta;
mod place;
#[cfg_attr(not(feature = "planted"), allow(unreachable_pub))]
mod planted;
mod responder;
mod runtime;
mod snapshot;
mod snapshot_receiver;
mod snapshot_store;
mod snapshot_writer;
mod storage;
mod tail;
mod types;
mod wal;
mod watch;

pub use disk_guard::DiskGuard;
pub use error::Error;
#[cfg(feature = "failpoints")]
pub use failpoint::FAILPOINTS;
pub use fatal::Fatal;
pub use log_store::{LogStore, without_a_gap};
pub use log_writes::LogWrites;
pub use manifest::Manifest;
pub use node_meta::{FORMAT, Identity, NodeMeta};
#[cfg(feature = "planted")]
pub use planted::plant_ack_before_fsync;
pub use responder::Responder;
pub use runtime::{Random, Runtime, random_uuid, seed_random};
pub use snapshot::{Records, Snapshot};
pub use snapshot_receiver::SnapshotReceiver;
pub use snapshot_store::SnapshotStore;
pub use snapshot_writer::SnapshotWriter;
pub use storage::{Closing, Storage, StorageConfig};
pub use types::{
    Command, Entry, LogId, Member, Membership, Outcome, Payload, SnapshotMeta, StoredMembership, TypeConfig, Vote,
};
