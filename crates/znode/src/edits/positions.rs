//! Looking up what a ticket belongs to: its lock, queue, position and multi-lock. A multi-lock is a
//! set of locks that one acquire gets together; each of its tickets is called a part.

use crate::queue::{Position, Queue};
use crate::state::locks::MultiLock;
use crate::words::ticket_name::sequence_of;
use crate::{Error, Kind, Refusal, SessionId, State, ZPath, Znode};

/// Maximum number of holders of a lock that one revocation may ask to release.
const HOLDERS_MAX: usize = 1000;

impl State {
    /// The queue of a lock; `None` if it has neither tickets nor settings.
    pub(crate) fn queue(&self, lock: &ZPath) -> Option<&Queue> {
        self.tree().queue(lock)
    }

    /// The lock of an existing ticket, and the position of the ticket in the queue.
    pub(crate) fn position_of(&self, ticket: &ZPath) -> (ZPath, Position) {
        let lock = ticket.parent().expect("a ticket has a parent");
        let position = self.tree()[ticket].position(ticket.name());
        (lock, position.expect("a ticket has a number"))
    }

    /// The path of the ticket at a position in a lock's queue.
    pub(crate) fn ticket_at(&self, lock: &ZPath, position: &Position) -> ZPath {
        lock.child(&position.name).expect("a child has a good name")
    }

    /// The ticket whose record lists the acquires that share this ticket: the first ticket of a
    /// multi-lock, otherwise the ticket itself.
    pub(crate) fn counts_for(&self, ticket: &ZPath) -> ZPath {
        let multi = self.node(ticket).and_then(|node| self.multi_of(ticket, node));
        multi.map_or(ticket, |multi| &multi.tickets[0]).clone()
    }

    /// The multi-lock that a ticket is a part of; `None` for a ticket of a single lock.
    pub(crate) fn multi_of(&self, ticket: &ZPath, node: &Znode) -> Option<&MultiLock> {
        let multi = self.locks().multi(node.czxid)?;
        // A directory that the same entry made has this czxid, too, but is not a part.
        multi.tickets.contains(ticket).then_some(&**multi)
    }

    /// The multi-lock that the ticket at this position of this lock is a part of; `None` for a
    /// ticket of a single lock.
    pub(crate) fn multi_at(&self, lock: &ZPath, position: &Position) -> Option<&MultiLock> {
        let multi = self.locks().multi(position.czxid)?;
        let is_part = |ticket: &ZPath| ticket.name() == &*position.name && ticket.parent_str() == Some(lock.as_str());
        multi.tickets.iter().any(is_part).then_some(&**multi)
    }

    /// The tickets whose release a revocation of a lock asks for: those that hold the lock and
    /// belong to open sessions.
    ///
    /// # Errors
    /// `TooManyHolders` if the lock has more than [`HOLDERS_MAX`] holders.
    pub(crate) fn holders(&self, lock: &ZPath) -> Result<Vec<ZPath>, Error> {
        let Some(queue) = self.queue(lock) else { return Ok(Vec::new()) };
        if queue.holder_count() > HOLDERS_MAX {
            return Err(Error::TooManyHolders);
        }
        let tickets: Vec<ZPath> = queue.holders().map(|(at, _)| lock.child(&at.name)).collect::<Result<_, _>>()?;
        Ok(tickets.into_iter().filter(|ticket| is_ticket(ticket, &self.tree()[ticket])).collect())
    }

    /// Tells whether a waiting ticket can never be granted its lock: its session has expired, and a
    /// later entry will remove the session with the ticket.
    pub(crate) fn waits_in_vain(&self, ticket: &ZPath, node: &Znode) -> bool {
        node.owner().is_some_and(|owner| self.sessions().is_ending(owner)) && !holds_lock(self, ticket)
    }

    /// Tells whether a session holds the whole lock with a ticket of this sequence number.
    pub(crate) fn writes(&self, lock: &ZPath, number: u64, session: SessionId) -> bool {
        let writer = self.queue(lock).and_then(Queue::alone);
        writer.is_some_and(|(at, holder)| at.number == number && holder.ticket.session == Some(session))
    }

    /// Checks that a plain create adds no ticket to a managed lock, whose queue only acquires may
    /// enter.
    pub(crate) fn check_managed(&self, parent: &ZPath, name: &str, kind: Kind) -> Result<(), Refusal> {
        let managed = || self.queue(parent).is_some_and(|queue| queue.settings().managed);
        if kind.number(name).is_some() && managed() { Err(Refusal::at(Error::LockManaged, parent)) } else { Ok(()) }
    }

    /// Checks that the lock's limit of waiters allows a new ticket to stay in its queue. The caller
    /// makes grants first, because only then it is known whether the ticket waits.
    ///
    /// # Errors
    /// `TooManyWaiters` if the ticket waits and the queue has too many waiters.
    pub(crate) fn check_waiters(&self, ticket: &ZPath) -> Result<(), Refusal> {
        let (lock, position) = self.position_of(ticket);
        let over = self.queue(&lock).is_some_and(|queue| queue.is_over_full() && queue.waits(&position));
        if over { Err(Refusal::at(Error::TooManyWaiters, &lock)) } else { Ok(()) }
    }

    /// Gives a new waiter its priority. The caller must not have granted the ticket its lock yet.
    pub(crate) fn prioritize(&mut self, ticket: &ZPath, priority: u32) {
        let (lock, position) = self.position_of(ticket);
        self.edit_queue(&lock, |queue| queue.prioritize(&position, priority));
    }
}

/// The queue, the znode and the position of a ticket.
///
/// # Errors
/// `NoNode` if there is no such lock node; `BadArguments` if the path is not that of a ticket.
pub(crate) fn find<'a>(state: &'a State, ticket: &ZPath) -> Result<(&'a Queue, &'a Znode, Position), Error> {
    let lock = ticket.parent_str().ok_or(Error::BadArguments)?;
    if sequence_of(ticket.name()).is_none() {
        return Err(Error::BadArguments);
    }
    let node = state.node(ticket).ok_or(Error::NoNode)?;
    let position = node.position(ticket.name()).ok_or(Error::BadArguments)?;
    let queue = state.tree().queue(lock).ok_or(Error::NoNode)?;
    Ok((queue, node, position))
}

/// Tells whether a ticket holds its lock, or held it when its session expired and is kept for its
/// lock-delay.
pub(crate) fn holds_lock(state: &State, ticket: &ZPath) -> bool {
    find(state, ticket).is_ok_and(|(queue, _, position)| queue.holder(&position).is_some())
}

/// Tells whether a znode is a lock node of an open session.
pub(crate) fn is_ticket(path: &ZPath, node: &Znode) -> bool {
    node.owner().is_some() && node.lingers_until_ms().is_none() && sequence_of(path.name()).is_some()
}
