//! The Jepsen-style harness: real processes, real faults, checked histories. docs/jepsen.md says
//! how to use it.
//!
//! A run goes through `runner.rs`: `cluster/` starts nodes, and `workload/` lets clients act
//! through `client.rs`, with HTTP (`http.rs`) or `testkit`'s client of ZooKeeper's protocol.
//! `nemesis/` makes faults meanwhile, and `recorder.rs` records the history. `answer.rs` is the one
//! table that says which answer is ok, fail or info. Then `check/` judges the history and
//! `report.rs` writes the report.
//!
//! The judging modules do no I/O: `history.rs` is Jepsen's format, `wgl.rs` decides linearizability
//! by search, and `models/` says what operations mean, without zlock's code.

pub mod answer;
mod ballast;
pub mod check;
pub mod client;
pub mod cluster;
pub mod convergence;
pub mod endpoints;
mod ends;
pub mod history;
pub mod http;
pub mod models;
pub mod needs;
pub mod nemesis;
pub mod options;
mod pulse;
pub mod recorder;
pub mod replay;
pub mod report;
mod rows;
pub mod runner;
pub mod snapshots;
pub mod store;
pub mod verdict;
pub mod wgl;
pub mod workload;
