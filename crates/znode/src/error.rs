//! Why a transaction or a look was refused. Deterministic: every replica refuses the same way, so it is a reply.

use bincode::{Decode, Encode};

use crate::ZPath;

/// A refusal. Nothing changed. Doors add the path and the zxid.
///
/// The order of the variants is their format on disk: append only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode, thiserror::Error)]
pub enum Error {
    /// A path, name, version or other argument breaks a rule.
    #[error("bad arguments")]
    BadArguments,
    /// No znode at the path, or no parent to create it under.
    #[error("no such node")]
    NoNode,
    /// The ACL does not permit this.
    #[error("not permitted by the ACL")]
    NoAuth,
    /// The given version is not the znode's version.
    #[error("bad version")]
    BadVersion,
    /// An ephemeral znode cannot have children.
    #[error("ephemeral nodes cannot have children")]
    NoChildrenForEphemerals,
    /// A znode is already at the path.
    #[error("node exists")]
    NodeExists,
    /// The znode has children and cannot be deleted.
    #[error("node has children")]
    NotEmpty,
    /// The session is closed, expired or was never opened.
    #[error("session expired")]
    SessionExpired,
    /// An ACL is empty or malformed.
    #[error("invalid ACL")]
    InvalidAcl,
    /// The session's secret is wrong.
    #[error("wrong session secret")]
    AuthFailed,
    /// The state holds as many znodes or bytes as it may.
    #[error("quota exceeded")]
    QuotaExceeded,
    /// The operation needs a session and the request names none.
    #[error("the operation needs a session")]
    SessionRequired,
    /// The lock that the request is guarded by is not held with the given token.
    #[error("the lock is not held with that token")]
    LockNotHeld,
    /// The idempotency key was used before with another body.
    #[error("the idempotency key was used with another request")]
    RequestKeyReused,
    /// The idempotency key was used before and its reply is no longer kept.
    #[error("the idempotency key was used and its outcome is no longer known")]
    RequestKeyEvicted,
    /// The parent's create counter has reached 2^31-1: ten-digit suffixes have run out.
    #[error("sequence numbers have run out under this parent")]
    SequenceExhausted,
    /// The parent has as many children as it may.
    #[error("too many children")]
    TooManyChildren,
    /// The lock's queue is full.
    #[error("too many waiters")]
    TooManyWaiters,
    /// There are as many sessions as there may be.
    #[error("too many sessions")]
    TooManySessions,
    /// The session owns as many ephemeral znodes as it may.
    #[error("too many ephemeral nodes in one session")]
    TooManyEphemerals,
    /// The owner holds the lock as many times over as it may.
    #[error("too many holds of one lock by one owner")]
    TooManyHolds,
    /// The transaction has more operations than it may, or would do more than one entry may: `entry_cost_max`.
    #[error("too many operations in one transaction")]
    TooManyOps,
    /// The data is longer than it may be.
    #[error("data too large")]
    DataTooLarge,
    /// The path is longer or deeper, or a name in it longer, than it may be.
    #[error("path too long")]
    PathTooLong,
    /// The entry was written by a leader of another term than it speaks for; its word no longer counts.
    #[error("the leader that proposed this was deposed")]
    StaleTerm,
    /// Waiting would close a circle. A door's word for [`crate::Reply::Deadlock`]; the state machine does not refuse with it.
    #[error("waiting for the lock would close a circle of waits")]
    Deadlock,
    /// Another reader of the lock is being upgraded: the two would wait for each other.
    #[error("the read lock cannot be upgraded now: another reader of it is being upgraded")]
    UpgradeConflict,
    /// The session goes on over another connection.
    #[error("the session has moved to another connection")]
    SessionMoved,
    /// The connection's write before this one has not been applied yet.
    #[error("a write of the same connection comes before this one")]
    OutOfTurn,
    /// The semaphore has another number of permits than the request says.
    #[error("the semaphore has another limit")]
    LimitDiffers,
    /// Lock nodes of one's own making are not let into this lock.
    #[error("the lock is closed to recipe clients")]
    LockClosed,
    /// Priorities and hand-overs need a lock that is closed to recipe clients.
    #[error("the lock is not closed to recipe clients")]
    LockNotClosed,
    /// The named waiter does not wait for this lock, or could not hold it beside those who do.
    #[error("the lock cannot be handed over to that ticket")]
    HandOverRefused,
    /// The owner has a ticket of one of the locks already, and not of the same set of locks.
    #[error("the owner has some of these locks already, and not the same set of them")]
    Overlap,
    /// The znode is another session's.
    #[error("the ticket belongs to another session")]
    NotOwner,
    /// The session does not hold the lock.
    #[error("this session does not hold the lock")]
    NotHolder,
    /// The session holds the lock more than once, and the request does not say which of them it means.
    #[error("this session holds the lock with several tickets")]
    SeveralHeld,
    /// An acquire without key and owner would wait for one of its own session.
    #[error("an earlier acquire of this session, also without Idempotency-Key and owner, is in the way")]
    BlockedByOwnSession,
}

impl Error {
    /// ZooKeeper's number for the error, or one of zlock's own from -1001 down.
    pub fn code(self) -> i32 {
        match self {
            Error::BadArguments => -8,
            Error::NoNode => -101,
            Error::NoAuth => -102,
            Error::BadVersion => -103,
            Error::NoChildrenForEphemerals => -108,
            Error::NodeExists => -110,
            Error::NotEmpty => -111,
            Error::SessionExpired => -112,
            Error::InvalidAcl => -114,
            Error::AuthFailed => -115,
            Error::QuotaExceeded => -125,
            Error::SessionRequired => -1001,
            Error::LockNotHeld => -1002,
            Error::RequestKeyReused => -1003,
            Error::RequestKeyEvicted => -1004,
            Error::SequenceExhausted => -1005,
            Error::TooManyChildren => -1006,
            Error::TooManyWaiters => -1007,
            Error::TooManySessions => -1008,
            Error::TooManyEphemerals => -1009,
            Error::TooManyHolds => -1010,
            Error::TooManyOps => -1011,
            Error::DataTooLarge => -1012,
            Error::PathTooLong => -1013,
            Error::StaleTerm => -1014,
            Error::Deadlock => -1030,
            Error::UpgradeConflict => -1031,
            Error::SessionMoved => -118,
            Error::OutOfTurn => -1015,
            Error::LimitDiffers => -1020,
            Error::LockClosed => -1021,
            Error::LockNotClosed => -1022,
            Error::HandOverRefused => -1023,
            Error::Overlap => -1024,
            Error::NotOwner => -1026,
            Error::NotHolder => -1027,
            Error::SeveralHeld => -1028,
            Error::BlockedByOwnSession => -1029,
        }
    }
}

/// A longer path is not told back. Refusals are remembered under their idempotency keys, and a path that is refused for
/// its length may have some MiB.
const PATH_SHOWN_MAX: usize = 8 << 10;

/// A refused transaction: the error, and what it was about.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Refusal {
    /// Why.
    pub error: Error,
    /// The path that the error is about, when there is one, and when it is not longer than anybody can want to see.
    pub path: Option<ZPath>,
    /// In a multi: which operation failed, counted from 0.
    pub op_index: Option<u32>,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Refusal { error, path: None, op_index: None }
    }
}

impl Refusal {
    /// A refusal about a path.
    pub fn at(error: Error, path: &ZPath) -> Self {
        let path = Some(path).filter(|path| path.as_str().len() <= PATH_SHOWN_MAX).cloned();
        Refusal { error, path, op_index: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_does_not_keep_a_path_of_any_length() {
        let path = |length: usize| ZPath::parse(&format!("/{}", "x".repeat(length))).unwrap();
        let kept = |length| Refusal::at(Error::PathTooLong, &path(length)).path;
        assert_eq!((kept(2_000), kept(PATH_SHOWN_MAX)), (Some(path(2_000)), None));
    }
}
