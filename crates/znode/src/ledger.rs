//! The ledger of a lock: who holds it, written down.
//!
//! Most locks have none: who holds follows from the order of the lock nodes (`lock.rs`). That is not enough for a
//! semaphore, whose holders are counted, nor for a lock in whose queue a part of a multi-lock waits: the part may be the
//! first and still not hold, and others may have passed it. Such a lock has a ledger. Everybody who holds it is
//! written there, and nobody else holds; `settle.rs` says who is next.
//!
//! A ledger is opened when it is needed, with those who hold at that moment, and closed when the queue is empty, unless
//! it has settings to remember.

use std::cmp::Reverse;

use bincode::{Decode, Encode};
use imbl::{OrdMap, OrdSet};

use crate::znode::{Place, Znode, is_shared};
use crate::{FencingToken, LockMode, Zxid};

/// What a contender needs of the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// All of it.
    Alone,
    /// A share, together with other readers.
    Shared,
    /// So many permits of a semaphore.
    Permits(u32),
}

/// Somebody who holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) demand: Demand,
    pub(crate) token: FencingToken,
}

/// What a ledger remembers while nobody is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct LockSettings {
    /// The permits of a semaphore; `None` for a lock.
    pub limit: Option<u32>,
    /// Only acquires enter its queue: there may be priorities, and a holder may say who is next.
    pub closed: bool,
    /// How many may wait; `None` for as many as any lock.
    pub waiters_max: Option<u32>,
}

/// See the head of the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) settings: LockSettings,
    /// Somebody was granted the lock while another had waited longer. From then on a token is the zxid of the grant: the
    /// czxids of those who are granted one after another do not rise any more.
    pub(crate) passed: bool,
    waiting: OrdSet<Place>,
    /// Those of them who have a priority above the ordinary one, which is 0.
    priorities: OrdMap<Place, u32>,
    /// The same, in the order in which it is their turn.
    urgent: OrdSet<(Reverse<u32>, Place)>,
    /// The others of them. Shares its nodes with `waiting` when the ledger is opened.
    ordinary: OrdSet<Place>,
    granted: OrdMap<Place, Grant>,
    tokens: OrdSet<(FencingToken, Place)>,
    /// Those who are part of a multi-lock with an owner. While there are any, circles are looked for through this ledger.
    owned_parts: OrdSet<Place>,
    held: Held,
}

/// The sum of what is granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    alone: u32,
    shared: u32,
    permits: u32,
}

impl Held {
    fn of(self, demand: Demand, change: impl Fn(u32, u32) -> u32) -> Held {
        match demand {
            Demand::Alone => Held { alone: change(self.alone, 1), ..self },
            Demand::Shared => Held { shared: change(self.shared, 1), ..self },
            Demand::Permits(permits) => Held { permits: change(self.permits, permits), ..self },
        }
    }
}

impl Ledger {
    /// A ledger as it was written, before those who are in it.
    pub(crate) fn restored(settings: LockSettings, passed: bool) -> Ledger {
        Ledger { settings, passed, ..Ledger::default() }
    }

    /// A ledger with this queue, in which nobody holds yet.
    pub(crate) fn open(settings: LockSettings, waiting: OrdSet<Place>) -> Ledger {
        // In a closed lock anybody may be passed at any time.
        Ledger { settings, passed: settings.closed, ordinary: waiting.clone(), waiting, ..Ledger::default() }
    }

    /// Whether it has nothing to say any more.
    pub(crate) fn is_over(&self) -> bool {
        self.settings == LockSettings::default() && self.waiting.is_empty() && self.granted.is_empty()
    }

    pub(crate) fn enter(&mut self, place: Place) {
        self.ordinary.insert(place.clone());
        self.waiting.insert(place);
    }

    /// Somebody who waits comes before all with a lower priority.
    pub(crate) fn prioritize(&mut self, place: &Place, priority: u32) {
        self.ordinary.remove(place);
        self.priorities.insert(place.clone(), priority);
        self.urgent.insert((Reverse(priority), place.clone()));
    }

    fn no_longer_waits(&mut self, place: &Place) -> bool {
        if let Some(priority) = self.priorities.remove(place) {
            self.urgent.remove(&(Reverse(priority), place.clone()));
        } else {
            self.ordinary.remove(place);
        }
        self.waiting.remove(place).is_some()
    }

    /// Changes the settings. From then on tokens are those of the grants if it is closed.
    pub(crate) fn set(&mut self, settings: LockSettings) {
        self.settings = settings;
        self.passed |= settings.closed;
    }

    /// One of those in the queue is part of a multi-lock with an owner.
    pub(crate) fn owned_part(&mut self, place: &Place) {
        self.owned_parts.insert(place.clone());
    }

    /// Whether such a part is in the queue.
    pub(crate) fn has_owned_parts(&self) -> bool {
        !self.owned_parts.is_empty()
    }

    pub(crate) fn leave(&mut self, place: &Place) {
        self.owned_parts.remove(place);
        self.no_longer_waits(place);
        if let Some(Grant { demand, token }) = self.granted.remove(place) {
            self.tokens.remove(&(token, place.clone()));
            self.held = self.held.of(demand, u32::wrapping_sub);
        }
    }

    pub(crate) fn grant(&mut self, place: &Place, demand: Demand, token: FencingToken) {
        let waited = self.no_longer_waits(place);
        assert!(waited, "only who waits is granted the lock");
        self.granted.insert(place.clone(), Grant { demand, token });
        self.tokens.insert((token, place.clone()));
        self.held = self.held.of(demand, u32::wrapping_add);
    }

    /// Whether there is room beside those who hold.
    pub(crate) fn fits(&self, demand: Demand) -> bool {
        self.fits_beside(self.held, demand)
    }

    /// The same if one who holds did not.
    pub(crate) fn fits_without(&self, holder: &Place, demand: Demand) -> bool {
        let held = self.granted.get(holder).map_or(self.held, |grant| self.held.of(grant.demand, u32::wrapping_sub));
        self.fits_beside(held, demand)
    }

    /// Whether there is room for one if only the other held.
    pub(crate) fn fit_together(&self, other: Demand, demand: Demand) -> bool {
        self.fits_beside(Held::default().of(other, u32::wrapping_add), demand)
    }

    fn fits_beside(&self, held: Held, demand: Demand) -> bool {
        let Held { alone, shared, permits } = held;
        match demand {
            Demand::Alone => alone == 0 && shared == 0 && permits == 0,
            Demand::Shared => alone == 0 && permits == 0,
            Demand::Permits(more) => {
                let limit = self.settings.limit.unwrap_or(0);
                alone == 0 && shared == 0 && permits.checked_add(more).is_some_and(|sum| sum <= limit)
            }
        }
    }

    pub(crate) fn waits(&self, place: &Place) -> bool {
        self.waiting.contains(place)
    }

    /// Those who wait, in the order in which it is their turn.
    pub(crate) fn turns(&self) -> impl Iterator<Item = &Place> {
        let urgent = self.urgent.iter().map(|(_, place)| place);
        urgent.chain(&self.ordinary)
    }

    /// Those who wait under a number.
    pub(crate) fn waiting_at(&self, number: u64) -> impl Iterator<Item = &Place> {
        let least = Place { number, czxid: Zxid(0), name: "".into() };
        self.waiting.range(least..).take_while(move |place| place.number == number)
    }

    /// Those who wait, by arrival.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Place> {
        self.waiting.iter()
    }

    pub(crate) fn waiters(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn priority_of(&self, place: &Place) -> u32 {
        self.priorities.get(place).copied().unwrap_or(0)
    }

    /// Who waits just before a place, or else the last of those who hold.
    pub(crate) fn before(&self, place: &Place) -> Option<&Place> {
        let last = || self.granted.keys().next_back();
        let priority = self.priority_of(place);
        let urgent = self.urgent.range(..(Reverse(priority), place.clone())).next_back().map(|(_, place)| place);
        if priority > 0 {
            return urgent.or_else(last);
        }
        let waits = self.ordinary.range(..place.clone()).next_back();
        waits.or(urgent).or_else(last).filter(|before| *before != place)
    }

    /// Whether one holds, or comes before another who waits.
    pub(crate) fn comes_before(&self, place: &Place, other: &Place) -> bool {
        let turn = |place| (Reverse(self.priority_of(place)), place);
        self.granted.contains_key(place) || turn(place) < turn(other)
    }

    pub(crate) fn grant_of(&self, place: &Place) -> Option<&Grant> {
        self.granted.get(place)
    }

    pub(crate) fn granted(&self) -> impl Iterator<Item = (&Place, &Grant)> {
        self.granted.iter()
    }

    /// Who holds with a token. Several only when readers were granted the lock together after it had been passed.
    pub(crate) fn holders_with(&self, token: FencingToken) -> impl Iterator<Item = &Place> {
        let least = Place { number: 0, czxid: Zxid(0), name: "".into() };
        self.tokens.range((token, least)..).take_while(move |(other, _)| *other == token).map(|(_, place)| place)
    }

    /// Permits that are taken.
    pub(crate) fn permits_held(&self) -> u32 {
        self.held.permits
    }

    pub(crate) fn check_invariants(&self, contenders: &OrdSet<Place>) -> Result<(), String> {
        let mut held = Held::default();
        let mut tokens = OrdSet::new();
        let mut all = self.waiting.clone();
        for (place, Grant { demand, token }) in &self.granted {
            held = held.of(*demand, u32::wrapping_add);
            tokens.insert((*token, place.clone()));
            if all.insert(place.clone()).is_some() {
                return Err(format!("{} waits and holds", place.name));
            }
        }
        let urgent = self.priorities.iter().map(|(place, priority)| (Reverse(*priority), place.clone()));
        if urgent.collect::<OrdSet<_>>() != self.urgent || self.urgent.iter().any(|(_, place)| !self.waits(place)) {
            return Err(format!("priorities of nobody: {self:?}"));
        }
        let ordinary = self.waiting.iter().filter(|place| !self.priorities.contains_key(*place));
        if !ordinary.eq(&self.ordinary) {
            return Err(format!("not the others: {self:?}"));
        }
        if self.owned_parts.iter().any(|place| !contenders.contains(place)) {
            return Err(format!("parts of nobody: {self:?}"));
        }
        if all != *contenders || tokens != self.tokens || held != self.held {
            return Err(format!("the ledger does not fit the queue: {self:?}"));
        }
        let Held { alone, shared, permits } = held;
        if permits > self.settings.limit.unwrap_or(0) || alone > 1 || (permits > 0 && alone + shared > 0) {
            return Err(format!("too many hold: {held:?} of {:?}", self.settings));
        }
        if self.is_over() { Err("a ledger with nothing in it".into()) } else { Ok(()) }
    }
}

/// What a lock node needs of its lock. In a semaphore, Curator's lease counts as one permit.
pub(crate) fn demand_of(name: &str, node: &Znode, settings: LockSettings) -> Demand {
    match node.contender().map(|contender| contender.mode) {
        Some(LockMode::Lease { permits, .. }) => Demand::Permits(permits),
        None if settings.limit.is_some() && name.contains("-lease-") => Demand::Permits(1),
        _ if is_shared(name) => Demand::Shared,
        _ => Demand::Alone,
    }
}
