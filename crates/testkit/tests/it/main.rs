//! The client of ZooKeeper's protocol, and links that are cut.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod links;
mod zookeeper_client;
