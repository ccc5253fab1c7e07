//! Errors of the state machine in ZooKeeper's numbers.

use jute::error;
use znode::{Error, Refusal, State, Zxid};

/// The reply to a client whose request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusalReply {
    /// An error in the answer's header.
    Code(i32),
    /// The connection is closed: the session is gone, or at another connection, and the client
    /// finds out by coming again.
    Closed,
}

/// The answer to a refusal. Bounds that ZooKeeper does not have are told with its codes that come
/// nearest: a client may not know any others. The numbers stand in the table of errors.
///
/// `QuotaExceeded` came with ZooKeeper 3.7, and older clients hang or end on its number. So hard
/// quotas alone are told with it.
pub(crate) fn reply_to(refusal: &Refusal, state: &State) -> RefusalReply {
    let by_quota = || refusal.path.as_ref().is_some_and(|path| state.has_hard_quota(path));
    if refusal.error == Error::QuotaExceeded && !by_quota() {
        return RefusalReply::Code(error::SYSTEM_ERROR);
    }
    refusal.error.row().zookeeper.map_or(RefusalReply::Closed, RefusalReply::Code)
}

/// A zxid as ZooKeeper writes it.
pub(crate) fn wire_zxid(zxid: Zxid) -> i64 {
    i64::try_from(zxid.0).unwrap_or(i64::MAX)
}
