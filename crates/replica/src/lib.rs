//! One handle on the replicated state: [`Replica`].
//!
//! Doors call it and nothing else: [`Replica::propose`] writes, [`Replica::read`] reads,
//! [`Replica::wait_for`] and [`Replica::events`] wait, [`Replica::touch`] keeps a session alive.
//! Every call has a deadline, works on any node, and says on failure whether anything may have
//! happened ([`Error`]).
//!
//! ```text
//! propose ──> leader's Raft ──> log of a majority ──> StateMachine ──> View: state, watches, events ──> wait_for
//!                 ^                                                      │
//!           peers (transport)                                            └──> propose returns on the node that asked
//! ```
//!
//! What always holds:
//! - What a batch of entries changed is readable at once, its events are told under the same guard,
//!   and only then do its proposers hear of it.
//! - `Unavailable` means that nothing was proposed. Whatever may have reached a leader's Raft is
//!   `Unknown`.
//! - A session is expired by a leader in its own term, after it listened for the whole timeout with
//!   a quorum behind it.
//! - A node with a new data directory has no vote before it knows that it has lost nothing
//!   (`bootstrap`).
//! - Every queue, table and wait has a bound from [`Config`] or a constant beside it.
//! - No two files use each other. A task is a struct with the parts that it needs, and only
//!   `node.rs` knows all of them.
//! - Folders are layers: each uses only itself and those above it in this list.
//!
//! ```text
//! config.rs    bounds and times                           error.rs      how a call fails
//! stop.rs      tells a node's tasks to end                simulation.rs a world to run in, for simulations
//! local/       host.rs what a node runs on · background.rs long work beside all that
//!              disk_watch.rs a disk that does not answer · disk_space.rs whether there is room
//!              vote_gate.rs whether the node has a vote · leader_watch.rs what it has seen of its leader
//!              session_tracker.rs when each session was last heard
//!              leader_term.rs sessions in one term, and their ages from the leader before
//!              counters.rs what has passed through · seldom.rs lines that strangers cause
//! view/        View: published state and its waiters · watches.rs which wait is for which path
//!              event_ring.rs the last events · observer.rs doors with watches of their own
//!              forced.rs locks that are taken from their sessions · life.rs whether the node goes on
//! raft/        consensus.rs Consensus: Raft as the other parts see it · state_machine.rs its state machine
//!              network.rs its calls to peers · peers.rs Peers: the other members
//!              quorum_contact.rs when a peer last followed this node
//!              purge_index.rs up to where the log is gone · reach.rs whether peers can be reached
//!              transport/ connections, frames, messages · stored_progress.rs what a node finds on its disk
//!              decoded_entries.rs entries that were read as they came
//!              known_cluster.rs the cluster's uuid, zxid base and level, as far as the node knows
//!              continuity.rs appends and what is committed · transitions.rs which membership may follow which
//!              ahead_of_leader.rs Accounts: two histories, and no telling which is right
//! write/       propose.rs Proposer: writes · entry_clock.rs the time on entries
//!              budget.rs how much may be under way · closings.rs large sessions that are closed
//!              retry.rs trying again, without hurry
//! read.rs      Reads: read indexes
//! leader/      leadership.rs Leadership: what a leader does of itself · quota_log.rs subtrees beyond their quota
//!              mixed_log.rs locks whose clients do not see each other
//!              orders.rs what an operator may order · operators.rs Operators: their orders, here or at the leader
//!              member_steps.rs what is next for the members · members.rs Members: changing them
//!              member_duty.rs the steps, one after the other · transfer.rs another voter leads
//! follower/    bootstrap.rs Bootstrap: founding and joining · campaign.rs when a follower asks for votes
//!              follow_members.rs peers are the members, and a removed node ends
//!              session_heartbeats.rs heartbeats of sessions on their way to the leader
//! operate/     status.rs Status: what a node tells of itself · health.rs whether the cluster is well
//!              story.rs what changes, as the log tells it · change_reporter.rs what was told last
//!              disk_stall.rs what a leader does while its disk stalls · drain_wish.rs a node that is not to lead
//!              serving.rs waits end at a node that cannot serve
//!              housekeeping.rs what is looked after now and then
//!              upgrade.rs which programs the members run, and raising the level
//! server/      Server: answers to peers
//! node.rs      makes the parts of a node, starts and ends it
//! replica.rs   the handle
//! offline/     beginning.rs the data directory of a restored cluster's member
//!              survivor.rs what a stopped node has · error.rs why not
//! ```

mod config;
mod error;
mod follower;
mod leader;
mod local;
mod node;
pub mod offline;
mod operate;
mod raft;
mod read;
mod replica;
mod server;
pub mod simulation;
mod stop;
mod view;
mod write;

#[cfg(fuzzing)]
pub mod fuzzing {
    //! The entry of the fuzz target, in no other build.
    pub use crate::raft::transport::peer_message;
}

pub use config::{Config, Member, Program};
pub use error::{Error, EventsError, Failure, StartError, WaitEnd};
pub use follower::session_heartbeats::Touch;
pub use leader::orders::{MemberReport, MembersReport, NewMember, Order, OrderError, OrderOutcome, RefusedOrder};
pub use local::background;
pub use local::counters::{Counts, Entrance, RequestEnd, TurnedAway};
pub use local::seldom::Seldom;
pub use local::session_tracker::Silence;
pub use operate::health::{Health, MemberHealth, Part};
pub use operate::status::{Check, Leader, NodeStatus, Readiness, Role, SnapshotStatus};
pub use operate::upgrade::{FinalizeOutcome, MemberProgram, UpgradeStatus};
pub use read::Consistency;
pub use replica::Replica;
pub use storage::{descriptors_wanted, random_uuid, want_descriptors};
pub use view::observer::{Observer, Observing};
pub use view::watches::{EventBatch, EventKinds, Step, WatchKey};
pub use znode::ZXID_BASE_MAX;
