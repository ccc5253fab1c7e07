//! Databases of snapshots: one for the chunks of each.

pub(crate) mod closers;
pub(crate) mod copying;
pub(crate) mod database;
pub(crate) mod engine;
pub(crate) mod sled_engine;
