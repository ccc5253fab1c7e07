//! Bugs that can be planted, to see that a harness finds them. Only where the feature `planted` is on, which no release
//! can have; elsewhere nothing of them is left.

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "planted"), allow(dead_code))]
pub enum Planted {
    /// The Raft log calls entries durable before they are. In the whole process or not at all.
    AckBeforeFsync,
    /// A node that believes to lead answers linearizable reads from what it has, and asks nobody.
    ReadsWithoutQuorum,
    /// A leader goes on counting the silence of sessions after it was deposed, and has the new one expire them.
    DeposedExpiry,
    /// A wait sets its watch a moment after it looked at the state, or at the events.
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

    impl Planted {
        /// All of them.
        pub const ALL: [Planted; 4] =
            [Planted::AckBeforeFsync, Planted::ReadsWithoutQuorum, Planted::DeposedExpiry, Planted::WatchAfterLook];

        /// What people call it.
        pub fn name(self) -> &'static str {
            match self {
                Planted::AckBeforeFsync => "ack-before-fsync",
                Planted::ReadsWithoutQuorum => "reads-without-quorum",
                Planted::DeposedExpiry => "deposed-expiry",
                Planted::WatchAfterLook => "watch-after-look",
            }
        }
    }

    /// Plants a bug in what this thread runs from now on: for simulations.
    pub fn plant(bug: Option<Planted>) {
        HERE.set(bug);
    }

    /// Plants a bug in the whole process, for good. The first one stays.
    pub fn plant_everywhere(bug: Planted) {
        if EVERYWHERE.set(bug).is_ok() && bug == Planted::AckBeforeFsync {
            storage::plant_ack_before_fsync();
        }
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

/// Where [`Planted::WatchAfterLook`] lets the world go on between the look and the watch.
pub(crate) async fn dawdle() {
    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
}
