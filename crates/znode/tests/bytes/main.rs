//! The bytes of transactions and snapshot records: frozen, and safe to read when they are damaged.
//!
//! Until the first release a change of the format writes the files in `golden/` anew: run this test with `WRITE_GOLDEN=1`, then
//! read the diff. From then on they are never written anew: a new variant adds a line, and a new format adds a file.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod frozen;
mod ledgers;
mod locks;
mod znodes;
