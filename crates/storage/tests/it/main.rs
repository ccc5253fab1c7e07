//! The storage through its public functions: openraft's suite, reopening, refusals, crashes and
//! faults.

// clippy's exception for tests does not cover helper functions.
#![allow(clippy::unwrap_used)]

mod crashes;
mod damage;
mod faulty_disk;
mod golden;
mod harness;
mod log_store;
mod lost_pages;
mod lost_state;
mod node_meta;
mod openraft_suite;
mod seeds;
mod small_disk;
mod snapshots;
mod workload;
