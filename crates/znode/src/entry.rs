//! What an entry of the log asks for, and what is answered.

pub(crate) mod applied;
pub(crate) mod codec;
pub(crate) mod kind;
pub(crate) mod ops;
pub(crate) mod txn;
