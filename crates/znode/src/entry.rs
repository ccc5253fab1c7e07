//! What an entry of the log asks for, what it may cost, and what comes of it.

pub(crate) mod applied;
pub(crate) mod budget;
pub(crate) mod changes;
pub(crate) mod codec;
pub(crate) mod context;
pub(crate) mod cost;
pub(crate) mod events;
pub(crate) mod ops;
pub(crate) mod txn;
