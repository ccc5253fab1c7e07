//! One handle on the replicated state: [`Replica`].
//!
//! Doors call it and nothing else: [`Replica::propose`] writes, [`Replica::read`] reads, [`Replica::wait_for`] and
//! [`Replica::events`] wait, [`Replica::touch`] keeps a session alive. Every call has a deadline, works on any node,
//! and says on failure whether anything may have happened ([`Error`]).
//!
//! ```text
//! propose ──> leader's Raft ──> log of a majority ──> StateMachine ──> View: state, watches, events ──> wait_for
//!                 ^                                                      │
//!           peers (transport)                                            └──> propose returns on the node that asked
//! ```
//!
//! What always holds:
//! - What a batch of entries changed is readable at once, its events are told under the same guard, and only then do its
//!   proposers hear of it.
//! - `Unavailable` means that nothing was proposed. Whatever may have reached a leader's Raft is `Unknown`.
//! - A session is expired by a leader in its own term, after it listened for the whole timeout with a quorum behind it.
//! - A node with a new data directory has no vote before it knows that it has lost nothing (`formation`).
//! - Every queue, table and wait has a bound from [`Config`] or a constant beside it.
//!
//! ```text
//! replica.rs          the handle
//! node.rs             all parts of one node
//! config.rs           its bounds and times
//! error.rs            how a call fails
//!
//! propose.rs          writes
//! decoded.rs          entries that were read as they came
//! entry_clock.rs      the time on entries
//! budget.rs           how much may be under way
//! tries.rs            trying again, without hurry
//! reads.rs            read indexes
//! heartbeats.rs       heartbeats of sessions
//! session_tracker.rs  when each session was last heard
//! closings.rs         large sessions that are closed
//!
//! state_machine.rs    Raft's state machine
//! view.rs             published state and its waiters
//! watches.rs          which wait is for which path
//! event_ring.rs       the last events
//! observer.rs         doors with watches of their own
//!
//! leadership.rs       what a leader does of itself
//! elections.rs        when a follower asks for votes
//! following.rs        when a peer last followed this node
//! formation.rs        founding and joining
//! found.rs            what a node finds on its disk
//! known_cluster.rs    the cluster's uuid, zxid base and level, as far as the node knows
//! disk_watch.rs       a disk that does not answer
//! housekeeping.rs     free space, snapshots
//! quota_log.rs        subtrees beyond their quota
//! status.rs           what a node tells of itself
//! background.rs       long work beside all that
//! counters.rs            what has passed through it
//! seldom.rs           lines of the log that strangers cause
//! story.rs            what changes, as the log tells it
//! told.rs             what was told of it last
//! reach.rs            whether peers can be reached
//! forced.rs           locks that are taken from their sessions
//! stop.rs             the end of a node
//!
//! transport/          connections, frames, messages
//! network.rs          Raft's calls to peers
//! server/             answers to peers
//! continuity.rs       appends and what is committed
//! ahead_of_leader.rs  two histories, and no telling which is right
//!
//! simulation.rs       a world to run in, for simulations
//! planted.rs          bugs for harnesses to find
//! ```

mod config;
mod error;
#[cfg_attr(not(feature = "planted"), allow(unreachable_pub))]
mod fault_injection;
mod follower;
mod leader;
mod node;
mod operate;
mod raft;
mod read;
mod replica;
pub mod simulation;
mod stop;
mod write;

#[cfg(fuzzing)]
pub mod fuzzing {
    //! For the fuzz target, and in no other build.
    pub use crate::raft::transport::peer_message;
}

pub use config::{Config, Member};
pub use error::{Error, EventsError, Failure, StartError, WaitEnd};
#[cfg(feature = "planted")]
pub use fault_injection::{Planted, plant, plant_everywhere};
pub use operate::background;
pub use operate::counters::{Counts, Entrance, RequestEnd};
pub use operate::seldom::Seldom;
pub use operate::status::{Leader, NodeStatus, Readiness, Role, SnapshotStatus};
pub use read::observer::{Observer, Observing};
pub use read::watches::{EventBatch, EventKinds, Step, WatchKey};
pub use replica::{Consistency, Replica, Touch};
pub use znode::ZXID_BASE_MAX;
