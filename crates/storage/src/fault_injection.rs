//! The bug of this crate that can be planted, to see that a harness finds it. Only where the
//! feature `fault-injection` is on.

#[cfg(all(feature = "fault-injection", not(debug_assertions)))]
compile_error!(
    "the feature `fault-injection` plants bugs and is never part of a release: build with `--profile fault-injection`"
);

#[cfg(feature = "fault-injection")]
mod on {
    use std::sync::atomic::{AtomicBool, Ordering};

    static ACKS_BEFORE_FSYNC: AtomicBool = AtomicBool::new(false);

    /// From now on every log of this process tells Raft that an append is durable once it is
    /// written, and leaves the fsync to whatever asks for one next. For good.
    pub fn plant_ack_before_fsync() {
        ACKS_BEFORE_FSYNC.store(true, Ordering::SeqCst);
    }

    pub(crate) fn acks_before_fsync() -> bool {
        ACKS_BEFORE_FSYNC.load(Ordering::SeqCst)
    }
}

#[cfg(feature = "fault-injection")]
pub(crate) use on::acks_before_fsync;
#[cfg(feature = "fault-injection")]
pub use on::plant_ack_before_fsync;

#[cfg(not(feature = "fault-injection"))]
#[inline(always)]
pub(crate) fn acks_before_fsync() -> bool {
    false
}
