//! Harness of the integration tests: node processes, the network between them, and clients.

mod client;
mod cluster;
mod node;

use rustix::process::Signal;
pub(crate) use testkit::http::{Answer, Call};
pub(crate) use testkit::{Pace, Ports, Proxy, Rule, until};

pub(crate) use client::{Client, Session};
pub(crate) use cluster::{CLUSTER_ID, Cluster, Options};
pub(crate) use node::{PROGRAM, run_to_end};

/// Sends a signal to a process that this test started.
pub(crate) fn kill(pid: u32, signal: Signal) {
    testkit::signal(pid, signal).unwrap();
}
