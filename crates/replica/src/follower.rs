//! How a node comes to have a vote, to ask for votes, and to pass on what its clients say.

pub(crate) mod bootstrap;
pub(crate) mod campaign;
pub(crate) mod follow_members;
pub(crate) mod session_heartbeats;
