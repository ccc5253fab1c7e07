//! Types that openraft is parameterized with. The bytes of a command are opaque to this crate.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use openraft::impls::{BoxedErrorSource, InlineBatch, leader_id_std};
use openraft::vote::RaftLeaderId;
use openraft::{OptionalSend, RaftTypeConfig};

use crate::raft::responder::Responder;

/// Types with which zlock uses openraft.
// Implemented without openraft's macro, which accepts no own `Responder`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TypeConfig;

impl RaftTypeConfig for TypeConfig {
    type D = Command;
    type R = Outcome;
    type NodeId = u64;
    type Node = Member;
    type Term = u64;
    type LeaderId = leader_id_std::LeaderId<u64, u64>;
    type Vote = openraft::impls::Vote<Self::LeaderId>;
    type Payload = openraft::EntryPayload<Command, u64, Member>;
    type Entry = openraft::Entry<<Self::LeaderId as RaftLeaderId>::Committed, Self::Payload>;
    type AsyncRuntime = crate::raft::runtime::Runtime;
    type Responder<T>
        = Responder<T>
    where
        T: OptionalSend + 'static;
    type Batch<T>
        = InlineBatch<T>
    where
        T: OptionalSend + 'static;
    type ErrorSource = BoxedErrorSource;
}

/// Position of a log entry: term and index.
pub type LogId = openraft::alias::LogIdOf<TypeConfig>;
/// A node's vote: a term, and the candidate that it voted for in that term.
pub type Vote = openraft::alias::VoteOf<TypeConfig>;
/// One entry of the Raft log.
pub type Entry = openraft::alias::EntryOf<TypeConfig>;
/// Content of a log entry: nothing, a command or a membership.
pub type Payload = openraft::alias::PayloadOf<TypeConfig>;
/// Members of the cluster: the voters (two sets of them during a change) and the learners.
pub type Membership = openraft::Membership<u64, Member>;
/// A membership and the position of the log entry that set it.
pub type StoredMembership = openraft::alias::StoredMembershipOf<TypeConfig>;
/// Description of a snapshot's content: the position of its last log entry, and its membership.
pub type SnapshotMeta = openraft::alias::SnapshotMetaOf<TypeConfig>;

/// The bytes of one command, opaque to this crate. A clone shares them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Command(pub Bytes);

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Command({} bytes)", self.0.len())
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Result of applying an entry, opaque to this crate. The state machine passes it to the proposer
/// in the same process; it is never stored or sent.
#[derive(Clone)]
pub struct Outcome(pub Arc<dyn Any + Send + Sync>);

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Outcome")
    }
}

/// Addresses of one member.
#[derive(Clone, Debug, Default, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub struct Member {
    /// `host:port` of the member's peer listener.
    pub peer_addr: String,
    /// `host:port` of the member's HTTP server for clients.
    pub http_addr: String,
    /// Other properties of the member by name, such as its zone or role. A program keeps names that
    /// it does not know.
    pub extra: BTreeMap<String, Vec<u8>>,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.peer_addr)
    }
}
