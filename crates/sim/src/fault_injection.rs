//! Bugs that can be planted, to see that the invariants find them. Those of the replica itself need
//! the feature `fault-injection`.

use std::cell::Cell;

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Plant {
    /// Entries are acknowledged before they are on disk.
    AckBeforeFsync,
    /// A flush that has failed is taken for one that has not.
    FailedFlush,
    /// Votes are sent before they are on disk.
    ForgottenVote,
    /// Linearizable reads without asking a quorum.
    #[cfg(feature = "fault-injection")]
    ReadsWithoutQuorum,
    /// A deposed leader has sessions expired.
    #[cfg(feature = "fault-injection")]
    DeposedExpiry,
    /// A wait sets its watch a moment after it looked.
    #[cfg(feature = "fault-injection")]
    WatchAfterLook,
    /// Of one grant of a lock in twenty no waiter hears.
    #[cfg(feature = "fault-injection")]
    LostGrant,
}

thread_local! {
    static PLANTED: Cell<Option<Plant>> = const { Cell::new(None) };
}

/// Plants a bug in what runs on this thread from now on.
pub fn plant(plant: Option<Plant>) {
    PLANTED.set(plant);
    #[cfg(feature = "fault-injection")]
    replica::plant(plant.and_then(|plant| match plant {
        Plant::AckBeforeFsync | Plant::FailedFlush | Plant::ForgottenVote => None,
        Plant::ReadsWithoutQuorum => Some(replica::Planted::ReadsWithoutQuorum),
        Plant::DeposedExpiry => Some(replica::Planted::DeposedExpiry),
        Plant::WatchAfterLook => Some(replica::Planted::WatchAfterLook),
        Plant::LostGrant => Some(replica::Planted::LostGrant),
    }));
}

/// Whether this bug is planted.
pub fn is(plant: Plant) -> bool {
    PLANTED.get() == Some(plant)
}
