//! What an entry changes beside the state: events, and queues to be looked at when it is through.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::lock::ended::TicketEnd;
use crate::{
    Acl, Attempt, Error, Event, EventKind, Hold, Identity, LogPosition, Recorded, RequestKey, Session, SessionId, Term,
    ZPath, Zxid,
};

/// What one transaction has changed so far.
#[derive(Debug)]
pub(crate) struct Changes {
    pub(crate) zxid: Zxid,
    pub(crate) term: Term,
    /// Whom the one who asks has proven to be, besides anyone.
    pub(crate) identities: Vec<Identity>,
    pub(crate) events: Vec<Recorded>,
    /// Parents that have their event: one for a transaction is enough.
    parents: BTreeSet<ZPath>,
    /// Locks whose queues have changed since it was looked who holds next.
    queues: BTreeSet<ZPath>,
    /// Znodes made, removed and granted a lock so far; see `budget.rs`.
    pub(crate) steps: u64,
    /// Who asks.
    pub(crate) session: Option<SessionId>,
    /// The request's idempotency key.
    pub(crate) key: Option<RequestKey>,
    /// Which try of an acquire it is.
    pub(crate) attempt: Attempt,
    /// Where the request came from, if it says so.
    pub(crate) address: Option<IpAddr>,
    /// The sessions that this entry ends.
    pub(crate) ended: BTreeMap<SessionId, Arc<Session>>,
    /// Why tickets end in this entry, as far as the operation alone tells.
    pub(crate) end: Option<TicketEnd>,
}

impl Changes {
    pub(crate) fn new(at: LogPosition) -> Changes {
        let (parents, queues) = Default::default();
        let (zxid, term) = (at.zxid, at.term);
        let (identities, events) = (Vec::new(), Vec::new());
        let (session, key, attempt, address, end, ended) = Default::default();
        Changes {
            zxid,
            term,
            identities,
            events,
            parents,
            queues,
            steps: 0,
            session,
            key,
            attempt,
            address,
            ended,
            end,
        }
    }

    /// What an acquire leaves in its lock node. The key becomes the UUID in the lock node's name.
    ///
    /// # Errors
    /// `BadArguments` without a key.
    pub(crate) fn hold(&self) -> Result<Hold, Error> {
        let key = self.key.ok_or(Error::BadArguments)?;
        Ok(Hold { key, attempts: vec![self.attempt] })
    }

    /// Where the entry stands.
    pub(crate) fn at(&self) -> LogPosition {
        LogPosition { term: self.term, zxid: self.zxid }
    }

    pub(crate) fn queue_changed(&mut self, lock: &ZPath) {
        self.queues.insert(lock.clone());
    }

    pub(crate) fn take_queues(&mut self) -> BTreeSet<ZPath> {
        std::mem::take(&mut self.queues)
    }

    /// Whether the one event that a parent has in a transaction is there; it is from here on.
    pub(crate) fn has_told_of_children(&mut self, parent: &ZPath) -> bool {
        !self.parents.insert(parent.clone())
    }

    /// The ACLs are those of the znode and of its parent, where not all clients may read them.
    pub(crate) fn push(
        &mut self,
        kind: EventKind,
        path: &ZPath,
        acl: Option<Arc<[Acl]>>,
        parent_acl: Option<Arc<[Acl]>>,
    ) {
        let event = Event { zxid: self.zxid, kind, path: path.clone() };
        self.events.push(Recorded { event, acl, parent_acl });
    }

    /// Takes back everything: a multi was refused.
    pub(crate) fn clear(&mut self) {
        self.events.clear();
        self.parents.clear();
        self.queues.clear();
        self.steps = 0;
    }
}
