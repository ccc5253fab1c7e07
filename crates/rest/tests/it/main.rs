//! The HTTP server of a real single node: every route, every bound, and every way in which a
//! request ends.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod bounds;
mod browsers;
mod connections;
mod contract;
mod crowds;
mod elections;
mod fence;
mod groups;
mod health;
mod keyless;
mod levels;

mod locks;
mod managed_locks;
mod metrics;
mod mixed_clients;
mod multilocks;
mod node;
mod past;
mod permissions;
mod problems;
mod quotas;
mod revoke;
mod secure;
mod semaphores;
mod sessions;
mod simple_locks;
mod upgrade;
mod waits;
mod watches;
mod who_holds;
mod znodes;
