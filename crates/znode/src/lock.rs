//! Locks.
//!
//! A lock is a znode with tickets among its children: children whose names end in ten digits,
//! whichever client made them. Who holds and who waits is in its queue (`queue.rs`), and `grant.rs`
//! says who holds next. What is remembered or asked of a lock beyond that is in the other files of
//! `lock/`.

pub(crate) mod acquire;
pub(crate) mod contender;
pub(crate) mod deadlock;
pub(crate) mod demand;
pub(crate) mod ended;
pub(crate) mod grant;
mod granted;
pub(crate) mod history;
pub(crate) mod locks;
mod managed;
pub(crate) mod mixed_clients;
pub(crate) mod mode;
pub(crate) mod multilock;
pub(crate) mod positions;
pub(crate) mod queue;
pub(crate) mod readings;
mod release;
pub(crate) mod revocations;
pub(crate) mod revoke;
pub(crate) mod ticket_name;
mod tickets;
pub(crate) mod upgrade;

pub use crate::entry::applied::{Held, WaitsFor};
pub use ended::{EndedSession, EndedTicket, Grant, Moment, TicketEnd};
pub use history::{ended_in, history, may_read_history, may_read_of_ended};
pub use mixed_clients::{BlindSpot, Naming};
pub use readings::{
    LockStatus, LockSummary, Permits, Queue, QueueEntry, grant, holder, is_held_by, is_held_with, lint, list, parts,
    paths, position, queue, revocation, status, summary,
};
pub use revocations::Revocation;
pub use ticket_name::TICKET_NAME_BYTES_MAX;
