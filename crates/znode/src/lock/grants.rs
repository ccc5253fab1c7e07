//! Who became a holder in an entry: written down beside the queue, with the moment and the token.

use crate::lock::{Grant, LockStatus, is_first, status};
use crate::state::{Changes, State};
use crate::{EventKind, ZPath, Zxid};

impl State {
    /// Finds who became a holder in this entry, among those who queue where it changed something.
    ///
    /// Each is found once, so this costs O(log n) for each ticket over its life.
    ///
    /// A writer's going may make very many readers holders. They hold from then on, but only so many are written down in one
    /// entry; the others are in the next ones. In a lock that has had an upgrade, where tokens may be those of grants, they hold
    /// when they are written down.
    pub(crate) fn settle_grants(&mut self, changes: &mut Changes) {
        let mut again = false;
        loop {
            let queues = changes.take_queues();
            if queues.is_empty() {
                break;
            }
            for lock in queues {
                match self.steps_left(changes) {
                    0 if again => drop(self.unsettled.insert(lock)),
                    room => self.settle_queue(&lock, room.max(1), changes),
                }
            }
            // Those of dead sessions went when it was their turn, and others have it.
            again = true;
        }
        for ticket in changes.new_grants() {
            // Only what a session owns is kept.
            let owned = self.node(ticket).is_some_and(|node| node.owner().is_some());
            if let (true, Ok(LockStatus::Held { token, .. })) = (owned, status(self, ticket)) {
                self.put_grant(ticket, Grant { at: self.moment(changes), token });
            }
        }
    }

    /// Writes at most so many new holders down.
    pub(crate) fn settle_queue(&mut self, lock: &ZPath, max: u64, changes: &mut Changes) {
        let mut passed = false;
        let holders = self.new_holders(lock, max);
        if holders.len() as u64 >= max {
            self.unsettled.insert(lock.clone());
        }
        changes.steps += holders.len() as u64;
        for ticket in holders {
            let node = &self.nodes[&ticket];
            if self.waits_in_vain(&ticket, node) {
                self.pass_over(&ticket, changes);
                continue;
            }
            let token = self.token_at(lock, node, changes.zxid);
            let is_passed = token.0 != node.czxid.0;
            passed |= is_passed;
            self.put_grant(&ticket, Grant { at: self.moment(changes), token });
            if is_passed && changes.is_late(lock) {
                // It was told to wait when what it waited for had gone.
                self.tell(EventKind::Granted, &ticket, changes);
            }
        }
        if passed {
            // Who is made by now and granted later comes after a token that is younger than its lock node.
            self.pass(lock, changes.zxid);
        }
    }

    fn new_holders(&self, lock: &ZPath, max: u64) -> Vec<ZPath> {
        // A ledger tells of its grants itself.
        let Some(parent) = self.node(lock).filter(|parent| parent.family.ledger.is_none()) else {
            return Vec::new();
        };
        let first_writer = parent.family.writers.get_min().map(|place| place.number);
        let mut holders = Vec::new();
        let mut misses = 0;
        for place in &parent.family.pending {
            if holders.len() as u64 >= max {
                break;
            }
            let ticket = lock.child(&place.name).expect("a child has a good name");
            if is_first(self, &ticket) {
                holders.push(ticket);
                continue;
            }
            misses += 1;
            // Behind the first writer only readers with its own number hold. Names with equal numbers are made by
            // hand, so the number of them that are looked at is bounded.
            if misses > MISSES_MAX || first_writer.is_none_or(|number| place.number > number) {
                break;
            }
        }
        holders
    }

    /// One that holds and goes before an entry had room to write it down is written down as it goes.
    pub(crate) fn write_down(&mut self, ticket: &ZPath, changes: &Changes) {
        if self.unsettled.is_empty() || self.grants.contains_key(ticket) || self.nodes[ticket].owner().is_none() {
            return;
        }
        let left_over =
            ticket.parent().is_some_and(|lock| self.unsettled.contains(&lock) && self.ledger(&lock).is_none());
        if let (true, Ok(LockStatus::Held { token, .. })) = (left_over, status(self, ticket)) {
            self.put_grant(ticket, Grant { at: self.moment(changes), token });
        }
    }

    /// Keeps a grant; the lock node stands.
    pub(crate) fn put_grant(&mut self, ticket: &ZPath, grant: Grant) {
        let lock = ticket.parent().expect("a lock node has a parent");
        let node = &self.nodes[ticket];
        let (czxid, now) = (node.czxid, Zxid(self.token_of(ticket, node).0));
        self.edit(&lock, |lock| {
            lock.family.settle(ticket.name(), czxid);
            lock.family.change_token(ticket.name(), now, Zxid(grant.token.0));
        });
        self.grants.insert(ticket.clone(), grant);
    }
}

/// Lock nodes in a row that do not hold and are looked at.
const MISSES_MAX: usize = 64;
