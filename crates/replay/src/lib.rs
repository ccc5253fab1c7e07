//! What happened to locks and sessions, told from the log of a node that is stopped.
//!
//! The newest snapshot and the committed entries behind it are applied once more by a plain loop
//! ([`replay`]). What an entry granted and ended is found by comparing the holders of each lock
//! that it touched before and after it ([`Holders`]), so a fact ([`Fact`]) does not depend on what
//! the state machine says of itself.

mod facts;
mod holders;
mod log;

pub use facts::{Fact, Mode};
pub use holders::Holders;
pub use log::{Error, Node, replay};
