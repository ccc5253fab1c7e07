//! Nodes of one process: elections, members, sessions, waits, and strangers (callers that are no
//! members) at the peer port.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod differing;
mod drained;
#[path = "../ensemble/mod.rs"]
mod ensemble;
mod ensemble_serves;
mod kept_directories;
mod levels;
mod load;
mod members;
mod new_directories;
mod partitions;
mod removed_members;
mod sessions;
#[path = "../stranger/mod.rs"]
mod stranger;
mod strangers;
mod waits;
