//! The bytes of transactions and snapshot records: frozen, and safe to read when they are damaged.
//!
//! The files of a level are never written again: a later level has additional files of its own, see
//! docs/dev/formats.md.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod frozen;
mod ledgers;
mod locks;
mod znodes;
