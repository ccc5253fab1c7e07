//! From the listener to a session, and which connections a door takes.

pub(crate) mod handshake;
pub(crate) mod serve;
