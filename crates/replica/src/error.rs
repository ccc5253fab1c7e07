//! Failures of calls. Refused, unavailable and unknown are three things and never merged.

use znode::{OtherLevel, Zxid};

/// The answer to a client that waited at a node without a leader or a disk.
const CANNOT_SERVE: &str = "this node hears no leader, or its disk does not answer: go to another node";

/// The reason why a call has no answer from the state machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The state machine's rules say no; every replica would say the same. (A refused *proposal* is
    /// an answer and comes as `TxnOutcome`; this is for heartbeats.)
    #[error("{0}")]
    Refused(znode::Error),
    /// The call proposed nothing: retry freely, here or elsewhere.
    #[error("unavailable: {reason}")]
    Unavailable {
        /// The reason, for people.
        reason: String,
        /// Time after which a retry may do better.
        retry_after_ms: u64,
    },
    /// The call proposed nothing: the cluster was restored just now, and grants no lock yet.
    #[error(
        "the cluster was restored a short time ago and grants no lock yet: clients of before may believe in theirs"
    )]
    Restoring {
        /// Time after which a retry may do better.
        retry_after_ms: u64,
    },
    /// The entry may have happened or may still happen. Retry with the same idempotency key.
    #[error("outcome unknown: {reason}")]
    Unknown {
        /// The reason, for people.
        reason: String,
    },
}

impl Error {
    pub(crate) fn unavailable(reason: impl Into<String>) -> Error {
        Error::Unavailable { reason: reason.into(), retry_after_ms: 250 }
    }

    pub(crate) fn unknown(reason: impl Into<String>) -> Error {
        Error::Unknown { reason: reason.into() }
    }
}

/// The reason why [`crate::Replica::wait_for`] ended without what it waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitEnd {
    /// The deadline passed first.
    #[error("the wait is over")]
    Deadline,
    /// The node keeps as many watches as it may.
    #[error("too many watches on this node")]
    TooMany,
    /// The node hears no leader, or its disk does not answer: it would not learn of what is waited
    /// for.
    #[error("{CANNOT_SERVE}")]
    CannotServe,
    /// The node is shutting down.
    #[error("the node is shutting down")]
    Stopped,
}

/// The reason why [`crate::Replica::events`] cannot answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventsError {
    /// Events after `since` are no longer kept. Read afresh, then ask from that zxid on.
    #[error("events since then are no longer kept; the oldest position is {oldest}")]
    Gone {
        /// The smallest `since` that this node can answer.
        oldest: Zxid,
    },
    /// The wait for them ended.
    #[error(transparent)]
    Wait(#[from] WaitEnd),
}

/// The reason why a node that ran cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The disk, or Raft, has failed.
    #[error("{0}")]
    Broken(String),
    /// The node and its leader have what excludes each other; see docs/storage-trouble.md.
    #[error("{0}")]
    Contradiction(String),
    /// The node is no member any more.
    #[error(
        "this node was removed from the cluster at zxid {}: its data directory must go before it can be added again, under \
         another id",
        zxid.0
    )]
    Removed {
        /// The entry that says so.
        zxid: Zxid,
    },
    /// The cluster is at a level that this program does not know.
    #[error(transparent)]
    Level(OtherLevel),
}

/// The reason why a node does not start. Shown to the operator, so each says what to do where that
/// is not plain.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration contradicts itself.
    #[error("configuration: {0}")]
    Config(String),
    /// The peer listener cannot be opened.
    #[error("cannot listen for peers on {addr}: {source}")]
    Listen {
        /// The address.
        addr: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The data directory is another node's, another cluster's, of a newer format, or damaged.
    #[error("storage: {0}")]
    Storage(String),
    /// Raft refuses its configuration or what it finds in storage.
    #[error("raft: {0}")]
    Raft(String),
    /// The cluster is at a level that this program does not know.
    #[error(transparent)]
    Level(OtherLevel),
}
