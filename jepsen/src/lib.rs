//! The Jepsen-style harness: real processes, real faults, checked histories. docs/jepsen.md says
//! how to use it.
//!
//! A run goes through `runner.rs`: `cluster/` starts nodes, `workload/` lets clients act through
//! `client.rs` and `http.rs` or `testkit`'s client of the ZooKeeper door, `nemesis/` breaks
//! things meanwhile, and `recorder.rs` takes the history down. `answer.rs` is the one table that
//! says which answer is ok, fail or info. Then `check/` judges the history and `report/` writes it
//! up.
//!
//! The judges are pure: `history.rs` is Jepsen's format, `wgl.rs` decides linearizability by
//! search, `check/zones.rs` decides registers in linear time, `models/` says what operations mean
//! without a line of zlock's own code.

pub mod answer;
mod ballast;
pub mod check;
pub mod client;
pub mod cluster;
pub mod convergence;
mod ends;
pub mod history;
pub mod http;
pub mod models;
pub mod needs;
pub mod nemesis;
mod pulse;
pub mod recorder;
pub mod replay;
pub mod report;
pub mod runner;
pub mod snapshots;
pub mod store;
pub mod verdict;
pub mod wgl;
pub mod workload;
