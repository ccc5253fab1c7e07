//! A whole cluster in one thread from one seed.
//!
//! The nodes run the real `replica` over the real Raft; network, clocks and disks are simulated,
//! and everything that is left to chance follows from the seed. So a run that fails can be played
//! again, step by step.
//!
//! ```text
//! cluster.rs   one run, step by step             client.rs, workload.rs, operator.rs  what clients do
//! machine.rs   a node: process, clock, disk      faults.rs                what goes wrong
//! hub.rs       time, what is due, the trace      history.rs               the committed log, applied once more
//! network.rs   links and connections             member_faults.rs         members come, go and are replaced
//! votes.rs     who voted for whom                invariants/              what must always be true
//! programs.rs  older and newer programs
//! log_disk.rs  a log that can lose its end
//! ```
//!
//! docs/simulation.md says how it works and what it cannot show.

pub mod call;
pub mod client;
#[cfg(test)]
mod clock_leap;
pub mod cluster;
pub mod counts;
mod dialing;
#[cfg(test)]
mod failover;
pub mod faults;
pub mod history;
pub mod hub;
pub mod invariants;
mod lease_faults;
pub mod log_disk;
pub mod machine;
mod member_faults;
pub mod network;
pub mod observation;
mod operator;
mod panics;
pub mod programs;
#[cfg(test)]
mod stalls;
pub mod stream;
pub mod switchboard;
pub mod trace;
pub mod votes;
mod words;
pub mod workload;
