//! The model's locks.

use std::cmp::Reverse;

use znode::lock::{LockStatus, TicketHolds};
use znode::{Acquire, Attempt, Error, LockMode, Refusal, Reply, RequestKey, SessionId, ZPath};

use super::{Answer, LockNode, Model, Stay, join, name_of, parent_of, refused, zpath};

/// Maximum number of released holds (acquires that shared the ticket) that a ticket remembers.
const RELEASED_MAX: usize = 64;
const ATTEMPTS_MAX: usize = 16;

/// Kind of a ticket: single, or a part of a multi-lock.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Single { priority: u32 },
    Part,
}

/// Compares two modes, except for the limit of a semaphore, which may have changed.
pub(super) fn same_mode(one: LockMode, other: LockMode) -> bool {
    match (one, other) {
        (LockMode::Lease { permits, .. }, LockMode::Lease { permits: others, .. }) => permits == others,
        _ => one == other,
    }
}

impl Model {
    pub(super) fn acquire(&mut self, acquire: &Acquire, session: Option<SessionId>, key: Option<RequestKey>) -> Answer {
        let priority = acquire.priority;
        let lock = acquire.lock.as_str();
        let Some(id) = session else {
            return refused(Error::SessionRequired, lock);
        };
        let Some(key) = key.filter(|_| lock != "/") else {
            return refused(Error::BadArguments, lock);
        };
        let longest = acquire.label.len().max(acquire.owner.len());
        if longest > self.limits.label_bytes_max as usize {
            return refused(Error::DataTooLarge, lock);
        }
        if let Some(ticket) = self.counted_on(id, acquire, key) {
            return self.stands(id, &ticket, key);
        }
        let again = self.tickets(id, acquire).into_iter().find(|_| !acquire.owner.is_empty());
        let Some(ticket) = again else {
            self.way_into(lock)?;
            if priority > 0 && !self.settings(lock).managed {
                return refused(Error::LockNotManaged, lock);
            }
            let before = self.clone();
            let answer = self.acquire_anew(acquire, priority, id, key);
            if answer.is_err() {
                *self = before;
            }
            return answer;
        };
        self.with_limit(&acquire.lock, acquire.mode)?;
        self.once_more(&ticket, key)
    }

    /// The mode with the number of permits that the semaphore has; `Err` if the mode names another
    /// number.
    pub(super) fn with_limit(&self, lock: &ZPath, mode: LockMode) -> Result<LockMode, Refusal> {
        let LockMode::Lease { permits, limit } = mode else { return Ok(mode) };
        let known = self.settings(lock.as_str());
        let limit = [limit, known.limit.unwrap_or(0)].into_iter().find(|limit| *limit > 0).unwrap_or(0);
        if permits == 0 || permits > limit {
            return Err(Refusal::at(Error::BadArguments, lock));
        }
        if known.limit.is_some_and(|known| known != limit) || known.managed {
            return Err(Refusal::at(Error::PermitsMaxDiffers, lock));
        }
        Ok(LockMode::Lease { permits, limit })
    }

    pub(super) fn once_more(&mut self, ticket: &str, key: RequestKey) -> Answer {
        if self.parts(ticket).is_some() {
            return refused(Error::Overlap, ticket);
        }
        self.count_hold(ticket, key)
    }

    pub(super) fn count_hold(&mut self, ticket: &str, key: RequestKey) -> Answer {
        let (holds_max, attempt) = (self.limits.holds_max as usize, self.attempt);
        let node = self.lock_node(ticket);
        if node.holds.len() - node.released >= holds_max {
            return refused(Error::TooManyHolds, ticket);
        }
        node.holds.push((key, vec![attempt]));
        self.acquired(ticket)
    }

    /// Puts a ticket into a queue, after setting the number of permits of a semaphore. Returns the
    /// cycle of waits instead, if the ticket would close one.
    pub(super) fn enqueue(
        &mut self,
        acquire: &Acquire,
        kind: Kind,
        id: SessionId,
        key: RequestKey,
    ) -> Result<Result<String, Reply>, Refusal> {
        let mode = self.with_limit(&acquire.lock, acquire.mode)?;
        let acquire = &Acquire { mode, ..acquire.clone() };
        let LockMode::Lease { limit, .. } = mode else {
            return self.enqueue_in_mode(acquire, kind, id, key);
        };
        let lock = acquire.lock.as_str();
        let known = self.settings(lock);
        self.set_limit(lock, Some(limit));
        let answer = self.enqueue_in_mode(acquire, kind, id, key)?;
        self.set_limit(lock, if answer.is_ok() { Some(limit) } else { known.limit });
        Ok(answer)
    }

    fn set_limit(&mut self, lock: &str, limit: Option<u32>) {
        if let Some(node) = self.nodes.get_mut(lock) {
            node.queue.get_or_insert_default().settings.limit = limit;
            self.end_queue(lock);
        }
    }

    fn enqueue_in_mode(
        &mut self,
        acquire: &Acquire,
        kind: Kind,
        id: SessionId,
        key: RequestKey,
    ) -> Result<Result<String, Reply>, Refusal> {
        let lock = acquire.lock.as_str();
        let (base, to_make) = self.way_into(lock)?;
        let acl = self.nodes[&base].acl.clone();
        let next = self.nodes.get(lock).map_or(0, |directory| directory.children_created);
        let downgraded = self.downgrade_number(acquire, id);
        let digits = downgraded.unwrap_or(next);
        let ticket = join(lock, &ticket_name(acquire.mode, key, digits));
        if self.nodes.contains_key(&ticket) {
            return Err(Refusal::at(Error::NodeExists, &zpath(&ticket)));
        }
        let stay = Stay::Session(id);
        if let Err(error) = self.room(&base, &ticket, acquire.label.len(), to_make.len() as u64 + 1, stay) {
            return Err(Refusal::at(error, &acquire.lock));
        }
        if self.contenders(lock).len() >= self.limits.waiters_max as usize {
            return Err(Refusal::at(Error::TooManyWaiters, &acquire.lock));
        }
        let priority = if let Kind::Single { priority } = kind { priority } else { 0 };
        let twin = acquire.mode == LockMode::Read && self.twin(lock, digits, stay).is_some();
        let unasked = !to_make.is_empty() || kind == Kind::Part || !self.has_ticket(&(id, acquire.owner.clone()));
        if !unasked && !twin {
            let turn = (true, Reverse(priority), (digits, self.last_zxid, name_of(&ticket).to_string()));
            if let Some(cycle) = self.cycle_of_newcomer(acquire, &turn, id) {
                self.note_cycle(lock, acquire.mode, id, &acquire.owner, &acquire.label);
                return Ok(Err(self.shown(cycle)));
            }
        }
        for directory in to_make {
            self.put(&directory, Stay::Container, Vec::new(), acl.clone(), None);
        }
        let node = LockNode {
            mode: acquire.mode,
            owner: acquire.owner.clone(),
            delay_ms: acquire.lock_delay_ms.min(self.limits.lock_delay_max_ms),
            holds: vec![(key, vec![self.attempt])],
            released: 0,
            lingers_until_ms: None,
            keyless: acquire.keyless && acquire.owner.is_empty(),
        };
        self.put(&ticket, stay, acquire.label.clone().into_bytes(), acl, Some(node));
        self.nodes.get_mut(&ticket).unwrap().priority = priority;
        if kind != Kind::Part {
            self.downgrade(&ticket);
        }
        Ok(Ok(ticket))
    }

    /// The sequence number of the write ticket with which the acquire's owner (a user of the lock
    /// within the session) holds the lock, so that this read acquire is a downgrade. `None` if
    /// there is no such ticket, and for other modes.
    fn downgrade_number(&self, acquire: &Acquire, id: SessionId) -> Option<u64> {
        if acquire.mode != LockMode::Read || acquire.owner.is_empty() {
            return None;
        }
        let writer = Acquire { mode: LockMode::Write, ..acquire.clone() };
        let writer = self.tickets(id, &writer).into_iter().next()?;
        matches!(self.status(&writer), Ok(LockStatus::Held { .. })).then(|| number(&writer).unwrap())
    }

    /// The tickets of a session in a lock, with the owner and mode of this acquire.
    fn tickets(&self, id: SessionId, acquire: &Acquire) -> Vec<String> {
        let fits = |path: &&String| {
            let node = &self.nodes[*path];
            parent_of(path) == Some(acquire.lock.as_str())
                && node.stay == Stay::Session(id)
                && node
                    .lock
                    .as_ref()
                    .is_some_and(|lock| same_mode(lock.mode, acquire.mode) && lock.owner == acquire.owner)
        };
        self.nodes.keys().filter(fits).cloned().collect()
    }

    /// The ticket of an earlier acquire with this idempotency key, so that this acquire is a retry.
    pub(super) fn counted_on(&self, id: SessionId, acquire: &Acquire, key: RequestKey) -> Option<String> {
        let counts = |path: &String| {
            let lock = self.nodes[path].lock.as_ref().unwrap();
            lock.holds.iter().any(|(other, _)| *other == key)
        };
        self.tickets(id, acquire).into_iter().find(counts)
    }

    /// The reply to a retried acquire: the present state of its ticket.
    pub(super) fn stands(&mut self, id: SessionId, ticket: &str, key: RequestKey) -> Answer {
        let attempt = self.attempt;
        match self.nodes.get_mut(ticket) {
            Some(node) if node.stay == Stay::Session(id) && node.lock.is_some() => {
                let holds = &mut node.lock.as_mut().unwrap().holds;
                for (_, attempts) in holds.iter_mut().filter(|(other, _)| *other == key) {
                    if !attempts.contains(&attempt) {
                        attempts.push(attempt);
                        let forgotten = attempts.len().saturating_sub(ATTEMPTS_MAX);
                        attempts.drain(..forgotten);
                    }
                }
                self.acquired(ticket)
            }
            _ => refused(Error::NoNode, ticket),
        }
    }

    pub(super) fn release(&mut self, ticket: &str, session: Option<SessionId>) -> Answer {
        // An ephemeral znode that is not a ticket can be released, too.
        match self.may_give_back(ticket, session) {
            Ok(()) => {}
            Err(Error::BadArguments) => {
                self.take_out(ticket);
                return Ok(Reply::Released { holds: 0 });
            }
            Err(error) => return refused(error, ticket),
        }
        let mut left = 0;
        let counting = self.counting(ticket).to_string();
        if let Some(lock) = &mut self.nodes.get_mut(&counting).unwrap().lock {
            lock.released += 1;
            if lock.released > RELEASED_MAX {
                lock.holds.remove(1);
                lock.released -= 1;
            }
            left = lock.holds.len() - lock.released;
        }
        if left == 0 {
            self.take_out(ticket);
        }
        Ok(Reply::Released { holds: left as u32 })
    }

    pub(super) fn withdraw(
        &mut self,
        ticket: &str,
        attempt: Attempt,
        if_waiting: bool,
        session: Option<SessionId>,
    ) -> Answer {
        if let Err(error) = self.may_give_back(ticket, session) {
            return refused(error, ticket);
        }
        let counting = self.counting(ticket).to_string();
        let lock = self.nodes[&counting].lock.clone();
        let Some((key, lock)) = lock.and_then(|lock| {
            let key = lock.holds.iter().find(|(_, attempts)| attempts.contains(&attempt))?.0;
            Some((key, lock))
        }) else {
            return Ok(Reply::Superseded);
        };
        let status = self.status(ticket).unwrap();
        if let (true, LockStatus::Held { token, holds }) = (if_waiting, status) {
            return Ok(Reply::StillHeld(TicketHolds { token, holds }));
        }
        let (_, attempts) = self.lock_node(&counting).holds.iter_mut().find(|(other, _)| *other == key).unwrap();
        let before = attempts.iter().take_while(|other| **other != attempt).copied().collect::<Vec<_>>();
        attempts.retain(|other| *other != attempt && !(if_waiting && before.contains(other)));
        if !attempts.is_empty() {
            return Ok(Reply::Superseded);
        }
        let session = self.sessions.iter_mut().find(|other| Some(other.id) == session).unwrap();
        session.requests.retain(|record| record.key != key);
        if lock.holds.len() - lock.released == 1 {
            self.take_out(ticket);
        } else {
            let holds = &mut self.lock_node(&counting).holds;
            holds.retain(|(other, _)| *other != key);
        }
        Ok(Reply::Withdrawn)
    }

    pub(super) fn may_give_back(&self, ticket: &str, session: Option<SessionId>) -> Result<(), Error> {
        let id = session.ok_or(Error::SessionRequired)?;
        let node = self.nodes.get(ticket).ok_or(Error::NoNode)?;
        if node.stay != Stay::Session(id) {
            return Err(Error::NotOwner);
        }
        number(ticket).map(drop).ok_or(Error::BadArguments)
    }

    pub(super) fn acquired(&self, ticket: &str) -> Answer {
        let held = match self.status(ticket).unwrap() {
            LockStatus::Held { token, holds } => Some(TicketHolds { token, holds }),
            LockStatus::Waiting { .. } => None,
        };
        Ok(Reply::Acquired { ticket: zpath(ticket), held })
    }

    fn lock_node(&mut self, ticket: &str) -> &mut LockNode {
        self.nodes.get_mut(ticket).unwrap().lock.as_mut().unwrap()
    }

    pub(crate) fn holds(&self, ticket: &str) -> u32 {
        self.nodes[self.counting(ticket)].lock.as_ref().map_or(1, |lock| lock.holds.len() - lock.released) as u32
    }
}

/// Name of the lock node that an acquire makes.
pub(crate) fn ticket_name(mode: LockMode, key: RequestKey, number: u64) -> String {
    let plain = key.to_string().replace('-', "");
    match mode {
        LockMode::Read => format!("{number:010}_{plain}__READ__{number:010}__rlock__{number:010}"),
        LockMode::Lease { .. } => format!("_c_{key}-lease-{number:010}"),
        _ => format!("{number:010}_{plain}__WRIT__{number:010}__lock__{number:010}"),
    }
}

/// Number in the last ten digits of a name; `None` if there are no ten digits.
pub(crate) fn number(path: &str) -> Option<u64> {
    let name = name_of(path);
    let digits = name.get(name.len().checked_sub(10)?..)?;
    if digits.chars().all(|c| c.is_ascii_digit()) { digits.parse().ok() } else { None }
}

/// Tells whether a child is a ticket in its parent's queue, by the child's name and kind.
pub(crate) fn contends(path: &str, stay: Stay) -> bool {
    let recipes = ["__lock__", "__rlock__", "lock-", "latch-", "__READ__", "__WRIT__"];
    let named = || recipes.iter().any(|word| path[..path.len() - 10].ends_with(word));
    let stays = match stay {
        Stay::Session(_) => true,
        Stay::Persistent => number(path).is_some() && named(),
        Stay::Container | Stay::Ttl(_) => false,
    };
    stays && number(path).is_some()
}

pub(crate) fn reads(path: &str) -> bool {
    let name = name_of(path);
    ["__READ__", "__rlock__", "-R-"].iter().any(|family| name.contains(family)) || name.starts_with("read-")
}
