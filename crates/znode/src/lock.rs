//! Reads of locks, for other crates.
//!
//! A lock is a znode with tickets among its children: children whose names end in ten digits,
//! whichever client made them. The lock's queue has its holders and waiters (`queue.rs`), and
//! `operations/grant.rs` decides which ticket holds next.

pub use crate::edits::history::{ended_in, history, may_read_history, may_read_of_ended};
pub use crate::entry::txn_outcome::{TicketHolds, WaitsFor};
pub use crate::operations::readings::{
    LockStatus, LockSummary, Permits, QueueEntry, QueuePage, grant, holder, is_held_by, is_held_with, list,
    mixed_clients, parts, paths, position, queue, revocation, status, summary,
};
pub use crate::queue::ended::{EndedSession, EndedTicket, Grant, Moment, TicketEnd};
pub use crate::queue::revocations::Revocation;
pub use crate::state::mixed_clients::{MixedPair, Naming};
pub use crate::words::ticket_name::{TICKET_NAME_BYTES_MAX, is_ticket_name, sequence_of};
