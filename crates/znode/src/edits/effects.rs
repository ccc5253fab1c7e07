//! Effects of an entry beside the state: events, and queues to be looked at when it is through.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::queue::ended::TicketEnd;
use crate::{Acl, Event, EventKind, EventRecord, Session, SessionId, ZPath, Zxid};

/// Effects of one entry so far. Who asked for them stands in its
/// [`Context`](crate::edits::context::Context).
#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub(crate) events: Vec<EventRecord>,
    /// Parents that have their event: one for a transaction is enough.
    parents: BTreeSet<ZPath>,
    /// Locks whose queues have changed since it was looked who holds next.
    queues: BTreeSet<ZPath>,
    /// Znodes made, removed and granted a lock so far; see `budget.rs`.
    pub(crate) steps: u64,
    /// The sessions that this entry ends.
    pub(crate) ended: BTreeMap<SessionId, Arc<Session>>,
    /// The reason for which tickets end in this entry, as far as the operation alone tells.
    pub(crate) end: Option<TicketEnd>,
}

impl Effects {
    pub(crate) fn queue_changed(&mut self, lock: &ZPath) {
        self.queues.insert(lock.clone());
    }

    pub(crate) fn take_queues(&mut self) -> BTreeSet<ZPath> {
        std::mem::take(&mut self.queues)
    }

    /// Tells whether the one event that a parent has in a transaction is there; it is from here on.
    pub(crate) fn has_told_of_children(&mut self, parent: &ZPath) -> bool {
        !self.parents.insert(parent.clone())
    }

    /// Adds an event. The ACLs are those of the znode and of its parent, where not all clients may
    /// read them.
    pub(crate) fn push(
        &mut self,
        zxid: Zxid,
        kind: EventKind,
        path: &ZPath,
        acl: Option<Arc<[Acl]>>,
        parent_acl: Option<Arc<[Acl]>>,
    ) {
        let event = Event { zxid, kind, path: path.clone() };
        self.events.push(EventRecord { event, acl, parent_acl });
    }

    /// Takes back everything: a multi was refused.
    pub(crate) fn clear(&mut self) {
        self.events.clear();
        self.parents.clear();
        self.queues.clear();
        self.steps = 0;
    }
}
