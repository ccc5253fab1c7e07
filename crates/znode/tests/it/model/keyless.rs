//! The model's acquires without key and owner, and its releases by the lock's name.

use znode::lock::LockStatus;
use znode::{Acquire, Error, HeldTicket, LockMode, RequestKey, SessionId};

use super::locks::Kind;
use super::{Answer, Model, Stay, refused};

impl Model {
    /// Puts a new ticket into a queue. The caller undoes a refused acquire.
    pub(super) fn acquire_anew(&mut self, acquire: &Acquire, priority: u32, id: SessionId, key: RequestKey) -> Answer {
        let lock = acquire.lock.as_str();
        self.way_into(lock)?;
        let own = self.contenders(lock).into_iter().find(|path| self.is_keyless(path, id));
        if let Some(own) = own.filter(|_| acquire.keyless && acquire.owner.is_empty()) {
            return refused(Error::BlockedByOwnSession, &own);
        }
        let ticket = match self.enqueue(acquire, Kind::Single { priority }, id, key)? {
            Ok(ticket) => ticket,
            Err(answer) => return Ok(answer),
        };
        self.look_at_changed();
        if self.is_one_too_many(&ticket) {
            return refused(Error::TooManyWaiters, lock);
        }
        self.acquired(&ticket)
    }

    fn is_keyless(&self, path: &str, id: SessionId) -> bool {
        let node = &self.nodes[path];
        node.stay == Stay::Session(id) && node.lock.as_ref().is_some_and(|lock| lock.keyless)
    }

    pub(super) fn release_held(&mut self, of: &HeldTicket, session: Option<SessionId>) -> Answer {
        let lock = of.lock.as_str();
        let Some(id) = session else {
            return refused(Error::SessionRequired, lock);
        };
        if let (Some(node), Some(owner)) = (self.nodes.get(lock), &of.owner) {
            let own = node.stay == Stay::Session(id) && node.data == owner.as_bytes();
            let token = of.token.is_none_or(|token| node.created.0.0 == token.0);
            if own && token && !owner.is_empty() && of.mode.is_none() && super::number(lock).is_none() {
                return self.release(lock, session);
            }
        }
        let mut tickets = self.contenders(lock);
        tickets.retain(|path| {
            let node = &self.nodes[path];
            let Ok(LockStatus::Held { token, .. }) = self.status(path) else { return false };
            let mode = node.lock.as_ref().map_or_else(|| super::history::mode(path), |lock| lock.mode);
            let owner = node.lock.as_ref().map_or("", |lock| &lock.owner);
            let same = |wanted: LockMode| match (wanted, mode) {
                (LockMode::Lease { .. }, LockMode::Lease { .. }) => true,
                (wanted, mode) => wanted == mode,
            };
            node.stay == Stay::Session(id)
                && of.mode.is_none_or(same)
                && of.token.is_none_or(|wanted| wanted == token)
                && of.owner.as_ref().is_none_or(|wanted| wanted == owner)
        });
        match tickets.len() {
            0 => refused(Error::NotHolder, lock),
            1 => self.release(&tickets[0], session),
            _ => refused(Error::SeveralHeld, lock),
        }
    }
}
