//! Bugs that can be planted, to see that a harness finds them. Only where the feature `planted` is on, which no release
//! has; elsewhere nothing of them is left.

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "planted"), allow(dead_code))]
pub enum Planted {
    /// A node that believes to lead answers linearizable reads from what it has, and asks nobody.
    ReadsWithoutQuorum,
    /// A leader goes on counting the silence of sessions after it was deposed, and has the new one expire them.
    DeposedExpiry,
    /// A wait sets its watch a moment after it looked at the state.
    WatchAfterLook,
}

#[cfg(feature = "planted")]
mod on {
    use std::cell::Cell;
    use std::sync::OnceLock;

    use super::Planted;

    thread_local! {
        static HERE: Cell<Option<Planted>> = const { Cell::new(None) };
    }
    static EVERYWHERE: OnceLock<Planted> = OnceLock::new();

    /// Plants a bug in what this thread runs from now on: for simulations.
    pub fn plant(bug: Option<Planted>) {
        HERE.set(bug);
    }

    /// Plants a bug in the whole process, for good. The first one stays.
    pub fn plant_everywhere(bug: Planted) {
        let _ = EVERYWHERE.set(bug);
    }

    pub(crate) fn is(bug: Planted) -> bool {
        HERE.get() == Some(bug) || EVERYWHERE.get() == Some(&bug)
    }
}

#[cfg(feature = "planted")]
pub(crate) use on::is;
#[cfg(feature = "planted")]
pub use on::{plant, plant_everywhere};

#[cfg(not(feature = "planted"))]
pub(crate) fn is(_: Planted) -> bool {
    false
}
