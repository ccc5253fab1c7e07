//! Bugs that can be planted, to see that a harness finds them. Only where the feature
//! `fault-injection` is on, which no release can have; elsewhere nothing of them is left.

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "fault-injection"), allow(dead_code))]
pub enum Planted {
    /// The Raft log calls entries durable before they are. In the whole process or not at all.
    AckBeforeFsync,
    /// A node that believes to lead answers linearizable reads from what it has, and asks no other
    /// node.
    ReadsWithoutQuorum,
    /// A leader goes on counting the silence of sessions after it was deposed, and has the new one
    /// expire them.
    DeposedExpiry,
    /// A wait sets its watch a moment after it looked at the state, or at the events.
    WatchAfterLook,
    /// An acquire of several permits of a semaphore is proposed with one less than was asked for.
    OnePermitLess,
    /// The last of the locks of a multi-lock is proposed to be read, whatever was asked for.
    SharedPart,
    /// An upgrade is proposed as one more reader.
    UpgradeReads,
    /// A revocation's deadline is proposed ten seconds later than was asked for.
    LateDeadline,
    /// Of one grant in [`LOST_ONE_IN`] no waiter hears: neither that its predecessor's lock node
    /// has gone nor that its own holds.
    LostGrant,
}

/// See [`Planted::LostGrant`].
#[cfg_attr(not(feature = "fault-injection"), allow(dead_code))]
const LOST_ONE_IN: u64 = 20;

#[cfg(feature = "fault-injection")]
mod on {
    use std::cell::Cell;
    use std::sync::OnceLock;

    use znode::{Acquire, Event, EventKind, LockMode, Op};

    use super::{LOST_ONE_IN, Planted};

    thread_local! {
        static HERE: Cell<Option<Planted>> = const { Cell::new(None) };
    }
    static EVERYWHERE: OnceLock<Planted> = OnceLock::new();

    impl Planted {
        /// All of them.
        pub const ALL: [Planted; 9] = [
            Planted::AckBeforeFsync,
            Planted::ReadsWithoutQuorum,
            Planted::DeposedExpiry,
            Planted::WatchAfterLook,
            Planted::OnePermitLess,
            Planted::SharedPart,
            Planted::UpgradeReads,
            Planted::LateDeadline,
            Planted::LostGrant,
        ];

        /// What people call it.
        pub fn name(self) -> &'static str {
            match self {
                Planted::AckBeforeFsync => "ack-before-fsync",
                Planted::ReadsWithoutQuorum => "reads-without-quorum",
                Planted::DeposedExpiry => "deposed-expiry",
                Planted::WatchAfterLook => "watch-after-look",
                Planted::OnePermitLess => "one-permit-less",
                Planted::SharedPart => "shared-part",
                Planted::UpgradeReads => "upgrade-reads",
                Planted::LateDeadline => "late-deadline",
                Planted::LostGrant => "lost-grant",
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

    /// Whether the waits that an event concerns do not hear of it. The same on every node, and in
    /// every run of a seed.
    pub(crate) fn loses(event: &Event) -> bool {
        let of_lock_node = || event.path.as_str().rsplit('/').next().is_some_and(|name| name.starts_with("_c_"));
        let frees = match event.kind {
            EventKind::Granted => true,
            EventKind::Deleted => of_lock_node(),
            EventKind::Created | EventKind::DataChanged | EventKind::ChildrenChanged => false,
        };
        // Zxids of grants have a rhythm, which a large odd factor takes out of them.
        let drawn = event.zxid.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        frees && is(Planted::LostGrant) && drawn.is_multiple_of(LOST_ONE_IN)
    }

    /// Where bugs change what was asked for.
    pub(crate) fn distort(op: &mut Op) {
        match op {
            Op::Acquire(acquire) if is(Planted::OnePermitLess) => {
                if let LockMode::Lease { permits, .. } = &mut acquire.mode
                    && *permits > 1
                {
                    *permits -= 1;
                }
            }
            Op::AcquireAll(wish) if is(Planted::SharedPart) => {
                if let Some((_, mode)) = wish.parts.last_mut() {
                    *mode = LockMode::Read;
                }
            }
            Op::Upgrade(upgrade) if is(Planted::UpgradeReads) => {
                let (mode, owner, label) = (LockMode::Read, String::new(), upgrade.label.clone());
                if let Some(lock) = upgrade.ticket.parent() {
                    let (lock_delay_ms, priority, keyless) = (0, 0, None);
                    *op = Op::Acquire(Acquire { lock, mode, owner, label, lock_delay_ms, priority, keyless });
                }
            }
            Op::Revoke { deadline_ms: Some(deadline_ms), .. } if is(Planted::LateDeadline) && *deadline_ms > 0 => {
                *deadline_ms += 10_000;
            }
            _ => {}
        }
    }
}

#[cfg(feature = "fault-injection")]
pub(crate) use on::{distort, is, loses};
#[cfg(feature = "fault-injection")]
pub use on::{plant, plant_everywhere};

#[cfg(not(feature = "fault-injection"))]
pub(crate) fn is(_: Planted) -> bool {
    false
}

#[cfg(not(feature = "fault-injection"))]
pub(crate) fn loses(_: &znode::Event) -> bool {
    false
}

#[cfg(not(feature = "fault-injection"))]
pub(crate) fn distort(_: &mut znode::Op) {}

/// Where [`Planted::WatchAfterLook`] lets the world go on between the look and the watch.
pub(crate) async fn dawdle() {
    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
}
