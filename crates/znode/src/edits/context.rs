//! The log entry that is being applied: its zxid and term, and the client that sent the request.

use std::net::IpAddr;

use crate::queue::ended::Moment;
use crate::{Attempt, Error, Hold, Identity, LockGuard, LogPosition, RequestKey, SessionId, Term, WriteTurn, Zxid};

/// Facts about a log entry, which are fixed while the entry is applied.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) zxid: Zxid,
    pub(crate) term: Term,
    /// The time of the state when the entry is applied: the latest time in any entry so far, in
    /// milliseconds since 1970.
    pub(crate) time_ms: u64,
    /// The session of the request; `None` for a request without a session.
    pub(crate) session: Option<SessionId>,
    /// The identities that the client has proven, beyond `world:anyone`.
    pub(crate) identities: Vec<Identity>,
    /// The address that the request came from; `None` if the request does not contain it.
    pub(crate) address: Option<IpAddr>,
    /// The request's idempotency key; `None` if the client sent none.
    pub(crate) key: Option<RequestKey>,
    /// The attempt number of an acquire (each retry has a new one); 0 for other requests.
    pub(crate) attempt: Attempt,
    /// The lock that must be held; `None` if the request names none.
    pub(crate) guard: Option<LockGuard>,
    /// The place of an ordered write among those of its connection; `None` for other requests.
    pub(crate) turn: Option<WriteTurn>,
}

impl Context {
    /// The context of a log entry that contains no client's request: the client's fields are empty.
    pub(crate) fn new(at: LogPosition, time_ms: u64) -> Context {
        let LogPosition { term, zxid } = at;
        let (session, identities, address, key, attempt, guard, turn) = Default::default();
        Context { zxid, term, time_ms, session, identities, address, key, attempt, guard, turn }
    }

    /// The hold (record of one acquire) that is added to a ticket. A new lock node has the hold's
    /// key as the UUID in its name.
    ///
    /// # Errors
    /// `BadArguments` if the request has no key.
    pub(crate) fn hold(&self) -> Result<Hold, Error> {
        let key = self.key.ok_or(Error::BadArguments)?;
        Ok(Hold { key, attempts: vec![self.attempt] })
    }

    pub(crate) fn moment(&self) -> Moment {
        Moment { zxid: self.zxid, time_ms: self.time_ms }
    }
}
