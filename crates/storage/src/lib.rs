//! What a node keeps on disk: the Raft log, snapshots and its own identity. Durable before it says so.
pub mod codec;
mod failpoint;
mod fatal;
mod log_store;
mod types;
mod wal;

#[cfg(feature = "failpoints")]
pub use failpoint::FAILPOINTS;
pub use fatal::Fatal;
pub use log_store::LogStore;
pub use types::{
    Command, Entry, LogId, Member, Membership, Outcome, Payload, SnapshotMeta, StoredMembership, TypeConfig, Vote,
};
