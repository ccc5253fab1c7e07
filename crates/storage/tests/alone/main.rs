//! Disks that are full or slow, by fail points.
//!
//! A binary of its own, whose tests take turns: fail points are the same for all of a process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod full_at_start;
mod snapshot_copies;
