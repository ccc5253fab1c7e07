//! Tests of the ZooKeeper client, and of TCP proxies that cut the connection between two nodes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod links;
mod zookeeper_client;
