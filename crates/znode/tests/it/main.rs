//! Tests of the state machine through its public interface: scripts, bytes, permissions, costs, and
//! random histories against a model.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bytes;
mod cluster;
mod costs;
mod docs;
mod history;
mod level_1;
mod locks;
mod memory;
mod model;
mod permissions;
mod properties;
mod quotas;
mod restore;
mod reviewed;
mod script;
mod scripts;
mod scrub;
mod specification;
