//! The place of a ticket: its lock, its queue there, its multi-lock.

use crate::queue::{Position, Queue};
use crate::state::locks::MultiLock;
use crate::words::ticket_name::sequence_of;
use crate::{Error, Kind, Refusal, SessionId, State, ZPath, Znode};

/// Holders that one revocation may ask.
const HOLDERS_MAX: usize = 1000;

impl State {
    /// The queue of a lock, where there are tickets or settings.
    pub(crate) fn queue(&self, lock: &ZPath) -> Option<&Queue> {
        self.tree.queue(lock)
    }

    /// The lock of a ticket that stands, and where the ticket stands in it.
    pub(crate) fn position_of(&self, ticket: &ZPath) -> (ZPath, Position) {
        let lock = ticket.parent().expect("a ticket has a parent");
        let position = self.tree[ticket].position(ticket.name());
        (lock, position.expect("a ticket has a number"))
    }

    /// The ticket at a position of a queue.
    pub(crate) fn ticket_at(&self, lock: &ZPath, position: &Position) -> ZPath {
        lock.child(&position.name).expect("a child has a good name")
    }

    /// The ticket whose holds count: of a multi-lock its first one.
    pub(crate) fn counts_for(&self, ticket: &ZPath) -> ZPath {
        let multi = self.node(ticket).and_then(|node| self.multi_of(ticket, node));
        multi.map_or(ticket, |multi| &multi.tickets[0]).clone()
    }

    /// The multi-lock that a lock node is a part of.
    pub(crate) fn multi_of(&self, ticket: &ZPath, node: &Znode) -> Option<&MultiLock> {
        let multi = self.locks.multi(node.czxid)?;
        // A directory that the same entry made has the same czxid.
        multi.tickets.contains(ticket).then_some(&**multi)
    }

    /// The multi-lock of the part that has this position in its lock.
    pub(crate) fn multi_at(&self, lock: &ZPath, position: &Position) -> Option<&MultiLock> {
        let multi = self.locks.multi(position.czxid)?;
        let is_part = |ticket: &ZPath| ticket.name() == &*position.name && ticket.parent_str() == Some(lock.as_str());
        multi.tickets.iter().any(is_part).then_some(&**multi)
    }

    /// Tickets that hold a lock, of those whom a session owns.
    pub(crate) fn holders(&self, lock: &ZPath) -> Result<Vec<ZPath>, Error> {
        let Some(queue) = self.queue(lock) else { return Ok(Vec::new()) };
        if queue.holder_count() > HOLDERS_MAX {
            return Err(Error::TooManyHolders);
        }
        let tickets: Vec<ZPath> = queue.holders().map(|(at, _)| lock.child(&at.name)).collect::<Result<_, _>>()?;
        Ok(tickets.into_iter().filter(|ticket| is_ticket(ticket, &self.tree[ticket])).collect())
    }

    /// Tells whether a ticket waits for a session that is being ended.
    pub(crate) fn waits_in_vain(&self, ticket: &ZPath, node: &Znode) -> bool {
        node.owner().is_some_and(|owner| self.sessions.is_ending(owner)) && !holds_lock(self, ticket)
    }

    /// Tells whether a session holds a lock to write under this number.
    pub(crate) fn writes(&self, lock: &ZPath, number: u64, session: SessionId) -> bool {
        let writer = self.queue(lock).and_then(Queue::alone);
        writer.is_some_and(|(at, holder)| at.number == number && holder.ticket.session == Some(session))
    }

    /// Checks whether a znode may be made otherwise than as the lock node of an acquire.
    pub(crate) fn check_managed(&self, parent: &ZPath, name: &str, kind: Kind) -> Result<(), Refusal> {
        let managed = || self.queue(parent).is_some_and(|queue| queue.settings().managed);
        if kind.number(name).is_some() && managed() { Err(Refusal::at(Error::LockManaged, parent)) } else { Ok(()) }
    }

    /// Checks whether a new ticket may stay. Call this after granting: only then is it known
    /// whether the ticket waits.
    ///
    /// # Errors
    /// `TooManyWaiters` when it waits and is one too many.
    pub(crate) fn check_waiters(&self, ticket: &ZPath) -> Result<(), Refusal> {
        let (lock, position) = self.position_of(ticket);
        let over = self.queue(&lock).is_some_and(|queue| queue.is_over_full() && queue.waits(&position));
        if over { Err(Refusal::at(Error::TooManyWaiters, &lock)) } else { Ok(()) }
    }

    /// Gives a waiter its priority before any ticket has a turn.
    pub(crate) fn prioritize(&mut self, ticket: &ZPath, priority: u32) {
        let (lock, position) = self.position_of(ticket);
        self.tree.edit_queue(&lock, |queue| queue.prioritize(&position, priority));
    }
}

/// The queue, the lock node and its position.
pub(crate) fn find<'a>(state: &'a State, ticket: &ZPath) -> Result<(&'a Queue, &'a Znode, Position), Error> {
    let lock = ticket.parent_str().ok_or(Error::BadArguments)?;
    if sequence_of(ticket.name()).is_none() {
        return Err(Error::BadArguments);
    }
    let node = state.node(ticket).ok_or(Error::NoNode)?;
    let position = node.position(ticket.name()).ok_or(Error::BadArguments)?;
    let queue = state.tree.queue(lock).ok_or(Error::NoNode)?;
    Ok((queue, node, position))
}

/// Tells whether a ticket holds, also while it lingers.
pub(crate) fn holds_lock(state: &State, ticket: &ZPath) -> bool {
    find(state, ticket).is_ok_and(|(queue, _, position)| queue.holder(&position).is_some())
}

/// The lock node of a session that is open.
pub(crate) fn is_ticket(path: &ZPath, node: &Znode) -> bool {
    node.owner().is_some() && node.lingers_until_ms().is_none() && sequence_of(path.name()).is_some()
}
