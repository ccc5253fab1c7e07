//! Orders of an operator, as they are sent to the leader, and their results.

use bincode::{Decode, Encode};

/// An operator's order to the leader. Variants and fields are encoded by their position, so new
/// ones go to the end.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Order {
    /// Reports what the leader knows of the members.
    Members,
    /// Adds a new member, which is a learner or an observer at first.
    Add(NewMember),
    /// Makes a learner a voter.
    Promote {
        /// Id of the learner.
        id: u64,
    },
    /// Removes a member for good.
    Remove {
        /// Id of the member.
        id: u64,
        /// True to remove the member even if no quorum of the remaining voters follows the leader.
        force: bool,
    },
    /// Moves a member to other addresses, or to another zone.
    Update {
        /// Id of the member.
        id: u64,
        /// New `host:port` of the member's peer listener; `None` leaves the old one.
        peer_addr: Option<String>,
        /// New `host:port` of the member's HTTP API; `None` leaves the old one.
        http_addr: Option<String>,
        /// Name of the member's new zone, for people; `None` leaves the old one.
        zone: Option<String>,
    },
    /// Transfers leadership to another voter.
    Transfer {
        /// Id of the voter that is to lead; `None` leaves the choice to the leader.
        to: Option<u64>,
    },
}

/// A member to be added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct NewMember {
    /// The node id.
    pub id: u64,
    /// `host:port` of the member's peer listener.
    pub peer_addr: String,
    /// `host:port` of the member's HTTP API.
    pub http_addr: String,
    /// True if the member is to serve and never vote.
    pub observer: bool,
    /// True if the member becomes a voter only by an operator's order, not by itself.
    pub manual: bool,
    /// Name of the member's zone, for people.
    pub zone: Option<String>,
    /// Id of the voter that the member is to replace; `None` for no replacement.
    pub replaces: Option<u64>,
}

/// Result of an order: a request of an operator to the leader, such as to add a member.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum OrderOutcome {
    /// The members as the leader knows them, after the order.
    Members(MembersReport),
    /// Leadership was transferred.
    Transferred {
        /// Id of the member that led before.
        from: u64,
        /// Id of the member that leads now.
        to: u64,
        /// Term in which the new leader leads.
        term: u64,
        /// Duration of the transfer in milliseconds.
        took_ms: u64,
    },
}

/// The members as a leader sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct MembersReport {
    /// Index of the entry with the membership in force.
    pub index: u64,
    /// True if the entry with the membership in force is committed.
    pub committed: bool,
    /// True while a change of the voters is half done: a majority of the old set and a majority of
    /// the new set must agree to everything.
    pub joint: bool,
    /// Id of the node that reports: the leader, or without a leader the node that was asked.
    pub reported_by: u64,
    /// Id of the leader; `None` if none is known.
    pub leader: Option<u64>,
    /// Number of voters in contact with the leader that may still fail without loss of the
    /// quorum.
    pub failure_tolerance: u64,
    /// All members, by id.
    pub members: Vec<MemberReport>,
    /// Ids that were removed and may not be used again, each with the zxid of its removal.
    pub removed: Vec<(u64, u64)>,
}

/// A member as a leader sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct MemberReport {
    /// The node id.
    pub id: u64,
    /// `host:port` of the member's peer listener.
    pub peer_addr: String,
    /// `host:port` of the member's HTTP API.
    pub http_addr: String,
    /// `voter`, `learner` or `observer`.
    pub role: String,
    /// Name of the member's zone; `None` if it has none.
    pub zone: Option<String>,
    /// True if the member is being removed.
    pub removing: bool,
    /// Id of the member that this one is to replace; `None` for no replacement.
    pub replaces: Option<u64>,
    /// Number of entries that the member lacks; `None` if the reporting node does not know.
    pub lag_entries: Option<u64>,
    /// Milliseconds since the leader sent the newest append or heartbeat that the member has
    /// accepted; 0 for the leader itself, `None` if the reporting node does not know.
    pub last_contact_ms: Option<u64>,
}

znode::named! {
    /// Reason why an order is refused.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
    pub enum RefusedOrder {
        /// The order is invalid.
        BadOrder = "bad-order",
        /// The cluster has no member with this id.
        NoMember = "no-member",
        /// The node is a member already.
        AlreadyMember = "already-member",
        /// The id belonged to a member that was removed.
        IdUsedBefore = "id-used-before",
        /// The node does not answer at its address as a member of this cluster.
        MemberUnreachable = "member-unreachable",
        /// The new member has a vote already, or has data of another cluster.
        MemberHasOtherData = "member-has-other-data",
        /// Another change of the members or of the leader is under way.
        ChangeInProgress = "change-in-progress",
        /// The largest number of learners, of observers, or of all members is reached.
        TooManyLearners = "too-many-learners",
        /// The learner lacks too many entries.
        LearnerLagging = "learner-lagging",
        /// The learner does not follow the leader now.
        LearnerSilent = "learner-silent",
        /// No quorum of the voters that would remain follows the leader now.
        WouldLoseQuorum = "would-lose-quorum",
        /// No voter would stay: there is no other, or the others are to be removed.
        LastVoter = "last-voter",
        /// Another node answers at the new address.
        AnotherNodeAnswers = "another-node-answers",
        /// Leadership was not transferred to the voter in the order.
        TransferFailed = "transfer-failed",
    }
}

/// Reason why an order was not carried out, or why its outcome is not known.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, thiserror::Error)]
pub enum OrderError {
    /// The order was not carried out. Another try is refused, too, until the cluster changes.
    #[error("{why}")]
    Refused {
        /// Rule that refuses the order.
        kind: RefusedOrder,
        /// Explanation for people.
        why: String,
    },
    /// The order was not carried out, for this reason, and another try may succeed.
    #[error("{0}")]
    Unavailable(String),
    /// The order may have been carried out; the members' report shows it. The value is the reason.
    #[error("{0}")]
    Unknown(String),
}

impl OrderError {
    pub(crate) fn refused(kind: RefusedOrder, why: impl Into<String>) -> OrderError {
        OrderError::Refused { kind, why: why.into() }
    }
}
