//! Seeds, and a node alone whose disk stands still.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod seeds;
mod slow_disk;
