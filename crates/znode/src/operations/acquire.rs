//! Entering a lock's queue, and withdrawing from it.

use std::sync::Arc;

use crate::edits::context::Context;
use crate::edits::edit::{NewNode, next_number};
use crate::edits::effects::Effects;
use crate::edits::permissions::{check_client_path, permit};
use crate::operations::deadlock::Newcomer;
use crate::operations::readings;
use crate::queue::Queue;
use crate::tree::quota::Growth;
use crate::words::ticket_name::{Shape, TicketName, sequence_of};
use crate::words::weight;
use crate::{
    Acquire, Attempt, CREATE, Contender, Error, Hold, Kind, LockMode, LockSettings, Refusal, Reply, SessionId, State,
    ZPath,
};

/// The path of a lock whose queue the client may enter: the lock or its nearest existing ancestor,
/// and the directories that are missing below it, deepest first.
pub(crate) type Way = (ZPath, Vec<ZPath>);

/// Outcome of adding an acquire's ticket to a queue.
pub(crate) enum QueueAdmission {
    /// The path of the new lock node.
    At(ZPath),
    /// The ticket was not added, because its wait would have closed a cycle of waits (deadlock).
    /// Contains the answer for the client.
    NotLetIn(Reply),
}

impl State {
    pub(crate) fn acquire(&mut self, acquire: &Acquire, effects: &mut Effects) -> Result<Reply, Refusal> {
        let lock = &acquire.lock;
        let refuse = |error| Refusal::at(error, lock);
        let id = effects.context.session.ok_or_else(|| refuse(Error::SessionRequired))?;
        let hold = effects.context.hold().map_err(refuse)?;
        if lock.is_root() {
            return Err(refuse(Error::BadArguments));
        }
        let label_bytes_max = self.limits().label_bytes_max as usize;
        if acquire.label.len() > label_bytes_max || acquire.owner.len() > label_bytes_max {
            return Err(refuse(Error::DataTooLarge));
        }
        // The answer and the key may be forgotten in the session, but the ticket still has the key
        // of a retry.
        if let Some(ticket) = self.ticket_with(id, acquire, hold.key) {
            return self.acquire_again(&ticket, &effects.context);
        }
        match self.ticket_of(id, lock, acquire.mode, &acquire.owner) {
            Some(ticket) => {
                self.check_limit(lock, acquire.mode).map_err(refuse)?;
                self.hold_once_more(&ticket, hold)
            }
            None => self.acquire_anew(acquire, effects),
        }
    }

    /// Adds a new ticket to a queue. If the queue has as many waiters as its settings allow, a
    /// ticket that is not granted the lock at once is refused, and the former state is put back.
    fn acquire_anew(&mut self, acquire: &Acquire, effects: &mut Effects) -> Result<Reply, Refusal> {
        let is_full = self.queue(&acquire.lock).is_some_and(Queue::is_full);
        let before = is_full.then(|| self.clone());
        let answer = self.enter_queue(acquire, effects);
        if let (Some(before), Err(_)) = (before, &answer) {
            *self = before;
            effects.clear();
        }
        answer
    }

    fn enter_queue(&mut self, acquire: &Acquire, effects: &mut Effects) -> Result<Reply, Refusal> {
        let (lock, priority) = (&acquire.lock, acquire.priority);
        let way = self.way_into(lock, &effects.context)?;
        if priority > 0 && !self.queue(lock).is_some_and(|queue| queue.settings().managed) {
            return Err(Refusal::at(Error::LockNotManaged, lock));
        }
        let keyless = effects.context.session.and_then(|id| self.sessions()[&id].keyless.get(lock));
        if let Some(own) = keyless.filter(|_| is_keyless(acquire)) {
            return Err(Refusal::at(Error::BlockedByOwnSession, own));
        }
        let ticket = match self.enqueue(acquire, way, false, effects)? {
            QueueAdmission::At(ticket) => ticket,
            QueueAdmission::NotLetIn(answer) => return Ok(answer),
        };
        if priority > 0 {
            self.prioritize(&ticket, priority);
        }
        self.grant_ready(effects);
        self.check_waiters(&ticket)?;
        self.acquired(&ticket)
    }

    pub(crate) fn withdraw(
        &mut self,
        ticket: &ZPath,
        attempt: Attempt,
        if_waiting: bool,
        effects: &mut Effects,
    ) -> Result<Reply, Refusal> {
        let refuse = |error| Refusal::at(error, ticket);
        let id = self.check_ticket(ticket, &effects.context).map_err(refuse)?;
        let counting = self.counts_for(ticket);
        let found = self.tree()[&counting].contender().and_then(|contender| {
            let tried = |hold: &Hold| hold.attempts.iter().position(|other| *other == attempt);
            let found = contender.holds.iter().enumerate().find_map(|(index, hold)| Some((index, tried(hold)?)));
            found.map(|(index, at)| (index, at, contender.holds[index].clone(), contender.count() == 1))
        });
        let Some((index, at, mut hold, last)) = found else {
            return Ok(Reply::Superseded);
        };
        if if_waiting && let Some(held) = readings::held(self, ticket).map_err(refuse)? {
            return Ok(Reply::StillHeld(held));
        }
        if if_waiting {
            // The client ends its wait, so its earlier attempts are over, too, also those sent to
            // nodes that have failed.
            hold.attempts.drain(..=at);
        } else {
            hold.attempts.remove(at);
        }
        if !hold.attempts.is_empty() {
            self.edit_contender(&counting, |contender| contender.holds[index] = hold);
            return Ok(Reply::Superseded);
        }
        // After the withdrawal the client may use the key for a new acquire.
        self.edit_session(id, |session| session.requests.forget(&hold.key));
        if last {
            self.remove(ticket, effects);
        } else {
            self.edit_contender(&counting, |contender| contender.holds.remove(index));
        }
        Ok(Reply::Withdrawn)
    }

    /// Finds the existing and missing directories on the path of a lock. Checks the permission
    /// first, so that a refusal reveals nothing about the lock.
    ///
    /// # Errors
    /// `NoAuth` without CREATE on the lock's directory, or on its nearest existing ancestor.
    pub(crate) fn way_into(&self, lock: &ZPath, context: &Context) -> Result<Way, Refusal> {
        check_client_path(lock)?;
        let refuse = |error| Refusal::at(error, lock);
        let (base, missing) = self.missing_on_the_way(lock).map_err(refuse)?;
        permit(&self.tree()[&base].acl, CREATE, context).map_err(refuse)?;
        Ok((base, missing))
    }

    /// Adds a lock node to the queue, unless its wait would close a cycle of waits (deadlock). For
    /// a ticket of a multi-lock (`part`) the caller searches for cycles when all tickets have been
    /// added.
    pub(crate) fn enqueue(
        &mut self,
        acquire: &Acquire,
        (base, missing): Way,
        part: bool,
        effects: &mut Effects,
    ) -> Result<QueueAdmission, Refusal> {
        let (lock, hold) = (&acquire.lock, effects.context.hold()?);
        let id = effects.context.session.ok_or(Error::SessionRequired)?;
        let refuse = |error| Refusal::at(error, lock);
        let mode = self.check_limit(lock, acquire.mode).map_err(refuse)?;
        let kind = Kind::Ephemeral { owner: id };
        let parent = &self.tree()[&base];
        let written_by = self.written_by(id, acquire);
        let next = if missing.is_empty() { next_number(parent).map_err(refuse)? } else { 0 };
        // A downgrade as in Curator: a reader with the number of its owner's write ticket is
        // granted the lock at once, and its position follows that ticket.
        let number = written_by.unwrap_or(next);
        let name = TicketName { shape: Shape::of(acquire.mode), key: hold.key, number };
        let ticket = lock.child(&name.text()).map_err(refuse)?;
        let reads_beside = |number| acquire.mode == LockMode::Read && self.writes(lock, number, id);
        let held_at_once = sequence_of(ticket.name()).is_some_and(reads_beside);
        // A client may have made a znode with this name, because keys and numbers are no secret.
        if self.tree().contains(&ticket) {
            return Err(Refusal::at(Error::NodeExists, &ticket));
        }
        let (count, bytes) = (missing.len() as u64 + 1, acquire.label.len());
        self.check_room(parent, &ticket, bytes, count).map_err(refuse)?;
        self.check_bytes(weight::made(&ticket, bytes, count) + weight::QUEUED).map_err(refuse)?;
        self.check_quota(&ticket, Growth { count, bytes: bytes as u64 })?;
        self.check_ephemerals(kind).map_err(refuse)?;
        let tickets = if missing.is_empty() { parent.family.ticket_count() } else { 0 };
        if tickets >= self.limits().waiters_max as usize {
            return Err(refuse(Error::TooManyWaiters));
        }
        let at_end = !held_at_once && missing.is_empty() && !part;
        let newcomer = Newcomer { lock, session: id, owner: &acquire.owner, mode, upgraded: None };
        if let Some(cycle) = at_end.then(|| self.deadlock(&newcomer)).flatten() {
            return Ok(QueueAdmission::NotLetIn(self.refuse_deadlock(&newcomer, &acquire.label, cycle, effects)));
        }
        let acl = Arc::clone(&parent.acl);
        self.make_containers(&missing, &acl, effects);
        let contender = Contender {
            mode,
            owner: acquire.owner.clone(),
            lock_delay_ms: acquire.lock_delay_ms.min(self.limits().lock_delay_max_ms),
            holds: vec![hold],
            released: 0,
            lingers_until_ms: None,
            keyless: is_keyless(acquire),
            in_multi_lock: part,
        };
        let data = acquire.label.as_bytes().into();
        if let LockMode::Lease { limit, .. } = mode {
            self.edit_queue(lock, |queue| queue.set(LockSettings { limit: Some(limit), ..queue.settings() }));
        }
        self.insert(&ticket, NewNode { kind, data, acl, contender: Some(contender) }, effects);
        Ok(QueueAdmission::At(ticket))
    }

    /// Checks the `limit` in an acquire's mode, the number of permits of the whole semaphore. The
    /// first acquire sets this number. Later acquires must have the same `limit`, or 0 for the
    /// number that was set. Returns the mode with this number as `limit`.
    pub(crate) fn check_limit(&self, lock: &ZPath, mode: LockMode) -> Result<LockMode, Error> {
        let LockMode::Lease { permits, limit: asked } = mode else { return Ok(mode) };
        let settings = self.queue(lock).map(|queue| queue.settings()).unwrap_or_default();
        let limit = if asked == 0 { settings.limit.unwrap_or(0) } else { asked };
        if !(1..=limit).contains(&permits) {
            return Err(Error::BadArguments);
        }
        let differs = settings.managed || settings.limit.is_some_and(|other| other != limit);
        if differs { Err(Error::PermitsMaxDiffers) } else { Ok(LockMode::Lease { permits, limit }) }
    }

    /// The sequence number of the write ticket with which the acquire's owner (a user of the lock
    /// within the session) holds the lock, so that this read acquire is a downgrade. `None` if
    /// there is no such ticket, and for other modes.
    fn written_by(&self, id: SessionId, acquire: &Acquire) -> Option<u64> {
        if acquire.mode != LockMode::Read {
            return None;
        }
        let writer = self.ticket_of(id, &acquire.lock, LockMode::Write, &acquire.owner)?;
        let held = matches!(readings::held(self, &writer), Ok(Some(_)));
        sequence_of(writer.name()).filter(|_| held)
    }
}

/// Tells whether the acquire has neither key nor owner, so that a retry looks like a new request.
fn is_keyless(acquire: &Acquire) -> bool {
    acquire.keyless && acquire.owner.is_empty()
}
