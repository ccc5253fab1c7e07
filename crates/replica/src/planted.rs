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
    /// An acquire of several permits of a semaphore is proposed with one less than was asked for.
    OnePermitLess,
}

#[cfg(feature = "planted")]
mod on {
    use std::cell::Cell;
    use std::sync::OnceLock;

    use znode::{LockMode, Op};

    use super::Planted;

    thread_local! {
        static HERE: Cell<Option<Planted>> = const { Cell::new(None) };
    }
    static EVERYWHERE: OnceLock<Planted> = OnceLock::new();

    impl Planted {
        /// All of them.
        pub const ALL: [Planted; 5] = [
            Planted::AckBeforeFsync,
            Planted::ReadsWithoutQuorum,
            Planted::DeposedExpiry,
            Planted::WatchAfterLook,
            Planted::OnePermitLess,
        ];

        /// What people call it.
        pub fn name(self) -> &'static str {
            match self {
                Planted::AckBeforeFsync => "ack-before-fsync",
                Planted::ReadsWithoutQuorum => "reads-without-quorum",
                Planted::DeposedExpiry => "deposed-expiry",
                Planted::WatchAfterLook => "watch-after-look",
                Planted::OnePermitLess => "one-permit-less",
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

    /// Where [`Planted::OnePermitLess`] changes what was asked for.
    pub(crate) fn spare_a_permit(op: &mut Op) {
        if let Op::Acquire(acquire) = op
            && let LockMode::Lease { permits, .. } = &mut acquire.mode
            && *permits > 1
            && is(Planted::OnePermitLess)
        {
            *permits -= 1;
        }
    }
}

#[cfg(feature = "planted")]
pub(crate) use on::{is, spare_a_permit};
#[cfg(feature = "planted")]
pub use on::{plant, plant_everywhere};

#[cfg(not(feature = "planted"))]
pub(crate) fn is(_: Planted) -> bool {
    false
}

#[cfg(not(feature = "planted"))]
pub(crate) fn spare_a_permit(_: &mut znode::Op) {}

/// Where [`Planted::WatchAfterLook`] lets the world go on between the look and the watch.
pub(crate) async fn dawdle() {
    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
}
