//! Bugs that can be planted, to see that the invariants find them: those of the simulation's own
//! disk, and with the feature `fault-injection` those of the product (crate `plant`).

use std::cell::Cell;

use plant::Planted;

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// Entries are acknowledged before they are on disk.
    AckBeforeFsync,
    /// A flush that has failed is taken for one that has not.
    FailedFlush,
    /// Votes are sent before they are on disk.
    ForgottenVote,
    /// One of the product.
    #[cfg_attr(not(feature = "fault-injection"), allow(dead_code))]
    Product(Planted),
}

/// Those of the simulation's own disk.
const OF_THE_DISK: [(&str, Plant); 3] = [
    ("ack-before-fsync", Plant::AckBeforeFsync),
    ("failed-flush", Plant::FailedFlush),
    ("forgotten-vote", Plant::ForgottenVote),
];

thread_local! {
    static PLANTED: Cell<Option<Plant>> = const { Cell::new(None) };
}

impl Plant {
    /// The bug of this name.
    ///
    /// # Errors
    /// The names that there are.
    pub fn named(name: &str) -> Result<Plant, String> {
        if let Some((_, plant)) = OF_THE_DISK.iter().find(|(of_it, _)| *of_it == name) {
            return Ok(*plant);
        }
        let all: &[Planted] = if cfg!(feature = "fault-injection") { Planted::ALL } else { &[] };
        let found = all.iter().find(|bug| bug.name() == name);
        found.map(|bug| Plant::Product(*bug)).ok_or_else(|| {
            let names = OF_THE_DISK.iter().map(|(name, _)| *name).chain(all.iter().map(|bug| bug.name()));
            format!("there is no bug of this name, only {}", names.collect::<Vec<_>>().join(", "))
        })
    }
}

/// Plants a bug in what runs on this thread from now on.
pub fn plant(plant: Option<Plant>) {
    PLANTED.set(plant);
    #[cfg(feature = "fault-injection")]
    plant::here(plant.and_then(|plant| match plant {
        Plant::Product(bug) => Some(bug),
        Plant::AckBeforeFsync | Plant::FailedFlush | Plant::ForgottenVote => None,
    }));
}

/// Whether this bug of the disk is planted.
pub fn is(plant: Plant) -> bool {
    PLANTED.get() == Some(plant)
}
