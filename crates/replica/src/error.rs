//! Errors of calls. A refused call, an unavailable service and an unknown outcome are separate
//! errors.

use znode::{OtherLevel, Zxid};

/// Text of the error with which a client's wait for a change ends at a node that hears no leader,
/// or whose disk does not answer.
const CANNOT_SERVE: &str = "this node hears no leader, or its disk does not answer: go to another node";

/// The reason why a call has no answer from the state machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The request was refused before it became a log entry, for example because it is too long, or
    /// the leader refused a heartbeat. The refusal of a proposal that became a log entry is no
    /// `Error`: it is in the entry's `TxnOutcome`.
    #[error("{0}")]
    Refused(znode::Error),
    /// Nothing was proposed: the caller may retry at this node or at another.
    #[error("unavailable: {reason}")]
    Unavailable {
        /// The reason, for people.
        reason: String,
        /// Milliseconds after which a retry may succeed.
        retry_after_ms: u64,
    },
    /// Nothing was proposed: the cluster was restored from a backup a short time ago and grants no
    /// lock yet.
    #[error(
        "the cluster was restored a short time ago and grants no lock yet: clients of before may believe in theirs"
    )]
    Restoring {
        /// Milliseconds after which a retry may succeed.
        retry_after_ms: u64,
    },
    /// The entry was proposed, and it is not known whether it was or will be applied. Retry with
    /// the same idempotency key.
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

/// Reason why a wait of [`crate::Replica::wait_for`] ended without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitEnd {
    /// The deadline passed first.
    #[error("the wait is over")]
    Deadline,
    /// The number of waits at the node is at its limit.
    #[error("too many watches on this node")]
    TooMany,
    /// The node hears no leader, or its disk does not answer, so it would not learn of the awaited
    /// change.
    #[error("{CANNOT_SERVE}")]
    CannotServe,
    /// The node is shutting down.
    #[error("the node is shutting down")]
    Stopped,
}

/// The reason why [`crate::Replica::events`] cannot answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventsError {
    /// Events after `since` are no longer kept. Read the state afresh, then ask for events after
    /// its zxid.
    #[error("events since then are no longer kept; the oldest position is {oldest}")]
    Gone {
        /// The smallest `since` that this node can answer.
        oldest: Zxid,
    },
    /// The wait ended before there was an event.
    #[error(transparent)]
    Wait(#[from] WaitEnd),
}

/// Reason why a running node cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The disk, or Raft, has failed.
    #[error("{0}")]
    Broken(String),
    /// The logs of the node and of its leader contradict each other; see docs/storage-trouble.md.
    #[error("{0}")]
    Contradiction(String),
    /// The node was removed from the cluster.
    #[error(
        "this node was removed from the cluster at zxid {}: its data directory must go before it can be added again, under \
         another id",
        zxid.0
    )]
    Removed {
        /// Zxid of the entry that removed the node.
        zxid: Zxid,
    },
    /// The cluster is at a format level (version of its entries' format) that this program does not
    /// know.
    #[error(transparent)]
    Level(OtherLevel),
}

/// Reason why a node does not start. Operators read the message, so it says what to do where that
/// is not obvious.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration contradicts itself.
    #[error("configuration: {0}")]
    Config(String),
    /// The peer listener cannot be opened.
    #[error("cannot listen for peers on {addr}: {source}")]
    Listen {
        /// Address of the listener.
        addr: String,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The data directory is another node's, another cluster's, of a newer format, or damaged.
    #[error("storage: {0}")]
    Storage(String),
    /// Raft refuses its configuration or what it finds in storage.
    #[error("raft: {0}")]
    Raft(String),
    /// The cluster is at a format level (version of its entries' format) that this program does not
    /// know.
    #[error(transparent)]
    Level(OtherLevel),
}
