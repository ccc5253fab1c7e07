//! Effects of an entry besides the state: events, and queues that are looked at when the operation
//! is done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::queue::ended::TicketEnd;
use crate::{Acl, Event, EventKind, EventRecord, Session, SessionId, ZPath, Zxid};

/// Effects of one entry so far. The client that asked is in its
/// [`Context`](crate::edits::context::Context).
#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub(crate) events: Vec<EventRecord>,
    /// Parents that have their [`EventKind::ChildrenChanged`] already; a transaction has one for
    /// each parent.
    parents: BTreeSet<ZPath>,
    /// Locks whose queues have changed and whose waiters are still to be looked at.
    queues: BTreeSet<ZPath>,
    /// Steps of the entry's budget taken so far; see `budget.rs`.
    pub(crate) steps: u64,
    /// The sessions that this entry ends.
    pub(crate) ended: BTreeMap<SessionId, Arc<Session>>,
    /// The reason for which tickets end in this entry. `None` if it depends on the ticket.
    pub(crate) end: Option<TicketEnd>,
}

impl Effects {
    pub(crate) fn queue_changed(&mut self, lock: &ZPath) {
        self.queues.insert(lock.clone());
    }

    pub(crate) fn take_queues(&mut self) -> BTreeSet<ZPath> {
        std::mem::take(&mut self.queues)
    }

    /// Tells whether the transaction has its one event for a parent's children already, and notes
    /// that it has.
    pub(crate) fn has_told_of_children(&mut self, parent: &ZPath) -> bool {
        !self.parents.insert(parent.clone())
    }

    /// Adds an event. The ACLs are those of the znode and of its parent; `None` where all clients
    /// may read it.
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

    /// Drops all effects, because the operation was refused.
    pub(crate) fn clear(&mut self) {
        self.events.clear();
        self.parents.clear();
        self.queues.clear();
        self.steps = 0;
    }
}
