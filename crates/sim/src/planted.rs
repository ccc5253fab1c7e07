//! Bugs that can be planted, to see that the invariants find them.

use std::cell::Cell;

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Plant {
    /// Entries are acknowledged before they are on disk.
    AckBeforeFlush,
}

thread_local! {
    static PLANTED: Cell<Option<Plant>> = const { Cell::new(None) };
}

/// Plants a bug in what runs on this thread from now on.
pub fn plant(plant: Option<Plant>) {
    PLANTED.set(plant);
}

/// Whether this bug is planted.
pub fn is(plant: Plant) -> bool {
    PLANTED.get() == Some(plant)
}
