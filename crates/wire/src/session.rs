//! Connections with a session: their requests and answers, in order.

pub(crate) mod connection;
pub(crate) mod conversation;
pub(crate) mod door;
pub(crate) mod keep_alive;
pub(crate) mod long_reads;
pub(crate) mod requests;
