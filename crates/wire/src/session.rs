//! A connection, from its first byte to its end.

pub(crate) mod client;
pub(crate) mod connection;
mod conversation;
mod departures;
pub(crate) mod door;
pub(crate) mod end;
pub(crate) mod evictions;
pub(crate) mod handshake;
pub(crate) mod inbox;
pub(crate) mod incomplete_packets;
mod keep_alive;
pub(crate) mod liveness;
pub(crate) mod outbox;
pub(crate) mod read_into;
pub(crate) mod select_lazy;
pub(crate) mod serve;
pub(crate) mod shared_bytes;
