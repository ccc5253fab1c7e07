//! Refusals of the state machine as ZooKeeper's error codes.

use jute::error;
use znode::{Error, Refusal, State, Zxid};

/// The reply to a client whose request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusalReply {
    /// An error code in the answer's header.
    Code(i32),
    /// An end of the connection: the session is gone, or at another connection, and the client
    /// finds out when it reconnects.
    Closed,
}

/// The answer to a refusal. The codes are in the table of errors. A limit that ZooKeeper does not
/// have gets the nearest of ZooKeeper's codes, because clients know no others.
///
/// `QuotaExceeded` came with ZooKeeper 3.7, and older clients hang or end on its code. So only a
/// hard quota is answered with that code.
pub(crate) fn reply_to(refusal: &Refusal, state: &State) -> RefusalReply {
    let by_quota = || refusal.path.as_ref().is_some_and(|path| state.has_hard_quota(path));
    if refusal.error == Error::QuotaExceeded && !by_quota() {
        return RefusalReply::Code(error::SYSTEM_ERROR);
    }
    refusal.error.row().zookeeper.map_or(RefusalReply::Closed, RefusalReply::Code)
}

/// A zxid as the protocol has it.
pub(crate) fn wire_zxid(zxid: Zxid) -> i64 {
    i64::try_from(zxid.0).unwrap_or(i64::MAX)
}
