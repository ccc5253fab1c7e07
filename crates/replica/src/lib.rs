//! One handle on the replicated state: [`Replica`].
//!
//! Doors call it and nothing else: [`Replica::propose`] writes, [`Replica::read`] reads, [`Replica::wait_for`] and
//! [`Replica::events`] wait, [`Replica::touch`] keeps a session alive. Every call has a deadline, works on any node,
//! and says on failure whether anything may have happened ([`Error`]).

mod config;
mod error;
mod event_ring;
mod formation;
mod heartbeats;
mod leadership;
mod network;
mod node;
mod propose;
mod reads;
mod replica;
mod server;
mod session_tracker;
pub mod simulation;
mod state_machine;
mod status;
mod transport;
mod view;
mod watches;

pub use config::{Config, Member};
pub use error::{Error, EventsError, StartError, WaitEnd};
pub use replica::{Consistency, Replica, Touch, idempotency};
pub use status::{Leader, NodeStatus, Readiness, Role, SnapshotStatus};
pub use watches::{EventBatch, EventKinds, Step, WatchKey};
