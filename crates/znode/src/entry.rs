//! Content of log entries (requests), and the results of applying them.

pub(crate) mod codec;
pub(crate) mod create_mode;
pub(crate) mod history_hash;
pub(crate) mod kind;
pub(crate) mod ops;
pub(crate) mod record_key;
pub(crate) mod txn;
pub(crate) mod txn_outcome;
