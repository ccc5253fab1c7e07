//! The model's one queue for every lock: its holders, and its waiters, sorted by [`QueueTurn`].

use std::cmp::Reverse;

use znode::lock::{Grant, LockStatus};
use znode::{Error, EventKind, FencingToken, LockMode, LockSettings, Policy, Zxid};

use super::{Model, Queue, Stay, contends, name_of, number, parent_of, reads, zpath};

/// Maximum number of multi-locks that may be overtaken in one queue.
const OVERTAKEN_MAX: usize = 16;

/// Share of a lock that a ticket wants: the whole lock, the lock together with other readers, or a
/// number of permits.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Demand {
    Alone,
    Shared,
    Units(u32),
}

impl From<LockMode> for Demand {
    fn from(mode: LockMode) -> Demand {
        match mode {
            LockMode::Lease { permits, .. } => Demand::Units(permits),
            LockMode::Read => Demand::Shared,
            LockMode::Exclusive | LockMode::Write | LockMode::Latch => Demand::Alone,
        }
    }
}

/// Sort key of a waiter, smaller comes first: the write ticket of an upgrade, then by priority,
/// then by position.
pub(super) type QueueTurn = (bool, Reverse<u32>, (u64, Zxid, String));

/// Order of the queue, and grants.
impl Model {
    pub(super) fn demand(&self, ticket: &str) -> Demand {
        match &self.nodes[ticket].lock {
            Some(lock) => lock.mode.into(),
            None if reads(ticket) => Demand::Shared,
            None if name_of(ticket).contains("-lease-") && self.limit_over(ticket).is_some() => Demand::Units(1),
            None => Demand::Alone,
        }
    }

    /// Tells whether a ticket with this demand fits beside the given tickets of a lock.
    pub(super) fn room_beside(&self, lock: &str, demand: Demand, others: &[String]) -> bool {
        let mut demands = others.iter().map(|other| self.demand(other));
        match demand {
            Demand::Alone => others.is_empty(),
            Demand::Shared => demands.all(|other| other == Demand::Shared),
            Demand::Units(wanted) => {
                let units = demands.try_fold(wanted, |sum, other| match other {
                    Demand::Units(units) => Some(sum + units),
                    Demand::Alone | Demand::Shared => None,
                });
                units.is_some_and(|units| units <= self.settings(lock).limit.unwrap_or(0))
            }
        }
    }

    /// The holders, by position.
    pub(crate) fn holders(&self, lock: &str) -> Vec<String> {
        self.contenders(lock).into_iter().filter(|ticket| self.nodes[ticket].held.is_some()).collect()
    }

    /// The waiters, sorted by [`QueueTurn`].
    pub(crate) fn waiters(&self, lock: &str) -> Vec<String> {
        let mut waiters = self.contenders(lock);
        waiters.retain(|ticket| self.nodes[ticket].held.is_none());
        waiters.sort_by_key(|ticket| self.turn(ticket));
        waiters
    }

    pub(super) fn turn(&self, ticket: &str) -> QueueTurn {
        let upgraded = self.upgrade_in(parent_of(ticket).unwrap()).is_some_and(|(writer, _)| writer == ticket);
        (!upgraded, Reverse(self.nodes[ticket].priority), self.position(ticket))
    }

    pub(super) fn waiters_before(&self, ticket: &str) -> Vec<String> {
        let waiters = self.waiters(parent_of(ticket).unwrap());
        waiters.into_iter().take_while(|other| other != ticket).collect()
    }

    /// Tells whether later tickets may overtake a ticket: it is part of a multi-lock with the
    /// policy `Backfill`, and its lock is no semaphore.
    pub(super) fn may_be_overtaken(&self, ticket: &str) -> bool {
        let backfill = self.parts(ticket).is_some_and(|(policy, _)| *policy == Policy::Backfill);
        backfill && self.limit_over(ticket).is_none()
    }

    /// Tells whether a ticket fits beside the holders of its lock. The write ticket of an upgrade
    /// fits beside the upgrade's read ticket.
    pub(super) fn has_room(&self, ticket: &str) -> bool {
        let lock = parent_of(ticket).unwrap();
        let mut holders = self.holders(lock);
        holders.retain(|holder| self.reader_of(ticket) != Some(holder));
        self.room_beside(lock, self.demand(ticket), &holders)
    }

    /// Tells whether a ticket could be granted its lock now; for a ticket of a multi-lock, whether
    /// all its tickets could.
    fn could_hold(&self, ticket: &str) -> bool {
        let could = |part: &String| self.has_room(part) && !self.token_is_taken(part);
        let Some((_, parts)) = self.parts(ticket) else {
            return could(&ticket.to_string());
        };
        parts.iter().all(|part| {
            let before = self.waiters_before(part);
            let overtakes = before.len() <= OVERTAKEN_MAX && before.iter().all(|other| self.may_be_overtaken(other));
            could(part) && overtakes
        })
    }

    /// The waiter to be granted a lock next.
    pub(super) fn next(&self, lock: &str) -> Option<String> {
        for (passed, ticket) in self.waiters(lock).into_iter().enumerate() {
            let by_hand = self.nodes[&ticket].lock.is_none();
            if by_hand && passed > 0 {
                return None;
            }
            if self.could_hold(&ticket) {
                return Some(ticket);
            }
            if !self.may_be_overtaken(&ticket) || passed == OVERTAKEN_MAX {
                return None;
            }
        }
        None
    }

    /// Makes grants in these locks until no grant is possible. If several locks can be granted, the
    /// one with the oldest next ticket goes first.
    fn look(&mut self, mut locks: Vec<String>) {
        let age = |model: &Model, ticket: &String| {
            let lock = parent_of(ticket).unwrap().to_string();
            (model.nodes[ticket].created.0, lock, model.position(ticket))
        };
        while let Some(next) = locks.iter().filter_map(|lock| self.next(lock)).min_by_key(|next| age(self, next)) {
            let tickets = self.parts(&next).map_or_else(|| vec![next.clone()], |(_, parts)| parts.clone());
            for ticket in tickets {
                self.grant(&ticket);
                locks.push(parent_of(&ticket).unwrap().to_string());
            }
        }
    }

    /// Makes grants in the locks whose queues the present log entry has changed so far.
    pub(super) fn look_at_changed(&mut self) {
        self.look(self.changed.iter().cloned().collect());
    }

    /// Makes grants in all locks, also those that an earlier log entry has left to later entries.
    pub(super) fn look_at_all(&mut self) {
        self.look(self.nodes.keys().cloned().collect());
        self.changed.clear();
    }

    /// The fencing token that a ticket would get if it were granted its lock now.
    fn next_token(&self, ticket: &str) -> u64 {
        let made = self.nodes[ticket].created.0.0;
        let top = self.queue_over(ticket).map_or(0, |queue| queue.top_token);
        if made > top { made } else { self.last_zxid.0 }
    }

    /// Tells whether a grant would repeat a fencing token: that of a holder in the same semaphore
    /// or, for a ticket that wants the whole lock, any earlier token.
    pub(super) fn token_is_taken(&self, ticket: &str) -> bool {
        let holders = self.holders(parent_of(ticket).unwrap());
        let next = self.next_token(ticket);
        let taken = |holder: &String| self.token(holder).0 == next;
        let top = self.queue_over(ticket).map_or(0, |queue| queue.top_token);
        self.demand(ticket) == Demand::Alone && next <= top
            || self.limit_over(ticket).is_some() && holders.iter().any(taken)
    }

    pub(super) fn grant(&mut self, ticket: &str) {
        let (token, at) = (self.next_token(ticket), self.moment());
        let queue = self.nodes.get_mut(parent_of(ticket).unwrap()).unwrap().queue.as_mut().unwrap();
        queue.top_token = queue.top_token.max(token);
        let node = self.nodes.get_mut(ticket).unwrap();
        node.held = Some(Grant { token: FencingToken(token), at });
        if matches!(node.stay, Stay::Session(_)) && node.created.0 < at.zxid {
            self.tell(EventKind::Granted, ticket);
        }
    }

    /// The holder of the whole lock that has a reader's sequence number and session, so that the
    /// reader is its downgrade.
    pub(super) fn twin(&self, lock: &str, number_of_reader: u64, stay: Stay) -> Option<String> {
        let twin = |holder: &String| {
            let own = matches!(stay, Stay::Session(_)) && self.nodes[holder].stay == stay;
            own && number(holder) == Some(number_of_reader) && self.demand(holder) == Demand::Alone
        };
        self.holders(lock).into_iter().find(twin)
    }

    /// Grants the lock at once to a reader that is a downgrade: its session holds the lock with a
    /// write ticket of the same sequence number.
    pub(super) fn downgrade(&mut self, ticket: &str) {
        let (lock, stay) = (parent_of(ticket).unwrap(), self.nodes[ticket].stay);
        let Some(digits) = self.queued(ticket).filter(|_| self.demand(ticket) == Demand::Shared) else {
            return;
        };
        if self.twin(lock, digits, stay).is_some() && !self.token_is_taken(ticket) {
            self.grant(ticket);
        }
    }
}

/// Reads of the queue.
impl Model {
    /// Tells whether a ticket holds or waits.
    pub(crate) fn status(&self, ticket: &str) -> Result<LockStatus, Error> {
        if number(ticket).is_none() {
            return Err(Error::BadArguments);
        }
        let node = self.nodes.get(ticket).filter(|node| contends(ticket, node.stay));
        let node = node.ok_or(if self.nodes.contains_key(ticket) { Error::BadArguments } else { Error::NoNode })?;
        if node.lingers() {
            return Err(Error::SessionExpired);
        }
        Ok(match node.held {
            Some(held) => LockStatus::Held { token: held.token, holds: self.holds(ticket) },
            None => LockStatus::Waiting { predecessor: zpath(&self.predecessor(ticket)) },
        })
    }

    fn predecessor(&self, ticket: &str) -> String {
        let before = |ticket: &String| {
            let mut waiters = self.waiters_before(ticket);
            if self.demand(ticket) == Demand::Shared {
                waiters.retain(|other| self.demand(other) != Demand::Shared);
            }
            waiters.pop().or_else(|| self.holders(parent_of(ticket).unwrap()).pop())
        };
        let parts = self.parts(ticket).map(|(_, parts)| parts.clone()).unwrap_or_default();
        let own = before(&ticket.to_string());
        own.or_else(|| parts.iter().find_map(before)).unwrap_or_else(|| ticket.to_string())
    }

    /// The tickets of a queue in the order in which clients see them: holders, then waiters.
    pub(crate) fn listing(&self, lock: &str) -> Vec<String> {
        self.holders(lock).into_iter().chain(self.waiters(lock)).collect()
    }

    /// The paths of a lock's tickets, sorted by position.
    pub(crate) fn contenders(&self, lock: &str) -> Vec<String> {
        let queues = |path: &&String| parent_of(path) == Some(lock) && self.queued(path).is_some();
        let mut contenders: Vec<String> = self.nodes.keys().filter(queues).cloned().collect();
        contenders.sort_by_key(|path| self.position(path));
        contenders
    }

    /// The sequence number of a ticket; `None` for a znode that is not a ticket.
    fn queued(&self, path: &str) -> Option<u64> {
        number(path).filter(|_| contends(path, self.nodes[path].stay))
    }

    /// Tells whether a path is that of a lock node in a managed lock.
    pub(crate) fn is_of_managed(&self, path: &str) -> bool {
        self.queued(path).is_some() && parent_of(path).is_some_and(|lock| self.settings(lock).managed)
    }

    fn position(&self, ticket: &str) -> (u64, Zxid, String) {
        (number(ticket).unwrap(), self.nodes[ticket].created.0, name_of(ticket).to_string())
    }

    /// The token of a holder; for a waiter its czxid, the smallest token that it may get.
    pub(crate) fn token(&self, ticket: &str) -> FencingToken {
        let node = &self.nodes[ticket];
        node.held.map_or(FencingToken(node.created.0.0), |held| held.token)
    }

    /// The grant of a ticket that holds and whose session is open.
    pub(crate) fn grant_of(&self, ticket: &str) -> Option<Grant> {
        let node = &self.nodes[ticket];
        let told = matches!(node.stay, Stay::Session(_)) && !node.lingers();
        node.held.filter(|_| told).map(|held| Grant { at: held.at, token: held.token })
    }

    /// Tells whether a ticket must be refused: it waits, and its queue has more waiters than the
    /// settings allow.
    pub(super) fn is_one_too_many(&self, ticket: &str) -> bool {
        let lock = parent_of(ticket).unwrap();
        let waiters = self.waiters(lock);
        let max = self.settings(lock).waiters_max;
        max.is_some_and(|max| waiters.len() > max as usize && waiters.iter().any(|waiter| waiter == ticket))
    }

    pub(crate) fn settings(&self, lock: &str) -> LockSettings {
        self.nodes.get(lock).and_then(|node| node.queue.as_ref()).map(|queue| queue.settings).unwrap_or_default()
    }

    /// Number of permits of the semaphore that a lock node queues for; `None` if the lock is no
    /// semaphore.
    pub(crate) fn limit_over(&self, ticket: &str) -> Option<u32> {
        self.settings(parent_of(ticket)?).limit
    }

    fn queue_over(&self, ticket: &str) -> Option<&Queue> {
        self.nodes[parent_of(ticket)?].queue.as_ref()
    }

    /// The upgrade in a queue: its write ticket and its read ticket, `None` after the read ticket
    /// was removed.
    pub(crate) fn upgrade_in(&self, lock: &str) -> Option<&(String, Option<String>)> {
        self.nodes.get(lock)?.queue.as_ref()?.upgrade.as_ref()
    }

    /// The read ticket of the upgrade with this write ticket.
    pub(super) fn reader_of(&self, ticket: &str) -> Option<&String> {
        let upgrade = self.upgrade_in(parent_of(ticket)?);
        upgrade.filter(|(writer, _)| writer == ticket).and_then(|(_, reader)| reader.as_ref())
    }

    /// The multi-lock that a ticket is a part of.
    pub(super) fn parts(&self, ticket: &str) -> Option<&(Policy, Vec<String>)> {
        self.multis.iter().find(|(_, tickets)| tickets.iter().any(|part| part == ticket))
    }

    /// Updates the queue of a lock after a ticket was added or removed: makes the queue, or drops
    /// it if it has become empty.
    pub(super) fn queue_changed(&mut self, ticket: &str, stay: Stay) {
        if !contends(ticket, stay) {
            return;
        }
        let lock = parent_of(ticket).unwrap();
        self.changed.insert(lock.into());
        let there = self.nodes.contains_key(ticket);
        if there {
            self.nodes.get_mut(lock).unwrap().queue.get_or_insert_default();
            return;
        }
        if let Some(queue) = &mut self.nodes.get_mut(lock).unwrap().queue {
            queue.upgrade.take_if(|(writer, _)| writer == ticket);
            if let Some((_, reader)) = &mut queue.upgrade {
                reader.take_if(|reader| reader == ticket);
            }
        }
        self.end_queue(lock);
    }

    /// Drops a queue without tickets, unless it has settings.
    pub(super) fn end_queue(&mut self, lock: &str) {
        let deserted = self.contenders(lock).is_empty();
        let node = self.nodes.get_mut(lock).unwrap();
        node.queue.take_if(|queue| deserted && queue.settings == LockSettings::default());
    }
}
