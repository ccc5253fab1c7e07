//! The bytes of transactions and snapshot records: compared with golden files, and safe to read
//! when they are damaged.
//!
//! The golden files of a format level are never written again: a later level has additional files
//! of its own, see docs/dev/formats.md.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod frozen;
mod ledgers;
mod locks;
mod znodes;
