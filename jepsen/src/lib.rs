//! The Jepsen-style harness: real processes, real faults, checked histories.
//!
//! `history.rs` is Jepsen's format, `wgl.rs` decides linearizability by search, `models/` says what operations mean,
//! `check/` judges each workload.

pub mod check;
mod edn;
pub mod history;
pub mod models;
pub mod verdict;
pub mod wgl;
