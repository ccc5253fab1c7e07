//! Nodes of one process whose disks are full, slow or broken, and noise (random and damaged frames)
//! at their peer ports.
//!
//! These tests have a separate binary, and run one at a time: fail points, the panic hook and the
//! log belong to the whole process.

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
