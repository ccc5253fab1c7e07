//! Signs that this node has seen of its leader.

use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

/// Signs that this node has seen of its leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeaderSigns {
    /// Time at which the last thing came in that this node took from a leader.
    pub(crate) heard: Option<Instant>,
    /// The last leader that lost a connection on which it speaks, and when.
    pub(crate) ended: Option<(u64, Instant)>,
    /// Time at which this node last told another that it would elect it.
    pub(crate) granted: Option<Instant>,
}

/// Latest signs of the leader, which the tasks that see one note here.
#[derive(Debug)]
pub(crate) struct LeaderWatch {
    /// Time at which this node began to listen.
    pub(crate) since: Instant,
    signs: Mutex<LeaderSigns>,
    changed: Notify,
}

impl LeaderWatch {
    pub(crate) fn new() -> LeaderWatch {
        LeaderWatch { since: Instant::now(), signs: Mutex::default(), changed: Notify::default() }
    }

    pub(crate) fn signs(&self) -> LeaderSigns {
        *self.signs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that this node took something from a leader that came in at this time.
    pub(crate) fn hear(&self, at: Instant) {
        let mut signs = self.signs.lock().unwrap_or_else(PoisonError::into_inner);
        signs.heard = signs.heard.max(Some(at));
    }

    /// Notes that a connection of `leader` for entries and heartbeats is over.
    pub(crate) fn note_end(&self, leader: u64, at: Instant) {
        self.signs.lock().unwrap_or_else(PoisonError::into_inner).ended = Some((leader, at));
        self.changed.notify_one();
    }

    /// Notes that this node told another that it would elect it.
    pub(crate) fn grant_vote(&self, at: Instant) {
        self.signs.lock().unwrap_or_else(PoisonError::into_inner).granted = Some(at);
    }

    /// Wakes the one who waits, as what this node may do has changed.
    pub(crate) fn look_again(&self) {
        self.changed.notify_one();
    }

    /// Waits until [`LeaderWatch::note_end`] or [`LeaderWatch::look_again`] says so.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}
