//! Problems in the format of RFC 9457.

use serde::{Deserialize, Serialize};

use super::{Contender, End, EndedSession, WaitsFor};

/// Prefix of every problem's `type`. The name of the problem follows, which is also its anchor in
/// docs/http-api.md.
pub const PROBLEM_TYPE_BASE: &str = "urn:zlock:problem:";

/// Effect that a failed request may have had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The request had no effect. A repeated request is refused again unless the state or the
    /// request changes.
    Refused,
    /// The request had no effect. It may be repeated without harm, at this node or another.
    Unavailable,
    /// The request may have had an effect. Repeat it with the same `Idempotency-Key`.
    Unknown,
}

/// A problem, sent as `application/problem+json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Problem {
    /// URI that names the kind of problem. Programs should compare this URI, and not the title or
    /// the detail.
    #[serde(rename = "type")]
    #[cfg_attr(feature = "schema", schema(pattern = "^urn:zlock:problem:[a-z-]+$"))]
    pub type_uri: String,
    /// Title of the kind of problem, for people.
    pub title: String,
    /// The HTTP status of the answer.
    #[cfg_attr(feature = "schema", schema(minimum = 400, maximum = 599))]
    pub status: u16,
    /// Description of this failure, for people.
    pub detail: String,
    /// The effect that the request may have had.
    pub outcome: Outcome,
    /// ZooKeeper's name for the error, or zlock's own name; absent for problems of HTTP alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// ZooKeeper's number for the error, or zlock's own number of -1001 or less; absent for
    /// problems of HTTP alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// The znode that caused the problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Index of the operation that failed, counted from 0; only for a transaction of several
    /// operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op_index: Option<u32>,
    /// Cause and time of the end of the session or ticket. Present with `session-expired` in the
    /// answer to a request for the session, and with `ticket-gone` while the lock's history has the
    /// ticket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<End>,
    /// Description of the session that has ended; with `session-expired` and `ended`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_session: Option<EndedSession>,
    /// The first holder of the lock; with `not-acquired` and `not-holder`, if the request may read
    /// the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Box<Contender>>,
    /// The cycle of waits, from the owner of the refused acquire back to that owner; only problems
    /// of the type `deadlock` have one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cycle: Vec<WaitsFor>,
    /// The zxid of the state on which the answer is based; with `events-gone`, the smallest `since`
    /// that can be answered.
    pub zxid: u64,
}

macro_rules! problem_types {
    ($($(#[$doc:meta])* $variant:ident = $slug:literal, $status:literal $outcome:ident, $title:literal;)*) => {
        /// The kinds of problems.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ProblemType {
            $($(#[$doc])* $variant,)*
        }

        impl ProblemType {
            /// All kinds of problems.
            pub const ALL: &'static [ProblemType] = &[$(ProblemType::$variant),*];

            /// Returns the last part of the type URI.
            pub fn slug(self) -> &'static str {
                match self { $(ProblemType::$variant => $slug,)* }
            }

            /// Returns the HTTP status.
            pub fn status(self) -> u16 {
                match self { $(ProblemType::$variant => $status,)* }
            }

            /// Returns the effect that requests with this kind of problem usually have. The
            /// `outcome` of a [`Problem`] may differ: `TooMany` is `Refused` when the state machine
            /// reports it.
            pub fn outcome(self) -> Outcome {
                match self { $(ProblemType::$variant => Outcome::$outcome,)* }
            }

            /// Returns the kind of problem in words.
            pub fn title(self) -> &'static str {
                match self { $(ProblemType::$variant => $title,)* }
            }
        }
    };
}

problem_types! {
    /// A parameter, header, path or body of the request is missing or invalid.
    BadRequest = "bad-request", 400 Refused, "The request breaks a rule";
    /// The request comes from a web page of another origin.
    ForeignOrigin = "foreign-origin", 403 Refused, "A web page of another origin may not send requests to this node";
    /// The header `Host` does not name this node.
    ForeignHost = "foreign-host", 421 Refused, "The Host header has no name of this node";
    /// No route of the API has this URL.
    NoRoute = "no-route", 404 Refused, "The API has no such URL";
    /// The route does not take the method.
    MethodNotAllowed = "method-not-allowed", 405 Refused, "The URL does not take this method";
    /// The client sent its request too slowly.
    RequestTimeout = "request-timeout", 408 Refused, "The request's body came too slowly";
    /// The body of the request, or the data of a znode, is too large.
    BodyTooLarge = "body-too-large", 413 Refused, "The body or the data of a znode is too large";
    /// The URI is too long.
    UriTooLong = "uri-too-long", 414 Refused, "The URI is too long";
    /// The request has too many or too long headers.
    HeadersTooLarge = "headers-too-large", 431 Refused, "The headers are too large";
    /// The body is not of the type that the route takes.
    UnsupportedMediaType = "unsupported-media-type", 415 Refused, "The content type of the body is not supported";
    /// There is no znode at the path.
    NoNode = "no-node", 404 Refused, "There is no znode at the path";
    /// No open session has the number in the URL.
    NoSession = "no-session", 404 Refused, "No open session has this number";
    /// The ACL does not permit the operation.
    NoAuth = "no-auth", 403 Refused, "The ACL does not permit the request";
    /// The znode does not have the version that `If-Match` or an operation of a transaction
    /// requires.
    BadVersion = "bad-version", 412 Refused, "The version does not match";
    /// The parent is ephemeral, and ephemeral znodes have no children.
    NoChildrenForEphemerals = "no-children-for-ephemerals", 409 Refused, "Ephemeral znodes cannot have children";
    /// There is already a znode at the path.
    NodeExists = "node-exists", 409 Refused, "There is a znode at the path already";
    /// The znode has children.
    NotEmpty = "not-empty", 409 Refused, "The znode has children";
    /// The session is closed or expired, or never existed.
    SessionExpired = "session-expired", 410 Refused, "The session has ended";
    /// The session's secret is wrong.
    AuthFailed = "auth-failed", 403 Refused, "The session's secret is wrong";
    /// The request needs a session.
    SessionRequired = "session-required", 401 Refused, "The request needs a session";
    /// The route is for operators.
    OperatorOnly = "operator-only", 401 Refused, "Only operators may send this request";
    /// The request needs a higher level of the log's format than the cluster has.
    LevelTooLow = "level-too-low", 409 Refused, "The cluster's level is too low for the request";
    /// The program of some member does not know the requested level of the log's format.
    MembersNotReady = "members-not-ready", 409 Refused, "Not all members are ready for this level";
    /// No member has this id.
    NoMember = "no-member", 404 Refused, "No member has this id";
    /// The node is a member already.
    AlreadyMember = "already-member", 409 Refused, "The node is a member already";
    /// The id belonged to a member that was removed.
    IdUsedBefore = "id-used-before", 409 Refused, "A former member had this id";
    /// The new member's address has no running node that waits to join this cluster with this id.
    MemberUnreachable = "member-unreachable", 409 Refused, "No node that waits to join answers at the address";
    /// The node that is to become a member has data of another cluster or node.
    MemberHasOtherData = "member-has-other-data", 409 Refused, "The node has data of another cluster or node";
    /// Another change of members or of the leader is under way.
    ChangeInProgress = "change-in-progress", 409 Refused, "Another change of members or of the leader is under way";
    /// The cluster already has the largest allowed number of members without a vote.
    TooManyLearners = "too-many-learners", 409 Refused, "There are too many members without a vote";
    /// The learner lacks too many log entries to become a voter.
    LearnerLagging = "learner-lagging", 409 Refused, "The learner lacks too many log entries";
    /// The learner has not answered the leader recently, so it cannot become a voter.
    LearnerSilent = "learner-silent", 409 Refused, "The learner does not follow the leader";
    /// After the removal, the voters in contact with the leader would be no quorum.
    WouldLoseQuorum = "would-lose-quorum", 409 Refused, "The quorum would be lost";
    /// The last voter cannot be removed.
    LastVoter = "last-voter", 409 Refused, "The last voter cannot be removed";
    /// The node that answers at a member's new address is not that member: it has another data
    /// directory.
    AnotherNodeAnswers = "another-node-answers", 409 Refused, "Another node answers at the new address";
    /// The member that was to become the leader did not become it.
    TransferFailed = "transfer-failed", 409 Refused, "Leadership was not transferred";
    /// An ACL is malformed.
    InvalidAcl = "invalid-acl", 400 Refused, "The ACL is malformed";
    /// A write would exceed a size limit: of the whole state, of a subtree, or of a quota.
    QuotaExceeded = "quota-exceeded", 507 Refused, "The state or a subtree of it is full";
    /// No holder of the lock has the fencing token about which a proxy or resource asked
    /// `/v1/fence`.
    Fenced = "fenced", 403 Refused, "The fencing token does not hold the lock";
    /// The lock on which the request depends is not held with the token in the request.
    LockNotHeld = "lock-not-held", 412 Refused, "The lock is not held with that token";
    /// The ticket belongs to another session.
    NotOwner = "not-owner", 403 Refused, "The ticket belongs to another session";
    /// The session does not hold the lock.
    NotHolder = "not-holder", 404 Refused, "This session does not hold the lock";
    /// The session holds the lock with several tickets.
    SeveralHeld = "several-held", 409 Refused, "This session holds the lock with several tickets";
    /// An acquire without `Idempotency-Key` and owner would wait for an earlier acquire of its own
    /// session.
    BlockedByOwnSession = "blocked-by-own-session", 409 Refused, "An earlier acquire of this session blocks this one";
    /// The wait ended before the lock was granted; the waiter has left the queue.
    NotAcquired = "not-acquired", 409 Refused, "The lock was not acquired in time";
    /// The ticket is gone: released, withdrawn, or its session ended.
    TicketGone = "ticket-gone", 410 Refused, "The ticket is gone";
    /// Waiting would close a cycle of waits.
    Deadlock = "deadlock", 409 Refused, "Waiting for the lock would close a cycle of waits";
    /// The read lock cannot be upgraded to the write lock, because another reader of the lock is
    /// being upgraded.
    UpgradeConflict = "upgrade-conflict", 409 Refused, "The read lock cannot be upgraded now";
    /// A later attempt with the same idempotency key has taken the ticket over.
    Superseded = "superseded", 409 Refused, "A later attempt of the same request has taken over the ticket";
    /// The idempotency key was used for another request.
    RequestKeyReused = "idempotency-key-reused", 422 Refused, "The idempotency key was used for another request";
    /// A request with this idempotency key was applied, and its answer is no longer kept.
    RequestKeyEvicted = "idempotency-key-evicted", 409 Refused, "The outcome of this idempotency key is no longer known";
    /// The sequence numbers for children of the parent have run out.
    SequenceExhausted = "sequence-exhausted", 409 Refused, "Sequence numbers have run out under this parent";
    /// The request has more operations, or changes more znodes, than one write may.
    TooManyOperations = "too-many-operations", 413 Refused, "The request has too many operations or changed znodes";
    /// An existing object has reached a limit, for example a znode that may have no more children.
    LimitReached = "limit-reached", 409 Refused, "The request would exceed a limit of a znode, session or lock";
    /// Too many objects exist at present, for example sessions or waiters of a lock.
    TooMany = "too-many", 429 Unavailable, "There are too many requests, sessions or waiters at present";
    /// The events since the given zxid are no longer kept.
    EventsGone = "events-gone", 410 Refused, "The node does not keep the events since this zxid";
    /// The node cannot serve the request now. The request had no effect.
    Unavailable = "unavailable", 503 Unavailable, "The node cannot serve the request now";
    /// The cluster was restored from a backup a short time ago, and grants no lock yet. The request
    /// had no effect.
    Restoring = "restoring", 503 Unavailable, "The cluster was restored and grants no lock yet";
    /// The request may have been carried out.
    Unknown = "outcome-unknown", 504 Unknown, "The outcome is unknown";
    /// The semaphore has another total number of permits than the request states.
    PermitsMaxDiffers = "permits-max-differs", 409 Refused, "The semaphore has another number of permits";
    /// The lock has the setting `managed`: only acquires enter its queue, so a client cannot create
    /// a lock node there.
    LockManaged = "lock-managed", 409 Refused, "The lock is managed: only acquires enter its queue";
    /// The operation needs a lock with the setting `managed`, and the lock does not have it.
    LockNotManaged = "lock-not-managed", 409 Refused, "The lock is not managed";
    /// The lock cannot be handed over to the named waiter.
    HandOverRefused = "hand-over-refused", 409 Refused, "The lock cannot be handed over to the named ticket";
    /// The owner already has a ticket of one of the requested locks, and that ticket is not part of
    /// a multi-lock of exactly the requested locks.
    Overlap = "overlap", 409 Refused, "The owner already has a ticket of some of these locks";
    /// A bug in the node ended the request.
    Internal = "internal", 500 Unknown, "A bug in the node ended the request";
}

impl ProblemType {
    /// Returns the type URI.
    pub fn uri(self) -> String {
        format!("{PROBLEM_TYPE_BASE}{}", self.slug())
    }

    /// Returns the kind of problem with a type URI; `None` for an unknown URI.
    pub fn from_uri(uri: &str) -> Option<ProblemType> {
        ProblemType::from_slug(uri.strip_prefix(PROBLEM_TYPE_BASE)?)
    }

    /// Returns the kind of problem with this last part of its type URI; `None` for an unknown text.
    pub fn from_slug(slug: &str) -> Option<ProblemType> {
        ProblemType::ALL.iter().copied().find(|kind| kind.slug() == slug)
    }
}

impl Problem {
    /// Returns the kind of problem; `None` for a kind that this version does not know.
    pub fn kind(&self) -> Option<ProblemType> {
        ProblemType::from_uri(&self.type_uri)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_found_by_its_uri() {
        for kind in ProblemType::ALL {
            assert_eq!(ProblemType::from_uri(&kind.uri()), Some(*kind));
        }
        assert_eq!(ProblemType::from_uri("about:blank"), None);
    }

    #[test]
    fn a_problem_is_written_as_the_rfc_says() {
        let problem = Problem {
            type_uri: ProblemType::NoNode.uri(),
            title: ProblemType::NoNode.title().into(),
            status: 404,
            detail: "there is no such znode".into(),
            outcome: Outcome::Refused,
            name: Some("NoNode".into()),
            code: Some(-101),
            path: Some("/a".into()),
            op_index: None,
            ended: None,
            ended_session: None,
            holder: None,
            cycle: Vec::new(),
            zxid: 9,
        };
        assert_eq!(
            serde_json::to_string(&problem).unwrap(),
            r#"{"type":"urn:zlock:problem:no-node","title":"There is no znode at the path","status":404,"detail":"there is no such znode","outcome":"refused","name":"NoNode","code":-101,"path":"/a","zxid":9}"#
        );
    }
}
