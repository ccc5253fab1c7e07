//! Simulation of a whole cluster in one thread from one seed.
//!
//! The nodes run the real `replica` over the real Raft. Network, clocks and disks are simulated,
//! and all random choices follow from the seed. So a run that fails can be repeated step by step.
//!
//! ```text
//! cluster.rs   one run, step by step             client.rs, workload.rs, operator.rs  clients and their work
//! machine.rs   a node: process, clock, disk      faults.rs                kinds and times of faults
//! hub.rs       time, due events, the trace       history.rs               the committed log, applied again
//! network/     links, connections, deliveries    member_faults.rs         members come, go and are replaced
//! votes.rs     votes on the nodes' disks         invariants/              conditions that must always be true
//! programs.rs  older and newer programs
//! log_disk.rs  a log that can lose its end        memory_disk.rs          the disk of snapshots and identity
//! ```
//!
//! docs/dev/simulation.md explains the method and its limits.

pub mod call;
pub mod client;
pub mod cluster;
pub mod counts;
pub mod dialing;
pub mod faults;
pub mod history;
pub mod hub;
pub mod invariants;
mod lease_faults;
pub mod log_disk;
pub mod machine;
mod member_faults;
pub mod memory_disk;
pub mod network;
pub mod observation;
mod operator;
mod panics;
pub mod programs;
pub mod stream;
pub mod switchboard;
pub mod trace;
pub mod votes;
mod words;
pub mod workload;
