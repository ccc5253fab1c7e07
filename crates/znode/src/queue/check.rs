//! Checks of the invariants of a queue, for tests.

use imbl::OrdSet;

use super::{Holder, Position, Queue, is_reading_part};
use crate::queue::demand::{Demand, LockUsage};

impl Queue {
    pub(crate) fn check_invariants(&self) -> Result<(), String> {
        let limit = self.settings.limit;
        let mut usage = LockUsage::default();
        let mut by_token = OrdSet::new();
        for (position, Holder { ticket, grant }) in &self.holders {
            usage = usage.plus(LockUsage::by(ticket.demand, limit));
            by_token.insert((grant.token, position.clone()));
            if grant.token > self.top_token || self.waits(position) {
                return Err(format!("{position:?} holds with {:?} and waits, or {:?} is less", grant, self.top_token));
            }
        }
        if usage != self.usage || by_token != self.by_token {
            return Err(format!("{usage:?} is taken, and {by_token:?}, kept as {self:?}"));
        }
        let alone = self.holders.iter().filter(|(_, holder)| LockUsage::by(holder.ticket.demand, limit).alone > 0);
        if alone.map(|(position, _)| position).ne(&self.alone) {
            return Err(format!("another one holds alone: {self:?}"));
        }
        let shares = usage.alone > 0 && (usage.units > 0 || usage.shared as usize + 1 != self.holders.len());
        // Holders may have more permits than the limit, because the limit may be lowered while they
        // hold.
        if usage.units > 0 && limit.is_none() || usage.alone > 1 || shares {
            return Err(format!("too many hold: {usage:?} of {:?}", self.settings));
        }
        // Readers that one entry granted the lock share a token, and keep it when the lock becomes
        // a semaphore.
        let reads = |position: &Position| self.holders[position].ticket.demand == Demand::Shared;
        let repeated = self.by_token.iter().find(|(token, at)| !reads(at) && self.holders_with(*token).count() > 1);
        if let Some(repeated) = repeated {
            return Err(format!("others hold with the token of {repeated:?}"));
        }
        let waiting = self.readers.iter().chain(&self.others);
        if let Some((turn, _)) = waiting.clone().find(|(turn, _)| **turn != self.turn(&turn.position)) {
            return Err(format!("{turn:?} is not its turn: {self:?}"));
        }
        let sorted = self.readers.values().all(|ticket| ticket.demand == Demand::Shared)
            && self.others.values().all(|ticket| ticket.demand != Demand::Shared);
        let parts = self.readers.iter().filter(|(_, ticket)| is_reading_part(ticket));
        if !sorted || parts.ne(&self.reading_parts) || !self.priorities.keys().all(|at| self.waits(at)) {
            return Err(format!("waiters are kept wrongly: {self:?}"));
        }
        match self.is_over() {
            _ if !self.has_all_of_upgrade() => Err(format!("an upgrade without its tickets: {self:?}")),
            true => Err("a queue with nothing in it".into()),
            false => Ok(()),
        }
    }
}
