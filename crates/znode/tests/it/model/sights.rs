//! Rare situations ("sights") that the random histories must meet.

use znode::lock::WaitsFor;

use super::queue::Demand;
use super::{Model, number, parent_of};

impl Model {
    /// Names of the rare situations in the present state.
    pub(crate) fn sights(&self) -> Vec<&'static str> {
        let mut sights = self.sights_of_multilocks();
        for (lock, node) in &self.nodes {
            if node.queue.is_some() {
                sights.extend(self.sights_of_queue(lock));
                sights.extend(self.sights_of_upgrade(lock));
            }
        }
        sights
    }

    fn sights_of_multilocks(&self) -> Vec<&'static str> {
        let mut sights = Vec::new();
        for (_, tickets) in self.multis.iter().filter(|(_, tickets)| tickets.len() > 1) {
            let together = self.nodes[&tickets[0]].held.is_some();
            let later = tickets.iter().any(|ticket| self.token(ticket).0 != self.nodes[ticket].created.0.0);
            sights.extend(together.then_some("held-together"));
            sights.extend((together && later).then_some("passed-and-held-together"));
            sights.extend((self.holds(&tickets[0]) > 1).then_some("held-once-more"));
        }
        sights
    }

    fn sights_of_queue(&self, lock: &str) -> Vec<&'static str> {
        let (holders, waiters) = (self.holders(lock), self.waiters(lock));
        let is_part = |ticket: &String| self.parts(ticket).is_some();
        let made = |ticket: &String| self.nodes[ticket].created.0;
        let overtook = |holder: &String| {
            waiters.iter().any(|other| is_part(other) && made(other) < made(holder) && !is_part(holder))
        };
        let by_hand = |ticket: &String| self.nodes[ticket].lock.is_none();
        let in_front = |ticket: &String| holders.iter().any(|holder| number(ticket) < number(holder));
        let downgraded = holders.iter().any(|holder| {
            let stay = self.nodes[holder].stay;
            self.demand(holder) == Demand::Shared && self.twin(lock, number(holder).unwrap(), stay).is_some()
        });
        let limit = self.settings(lock).limit.is_some();
        let left = |waiter: &String| self.has_room(waiter) && self.token_of_past(waiter);
        let sights = [
            (self.permits_held(lock) > 1 && holders.len() > 1, "several-permits"),
            (holders.iter().any(overtook), "passed"),
            (waiters.iter().any(|waiter| by_hand(waiter) && in_front(waiter)), "small-number-waits"),
            (downgraded && waiters.iter().any(is_part), "downgrade-beside-parts"),
            (downgraded && limit, "downgrade-in-semaphore"),
            (limit && waiters.first().is_some_and(left), "left-to-the-next"),
        ];
        sights.into_iter().filter(|(met, _)| *met).map(|(_, word)| word).collect()
    }

    /// Tells whether a grant by the present entry would give the waiter a token that is already
    /// taken.
    fn token_of_past(&self, waiter: &str) -> bool {
        self.parts(waiter).is_none() && self.token_is_taken(waiter)
    }

    fn sights_of_upgrade(&self, lock: &str) -> Vec<&'static str> {
        let Some((writer, reader)) = self.upgrade_in(lock) else {
            return Vec::new();
        };
        let is_part = |ticket: &String| self.parts(ticket).is_some();
        let others = self.contenders(lock).iter().any(|other| is_part(other) && Some(other) != reader.as_ref());
        let holds = self.nodes[writer].held.is_some();
        let settings = self.settings(lock);
        let sights = [
            (settings.limit.is_some(), "upgrade-in-semaphore"),
            (settings.managed, "upgrade-in-managed"),
            (reader.as_ref().is_some_and(is_part), "upgrade-of-a-part"),
            (holds && reader.as_ref().is_some_and(is_part), "upgraded-part-holds"),
            (others, "upgrade-beside-parts"),
            (reader.is_none() && !holds, "upgrade-without-reader"),
        ];
        sights.into_iter().filter(|(met, _)| *met).map(|(_, word)| word).collect()
    }

    /// Names of the rare kinds of tickets that a cycle of waits has.
    pub(crate) fn kinds_of_cycle(&self, cycle: &[WaitsFor]) -> Vec<&'static str> {
        // An answer with a cycle may be repeated after the tickets of the cycle are removed.
        let blockers = || cycle.iter().map(|edge| edge.blocker.as_str()).filter(|path| self.nodes.contains_key(*path));
        let lock = |path: &str| parent_of(path).unwrap().to_string();
        let upgraded = |path: &str| self.upgrade_in(&lock(path)).is_some();
        let kinds = [
            (blockers().any(|path| self.parts(path).is_some()), "cycle-of-parts"),
            (blockers().any(|path| self.limit_over(path).is_some()), "cycle-of-permits"),
            (blockers().any(|path| self.settings(&lock(path)).managed), "cycle-in-managed"),
            (blockers().any(upgraded), "cycle-beside-upgrade"),
        ];
        kinds.into_iter().filter(|(met, _)| *met).map(|(_, word)| word).collect()
    }

    pub(crate) fn permits_held(&self, lock: &str) -> u32 {
        let permits = |ticket: &String| match self.demand(ticket) {
            Demand::Units(units) => units,
            Demand::Alone | Demand::Shared => 0,
        };
        self.holders(lock).iter().map(permits).sum()
    }

    pub(crate) fn holders_of_all(&self) -> Vec<String> {
        self.nodes.keys().flat_map(|lock| self.holders(lock)).collect()
    }

    /// The holders of a lock that have the whole lock, and those that share it as readers.
    pub(crate) fn alone_and_shared(&self, lock: &str) -> [Vec<String>; 2] {
        let of = |demand: Demand| {
            let mut holders = self.holders(lock);
            holders.retain(|holder| self.demand(holder) == demand);
            holders
        };
        [of(Demand::Alone), of(Demand::Shared)]
    }
}
