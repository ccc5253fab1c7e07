//! Tests of several seeds, and of machines with a single kind of fault.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod clock_leap;
mod failover;
mod flipped;
mod seeds;
mod slow_disk;
mod stalls;
