//! Nodes of one process whose disks are full, slow or broken, and noise at their peer ports.
//!
//! A binary of its own, whose tests take turns: fail points, the hook for panics and the log are
//! the same for all of a process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../ensemble/mod.rs"]
mod ensemble;
mod failing_disk;
mod full_disk;
mod lines;
mod noise;
mod slow_disk;
mod stalled_leader;
#[path = "../stranger/mod.rs"]
mod stranger;
