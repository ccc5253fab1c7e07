//! Conversion of the state machine's refusals to ZooKeeper's error codes.

use jute::error;
use znode::{Error, Refusal, State, Zxid};

/// Reply to a client whose request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusalReply {
    /// An error code in the answer's header.
    Code(i32),
    /// The connection is closed, because the session has ended or has moved to another connection.
    /// The client learns at its next connect whether the session still exists.
    Closed,
}

/// Returns the reply to a refusal. The state machine's table of errors has the codes. A refusal at
/// a limit that ZooKeeper does not have gets the most similar code of ZooKeeper, because clients
/// know no others.
///
/// Clients older than ZooKeeper 3.7 do not know `QuotaExceeded`, and hang or end on its code. So
/// this code is sent only for a hard quota, as set by an operator.
pub(crate) fn reply_to(refusal: &Refusal, state: &State) -> RefusalReply {
    let by_quota = || refusal.path.as_ref().is_some_and(|path| state.has_hard_quota(path));
    if refusal.error == Error::QuotaExceeded && !by_quota() {
        return RefusalReply::Code(error::SYSTEM_ERROR);
    }
    refusal.error.row().zookeeper.map_or(RefusalReply::Closed, RefusalReply::Code)
}

/// Converts a zxid to the protocol's type.
pub(crate) fn wire_zxid(zxid: Zxid) -> i64 {
    i64::try_from(zxid.0).unwrap_or(i64::MAX)
}
