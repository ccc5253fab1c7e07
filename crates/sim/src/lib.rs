//! A whole cluster in one thread from one seed.
//!
//! The nodes run the real `replica` over the real Raft; network, clocks and disks are simulated,
//! and everything that is left to chance follows from the seed. So a run that fails can be played
//! again, step by step.
//!
//! ```text
//! cluster.rs   one run, step by step             client.rs, workload.rs   what clients do
//! machine.rs   a node: process, clock, disk      faults.rs                what goes wrong
//! hub.rs       time, what is due, the trace      history.rs               the committed log, applied once more
//! network.rs   links and connections             invariants/              what must always be true
//! log_disk.rs  a log that can lose its end       fault_injection.rs               bugs, to see that they are found
//! ```
//!
//! docs/simulation.md says how it works and what it cannot show.

pub mod call;
pub mod client;
pub mod cluster;
pub mod coverage;
mod dialing;
#[cfg(test)]
mod failover;
pub mod fault_injection;
pub mod faults;
pub mod history;
pub mod hub;
pub mod invariants;
mod lease_faults;
pub mod log_disk;
pub mod machine;
pub mod network;
pub mod observation;
mod panics;
#[cfg(test)]
mod stalls;
pub mod stream;
pub mod switchboard;
pub mod trace;
mod words;
pub mod workload;
