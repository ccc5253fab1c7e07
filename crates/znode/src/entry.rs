//! Content of an entry of the log, and the answers to it.

pub(crate) mod codec;
pub(crate) mod kind;
pub(crate) mod ops;
pub(crate) mod txn;
pub(crate) mod txn_outcome;
