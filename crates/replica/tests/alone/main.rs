//! Nodes of one process whose disks are full, slow or broken, and noise at their peer ports.
//!
//! This is a binary of its own, and its tests take turns: fail points, the panic hook and the log
//! belong to the whole process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../ensemble/mod.rs"]
mod ensemble;
mod failing_disk;
mod full_disk;
mod noise;
mod slow_disk;
mod stalled_leader;
#[path = "../stranger/mod.rs"]
mod stranger;
