//! Disks that are full or slow, simulated by failpoints.
//!
//! A binary of its own, with tests that take turns, because failpoints apply to a whole process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod full_at_start;
mod snapshot_copies;
