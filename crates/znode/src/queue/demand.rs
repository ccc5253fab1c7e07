//! The share of a lock that a ticket wants (demand), and the shares that all holders have (usage).

use crate::words::ticket_name::is_shared;
use crate::{Contender, LockMode};

/// The share of its lock that a ticket wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// The whole lock, alone.
    Alone,
    /// The lock together with other readers.
    Shared,
    /// A number of permits of a semaphore.
    Units(u32),
    /// A lock node that a client created with the name of a lease (permit) of Curator's semaphore:
    /// one permit in a semaphore, the whole of any other lock.
    LeaseByName,
}

impl Demand {
    /// The demand of a ticket. `contender` is `None` for a lock node that a plain create made: then
    /// the name tells the demand.
    pub(crate) fn of(name: &str, contender: Option<&Contender>) -> Demand {
        match contender {
            Some(contender) => Demand::of_mode(contender.mode),
            None if is_shared(name) => Demand::Shared,
            None if name.contains("-lease-") => Demand::LeaseByName,
            None => Demand::Alone,
        }
    }

    pub(crate) fn of_mode(mode: LockMode) -> Demand {
        match mode {
            LockMode::Read => Demand::Shared,
            LockMode::Lease { permits, .. } => Demand::Units(permits),
            LockMode::Exclusive | LockMode::Write | LockMode::Latch => Demand::Alone,
        }
    }
}

/// Sum of the shares that the holders of a lock have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LockUsage {
    pub(crate) alone: u32,
    pub(crate) shared: u32,
    pub(crate) units: u32,
}

impl LockUsage {
    /// The usage by a single holder with this demand, in a lock with `limit` permits (`None` if it
    /// is not a semaphore).
    pub(crate) fn by(demand: Demand, limit: Option<u32>) -> LockUsage {
        match demand {
            Demand::Shared => LockUsage { shared: 1, ..LockUsage::default() },
            Demand::Units(units) => LockUsage { units, ..LockUsage::default() },
            Demand::LeaseByName if limit.is_some() => LockUsage { units: 1, ..LockUsage::default() },
            Demand::Alone | Demand::LeaseByName => LockUsage { alone: 1, ..LockUsage::default() },
        }
    }

    pub(crate) fn plus(self, more: LockUsage) -> LockUsage {
        LockUsage {
            alone: self.alone.saturating_add(more.alone),
            shared: self.shared.saturating_add(more.shared),
            units: self.units.saturating_add(more.units),
        }
    }

    pub(crate) fn less(self, fewer: LockUsage) -> LockUsage {
        LockUsage {
            alone: self.alone.saturating_sub(fewer.alone),
            shared: self.shared.saturating_sub(fewer.shared),
            units: self.units.saturating_sub(fewer.units),
        }
    }

    /// Tells whether one more ticket with this demand fits into a lock with `limit` permits (`None`
    /// if it is not a semaphore).
    pub(crate) fn has_room(self, demand: Demand, limit: Option<u32>) -> bool {
        let more = LockUsage::by(demand, limit);
        if more.alone > 0 {
            return self == LockUsage::default();
        }
        if more.shared > 0 {
            return self.alone == 0 && self.units == 0;
        }
        let units = self.units.checked_add(more.units);
        self.alone == 0 && self.shared == 0 && units.is_some_and(|units| units <= limit.unwrap_or(0))
    }
}
