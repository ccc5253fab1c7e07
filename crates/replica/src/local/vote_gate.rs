//! Tells whether this node has a vote, and whose entries it takes before it has.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::time::{Instant, sleep_until};

/// The gate between a node and its votes.
#[derive(Debug)]
pub(crate) struct VoteGate {
    joined: AtomicBool,
    /// The earliest term whose leaders are taken before it has joined.
    floor: AtomicU64,
    /// The moment before which it neither votes nor stands: the process before this one may have
    /// followed a leader that counts on it.
    bound_until: Instant,
}

impl VoteGate {
    pub(crate) fn new(joined: bool, bound_until: Instant) -> VoteGate {
        VoteGate { joined: AtomicBool::new(joined), floor: AtomicU64::new(u64::MAX), bound_until }
    }

    /// Tells whether the node may help to depose a leader that it may have followed before it was
    /// started again. Raft keeps that promise, not to do so for an election timeout, in memory
    /// only.
    pub(crate) fn is_unbound(&self) -> bool {
        Instant::now() >= self.bound_until
    }

    pub(crate) async fn unbound(&self) {
        if !self.is_unbound() {
            sleep_until(self.bound_until).await;
        }
    }

    /// Tells whether the node has a vote.
    pub(crate) fn joined(&self) -> bool {
        self.joined.load(Ordering::Acquire)
    }

    /// Tells whether it takes entries from a leader of this term.
    pub(crate) fn admits(&self, term: u64) -> bool {
        self.joined() || term >= self.floor.load(Ordering::Acquire)
    }

    /// Takes entries from leaders of this term on, before it has a vote. True the first time.
    pub(crate) fn admit_from(&self, floor: u64) -> bool {
        self.floor.swap(floor, Ordering::AcqRel) == u64::MAX
    }

    /// Notes that it has a vote from here on. True the first time.
    pub(crate) fn join(&self) -> bool {
        !self.joined.swap(true, Ordering::AcqRel)
    }
}
