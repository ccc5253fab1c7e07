//! Effects of a log entry besides the changed state: its events, and the queues whose waiters must
//! be examined afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::edits::context::Context;
use crate::queue::ended::TicketEnd;
use crate::{Acl, Event, EventKind, EventRecord, Session, SessionId, ZPath};

/// A log entry that is being applied, with the effects that it has had so far.
#[derive(Debug)]
pub(crate) struct Effects {
    /// The entry, and the client that sent its request; fixed while the entry is applied.
    pub(crate) context: Context,
    pub(crate) events: Vec<EventRecord>,
    /// Parents for which [`EventKind::ChildrenChanged`] is recorded: a transaction has at most one
    /// such event for each parent.
    parents: BTreeSet<ZPath>,
    /// Locks whose queues have changed and in which grants to waiters are still to be made.
    queues: BTreeSet<ZPath>,
    /// Steps of the entry's budget taken so far; see `budget.rs`.
    pub(crate) steps: u64,
    /// Sessions that the log entry has ended so far.
    pub(crate) ended: BTreeMap<SessionId, Arc<Session>>,
    /// The reason that is recorded for every ticket that this log entry ends. `None` if the reason
    /// may differ from ticket to ticket.
    pub(crate) end: Option<TicketEnd>,
}

impl Effects {
    pub(crate) fn new(context: Context) -> Effects {
        let (events, parents, queues, steps, ended, end) = Default::default();
        Effects { context, events, parents, queues, steps, ended, end }
    }

    pub(crate) fn queue_changed(&mut self, lock: &ZPath) {
        self.queues.insert(lock.clone());
    }

    pub(crate) fn take_queues(&mut self) -> BTreeSet<ZPath> {
        std::mem::take(&mut self.queues)
    }

    /// Tells whether [`EventKind::ChildrenChanged`] was already recorded for a parent, and marks it
    /// as recorded.
    pub(crate) fn has_told_of_children(&mut self, parent: &ZPath) -> bool {
        !self.parents.insert(parent.clone())
    }

    /// Adds an event. `acl` and `parent_acl` guard the znode and its parent; each is `None` if all
    /// clients may read.
    pub(crate) fn push(
        &mut self,
        kind: EventKind,
        path: &ZPath,
        acl: Option<Arc<[Acl]>>,
        parent_acl: Option<Arc<[Acl]>>,
    ) {
        let event = Event { zxid: self.context.zxid, kind, path: path.clone() };
        self.events.push(EventRecord { event, acl, parent_acl });
    }

    /// Empties the events and the set of changed queues, and sets the count of steps to 0, because
    /// the operation was refused and undone.
    pub(crate) fn clear(&mut self) {
        self.events.clear();
        self.parents.clear();
        self.queues.clear();
        self.steps = 0;
    }
}
