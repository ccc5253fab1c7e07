//! Errors: reasons why a transaction or a read is refused. They are deterministic, so that every
//! replica gives the same reply.

use bincode::{Decode, Encode};

/// A row of the table of errors: the names and numbers of one error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorRow {
    /// ZooKeeper's name of the error, as its exceptions print it, or a name of zlock.
    pub name: &'static str,
    /// ZooKeeper's number of the error, or a number of zlock from -1001 down.
    pub code: i32,
    /// The number sent to ZooKeeper's clients, who know only ZooKeeper's own numbers. `None` where
    /// the server closes the connection instead (the session is gone, or at another connection),
    /// and for errors that requests of ZooKeeper's clients cannot cause.
    pub zookeeper: Option<i32>,
    /// The problem type in an HTTP answer (RFC 9457). Each type has one HTTP status.
    pub problem: &'static str,
}

macro_rules! errors {
    ($($(#[$doc:meta])* $variant:ident $name:literal: $code:literal, $zookeeper:expr, $problem:literal, $text:literal;)*) => {
        /// Reason of a refusal, which changes no znode, session or lock. The servers for clients
        /// add the path and the zxid. The order of the variants is the format on disk, so new
        /// variants go to the end.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode, thiserror::Error)]
        pub enum Error {
            $($(#[$doc])* #[error($text)] $variant,)*
        }

        impl Error {
            /// All errors.
            pub const ALL: &'static [Error] = &[$(Error::$variant),*];

            /// The row of this error in the table.
            pub fn row(self) -> ErrorRow {
                match self {
                    $(Error::$variant => ErrorRow {
                        name: $name,
                        code: $code,
                        zookeeper: $zookeeper,
                        problem: $problem,
                    },)*
                }
            }
        }
    };
}

// Columns: name, number, number for ZooKeeper's clients, type of problem, text.
errors! {
    /// A path, name, version or other argument breaks a rule.
    BadArguments "BadArguments": -8, Some(-8), "bad-request", "an argument breaks a rule";
    /// No znode at the path, or no parent to create the znode under.
    NoNode "NoNode": -101, Some(-101), "no-node", "there is no such znode";
    /// The ACL does not permit the request.
    NoAuth "NoAuth": -102, Some(-102), "no-auth", "not permitted by the ACL";
    /// The given version is not the znode's version.
    BadVersion "BadVersion": -103, Some(-103), "bad-version", "the znode has another version";
    /// An ephemeral znode cannot have children.
    NoChildrenForEphemerals "NoChildrenForEphemerals": -108, Some(-108), "no-children-for-ephemerals", "an ephemeral znode has no children";
    /// A znode is already at the path.
    NodeExists "NodeExists": -110, Some(-110), "node-exists", "there is a znode at this path already";
    /// The znode has children and cannot be deleted.
    NotEmpty "NotEmpty": -111, Some(-111), "not-empty", "the znode has children";
    /// The session is closed, expired or was never opened.
    SessionExpired "SessionExpired": -112, None, "session-expired", "the session has ended";
    /// An ACL is empty or malformed.
    InvalidAcl "InvalidACL": -114, Some(-114), "invalid-acl", "invalid ACL";
    /// The session's secret is wrong.
    AuthFailed "AuthFailed": -115, None, "auth-failed", "the session's secret is wrong";
    /// The state, or a part of it with a quota, would exceed its limit of znodes or bytes.
    QuotaExceeded "QuotaExceeded": -125, Some(-125), "quota-exceeded", "quota exceeded";
    /// The operation needs a session and the request names none.
    SessionRequired "SessionRequired": -1001, None, "session-required", "the operation needs a session";
    /// The guard of the request fails: its lock is not held with the given token.
    LockNotHeld "LockNotHeld": -1002, None, "lock-not-held", "the lock is not held with that token";
    /// The idempotency key was used before, for another operation or guard.
    RequestKeyReused "RequestKeyReused": -1003, None, "idempotency-key-reused", "the idempotency key was used with another request";
    /// The idempotency key was used before and its reply is no longer kept.
    RequestKeyEvicted "RequestKeyEvicted": -1004, None, "idempotency-key-evicted", "the idempotency key was used and its outcome is no longer known";
    /// The parent's create counter has reached 2^31-1: ten-digit suffixes have run out.
    SequenceExhausted "SequenceExhausted": -1005, Some(-1), "sequence-exhausted", "sequence numbers have run out under this parent";
    /// The number of the parent's children is at its limit.
    TooManyChildren "TooManyChildren": -1006, Some(-1), "limit-reached", "too many children";
    /// The lock's queue is full.
    TooManyWaiters "TooManyWaiters": -1007, Some(-1), "too-many", "too many waiters";
    /// The number of open sessions is at its limit, in total or for the client's address.
    TooManySessions "TooManySessions": -1008, Some(-1), "too-many", "too many sessions";
    /// The number of the session's ephemeral znodes is at its limit.
    TooManyEphemerals "TooManyEphemerals": -1009, Some(-1), "limit-reached", "too many ephemeral znodes in one session";
    /// The owner (a user of the lock within the session) has as many holds of the lock (acquires
    /// that share its ticket) as the limit allows.
    TooManyHolds "TooManyHolds": -1010, Some(-1), "limit-reached", "too many holds of one lock by one owner";
    /// The transaction has more operations than `ops_max`, or would change more znodes than
    /// `entry_cost_max`.
    TooManyOps "TooManyOps": -1011, Some(-8), "too-many-operations", "too many operations in one transaction";
    /// A text is longer than it may be: the data of a znode, an owner, a label, or a client's name
    /// for itself.
    DataTooLarge "DataTooLarge": -1012, Some(-8), "body-too-large", "data too large";
    /// The path is too long or too deep, or has a name that is too long.
    PathTooLong "PathTooLong": -1013, Some(-8), "uri-too-long", "path too long";
    /// An expiry of sessions names another Raft term than that of its entry: it comes from a
    /// deposed leader.
    StaleTerm "StaleTerm": -1014, None, "unavailable", "the leader that proposed this was deposed";
    /// Waiting for the lock would close a cycle of waits. The state machine answers
    /// [`crate::Reply::Deadlock`], from which the HTTP server makes this error.
    Deadlock "Deadlock": -1030, None, "deadlock", "waiting for the lock would close a cycle of waits";
    /// Another reader of the lock is being upgraded: the two would wait for each other.
    UpgradeConflict "UpgradeConflict": -1031, None, "upgrade-conflict", "the read lock cannot be upgraded now: another reader of it is being upgraded";
    /// The session has been attached to another connection than the one that sent the write.
    SessionMoved "SessionMoved": -118, None, "unavailable", "the session has moved to another connection";
    /// The previous write of the same connection has not been applied yet.
    OutOfTurn "OutOfTurn": -1015, None, "unavailable", "a write of the same connection comes before this one";
    /// The acquire gives another number of permits than the semaphore has.
    PermitsMaxDiffers "PermitsMaxDiffers": -1020, None, "permits-max-differs", "the semaphore has another number of permits";
    /// A plain create would put a lock node into the queue of a managed lock, which only acquires
    /// may enter.
    LockManaged "LockManaged": -1021, Some(-102), "lock-managed", "the lock is managed: only acquires enter its queue";
    /// The request has a priority or is a hand-over, and the lock is not managed: also plain
    /// creates may enter its queue.
    LockNotManaged "LockNotManaged": -1022, None, "lock-not-managed", "the lock is not managed";
    /// The ticket to which a lock is handed over does not wait for this lock, or would not fit
    /// beside the holders that stay.
    HandOverRefused "HandOverRefused": -1023, None, "hand-over-refused", "the lock cannot be handed over to that ticket";
    /// The owner (a user of locks within the session) has a ticket of one of the requested locks,
    /// from an acquire of another set of locks or modes.
    Overlap "Overlap": -1024, None, "overlap", "the owner has some of these locks already, and not the same set of them";
    /// The znode belongs to another session.
    NotOwner "NotOwner": -1026, None, "not-owner", "the ticket belongs to another session";
    /// The session does not hold the lock.
    NotHolder "NotHolder": -1027, None, "not-holder", "this session does not hold the lock";
    /// The session holds the lock with several tickets, and the request does not choose one.
    SeveralHeld "SeveralHeld": -1028, None, "several-held", "this session holds the lock with several tickets";
    /// Another acquire of this session without key and owner has a ticket of the lock. The new
    /// acquire may be a retry of it.
    BlockedByOwnSession "BlockedByOwnSession": -1029, None, "blocked-by-own-session", "this session has a ticket of the lock that was acquired without Idempotency-Key and owner, too";
    /// The operation needs a higher format level (version of the log's format) than the cluster
    /// has.
    LevelTooLow "LevelTooLow": -1032, Some(-6), "level-too-low", "the cluster is at a lower level of the format than this needs; an operator raises it, once every member runs a zlock that knows it: `zlock upgrade finalize`";
    /// The lock has more holders than one revocation may name.
    TooManyHolders "TooManyHolders": -1033, None, "limit-reached", "too many holders for one revocation";
}

impl Error {
    /// ZooKeeper's number for the error, or one of zlock's own from -1001 down.
    pub fn code(self) -> i32 {
        self.row().code
    }
}
