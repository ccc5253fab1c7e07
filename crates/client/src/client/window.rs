//! Window of a session's writes: a limit on unfinished writes, so that the cluster still remembers
//! the answer of every write that may be retried.
//!
//! The replicated state remembers the answers of a session's last 64 writes with an idempotency
//! key. A retry of an older write learns only that the write was done. After another 1,024 keys, a
//! retry would be applied again. Therefore a write may begin only while every unfinished write is
//! among the last 48 that began.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Number of a session's last writes among which its oldest unfinished write must be. It is smaller
/// than the 64 answers that the cluster keeps for a session, as a repeated request may arrive late.
const SPAN: u64 = 48;

/// The unfinished writes of one session.
#[derive(Debug, Default)]
pub(crate) struct Window {
    open: Mutex<Open>,
    moved: Notify,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    unfinished: BTreeSet<u64>,
}

/// Registration of a write that has begun. Dropping it marks the write as finished.
#[derive(Debug)]
pub(crate) struct Slot {
    window: Arc<Window>,
    number: u64,
}

impl Window {
    /// Begins a write as soon as the oldest unfinished write is among the last [`SPAN`] that began.
    pub(crate) async fn enter(self: &Arc<Window>) -> Slot {
        loop {
            // The wait is registered before the try, so that no end of a write between the try and
            // the wait is missed.
            let moved = self.moved.notified();
            if let Some(number) = self.try_enter() {
                return Slot { window: Arc::clone(self), number };
            }
            moved.await;
        }
    }

    fn try_enter(&self) -> Option<u64> {
        let mut open = self.open();
        let number = open.next;
        if open.unfinished.first().is_some_and(|oldest| number - oldest >= SPAN) {
            return None;
        }
        open.next += 1;
        open.unfinished.insert(number);
        Some(number)
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.window.open().unfinished.remove(&self.number);
        self.window.moved.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn a_write_waits_while_one_is_unfinished_that_began_too_long_ago() {
        let window = Arc::new(Window::default());
        let oldest = window.enter().now_or_never().unwrap();
        for _ in 1..SPAN {
            drop(window.enter().now_or_never().unwrap());
        }
        assert!(window.enter().now_or_never().is_none(), "the oldest is about to leave the memory of the state");
        let mut waiting = Box::pin(window.enter());
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(oldest);
        assert!(waiting.now_or_never().is_some());
    }

    #[test]
    fn many_writes_may_be_on_their_way_together() {
        let window = Arc::new(Window::default());
        let slots: Vec<Slot> = (0..SPAN).map(|_| window.enter().now_or_never().unwrap()).collect();
        assert!(window.enter().now_or_never().is_none());
        drop(slots);
        assert!(window.enter().now_or_never().is_some());
    }
}
