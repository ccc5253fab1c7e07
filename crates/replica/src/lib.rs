//! One handle on the replicated state: [`Replica`].
//!
//! The doors (the HTTP and the ZooKeeper server) call only this handle: [`Replica::propose`]
//! writes, [`Replica::read`] reads, [`Replica::wait_for`] and [`Replica::events`] wait,
//! [`Replica::touch`] keeps a session alive. Every call has a deadline, works on any node, and says
//! on failure whether anything may have happened ([`Error`]).
//!
//! ```text
//! propose ──> leader's Raft ──> log of a majority ──> StateMachine ──> View ──> wait_for
//!                   ^                                        │
//!           peers (transport)                                └──> propose returns to its caller
//! ```
//!
//! What always holds:
//! - The changes of a batch of entries become readable together, and their events are published
//!   under the same lock. Only then do the proposers of these entries get their answers.
//! - `Unavailable` means that nothing was proposed. The outcome of any call that may have reached a
//!   leader's Raft is `Unknown`.
//! - A leader expires a session only in its own term: after a whole timeout without a heartbeat, in
//!   which a quorum followed the leader.
//! - A node with a new data directory has no vote before it has caught up with the cluster's log,
//!   or knows that the cluster is new (`bootstrap`).
//! - Every queue, table and wait has a limit from [`Config`], or from a constant in its file.
//! - No two files import each other. Each task is a struct with the parts that it needs, and only
//!   `node.rs` knows all tasks.
//! - Folders are layers: a folder uses only itself and the folders above it in this list.
//!
//! ```text
//! config.rs    settings of a node                  error.rs       how a call fails
//! stop.rs      signal that a node stops            simulation.rs  simulated network and disk
//! local/       host.rs            machine of the node: clock and blocking steps
//!              background.rs      threads of low priority for long work
//!              disk_watch.rs      detects a disk that does not answer
//!              disk_space.rs      whether the disk has free space
//!              vote_gate.rs       whether the node has a vote
//!              leader_watch.rs    signs that the leader lives or has failed
//!              session_tracker.rs times of the sessions' last heartbeats
//!              leader_term.rs     heartbeats in one term, and ages from the previous leader
//!              counters.rs        counters for monitoring
//!              bounds.rs          bounds for which requests are refused
//!              entry_clock.rs     the time on entries
//! view/        View: the applied state, and callers that wait for changes
//!              watches.rs         watches by path
//!              event_ring.rs      the last events
//!              observer.rs        interface for a server that keeps watches itself
//!              histories.rs       hashes of the histories that are compared
//!              scrub.rs           progress of the scrub, which hashes all records of the state
//!              forced.rs          log of locks that are taken from their sessions
//!              life.rs            whether the node runs, stops or has failed
//! raft/        consensus.rs       Consensus: Raft as the other parts see it
//!              state_machine.rs   Raft's state machine
//!              network.rs         Raft's calls to peers
//!              peers.rs           Peers: the other members
//!              quorum_contact.rs  when a peer last followed this node
//!              purge_index.rs     index up to which the log is purged
//!              reach.rs           whether a peer can be connected to
//!              transport/         connections, frames, messages
//!              stored_progress.rs what a node finds on its disk at its start
//!              decoded_entries.rs entries that were decoded when they came in
//!              known_cluster.rs   the cluster's uuid, zxid base, format level, members
//!              continuity.rs      whether an append agrees with what is committed
//!              transitions.rs     which membership may follow another one
//!              agreement.rs       Agreement: whether the members' states agree
//!              ahead_of_leader.rs Accounts: detects logs that contradict each other
//! write/       propose.rs         Proposer: writes
//!              proposal_queue.rs  ProposalQueue: proposals on their way to Raft, in batches
//!              budget.rs          bounds on proposals under way
//!              closings.rs        bound on large sessions that are being closed
//!              retry.rs           retries with growing pauses
//! read.rs      Reads: linearizable and local reads
//! leader/      leadership.rs      Leadership: expiry, collection and other duties of a leader
//!              quota_log.rs       log of subtrees that exceed their quota
//!              mixed_log.rs       log of locks whose clients do not see each other
//!              scrub_pace.rs      time between two entries of the scrub
//!              orders.rs          orders of an operator and their results
//!              operators.rs       Operators: carries orders out, or forwards them to the leader
//!              member_steps.rs    the next step of a change of the members
//!              members.rs         Members: the changes themselves
//!              member_duty.rs     does these steps one after the other
//!              transfer.rs        transfer of leadership
//! follower/    bootstrap.rs       Bootstrap: founding and joining
//!              campaign.rs        when a follower asks for votes
//!              follow_members.rs  keeps peers equal to the members, and ends a removed node
//!              session_heartbeats.rs heartbeats of sessions on their way to the leader
//! operate/     status.rs          Status: facts that a node reports of itself
//!              health.rs          whether the cluster is healthy
//!              story.rs           log lines about leader, quorum, readiness, peers
//!              change_reporter.rs bound on log lines about a value that changes
//!              comparison.rs      Comparison: compares the members' states
//!              disk_stall.rs      lets a leader whose disk stalls hand over
//!              drain_wish.rs      keeps a drained node from leading
//!              serving.rs         ends waits at a node that cannot serve
//!              housekeeping.rs    periodic work
//!              upgrade.rs         raising the format level
//! server/      Server: answers to peers
//! programs.rs  programs that the members run
//! node.rs      makes the parts of a node, starts and ends it
//! replica.rs   the handle
//! reception.rs Reception: clients' connections at one server
//! offline/     beginning.rs       makes the data directory of a restored cluster's member
//!              survivor.rs        reads the data of a stopped node
//!              error.rs           why offline work is refused
//! ```

mod config;
mod error;
mod follower;
mod leader;
mod local;
mod node;
pub mod offline;
mod operate;
mod programs;
mod raft;
mod read;
mod reception;
mod replica;
mod server;
pub mod simulation;
mod stop;
mod view;
mod write;

#[cfg(fuzzing)]
pub mod fuzzing {
    //! Function that the fuzz target calls. Only builds for fuzzing have this module.
    pub use crate::raft::transport::peer_message;
}

pub use config::{Config, Member, PeerTls, node_uri};
pub use error::{Error, EventsError, Failure, StartError, WaitEnd};
pub use follower::session_heartbeats::Touch;
pub use leader::orders::{MemberReport, MembersReport, NewMember, Order, OrderError, OrderOutcome, RefusedOrder};
pub use local::background;
pub use local::bounds::Bound;
pub use local::counters::{Counts, Entrance, RequestEnd, TurnedAway};
pub use local::session_tracker::Silence;
pub use local::times::{PeerMeasures, Times};
pub use operate::health::{Health, MemberHealth, Part};
pub use operate::status::{Check, Followers, Leader, NodeStatus, Readiness, Role, SnapshotStatus};
pub use operate::upgrade::FinalizeOutcome;
pub use programs::{MemberProgram, UpgradeStatus};
pub use raft::peers::PeerTally;
pub use raft::transport::MEMBERS_MAX;
pub use read::Consistency;
pub use reception::Reception;
pub use replica::{OpenConnection, Replica};
pub use storage::{Durations, WORK, descriptors_wanted, random_uuid, want_descriptors};
pub use view::observer::{Observer, Observing};
pub use view::watches::{EventBatch, EventKinds, EventQuery, Step, WatchKey};
pub use znode::{Program, ZXID_BASE_MAX};
