//! Orders of an operator, as they are sent to the leader, and what comes of them.

use bincode::{Decode, Encode};

/// An order to the leader. The order of variants and fields is the format: append only.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Order {
    /// Tells what the leader knows of the members.
    Members,
    /// Takes in a new member.
    Add(NewMember),
    /// Makes a voter of a learner.
    Promote {
        /// The learner.
        id: u64,
    },
    /// Removes a member for good.
    Remove {
        /// The member.
        id: u64,
        /// Forces it also if the voters that are left are no quorum that is in contact.
        force: bool,
    },
    /// Moves a member to other addresses, or to another zone.
    Update {
        /// The member.
        id: u64,
        /// `host:port` of its peer listener from now on; as it was when `None`.
        peer_addr: Option<String>,
        /// `host:port` of the member's HTTP door from now on; as it was when `None`.
        http_addr: Option<String>,
        /// Place of the member, for people.
        zone: Option<String>,
    },
    /// Lets another voter lead.
    Transfer {
        /// The voter that is to lead; the one that is furthest when `None`.
        to: Option<u64>,
    },
}

/// A member that is not one yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct NewMember {
    /// The node id.
    pub id: u64,
    /// `host:port` of its peer listener.
    pub peer_addr: String,
    /// `host:port` of its HTTP door.
    pub http_addr: String,
    /// The member serves and never votes.
    pub observer: bool,
    /// The member becomes a voter only when an operator says so.
    pub manual: bool,
    /// Place of the member, for people.
    pub zone: Option<String>,
    /// The voter that it takes the place of.
    pub replaces: Option<u64>,
}

/// Result of an order.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum OrderOutcome {
    /// The members as the leader knows them, after the order.
    Members(MembersReport),
    /// Another member leads.
    Transferred {
        /// The member that led before.
        from: u64,
        /// The member that leads now.
        to: u64,
        /// The term in which it leads.
        term: u64,
        /// Time that it took, in milliseconds.
        took_ms: u64,
    },
}

/// The members as a leader sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct MembersReport {
    /// The index of the entry with the membership that rules.
    pub index: u64,
    /// Tells whether that entry is committed.
    pub committed: bool,
    /// Tells whether a change is half done: both sets of voters must agree to everything.
    pub joint: bool,
    /// The node that tells this: the leader, or the node that was asked where no leader answers.
    pub reported_by: u64,
    /// The member that leads, where one is known.
    pub leader: Option<u64>,
    /// Number of voters that may fail before the cluster stops.
    pub failure_tolerance: u64,
    /// All members, by id.
    pub members: Vec<MemberReport>,
    /// Ids that are used up, with the zxids of the removals.
    pub removed: Vec<(u64, u64)>,
}

/// A member as a leader sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct MemberReport {
    /// The node id.
    pub id: u64,
    /// `host:port` of its peer listener.
    pub peer_addr: String,
    /// `host:port` of its HTTP door.
    pub http_addr: String,
    /// `voter`, `learner` or `observer`.
    pub role: String,
    /// Place of the member.
    pub zone: Option<String>,
    /// The member is being removed.
    pub removing: bool,
    /// The member that it is to take the place of.
    pub replaces: Option<u64>,
    /// Number of entries that it lacks, as far as the leader knows.
    pub lag_entries: Option<u64>,
    /// Time since it took a frame of the leader, in milliseconds; 0 for the leader.
    pub last_contact_ms: Option<u64>,
}

/// Reasons for which an order is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum RefusedOrder {
    /// The order makes no sense as it is.
    BadOrder,
    /// No such member is known.
    NoMember,
    /// The node is a member already.
    AlreadyMember,
    /// The id was a member's that was removed.
    IdUsedBefore,
    /// The new member does not answer as one.
    MemberUnreachable,
    /// The new member has the data of something else.
    MemberHasOtherData,
    /// Another change is under way.
    ChangeInProgress,
    /// No more members without a vote may be added.
    TooManyLearners,
    /// The learner lacks too many entries.
    LearnerLagging,
    /// The learner does not follow the leader now.
    LearnerSilent,
    /// The voters left would be no quorum that is in contact.
    WouldLoseQuorum,
    /// A cluster has a voter.
    LastVoter,
    /// Another node answers at the new address.
    AnotherNodeAnswers,
    /// Leadership did not go where it was to go.
    TransferFailed,
}

impl RefusedOrder {
    /// All reasons.
    pub const ALL: &[RefusedOrder] = &[
        RefusedOrder::BadOrder,
        RefusedOrder::NoMember,
        RefusedOrder::AlreadyMember,
        RefusedOrder::IdUsedBefore,
        RefusedOrder::MemberUnreachable,
        RefusedOrder::MemberHasOtherData,
        RefusedOrder::ChangeInProgress,
        RefusedOrder::TooManyLearners,
        RefusedOrder::LearnerLagging,
        RefusedOrder::LearnerSilent,
        RefusedOrder::WouldLoseQuorum,
        RefusedOrder::LastVoter,
        RefusedOrder::AnotherNodeAnswers,
        RefusedOrder::TransferFailed,
    ];

    /// The name in problem types and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            RefusedOrder::BadOrder => "bad-order",
            RefusedOrder::NoMember => "no-member",
            RefusedOrder::AlreadyMember => "already-member",
            RefusedOrder::IdUsedBefore => "id-used-before",
            RefusedOrder::MemberUnreachable => "member-unreachable",
            RefusedOrder::MemberHasOtherData => "member-has-other-data",
            RefusedOrder::ChangeInProgress => "change-in-progress",
            RefusedOrder::TooManyLearners => "too-many-learners",
            RefusedOrder::LearnerLagging => "learner-lagging",
            RefusedOrder::LearnerSilent => "learner-silent",
            RefusedOrder::WouldLoseQuorum => "would-lose-quorum",
            RefusedOrder::LastVoter => "last-voter",
            RefusedOrder::AnotherNodeAnswers => "another-node-answers",
            RefusedOrder::TransferFailed => "transfer-failed",
        }
    }
}

/// Ways in which an order comes to nothing.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, thiserror::Error)]
pub enum OrderError {
    /// The order is not done, and would be refused again as things are.
    #[error("{why}")]
    Refused {
        /// The rule that refuses it.
        kind: RefusedOrder,
        /// A sentence for people.
        why: String,
    },
    /// Nothing was done.
    #[error("{0}")]
    Unavailable(String),
    /// The order may have been done: look at the members.
    #[error("{0}")]
    Unknown(String),
}

impl OrderError {
    pub(crate) fn refused(kind: RefusedOrder, why: impl Into<String>) -> OrderError {
        OrderError::Refused { kind, why: why.into() }
    }
}
