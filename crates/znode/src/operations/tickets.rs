//! The tickets of a session: finding a ticket, adding a hold (record of one more acquire) to it,
//! answering an acquire with it.

use std::ops::Bound;
use std::sync::Arc;

use crate::edits::context::Context;
use crate::operations::readings;
use crate::state::session::NamedKey;
use crate::words::ticket_name::sequence_of;
use crate::words::weight;
use crate::{
    Acquire, Contender, Error, Hold, Limits, LockMode, Refusal, Reply, RequestKey, SessionId, State, ZPath, Znode,
};

impl State {
    /// Answers a retry of an acquire with the present state of its ticket. The acquire is not
    /// counted again.
    pub(crate) fn acquire_again(&mut self, ticket: &ZPath, context: &Context) -> Result<Reply, Refusal> {
        // After the ticket was removed, another client may have made a znode with its name.
        if self.node(ticket).is_none_or(|node| !node.is_owned_by(context.session) || node.contender().is_none()) {
            return Err(Refusal::at(Error::NoNode, ticket));
        }
        self.edit_contender(ticket, |contender| {
            // The hold may have been released while other holds keep the ticket.
            if let Some(hold) = contender.holds.iter_mut().find(|hold| Some(hold.key) == context.key) {
                hold.retry(context.attempt);
            }
        });
        self.acquired(ticket)
    }

    pub(crate) fn hold_once_more(&mut self, ticket: &ZPath, hold: Hold) -> Result<Reply, Refusal> {
        if self.multi_of(ticket, &self.tree()[ticket]).is_some() {
            return Err(Refusal::at(Error::Overlap, ticket));
        }
        self.count_hold(ticket, hold)
    }

    /// Adds the hold of one more acquire to a ticket, and answers with the ticket's state.
    pub(crate) fn count_hold(&mut self, ticket: &ZPath, hold: Hold) -> Result<Reply, Refusal> {
        if self.tree()[ticket].contender().map_or(0, Contender::count) >= self.limits().holds_max {
            return Err(Refusal::at(Error::TooManyHolds, ticket));
        }
        self.check_bytes(weight::HOLD).map_err(|error| Refusal::at(error, ticket))?;
        self.edit_contender(ticket, |contender| contender.holds.push(hold));
        self.acquired(ticket)
    }

    pub(crate) fn acquired(&self, ticket: &ZPath) -> Result<Reply, Refusal> {
        let held = readings::held(self, ticket).map_err(|error| Refusal::at(error, ticket))?;
        Ok(Reply::Acquired { ticket: ticket.clone(), held })
    }

    /// The ticket that an owner (a user of locks within the session) has in a lock in this mode;
    /// `None` if there is no such ticket, and for the empty owner.
    pub(crate) fn ticket_of(&self, id: SessionId, lock: &ZPath, mode: LockMode, owner: &str) -> Option<ZPath> {
        if owner.is_empty() {
            return None;
        }
        self.sessions()[&id].tickets.get(&(lock.clone(), mode.of_any_limit(), owner.into())).cloned()
    }

    /// Tells whether an owner (a user of locks within the session) has a ticket of a lock, in any
    /// mode.
    pub(crate) fn has_ticket_of(&self, id: SessionId, lock: &ZPath, owner: &str) -> bool {
        let from = (lock.clone(), LockMode::Exclusive, "".into());
        let tickets = self.sessions()[&id].tickets.range((Bound::Included(from), Bound::Unbounded));
        let mut own = tickets.take_while(|((other, _, _), _)| other == lock);
        !owner.is_empty() && own.any(|((_, _, other), _)| **other == *owner)
    }

    /// Tells whether an owner has any ticket. Examines no more tickets than a search for a deadlock
    /// may examine.
    pub(crate) fn has_ticket(&self, id: SessionId, owner: &str) -> bool {
        let looks = self.limits().deadlock_looks();
        let mut tickets = self.sessions()[&id].tickets.keys().take(looks as usize);
        !owner.is_empty() && tickets.any(|(_, _, other)| **other == *owner)
    }

    /// The ticket of an earlier acquire with this idempotency key, so that this acquire is a retry;
    /// `None` if there is no such ticket.
    pub(crate) fn ticket_with(&self, id: SessionId, acquire: &Acquire, key: RequestKey) -> Option<ZPath> {
        self.ticket_of_key(id, &acquire.lock, acquire.mode, &acquire.owner, key)
    }

    /// The ticket of an owner, or a ticket without owner, that has a hold with this idempotency
    /// key.
    pub(crate) fn ticket_of_key(
        &self,
        id: SessionId,
        lock: &ZPath,
        mode: LockMode,
        owner: &str,
        key: RequestKey,
    ) -> Option<ZPath> {
        let ticket = if owner.is_empty() {
            self.sessions()[&id].named.get(&(lock.clone(), mode.of_any_limit(), key, Arc::default())).cloned()
        } else {
            self.ticket_of(id, lock, mode, owner)
        };
        ticket.filter(|ticket| self.counts_key(ticket, key))
    }

    /// Tells whether a ticket has a hold with this idempotency key.
    pub(crate) fn counts_key(&self, ticket: &ZPath, key: RequestKey) -> bool {
        let contender = self.node(ticket).and_then(Znode::contender);
        contender.is_some_and(|contender| contender.holds.iter().any(|hold| hold.key == key))
    }

    /// The write ticket of a lock that has this idempotency key in its name and a hold with this
    /// key, whatever its owner. Examines at most [`Limits::LOOKS_MOST`] tickets.
    pub(crate) fn writer_named(&self, id: SessionId, lock: &ZPath, key: RequestKey) -> Option<ZPath> {
        let from: NamedKey = (lock.clone(), LockMode::Write, key, Arc::default());
        let named = self.sessions()[&id].named.range((Bound::Included(from), Bound::Unbounded));
        let mut writers = named
            .take(Limits::LOOKS_MOST as usize)
            .take_while(|((of, mode, named, _), _)| (of, *mode, *named) == (lock, LockMode::Write, key));
        writers.find(|(_, ticket)| self.counts_key(ticket, key)).map(|(_, ticket)| ticket.clone())
    }

    /// Checks that the path is that of a ticket of the session. Returns the session.
    pub(crate) fn check_ticket(&self, ticket: &ZPath, context: &Context) -> Result<SessionId, Error> {
        let id = self.check_own(ticket, context)?;
        if sequence_of(ticket.name()).is_none() { Err(Error::BadArguments) } else { Ok(id) }
    }

    /// Checks that the session owns the znode. Returns the session.
    pub(crate) fn check_own(&self, path: &ZPath, context: &Context) -> Result<SessionId, Error> {
        let id = context.session.ok_or(Error::SessionRequired)?;
        let node = self.node(path).ok_or(Error::NoNode)?;
        if node.owner() == Some(id) { Ok(id) } else { Err(Error::NotOwner) }
    }
}
