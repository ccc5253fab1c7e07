//! The Raft log: entries, vote and committed position in one stream of raft-log.

pub(crate) mod callback;
pub(crate) mod flushes;
pub(crate) mod log_store;
pub(crate) mod log_writes;
pub(crate) mod tail;
pub(crate) mod wal;
