//! Signal to all tasks of a node that it stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Signal to all tasks of a node that it stops. It is given once, and clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<StopSignal>);

/// Signal behind all clones of a [`Stop`].
#[derive(Debug, Default)]
struct StopSignal {
    stopped: AtomicBool,
    // Wakes tasks in the order in which they began to wait, so that simulations repeat exactly.
    notify: Notify,
}

impl Stop {
    pub(crate) fn stop(&self) {
        self.0.stopped.store(true, Ordering::Release);
        self.0.notify.notify_waiters();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::Acquire)
    }

    /// Waits until the node stops.
    pub(crate) async fn wait(&self) {
        // Registered before the check, so that a stop between check and wait is noticed.
        let mut said = std::pin::pin!(self.0.notify.notified());
        said.as_mut().enable();
        if !self.is_stopped() {
            said.await;
        }
    }
}
