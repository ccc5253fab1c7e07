//! The Jepsen-style harness: real processes, real faults, checked histories.
//!
//! `history.rs` is Jepsen's format, `wgl.rs` decides linearizability by search, `models/` says what operations mean,
//! `check/` judges each workload.

pub mod answer;
pub mod check;
pub mod client;
pub mod cluster;
mod edn;
pub mod history;
pub mod http;
pub mod models;
pub mod recorder;
pub mod verdict;
pub mod wgl;
pub mod workload;
