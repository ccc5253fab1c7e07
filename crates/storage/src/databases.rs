//! Databases of the snapshots. Each snapshot has its own database for its chunks.

pub(crate) mod closers;
pub(crate) mod copying;
pub(crate) mod database;
pub(crate) mod engine;
pub(crate) mod sled_engine;
