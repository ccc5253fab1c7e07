//! The way from the listener to a session, and the connections that a door takes.

pub(crate) mod handshake;
pub(crate) mod serve;
