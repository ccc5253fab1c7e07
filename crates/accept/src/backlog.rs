//! Backlog of this process's servers for clients: ready tasks of connections that wait for the next
//! slice of time (turns.rs).
//!
//! A task that sends clients' requests on, to Raft or to the leader, sends one batch after several
//! slices. A batch for each slice would be smaller, and each batch costs a sync of the log and
//! messages to the other nodes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Number of runners, of all servers of this process, that have a backlog.
static BEHIND: AtomicUsize = AtomicUsize::new(0);

/// Largest time for which [`caught_up`] waits. On a node whose servers are always busy, each batch
/// waits so long.
pub(crate) const WAIT_MAX: Duration = Duration::from_millis(1);

/// Waits until no connection's task waits for the next slice, but at most a millisecond.
pub async fn caught_up() {
    let began = Instant::now();
    while BEHIND.load(Ordering::Relaxed) > 0 && began.elapsed() < WAIT_MAX {
        tokio::task::yield_now().await;
    }
}

/// Flag of one runner: its last slice ended before its queues were empty.
#[derive(Debug, Default)]
pub(crate) struct Backlog(bool);

impl Backlog {
    pub(crate) fn set(&mut self, is_behind: bool) {
        match (std::mem::replace(&mut self.0, is_behind), is_behind) {
            (false, true) => drop(BEHIND.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(BEHIND.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
    }
}

impl Drop for Backlog {
    fn drop(&mut self) {
        self.set(false);
    }
}
