//! The way of a node to a vote, to asking for votes, and to passing on what its clients say.

pub(crate) mod bootstrap;
pub(crate) mod campaign;
pub(crate) mod follow_members;
pub(crate) mod session_heartbeats;
