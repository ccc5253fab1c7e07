//! Replay of a stopped node's log, which finds the facts about its locks and sessions.
//!
//! The newest snapshot and the committed entries behind it are applied again by a plain loop
//! ([`replay`]). Grants, and ends of holds, are found by comparing the holders of each touched lock
//! before and after an entry ([`Holders`]). So a fact ([`Fact`]) does not depend on the replies and
//! events of the state machine.

mod facts;
mod holders;
mod log;

pub use facts::Fact;
pub use holders::Holders;
pub use log::{Error, Node, replay};
