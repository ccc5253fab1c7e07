//! Tests of the server for ZooKeeper clients from outside: a client that knows only the protocol,
//! against real nodes on loopback.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bounds;
mod client;
mod crowds;
mod lines;
mod long;
mod node;
mod nulls;
mod operations;
mod order;
mod own;
mod permissions;
mod secure;
mod sessions;
mod sick_node;
mod strangers;
mod watches;
mod words;
