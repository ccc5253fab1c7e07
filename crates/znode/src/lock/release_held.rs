//! Giving a lock back by its name.

use std::mem::discriminant;
use std::ops::Bound;

use crate::entry::changes::Changes;
use crate::lock::readings;
use crate::lock::ticket_name::{mode_of, sequence_of};
use crate::{Error, Refusal, ReleaseHeld, Reply, SessionId, State, ZPath};

impl State {
    /// Gives back one hold of the ticket with which the session holds a lock.
    pub(crate) fn release_held(
        &mut self,
        of: &ReleaseHeld,
        session: Option<SessionId>,
        changes: &mut Changes,
    ) -> Result<Reply, Refusal> {
        let refuse = |error| Refusal::at(error, &of.lock);
        let id = session.ok_or_else(|| refuse(Error::SessionRequired))?;
        if self.is_simple_of(id, of) {
            return self.release(&of.lock, session, changes);
        }
        match &self.held_by(id, of)[..] {
            [] => Err(refuse(Error::NotHolder)),
            [ticket] => self.release(&ticket.clone(), session, changes),
            [_, _, ..] => Err(refuse(Error::SeveralHeld)),
        }
    }

    /// The tickets with which a session holds a lock and that fit: at most two.
    fn held_by(&self, id: SessionId, of: &ReleaseHeld) -> Vec<ZPath> {
        let Some(session) = self.session(id) else { return Vec::new() };
        let below = format!("{}/", of.lock);
        let from = (Bound::Included(below.as_str()), Bound::Unbounded);
        let under = session.ephemerals.range::<_, str>(from).take_while(|path| path.as_str().starts_with(&below));
        let own = under.filter(|path| path.parent_str() == Some(of.lock.as_str()));
        let held = |path: &&ZPath| matches!(readings::held(self, path), Ok(Some(_)));
        own.filter(held).filter(|path| self.fits(path, of)).take(2).cloned().collect()
    }

    /// Whether the lock is one znode without a queue, and this session's owner has it: its data is
    /// the owner.
    fn is_simple_of(&self, id: SessionId, of: &ReleaseHeld) -> bool {
        let has_it = |owner: &str| {
            let node = self.node(&of.lock).filter(|node| node.owner() == Some(id) && *node.data == *owner.as_bytes());
            node.is_some_and(|node| of.token.is_none_or(|token| node.czxid.0 == token.0))
        };
        let named = of.owner.as_deref().filter(|owner| !owner.is_empty());
        of.mode.is_none() && sequence_of(of.lock.name()).is_none() && named.is_some_and(has_it)
    }

    fn fits(&self, ticket: &ZPath, of: &ReleaseHeld) -> bool {
        let node = &self.tree[ticket];
        let contender = node.contender();
        let mode = contender.map_or_else(|| mode_of(ticket.name()), |contender| contender.mode);
        let owner = contender.map_or("", |contender| &contender.owner);
        of.mode.is_none_or(|wanted| discriminant(&wanted) == discriminant(&mode))
            && of.token.is_none_or(|token| readings::grant(self, ticket).is_some_and(|grant| grant.token == token))
            && of.owner.as_deref().is_none_or(|wanted| wanted == owner)
    }
}
