//! Acquires without key and owner. Nothing tells a retry of such a one from another wish of its session: when the node dies at
//! which the first one waits, that one's ticket stays in the queue, and the requests of the client keep it alive.

use crate::acquire::Entered;
use crate::ledger::{Demand, demand_of};
use crate::lock::{self, LockStatus};
use crate::state::{Changes, State};
use crate::znode::{Hold, Place, is_shared};
use crate::{Acquire, Error, Keyless, Refusal, Reply, SessionId, ZPath};

impl State {
    /// Enters a queue with a new ticket. A refusal that is known only when all who can hold do takes it back.
    pub(crate) fn acquire_anew(
        &mut self,
        acquire: &Acquire,
        priority: u32,
        id: SessionId,
        hold: Hold,
        changes: &mut Changes,
    ) -> Result<Reply, Refusal> {
        let meets_own = acquire.keyless.is_some() && !self.sessions[&id].keyless.is_empty();
        let before = (meets_own || self.is_full(&acquire.lock)).then(|| self.clone());
        let answer = self.enter_queue(acquire, priority, id, hold, changes);
        if let (Some(before), Err(_)) = (before, &answer) {
            *self = before;
            changes.clear();
        }
        answer
    }

    fn enter_queue(
        &mut self,
        acquire: &Acquire,
        priority: u32,
        id: SessionId,
        hold: Hold,
        changes: &mut Changes,
    ) -> Result<Reply, Refusal> {
        let lock = &acquire.lock;
        let way = self.way_into(lock, changes)?;
        if priority > 0 && !self.ledger(lock).is_some_and(|ledger| ledger.settings.closed) {
            return Err(Refusal::at(Error::LockNotClosed, lock));
        }
        let earlier = acquire.keyless.map_or_else(Vec::new, |_| self.sessions[&id].keyless_of(lock));
        if acquire.keyless == Some(Keyless::Replace) {
            self.give_back(&earlier, changes)?;
        }
        let ticket = match self.enqueue_in_mode(acquire, way, false, id, hold, changes)? {
            Entered::At(ticket) => ticket,
            Entered::NotLetIn(answer) => return Ok(answer),
        };
        if priority > 0 {
            self.prioritize(&ticket, priority);
        }
        self.settle(changes);
        self.check_waiters(&ticket)?;
        if acquire.keyless == Some(Keyless::Refuse)
            && let Some(in_the_way) = self.own_in_the_way(&ticket, &earlier)
        {
            return Err(Refusal::at(Error::BlockedByOwnSession, &in_the_way));
        }
        self.acquired(&ticket)
    }

    /// Whatever each of them is held for. A new ticket comes with a new token, so a forgotten holder can be told from the
    /// one that takes its place.
    fn give_back(&mut self, tickets: &[ZPath], changes: &mut Changes) -> Result<(), Refusal> {
        // Before it is done: undoing costs as much again, and a refusal can be asked for again and again.
        let cost: u64 = tickets.iter().map(|ticket| self.cost_of_removing(ticket)).sum();
        if cost > self.steps_left(changes) {
            return Err(Error::TooManyOps.into());
        }
        for ticket in tickets {
            self.remove(ticket, changes);
        }
        Ok(())
    }

    /// The first of the session's earlier tickets that a new one would wait for, be it by way of others: as long as the
    /// session is alive, that wait may have no end.
    fn own_in_the_way(&self, ticket: &ZPath, earlier: &[ZPath]) -> Option<ZPath> {
        if !matches!(lock::status(self, ticket), Ok(LockStatus::Waiting { .. })) {
            return None;
        }
        let lock = ticket.parent()?;
        let family = &self.nodes[&lock].family;
        let ledger = family.ledger.as_deref();
        let (own, others) = (self.place_of(ticket), earlier.iter().map(|other| self.place_of(other)));
        let first = if let Some((ledger, limit)) = ledger.and_then(|ledger| Some((ledger, ledger.settings.limit?))) {
            let permits = |path: &ZPath| match demand_of(path.name(), &self.nodes[path], ledger.settings) {
                Demand::Permits(permits) => u64::from(permits),
                Demand::Alone | Demand::Shared => u64::from(limit),
            };
            // With enough permits for all of them, they can be held together when others give theirs back.
            let wanted: u64 = earlier.iter().map(permits).sum::<u64>() + permits(ticket);
            others.filter(|_| wanted > u64::from(limit)).min()?
        } else {
            // A reader waits for the last writer before it, and with that for all before that.
            let last = match is_shared(ticket.name()) {
                true => family.writers.range::<_, Place>(..&own).next_back()?.clone(),
                false => own.clone(),
            };
            let before = |place: &Place| ledger.is_none_or(|ledger| ledger.comes_before(place, &own));
            others.filter(|place| *place <= last && before(place)).min()?
        };
        lock.child(&first.name).ok()
    }
}

/// What an acquire leaves in its lock node.
pub(crate) fn is_keyless(acquire: &Acquire) -> bool {
    acquire.keyless.is_some() && acquire.owner.is_empty()
}
