//! Tests of several seeds, and of a single node whose disk stalls.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod seeds;
mod slow_disk;
