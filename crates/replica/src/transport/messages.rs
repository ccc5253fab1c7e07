//! What nodes say to each other. The order of variants and fields is the format: append only.

use bincode::{Decode, Encode};
use storage::Manifest;
use storage::codec::{EntryRecord, LogIdRecord, VoteRecord};
use znode::{Applied, Credential};

/// The version of everything in this file.
pub(crate) const PROTOCOL_VERSION: u32 = 1;

/// What a connection is for. Each has its own, so that a snapshot never holds up a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub(crate) enum Lane {
    /// Log entries and heartbeats, in order, many under way.
    Append,
    /// Votes, leadership transfer and questions about the ensemble.
    Control,
    /// A snapshot in chunks.
    Snapshot,
    /// Proposals, heartbeats of sessions and read indexes on their way to the leader.
    Forward,
}

/// The first frame on a connection.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Hello {
    /// [`PROTOCOL_VERSION`].
    pub(crate) version: u32,
    /// The cluster's name.
    pub(crate) cluster_id: String,
    /// Who connects.
    pub(crate) from: u64,
    /// Whom it believes to reach.
    pub(crate) to: u64,
    /// What for.
    pub(crate) lane: Lane,
}

/// The answer to [`Hello`]. After a refusal the connection is closed.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum Welcome {
    /// Go on.
    Accepted,
    /// For the operator.
    Refused(String),
}

/// Entries from the leader.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct AppendFrame {
    /// Rises by one with each frame of a connection; the answer repeats it.
    pub(crate) sequence: u64,
    /// The leader's vote.
    pub(crate) vote: VoteRecord,
    /// The entry before the first.
    pub(crate) prev_log_id: Option<LogIdRecord>,
    /// What the leader has committed.
    pub(crate) leader_commit: Option<LogIdRecord>,
    /// The entries; none in a heartbeat.
    pub(crate) entries: Vec<EntryRecord>,
}

/// The answer to an [`AppendFrame`], in the order of the requests.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct AppendAnswer {
    /// Of the request.
    pub(crate) sequence: u64,
    /// How it went.
    pub(crate) result: AppendResult,
}

/// How an append went.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum AppendResult {
    /// All entries are durable.
    Success,
    /// Entries up to this one are.
    PartialSuccess(Option<LogIdRecord>),
    /// The entry before the first is another one, or missing.
    Conflict,
    /// The receiver knows a higher vote.
    HigherVote(VoteRecord),
    /// The receiver takes no entries now, and why.
    Refused(String),
}

/// A frame on the lanes `Control` and `Forward`, either way. Answers may overtake each other.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Numbered<T> {
    /// The answer repeats the request's number.
    pub(crate) number: u64,
    /// What is said.
    pub(crate) body: T,
}

/// A question to a peer.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum Ask {
    /// Are you there?
    Ping,
    /// How far are you?
    Standing,
    /// Vote for me.
    Vote(VoteFrame),
    /// Would you vote for me?
    PreVote(VoteFrame),
    /// Stand for election: the leader steps aside.
    TransferLeader(TransferFrame),
    /// Write this, within so many milliseconds.
    Propose {
        /// What to write, as `znode::encode_request` gives it.
        request: Vec<u8>,
        /// How long the asker waits.
        within_ms: u64,
    },
    /// These sessions were heard.
    Touch(Vec<Credential>),
    /// Which entry must a linearizable read see?
    ReadIndex,
}

/// The answer to an [`Ask`].
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum Answer {
    /// To [`Ask::Ping`].
    Pong,
    /// To [`Ask::Standing`].
    Standing(Standing),
    /// To [`Ask::Vote`] and [`Ask::PreVote`].
    Vote(VoteAnswer),
    /// To [`Ask::TransferLeader`]: taken, or why not.
    TransferLeader(Result<(), TransferRefusal>),
    /// To [`Ask::Propose`].
    Propose(ProposeAnswer),
    /// To [`Ask::Touch`], in the order of the question.
    Touch(Vec<TouchAnswer>),
    /// To [`Ask::ReadIndex`].
    ReadIndex(u64),
    /// The node does not lead; whom it believes to lead.
    NotLeader(Option<u64>),
    /// Nothing was done, and why.
    Refused(String),
}

/// How far a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Standing {
    /// Nothing but, at most, the first membership is in its log.
    pub(crate) fresh: bool,
    /// It has a vote.
    pub(crate) joined: bool,
    /// The term it knows.
    pub(crate) term: u64,
    /// It leads in that term.
    pub(crate) leads: bool,
    /// The index of the last entry in its log.
    pub(crate) last_log: u64,
}

/// A candidate's question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct VoteFrame {
    /// The vote asked for.
    pub(crate) vote: VoteRecord,
    /// The candidate's last entry.
    pub(crate) last_log_id: Option<LogIdRecord>,
    /// The leader asked the candidate to stand.
    pub(crate) leadership_transfer: bool,
}

/// The answer to a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct VoteAnswer {
    /// The voter's vote afterwards.
    pub(crate) vote: VoteRecord,
    /// Whether it was granted.
    pub(crate) granted: bool,
    /// The voter's last entry.
    pub(crate) last_log_id: Option<LogIdRecord>,
}

/// The leader steps aside for a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct TransferFrame {
    /// The leader's vote.
    pub(crate) from_leader: VoteRecord,
    /// For whom.
    pub(crate) to: u64,
    /// The last entry that it must have.
    pub(crate) last_log_id: Option<LogIdRecord>,
}

/// Why a member does not take over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum TransferRefusal {
    /// Its vote is another leader's by now.
    VoteChanged {
        /// The one it was asked by.
        expected: VoteRecord,
        /// The one it has.
        actual: VoteRecord,
    },
    /// It has not written the leader's last entry yet.
    LogNotFlushed {
        /// The leader's last.
        expected: Option<LogIdRecord>,
        /// Its own.
        actual: Option<LogIdRecord>,
    },
}

/// What became of a forwarded proposal.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum ProposeAnswer {
    /// Applied by the leader.
    Applied {
        /// The entry's zxid. `applied.zxid` is an earlier one for a repeated idempotency key.
        at: u64,
        /// The outcome, without events.
        applied: Applied,
    },
    /// Nothing was proposed.
    Unavailable {
        /// For people.
        reason: String,
        /// When a retry may do better.
        retry_after_ms: u64,
    },
    /// It may have happened.
    Unknown(String),
    /// It cannot be an entry at all.
    Refused(znode::Error),
}

/// What became of a session's heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum TouchAnswer {
    /// Noted; the session's timeout.
    Alive {
        /// In milliseconds.
        timeout_ms: u32,
    },
    /// The state machine's rules say no.
    Refused(znode::Error),
    /// Its expiry is on its way; whether it comes to pass is not known yet.
    Expiring,
}

/// A frame on the lane `Snapshot`, from the sender.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum SnapshotFrame {
    /// What comes.
    Begin {
        /// The leader's vote.
        vote: VoteRecord,
        /// What it consists of.
        manifest: Manifest,
    },
    /// The next piece.
    Chunk(Vec<u8>),
    /// That was all.
    End,
}

/// The receiver's answer on the lane `Snapshot`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum SnapshotAnswer {
    /// Still at it: writing or reading the snapshot takes its time.
    Working,
    /// Installed, or refused by vote: the receiver's vote.
    Done(VoteRecord),
    /// It did not work out, and why.
    Failed(String),
}
