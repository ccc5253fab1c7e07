//! Releasing a ticket, named by its path or by its lock.

use std::mem::discriminant;
use std::ops::Bound;

use crate::edits::context::Context;
use crate::edits::effects::Effects;
use crate::operations::readings;
use crate::words::ticket_name::{mode_of, sequence_of};
use crate::{Error, HeldTicket, Refusal, Reply, SessionId, State, TicketRef, ZPath};

impl State {
    /// Gives back one hold of a ticket (each acquire that shares the ticket is a hold). The release
    /// of the last hold deletes the lock node.
    pub(crate) fn release(&mut self, ticket: TicketRef, effects: &mut Effects) -> Result<Reply, Refusal> {
        let ticket = match ticket {
            TicketRef::Path(ticket) => ticket,
            TicketRef::Held(wanted) => {
                self.held_ticket(&wanted, &effects.context).map_err(|error| Refusal::at(error, &wanted.lock))?
            }
        };
        // The path may also be that of a simple lock (one ephemeral znode) or of a member of a
        // group.
        self.check_own(&ticket, &effects.context).map_err(|error| Refusal::at(error, &ticket))?;
        let holds = self.edit_contender(&self.counts_for(&ticket), |contender| {
            contender.release();
            contender.count()
        });
        let holds = holds.unwrap_or(0);
        if holds == 0 {
            self.remove(&ticket, effects);
        }
        Ok(Reply::Released { holds })
    }

    /// The single ticket that matches `wanted` and with which the session holds the lock; an error
    /// if none or several match. For a simple lock (one ephemeral znode) of the session, the
    /// lock's own path.
    fn held_ticket(&self, wanted: &HeldTicket, context: &Context) -> Result<ZPath, Error> {
        let id = context.session.ok_or(Error::SessionRequired)?;
        if self.is_simple_of(id, wanted) {
            return Ok(wanted.lock.clone());
        }
        match &self.held_by(id, wanted)[..] {
            [] => Err(Error::NotHolder),
            [ticket] => Ok(ticket.clone()),
            [_, _, ..] => Err(Error::SeveralHeld),
        }
    }

    /// The first two tickets that match `wanted` and with which the session holds the lock. Two are
    /// enough to know that `wanted` is ambiguous.
    fn held_by(&self, id: SessionId, wanted: &HeldTicket) -> Vec<ZPath> {
        let Some(session) = self.session(id) else { return Vec::new() };
        let below = format!("{}/", wanted.lock);
        let from = (Bound::Included(below.as_str()), Bound::Unbounded);
        let under = session.ephemerals.range::<_, str>(from).take_while(|path| path.as_str().starts_with(&below));
        let own = under.filter(|path| path.parent_str() == Some(wanted.lock.as_str()));
        let held = |path: &&ZPath| matches!(readings::held(self, path), Ok(Some(_)));
        own.filter(held).filter(|path| self.fits(path, wanted)).take(2).cloned().collect()
    }

    /// Tells whether the session owns the lock as a simple lock: one ephemeral znode whose data is
    /// the owner that `wanted` names.
    fn is_simple_of(&self, id: SessionId, wanted: &HeldTicket) -> bool {
        let has_it = |owner: &str| {
            let node =
                self.node(&wanted.lock).filter(|node| node.owner() == Some(id) && *node.data == *owner.as_bytes());
            node.is_some_and(|node| wanted.token.is_none_or(|token| node.czxid.0 == token.0))
        };
        let named = wanted.owner.as_deref().filter(|owner| !owner.is_empty());
        wanted.mode.is_none() && sequence_of(wanted.lock.name()).is_none() && named.is_some_and(has_it)
    }

    fn fits(&self, ticket: &ZPath, wanted: &HeldTicket) -> bool {
        let node = &self.tree()[ticket];
        let contender = node.contender();
        let mode = contender.map_or_else(|| mode_of(ticket.name()), |contender| contender.mode);
        let owner = contender.map_or("", |contender| &contender.owner);
        wanted.mode.is_none_or(|asked| discriminant(&asked) == discriminant(&mode))
            && wanted.token.is_none_or(|token| readings::grant(self, ticket).is_some_and(|grant| grant.token == token))
            && wanted.owner.as_deref().is_none_or(|asked| asked == owner)
    }
}
