//! Changes of an entry beside the state: events, and queues to be looked at when it is through.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::edits::context::Context;
use crate::queue::ended::TicketEnd;
use crate::{Acl, Event, EventKind, Recorded, Session, SessionId, ZPath};

/// Changes of one entry so far, and the entry itself.
#[derive(Debug)]
pub(crate) struct Changes {
    pub(crate) context: Context,
    pub(crate) events: Vec<Recorded>,
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

impl Changes {
    /// No changes as yet.
    pub(crate) fn of(context: Context) -> Changes {
        let (events, parents, queues, steps, ended, end) = Default::default();
        Changes { context, events, parents, queues, steps, ended, end }
    }

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
        kind: EventKind,
        path: &ZPath,
        acl: Option<Arc<[Acl]>>,
        parent_acl: Option<Arc<[Acl]>>,
    ) {
        let event = Event { zxid: self.context.zxid, kind, path: path.clone() };
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
