//! Work of a follower: getting a vote, standing for election, and forwarding heartbeats of
//! sessions.

pub(crate) mod bootstrap;
pub(crate) mod campaign;
pub(crate) mod follow_members;
pub(crate) mod session_heartbeats;
