//! Requests of an entry of the log, and their answers.

pub(crate) mod applied;
pub(crate) mod codec;
pub(crate) mod kind;
pub(crate) mod ops;
pub(crate) mod txn;
