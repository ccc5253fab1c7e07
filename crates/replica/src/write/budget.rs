//! Bounds on the number and the bytes of proposals that are under way at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Proposals under way: their number, and the sum of their bytes.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    count: AtomicUsize,
    bytes: AtomicUsize,
}

/// Guard of a proposal, which counts in a [`Budget`] until the guard is dropped.
pub(crate) struct BudgetShare {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Counts a proposal of `bytes` bytes as under way. Returns `None` if a bound would be
    /// exceeded.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize, count_max: usize, bytes_max: usize) -> Option<BudgetShare> {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let taken = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let place = BudgetShare { budget: Arc::clone(self), bytes };
        (count < count_max && taken + bytes <= bytes_max).then_some(place)
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.budget.count.fetch_sub(1, Ordering::Relaxed);
        self.budget.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
