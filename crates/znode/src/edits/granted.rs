//! Grants of a lock to one ticket, in the order of the queue or ahead of it.

use crate::edits::effects::Effects;
use crate::queue::demand::Demand;
use crate::queue::ended::Grant;
use crate::queue::{Origin, Position, Queue, Ticket};
use crate::{EventKind, State, ZPath};

impl State {
    /// Grants the lock to a waiter, even if other waiters are before it in the queue.
    pub(crate) fn grant_out_of_turn(&mut self, lock: &ZPath, position: &Position, effects: &mut Effects) {
        let at = effects.context.moment();
        let granted = self.edit_queue(lock, |queue| {
            let token = queue.token_at(position, at.zxid);
            queue.grant(position, Grant { at, token })
        });
        effects.steps += 1;
        let owned = granted.is_some_and(|ticket| ticket.session.is_some());
        if owned {
            self.count_holder();
        }
        // A ticket that this entry made gets no event, because the client's answer tells of the
        // grant.
        if owned && position.czxid < effects.context.zxid {
            self.tell(EventKind::Granted, &self.ticket_at(lock, position), effects);
        }
    }

    /// Grants the lock at once to a ticket, if it is the read ticket of a downgrade: its session
    /// holds the lock with a write ticket of the same sequence number. A ticket of a multi-lock is
    /// not granted its lock, because it can hold only together with the multi-lock's other tickets.
    pub(crate) fn grant_downgraded(&mut self, ticket: &ZPath, effects: &mut Effects) {
        let (lock, position) = self.position_of(ticket);
        let reads = |reader: &&Ticket| reader.demand == Demand::Shared && reader.origin != Origin::MultiLock;
        let reader = self.queue(&lock).and_then(|queue| queue.waiter(&position)).filter(reads);
        let own = reader.and_then(|reader| reader.session).is_some_and(|id| self.writes(&lock, position.number, id));
        let repeats = |queue: &Queue| queue.repeats_token(&position, Demand::Shared, effects.context.zxid);
        if own && !self.queue(&lock).is_some_and(repeats) {
            self.grant_out_of_turn(&lock, &position, effects);
        }
    }
}
