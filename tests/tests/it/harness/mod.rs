//! Processes, their network and their clients.

mod client;
mod cluster;
mod node;
mod ports;
mod proxy;
mod until;

pub(crate) use client::{Answer, Call, Client, Session};
pub(crate) use cluster::{Cluster, Options};
pub(crate) use node::{PROGRAM, kill, run_to_end};
pub(crate) use ports::Ports;
pub(crate) use proxy::{CLUSTER_ID, Proxy, Rule};
pub(crate) use until::{Pace, until};
