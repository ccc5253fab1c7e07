//! The model's acquires without key and owner, and giving back by the lock's name.

use znode::lock::LockStatus;
use znode::{Acquire, Error, Keyless, LockMode, ReleaseHeld, RequestKey, SessionId};

use super::locks::reads;
use super::{Answer, Model, Stay, parent_of, refused};

impl Model {
    /// What is refused here is taken back by the caller.
    pub(super) fn acquire_anew(&mut self, acquire: &Acquire, priority: u32, id: SessionId, key: RequestKey) -> Answer {
        let lock = acquire.lock.as_str();
        let earlier: Vec<String> = self.contenders(lock).into_iter().filter(|path| self.is_keyless(path, id)).collect();
        if acquire.keyless == Some(Keyless::Replace) {
            earlier.iter().for_each(|ticket| self.take_out(ticket));
        }
        let ticket = match self.enqueue_in_mode(acquire, id, key, false)? {
            Ok(ticket) => ticket,
            Err(answer) => return Ok(answer),
        };
        self.nodes.get_mut(&ticket).unwrap().priority = priority;
        self.settle();
        if self.is_one_too_many(&ticket) {
            return refused(Error::TooManyWaiters, lock);
        }
        if acquire.keyless == Some(Keyless::Refuse)
            && matches!(self.status(&ticket), Ok(LockStatus::Waiting { .. }))
            && let Some(blocker) = self.own_blocker(&ticket, &earlier)
        {
            return refused(Error::BlockedByOwnSession, &blocker);
        }
        self.acquired(&ticket)
    }

    fn is_keyless(&self, path: &str, id: SessionId) -> bool {
        let node = &self.nodes[path];
        node.stay == Stay::Session(id) && node.lock.as_ref().is_some_and(|lock| lock.keyless)
    }

    /// The first of the session's earlier tickets that keeps a waiting one out, by itself or by one that waits for it.
    fn own_blocker(&self, ticket: &str, earlier: &[String]) -> Option<String> {
        if let Some(limit) = self.limit_over(ticket) {
            let wanted = |path: &String| match self.nodes[path].lock.as_ref().unwrap().mode {
                LockMode::Lease { permits, .. } => permits,
                _ => limit,
            };
            let sum = earlier.iter().map(wanted).sum::<u32>() + wanted(&ticket.to_string());
            return if sum > limit { earlier.first().cloned() } else { None };
        }
        let contenders = self.contenders(parent_of(ticket).unwrap());
        let at = |path: &str| contenders.iter().position(|other| other == path).unwrap();
        let last =
            if reads(ticket) { contenders[..at(ticket)].iter().rposition(|other| !reads(other))? } else { at(ticket) };
        let in_ledger = self.ledger_over(ticket).is_some();
        let sooner = |path: &str| {
            let (other, own) = (&self.nodes[path], &self.nodes[ticket]);
            let place = at(path) < at(ticket);
            let by_turn = other.priority > own.priority || (other.priority == own.priority && place);
            !in_ledger || other.granted.is_some() || by_turn
        };
        earlier.iter().find(|path| at(path) <= last && sooner(path)).cloned()
    }

    pub(super) fn release_held(&mut self, of: &ReleaseHeld, session: Option<SessionId>) -> Answer {
        let lock = of.lock.as_str();
        let Some(id) = session else {
            return refused(Error::SessionRequired, lock);
        };
        let mut tickets = self.contenders(lock);
        tickets.retain(|path| {
            let node = &self.nodes[path];
            let Ok(LockStatus::Held { token, .. }) = self.status(path) else { return false };
            let mode = node.lock.as_ref().map_or_else(|| super::past::mode(path), |lock| lock.mode);
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
