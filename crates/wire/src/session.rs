//! A connection with a session: what is said on it, in which order.

pub(crate) mod connection;
pub(crate) mod conversation;
pub(crate) mod door;
pub(crate) mod keep_alive;
pub(crate) mod long_reads;
pub(crate) mod requests;
