//! Tests of the ZooKeeper client and of cut links.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod links;
mod zookeeper_client;
