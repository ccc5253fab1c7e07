//! Multi-locks: several locks that one acquire holds all together, or none of them.
//!
//! A multi-lock has one lock node, called a part, in the queue of each of its locks. One entry
//! makes all parts, so multi-locks are in the same order in every queue and do not wait for each
//! other in a cycle. No part holds before all parts can. When one part is removed, all others are
//! removed, too.
//!
//! A multi-lock may have an owner, a user of locks within the session. Then it takes part in the
//! search for cycles of waits (`deadlock.rs`): the owner waits for every ticket that blocks a part,
//! and each part may block other tickets. If the owner requests the same locks and modes again, the
//! first part gets one more hold (record of an acquire). A request for another set of locks is
//! refused if the owner has a ticket of one of them. So no owner waits for itself here, and all
//! parts are removed together.

use crate::edits::effects::Effects;
use crate::entry::txn_outcome::WaitsFor;
use crate::operations::acquire::QueueAdmission;
use crate::operations::deadlock::Newcomer;
use crate::state::locks::MultiLock;
use crate::{Acquire, AcquireAll, Error, Limits, LockMode, Refusal, Reply, RequestKey, SessionId, State, ZPath};

impl State {
    pub(crate) fn acquire_all(&mut self, wish: &AcquireAll, effects: &mut Effects) -> Result<Reply, Refusal> {
        let id = effects.context.session.ok_or(Error::SessionRequired)?;
        let hold = effects.context.hold()?;
        self.check_parts(wish)?;
        if wish.label.len().max(wish.owner.len()) > self.limits().label_bytes_max as usize {
            return Err(Error::DataTooLarge.into());
        }
        if let Some(ticket) = self.all_with(id, wish, hold.key) {
            return self.acquire_again(&ticket, &effects.context);
        }
        if let Some(ticket) = self.same_set(id, wish)? {
            return self.count_hold(&ticket, hold);
        }
        let before = self.clone();
        let answer = self.enter_all(wish, id, effects);
        if !matches!(answer, Ok(Reply::Acquired { .. })) {
            *self = before;
            effects.clear();
        }
        match answer {
            Ok(Reply::Deadlock { cycle }) => Ok(self.refuse_all(wish, id, cycle, effects)),
            answer => answer,
        }
    }

    /// Adds all tickets of a multi-lock to their queues, makes grants, and searches for a cycle of
    /// waits.
    fn enter_all(&mut self, wish: &AcquireAll, id: SessionId, effects: &mut Effects) -> Result<Reply, Refusal> {
        // No ticket can wait for an owner without tickets.
        let owner = &*wish.owner;
        let waited_for = self.has_ticket(id, owner);
        let first = self.enqueue_all(wish, effects)?;
        self.grant_ready(effects);
        let multi = self.locks().multi(effects.context.zxid).cloned().expect("it was made just above");
        match waited_for.then(|| self.deadlock_of_all(id, owner, &multi.tickets)).flatten() {
            Some(cycle) => Ok(Reply::Deadlock { cycle }),
            None => {
                for (index, ticket) in (0..).zip(&multi.tickets) {
                    let at = |refusal| Refusal { op_index: Some(index), ..refusal };
                    self.check_waiters(ticket).map_err(at)?;
                }
                self.acquired(&first)
            }
        }
    }

    /// Makes the answer about a deadlock, and adds the refused acquire to the history of the lock
    /// at which the cycle of waits begins.
    fn refuse_all(&mut self, wish: &AcquireAll, id: SessionId, cycle: Vec<WaitsFor>, effects: &Effects) -> Reply {
        let begins = |(lock, _): &&(ZPath, LockMode)| cycle.first().is_some_and(|edge| edge.lock == *lock);
        let (lock, mode) = wish.parts.iter().find(begins).unwrap_or(&wish.parts[0]);
        let newcomer = Newcomer { lock, session: id, owner: &wish.owner, mode: *mode, upgraded: None };
        self.refuse_deadlock(&newcomer, &wish.label, cycle, effects)
    }

    /// The first ticket of the multi-lock that the request's owner has with exactly the requested
    /// locks and modes, in any order. `None` if the owner has no ticket of these locks.
    ///
    /// # Errors
    /// `Overlap` if the owner has a ticket of one of these locks, but not exactly this set;
    /// `PermitsMaxDiffers` if the request gives a semaphore another number of permits than it has.
    fn same_set(&self, id: SessionId, wish: &AcquireAll) -> Result<Option<ZPath>, Refusal> {
        let own = |(lock, mode): &(ZPath, LockMode)| self.ticket_of(id, lock, *mode, &wish.owner);
        if let Some(multi) = own(&wish.parts[0]).and_then(|ticket| self.multi_of(&ticket, &self.tree()[&ticket])) {
            let part = |wish| own(wish).is_some_and(|ticket| multi.tickets.contains(&ticket));
            if multi.tickets.len() == wish.parts.len() && wish.parts.iter().all(part) {
                for (index, (lock, mode)) in (0..).zip(&wish.parts) {
                    let at = |error| Refusal { op_index: Some(index), ..Refusal::at(error, lock) };
                    self.check_limit(lock, *mode).map_err(at)?;
                }
                return Ok(Some(multi.tickets[0].clone()));
            }
        }
        match (0..).zip(&wish.parts).find(|(_, (lock, _))| self.has_ticket_of(id, lock, &wish.owner)) {
            Some((index, (lock, _))) => Err(Refusal { op_index: Some(index), ..Refusal::at(Error::Overlap, lock) }),
            None => Ok(None),
        }
    }

    /// The first ticket of the multi-lock of an earlier acquire with this idempotency key, so that
    /// this acquire is a retry; `None` if there is no such multi-lock.
    pub(crate) fn all_with(&self, id: SessionId, wish: &AcquireAll, key: RequestKey) -> Option<ZPath> {
        let (lock, mode) = wish.parts.first()?;
        if wish.owner.is_empty() {
            return self.ticket_with(id, &wish.first(), key);
        }
        // The earlier request may have had the locks in another order, and so another first ticket.
        let ticket = self.ticket_of(id, lock, *mode, &wish.owner)?;
        let first = self.multi_of(&ticket, &self.tree()[&ticket])?.tickets[0].clone();
        self.counts_key(&first, key).then_some(first)
    }

    fn check_parts(&self, wish: &AcquireAll) -> Result<(), Refusal> {
        if wish.parts.len() > self.limits().ops_max.min(Limits::PARTS_MOST) as usize {
            return Err(Error::TooManyOps.into());
        }
        if wish.parts.is_empty() {
            return Err(Error::BadArguments.into());
        }
        for (index, (lock, mode)) in (0..).zip(&wish.parts) {
            let again = wish.parts[..index as usize].iter().any(|(other, _)| other == lock);
            // An election cannot be part of a multi-lock, because its leader holds it alone.
            if lock.is_root() || again || *mode == LockMode::Latch {
                return Err(Refusal { op_index: Some(index), ..Refusal::at(Error::BadArguments, lock) });
            }
        }
        Ok(())
    }

    fn enqueue_all(&mut self, wish: &AcquireAll, effects: &mut Effects) -> Result<ZPath, Refusal> {
        let mut tickets: Vec<ZPath> = Vec::with_capacity(wish.parts.len());
        for index in 0..wish.parts.len() {
            let acquire = wish.part(index, &wish.owner);
            let at = |refusal| Refusal { op_index: u32::try_from(index).ok(), ..refusal };
            let way = self.way_into(&acquire.lock, &effects.context).map_err(at)?;
            let QueueAdmission::At(ticket) = self.enqueue(&acquire, way, true, effects).map_err(at)? else {
                // Unreachable: parts are added without a search for deadlocks.
                return Err(at(Refusal::at(Error::Deadlock, &acquire.lock)));
            };
            tickets.push(ticket);
        }
        let first = tickets[0].clone();
        self.add_multi(effects.context.zxid, MultiLock { policy: wish.policy, tickets });
        Ok(first)
    }
}

impl AcquireAll {
    /// The acquire of one of the locks, given by its index in the request.
    fn part(&self, index: usize, owner: &str) -> Acquire {
        let (lock, mode) = self.parts[index].clone();
        let (owner, label) = (owner.into(), self.label.clone());
        Acquire { owner, label, lock_delay_ms: self.lock_delay_ms, ..Acquire::new(lock, mode) }
    }

    /// The acquire of the first lock, for a request that names no owner (user of locks within the
    /// session).
    fn first(&self) -> Acquire {
        self.part(0, "")
    }
}
