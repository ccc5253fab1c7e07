//! The right of this node to vote, and the leaders whose entries it takes before it has that right.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::time::{Instant, sleep_until};

/// Decides whether this node may vote.
#[derive(Debug)]
pub(crate) struct VoteGate {
    joined: AtomicBool,
    /// Earliest term whose leaders this node follows while it may not vote yet. `u64::MAX` as long
    /// as it follows no leader at all.
    floor: AtomicU64,
    /// Time until which this node neither votes nor stands for election after its start: just
    /// before a restart it may have heard a leader, which relies on this node's lease.
    bound_until: Instant,
}

impl VoteGate {
    pub(crate) fn new(joined: bool, bound_until: Instant) -> VoteGate {
        VoteGate { joined: AtomicBool::new(joined), floor: AtomicU64::new(u64::MAX), bound_until }
    }

    /// Tells whether this node may vote as far as its restart is concerned: the lease of a leader
    /// that it may have heard just before the restart is over. Raft itself would vote too early,
    /// because it keeps leases in memory only.
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

    /// Tells whether the node takes entries from a leader of this term.
    pub(crate) fn admits(&self, term: u64) -> bool {
        self.joined() || term >= self.floor.load(Ordering::Acquire)
    }

    /// Allows leaders from term `floor` on, before this node has a vote. Returns true the first
    /// time.
    pub(crate) fn admit_from(&self, floor: u64) -> bool {
        self.floor.swap(floor, Ordering::AcqRel) == u64::MAX
    }

    /// Notes that the node has a vote from now on. Returns true the first time.
    pub(crate) fn join(&self) -> bool {
        !self.joined.swap(true, Ordering::AcqRel)
    }
}
