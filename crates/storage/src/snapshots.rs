//! Snapshots: how they are written, received and read, and the record of the current one.

pub(crate) mod chunk_writer;
pub(crate) mod manifest;
pub(crate) mod snapshot;
pub(crate) mod snapshot_receiver;
pub(crate) mod snapshot_store;
pub(crate) mod snapshot_writer;
