//! Tests with full or slow disks, which failpoints simulate.
//!
//! Failpoints apply to a whole process. So these tests are a separate binary, and run one at a
//! time.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod full_at_start;
mod snapshot_copies;
