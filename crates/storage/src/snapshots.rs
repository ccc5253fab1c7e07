//! Writing, receiving and reading of snapshots, and the record that names the current one.

pub(crate) mod chunk_writer;
pub(crate) mod manifest;
pub(crate) mod snapshot;
pub(crate) mod snapshot_receiver;
pub(crate) mod snapshot_store;
pub(crate) mod snapshot_writer;
