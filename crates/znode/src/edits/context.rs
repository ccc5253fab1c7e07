//! The entry that is applied: where it stands in the log, and who asks for it.

use std::net::IpAddr;

use crate::queue::ended::Moment;
use crate::{Attempt, Error, Hold, Identity, LogPosition, RequestKey, SessionId, Term, Zxid};

/// The facts that an entry is known by. They stay as they are while the entry is applied.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) zxid: Zxid,
    pub(crate) term: Term,
    /// The time of the state when the entry is applied.
    pub(crate) time_ms: u64,
    /// The session that asks.
    pub(crate) session: Option<SessionId>,
    /// The identities that the one who asks has proven, besides anyone.
    pub(crate) identities: Vec<Identity>,
    /// The address that the request came from, if it says so.
    pub(crate) address: Option<IpAddr>,
    /// The request's idempotency key.
    pub(crate) key: Option<RequestKey>,
    /// The try of an acquire that it is.
    pub(crate) attempt: Attempt,
}

impl Context {
    /// An entry for which no client asks.
    pub(crate) fn new(at: LogPosition, time_ms: u64) -> Context {
        let LogPosition { term, zxid } = at;
        let (session, identities, address, key, attempt) = Default::default();
        Context { zxid, term, time_ms, session, identities, address, key, attempt }
    }

    /// The hold that an acquire leaves in its lock node. The key becomes the UUID in the lock
    /// node's name.
    ///
    /// # Errors
    /// `BadArguments` without a key.
    pub(crate) fn hold(&self) -> Result<Hold, Error> {
        let key = self.key.ok_or(Error::BadArguments)?;
        Ok(Hold { key, attempts: vec![self.attempt] })
    }

    pub(crate) fn moment(&self) -> Moment {
        Moment { zxid: self.zxid, time_ms: self.time_ms }
    }
}
