//! The model's multi-locks.

use znode::{Acquire, AcquireAll, Error, LockMode, Refusal, RequestKey, SessionId, ZPath};

use super::locks::{Kind, same_mode};
use super::{Answer, Model, Stay, parent_of, refused};

impl Model {
    pub(super) fn acquire_all(
        &mut self,
        wish: &AcquireAll,
        session: Option<SessionId>,
        key: Option<RequestKey>,
    ) -> Answer {
        let owner = &*wish.owner;
        let id = session.ok_or(Error::SessionRequired)?;
        let key = key.ok_or(Error::BadArguments)?;
        if wish.parts.len() > (self.limits.ops_max as usize).min(64) {
            return Err(Error::TooManyOps.into());
        }
        let mut seen = Vec::new();
        for (index, (lock, mode)) in wish.parts.iter().enumerate() {
            if lock.as_str() == "/" || seen.contains(lock) || *mode == LockMode::Latch {
                return refused(Error::BadArguments, lock.as_str()).map_err(|refusal| at(refusal, index));
            }
            seen.push(lock.clone());
        }
        if seen.is_empty() {
            return Err(Error::BadArguments.into());
        }
        if wish.label.len().max(owner.len()) > self.limits.label_bytes_max as usize {
            return Err(Error::DataTooLarge.into());
        }
        if let Some(ticket) = self.counted_on_all(id, wish, key) {
            return self.stands(id, &ticket, key);
        }
        if let Some(first) = self.same_set(id, wish) {
            for (index, (lock, mode)) in wish.parts.iter().enumerate() {
                self.with_limit(lock, *mode).map_err(|refusal| at(refusal, index))?;
            }
            return self.count_hold(&first, key);
        }
        for (index, (lock, _)) in wish.parts.iter().enumerate() {
            if !self.tickets_of(id, lock.as_str(), owner).is_empty() {
                return refused(Error::Overlap, lock.as_str()).map_err(|refusal| at(refusal, index));
            }
        }
        let before = self.clone();
        let mut tickets = Vec::new();
        for index in 0..wish.parts.len() {
            let acquire = part(wish, index);
            let allowed = self.way_into(acquire.lock.as_str());
            match allowed.and_then(|_| self.enqueue(&acquire, Kind::Part, id, key)) {
                Ok(ticket) => tickets.push(ticket.unwrap()),
                Err(refusal) => {
                    *self = before;
                    return Err(at(refusal, index));
                }
            }
        }
        let first = tickets[0].clone();
        self.multis.push((wish.policy, tickets));
        self.look_at_changed();
        let waited_for = before.has_ticket(&(id, owner.into()));
        if let Some(cycle) = waited_for.then(|| self.cycle_of_parts((id, owner.into()), &first)).flatten() {
            *self = before;
            let (lock, mode) = wish.parts.iter().find(|(lock, _)| *lock == cycle[0].lock).unwrap();
            self.note_cycle(lock.as_str(), *mode, id, owner, &wish.label);
            return Ok(self.shown(cycle));
        }
        let tickets = self.parts(&first).unwrap().1.clone();
        if let Some(index) = tickets.iter().position(|ticket| self.is_one_too_many(ticket)) {
            *self = before;
            return refused(Error::TooManyWaiters, wish.parts[index].0.as_str()).map_err(|refusal| at(refusal, index));
        }
        self.acquired(&first)
    }

    /// The first ticket of the multi-lock that the request's owner (a user of locks within the
    /// session) has with exactly the requested locks and modes.
    fn same_set(&self, id: SessionId, wish: &AcquireAll) -> Option<String> {
        let owner = &*wish.owner;
        let own = |ticket: &String| self.nodes[ticket].stay == Stay::Session(id) && self.owner_on(ticket) == owner;
        let has = |tickets: &[String], (lock, mode): &(ZPath, LockMode)| {
            tickets.iter().any(|ticket| {
                parent_of(ticket) == Some(lock.as_str())
                    && same_mode(self.nodes[ticket].lock.as_ref().unwrap().mode, *mode)
            })
        };
        let same = |tickets: &Vec<String>| {
            tickets.len() == wish.parts.len() && wish.parts.iter().all(|part| has(tickets, part))
        };
        let mut multis = self.multis.iter().map(|(_, tickets)| tickets);
        let found = multis.find(|tickets| own(&tickets[0]) && same(tickets));
        found.filter(|_| !owner.is_empty()).map(|tickets| tickets[0].clone())
    }

    /// All tickets that an owner (a user of locks within the session) has in a lock.
    fn tickets_of(&self, id: SessionId, lock: &str, owner: &str) -> Vec<String> {
        let own = |path: &String| self.nodes[path].stay == Stay::Session(id) && self.owner_on(path) == owner;
        self.contenders(lock).into_iter().filter(|path| !owner.is_empty() && own(path)).collect()
    }

    pub(super) fn owner_on(&self, ticket: &str) -> &str {
        self.nodes[ticket].lock.as_ref().map_or("", |lock| &lock.owner)
    }

    /// The first ticket of the multi-lock of an earlier acquire with this idempotency key, so that
    /// this acquire is a retry.
    pub(super) fn counted_on_all(&self, id: SessionId, wish: &AcquireAll, key: RequestKey) -> Option<String> {
        let owner = &*wish.owner;
        if wish.parts.is_empty() {
            return None;
        }
        if owner.is_empty() {
            return self.counted_on(id, &part(wish, 0), key);
        }
        let (lock, mode) = &wish.parts[0];
        let tickets = self.tickets_of(id, lock.as_str(), owner);
        let ticket = tickets.iter().find(|ticket| same_mode(self.nodes[*ticket].lock.as_ref().unwrap().mode, *mode))?;
        let first = &self.parts(ticket)?.1[0];
        let counted = self.nodes[first].lock.as_ref().unwrap().holds.iter().any(|(other, _)| *other == key);
        counted.then(|| first.clone())
    }

    /// The ticket whose record lists the acquires that share this ticket: the first ticket of a
    /// multi-lock, otherwise the ticket itself.
    pub(super) fn counting<'a>(&'a self, ticket: &'a str) -> &'a str {
        self.parts(ticket).map_or(ticket, |(_, tickets)| &tickets[0])
    }
}

fn part(wish: &AcquireAll, index: usize) -> Acquire {
    let (lock, mode) = wish.parts[index].clone();
    let (owner, label, lock_delay_ms) = (wish.owner.clone(), wish.label.clone(), wish.lock_delay_ms);
    Acquire { owner, label, lock_delay_ms, ..Acquire::new(lock, mode) }
}

fn at(refusal: Refusal, index: usize) -> Refusal {
    Refusal { op_index: Some(index as u32), ..refusal }
}
