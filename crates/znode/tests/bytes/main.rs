//! The bytes of transactions and snapshot records: frozen, and safe to read when they are damaged.
//!
//! The files in `golden/` are never written anew. A new variant adds a line; a new format adds a file.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod frozen;
mod ledgers;
mod locks;
mod znodes;
