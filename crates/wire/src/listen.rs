//! The listener and the handshake: from an accepted connection to a session.

pub(crate) mod handshake;
pub(crate) mod serve;
