//! The HTTP door in front of a real single node: every route, every bound, every way to leave.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod bounds;
mod connections;
mod lint;
mod locks;
mod node;
mod past;
mod problems;
mod revoke;
mod sessions;
mod upgrade;
mod waits;
mod watches;
mod znodes;
