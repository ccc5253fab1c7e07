//! Grants: finding the next holders in locks whose queues have changed.
//!
//! The rule: if the first waiter in the sort order of waiters (`QueueTurn`) fits beside the
//! holders, grant it the lock and repeat; otherwise stop. A later ticket may overtake only a
//! multi-lock with the policy `Backfill` that waits for another of its locks.

use std::collections::BTreeMap;

use crate::edits::effects::Effects;
use crate::queue::ended::TicketEnd;
use crate::queue::{Origin, Position, Queue, Ticket};
use crate::state::locks::MultiLock;
use crate::{Policy, State, ZPath, Zxid};

/// Maximum number of multi-locks that may be overtaken in one queue; a further waiting multi-lock
/// blocks the queue. This limits the work of a grant.
const OVERTAKEN_MAX: usize = 16;
/// Maximum number of tickets that the overtaken multi-locks of one queue have in all their locks.
/// This limits the work of a grant. The limit must depend on this queue only, because changes of
/// other queues do not make an entry examine this queue again.
const OVERTAKEN_PARTS_MAX: usize = 128;

/// A ticket that may be granted its lock next. Sorted by czxid, so that the oldest ticket of all
/// examined locks comes first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Next {
    czxid: Zxid,
    lock: ZPath,
    position: Position,
}

/// The result of looking for the next holder in a queue.
enum Look {
    /// The ticket that is granted the lock next.
    Next(Next),
    Nobody,
    /// The first waiter fits, but a grant by this entry would repeat the fencing token of another
    /// ticket. A later entry grants the lock to the waiter.
    NextEntry,
}

impl State {
    /// Grants locks to waiters in all queues that have changed. Costs O(log n) for each grant and
    /// each lock. Grants beyond the entry's budget are left to later entries.
    pub(crate) fn grant_ready(&mut self, effects: &mut Effects) {
        // Each ticket is stored with the number of grants made before it was found. After another
        // grant it must be checked again.
        let mut found: BTreeMap<Next, u64> = BTreeMap::new();
        let mut grants = 0;
        for lock in effects.take_queues() {
            if self.steps_left(effects) == 0 {
                self.leave_unsettled(lock);
            } else if let Some(next) = self.look(&lock, effects) {
                found.insert(next, grants);
            }
        }
        while let Some((next, at)) = found.pop_first() {
            if self.steps_left(effects) == 0 {
                self.leave_to_next_entry(next);
                continue;
            }
            if at != grants {
                let now = self.look(&next.lock, effects);
                if now.as_ref() != Some(&next) {
                    found.extend(now.map(|now| (now, grants)));
                    continue;
                }
            }
            let locks = match self.is_of_ending_session(&next) {
                true => {
                    self.pass_over(&self.ticket_at(&next.lock, &next.position), effects);
                    effects.take_queues().into_iter().collect()
                }
                false => self.grant_next(&next, effects),
            };
            grants += 1;
            for lock in locks {
                found.extend(self.look(&lock, effects).map(|next| (next, grants)));
            }
        }
    }

    /// Grants a lock to a single ticket, or all locks of a multi-lock to the multi-lock's tickets.
    /// Returns the locks whose queues have changed.
    fn grant_next(&mut self, next: &Next, effects: &mut Effects) -> Vec<ZPath> {
        let multi = self.multi_at(&next.lock, &next.position).cloned();
        let Some(multi) = multi else {
            self.grant_out_of_turn(&next.lock, &next.position, effects);
            return vec![next.lock.clone()];
        };
        let mut locks = Vec::with_capacity(multi.tickets.len());
        for ticket in &multi.tickets {
            let (lock, position) = self.position_of(ticket);
            self.grant_out_of_turn(&lock, &position, effects);
            locks.push(lock);
        }
        locks
    }

    /// The ticket to be granted a lock next; `None` if there is no such ticket. If only a later
    /// entry may grant the lock, adds the lock to those with grants left to later entries.
    fn look(&mut self, lock: &ZPath, effects: &Effects) -> Option<Next> {
        match self.next_in(lock, effects.context.zxid) {
            Look::Next(next) => Some(next),
            Look::Nobody => None,
            Look::NextEntry => {
                self.leave_unsettled(lock.clone());
                None
            }
        }
    }

    fn next_in(&self, lock: &ZPath, now: Zxid) -> Look {
        let Some(queue) = self.queue(lock) else { return Look::Nobody };
        let (mut overtaken, mut parts) = (0, 0);
        for (position, ticket) in queue.waiters() {
            let fits = match ticket.origin {
                Origin::MultiLock => {
                    let Some(multi) = self.multi_at(lock, position) else { return Look::Nobody };
                    let fits = self.fits_everywhere(multi);
                    (overtaken, parts) = (overtaken + 1, parts + multi.tickets.len());
                    let within = overtaken <= OVERTAKEN_MAX && parts <= OVERTAKEN_PARTS_MAX;
                    if !fits && within && may_be_overtaken(multi, queue) {
                        continue;
                    }
                    fits
                }
                // The client of this ticket waits for all tickets before its own, even for
                // overtaken ones, so a grant would be of no use and block other tickets.
                Origin::Create if overtaken > 0 => false,
                Origin::Create | Origin::Acquire => queue.fits(position, ticket.demand),
            };
            return match fits {
                false => Look::Nobody,
                true if self.repeats_token(lock, position, ticket, now) => Look::NextEntry,
                true => Look::Next(Next { czxid: position.czxid, lock: lock.clone(), position: position.clone() }),
            };
        }
        Look::Nobody
    }

    /// Tells whether a grant by the log entry with the zxid `now` would repeat the fencing token of
    /// an earlier grant; for a multi-lock, whether the grant of any of its locks would.
    fn repeats_token(&self, lock: &ZPath, position: &Position, ticket: &Ticket, now: Zxid) -> bool {
        let repeats = |lock: &ZPath, position: &Position| {
            let queue = self.queue(lock);
            let waiter = queue.and_then(|queue| Some((queue, queue.waiter(position)?)));
            waiter.is_some_and(|(queue, ticket)| queue.repeats_token(position, ticket.demand, now))
        };
        match ticket.origin {
            Origin::MultiLock => self.multi_at(lock, position).is_some_and(|multi| {
                multi.tickets.iter().map(|ticket| self.position_of(ticket)).any(|(lock, at)| repeats(&lock, &at))
            }),
            Origin::Create | Origin::Acquire => repeats(lock, position),
        }
    }

    /// Tells whether every ticket of a multi-lock fits beside the holders of its lock, and may be
    /// granted that lock next.
    fn fits_everywhere(&self, multi: &MultiLock) -> bool {
        multi.tickets.iter().all(|ticket| {
            let (lock, position) = self.position_of(ticket);
            let Some(queue) = self.queue(&lock) else { return false };
            let Some(part) = queue.waiter(&position) else { return false };
            let turn = queue.turn(&position);
            // One more waiter than may be overtaken is enough to see that the ticket is blocked.
            let before: Vec<_> = queue.waiters_before(Some(&turn)).take(OVERTAKEN_MAX + 1).collect();
            let parts = |(at, ticket): &(&Position, &Ticket)| {
                let other = self.multi_at(&lock, at).filter(|other| may_be_overtaken(other, queue))?;
                (ticket.origin == Origin::MultiLock).then_some(other.tickets.len())
            };
            let overtaken: Option<usize> = before.iter().map(parts).sum();
            before.len() <= OVERTAKEN_MAX
                && overtaken.is_some_and(|parts| parts <= OVERTAKEN_PARTS_MAX)
                && queue.fits(&position, part.demand)
        })
    }

    /// Removes a waiting ticket whose session has expired. Called instead of granting it the lock.
    fn pass_over(&mut self, ticket: &ZPath, effects: &mut Effects) {
        let end = effects.end.replace(TicketEnd::Expired);
        self.remove(ticket, effects);
        effects.end = end;
    }

    fn is_of_ending_session(&self, next: &Next) -> bool {
        let ticket = || self.queue(&next.lock)?.waiter(&next.position);
        self.sessions().are_ending()
            && ticket().and_then(|ticket| ticket.session).is_some_and(|id| self.sessions().is_ending(id))
    }

    /// Marks the lock of a ticket, and all locks of its multi-lock, so that a later entry makes the
    /// grant. The ticket may have been removed since it was found.
    fn leave_to_next_entry(&mut self, next: Next) {
        for lock in self.locks_of(&next).into_iter().chain([next.lock]) {
            self.leave_unsettled(lock);
        }
    }

    /// The locks of the multi-lock that the ticket is a part of; empty for a single ticket.
    fn locks_of(&self, next: &Next) -> Vec<ZPath> {
        let multi = self.multi_at(&next.lock, &next.position);
        multi.iter().flat_map(|multi| &multi.tickets).filter_map(ZPath::parent).collect()
    }

    /// Checks that no waiter of a lock could be granted it now, unless grants in the lock are left
    /// to a later entry. For tests.
    pub(crate) fn check_nobody_is_next(&self, lock: &ZPath) -> Result<(), String> {
        let left_over = |lock: &ZPath| self.locks().unsettled().contains(lock);
        match self.next_in(lock, self.last_zxid()) {
            Look::Next(next) if !left_over(lock) && !self.locks_of(&next).iter().any(left_over) => {
                Err(format!("{next:?} could hold and waits"))
            }
            _ => Ok(()),
        }
    }
}

/// Tells whether later tickets may overtake a waiting ticket of this multi-lock. False in a
/// semaphore, where acquires of few permits could keep an acquire of many permits waiting.
pub(crate) fn may_be_overtaken(multi: &MultiLock, queue: &Queue) -> bool {
    multi.policy == Policy::Backfill && queue.settings().limit.is_none()
}
