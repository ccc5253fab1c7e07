//! Conversion of the state machine's refusals to ZooKeeper's error codes.

use jute::error;
use znode::{Error, Refusal, State, Zxid};

/// Returns the error code for the answer to a refused request. `None` closes the connection
/// instead, because the session has ended or has moved to another connection; the client learns at
/// its next connect whether the session still exists.
///
/// The state machine's table of errors has the codes. A refusal at a limit that ZooKeeper does not
/// have gets the most similar code of ZooKeeper, because clients know no others.
///
/// Clients older than ZooKeeper 3.7 do not know `QuotaExceeded`, and hang or end on its code. So
/// this code is sent only for a hard quota, as set by an operator.
pub(crate) fn reply_to(refusal: &Refusal, state: &State) -> Option<i32> {
    let by_quota = || refusal.path.as_ref().is_some_and(|path| state.has_hard_quota(path));
    if refusal.error == Error::QuotaExceeded && !by_quota() {
        return Some(error::SYSTEM_ERROR);
    }
    refusal.error.row().zookeeper
}

/// Converts a zxid to the protocol's type.
pub(crate) fn wire_zxid(zxid: Zxid) -> i64 {
    i64::try_from(zxid.0).unwrap_or(i64::MAX)
}
