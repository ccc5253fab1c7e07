//! Where an error of the state machine meets ZooKeeper's numbers.

use jute::error;
use znode::Error;

/// How a refusal is told to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// As an error in the answer's header.
    Code(i32),
    /// The connection is closed: the session is gone, or at another connection, and the client finds out by coming again.
    Closed,
}

/// The answer to a refusal. Bounds that ZooKeeper does not have are told with its codes that come nearest: a client may
/// not know any others.
pub(crate) fn told(refusal: Error) -> Told {
    Told::Code(match refusal {
        Error::BadArguments => error::BAD_ARGUMENTS,
        Error::NoNode => error::NO_NODE,
        // A closed lock lets in nobody who comes with a lock node of his own making.
        Error::NoAuth | Error::LockClosed => error::NO_AUTH,
        Error::BadVersion => error::BAD_VERSION,
        Error::NoChildrenForEphemerals => error::NO_CHILDREN_FOR_EPHEMERALS,
        Error::NodeExists => error::NODE_EXISTS,
        Error::NotEmpty => error::NOT_EMPTY,
        Error::InvalidAcl => error::INVALID_ACL,
        Error::QuotaExceeded
        | Error::TooManyChildren
        | Error::TooManyWaiters
        | Error::TooManySessions
        | Error::TooManyEphemerals
        | Error::TooManyHolds
        | Error::SequenceExhausted => error::QUOTA_EXCEEDED,
        Error::TooManyOps | Error::DataTooLarge | Error::PathTooLong => error::BAD_ARGUMENTS,
        Error::SessionExpired | Error::SessionMoved | Error::AuthFailed | Error::SessionRequired => {
            return Told::Closed;
        }
        // None of these can come from what this door proposes; a client is not to be left waiting if one does.
        Error::LockNotHeld
        | Error::RequestKeyReused
        | Error::RequestKeyEvicted
        | Error::StaleTerm
        | Error::Deadlock
        | Error::UpgradeConflict
        | Error::LimitDiffers
        | Error::LockNotClosed
        | Error::HandOverRefused
        | Error::Overlap
        | Error::NotOwner
        | Error::NotHolder
        | Error::SeveralHeld
        | Error::BlockedByOwnSession
        | Error::OutOfTurn => return Told::Closed,
    })
}
