//! Signs that the leader lives or has failed, as this node has seen them.

use accept::Mutex;
use tokio::sync::Notify;
use tokio::time::{Duration, Instant};

/// Latest signs that the leader lives or has failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeaderSigns {
    /// Arrival time of the last message that this node accepted from a leader.
    pub(crate) heard: Option<Instant>,
    /// Id of the leader whose connection for entries or heartbeats ended last, and the time of that
    /// end.
    pub(crate) ended: Option<(u64, Instant)>,
    /// Time at which this node last granted another node a vote or a pre-vote.
    pub(crate) granted: Option<Instant>,
    /// Term of the leader from which this node last refused an entry of a format level that its
    /// program does not know, and the time of that refusal.
    pub(crate) outgrown: Option<(u64, Instant)>,
}

/// Latest signs that the leader lives or has failed, noted by the tasks that see them.
#[derive(Debug)]
pub(crate) struct LeaderWatch {
    /// Time at which this node started.
    pub(crate) since: Instant,
    signs: Mutex<LeaderSigns>,
    changed: Notify,
}

impl LeaderWatch {
    pub(crate) fn new() -> LeaderWatch {
        LeaderWatch { since: Instant::now(), signs: Mutex::default(), changed: Notify::default() }
    }

    pub(crate) fn signs(&self) -> LeaderSigns {
        *self.signs.lock()
    }

    /// Notes a message from a leader that this node accepted and that came in at `at`.
    pub(crate) fn hear(&self, at: Instant) {
        let mut signs = self.signs.lock();
        signs.heard = signs.heard.max(Some(at));
    }

    /// Notes the end of a connection of `leader` for entries or heartbeats.
    pub(crate) fn note_end(&self, leader: u64, at: Instant) {
        self.signs.lock().ended = Some((leader, at));
        self.changed.notify_one();
    }

    /// Notes that this node granted another node a vote or a pre-vote.
    pub(crate) fn grant_vote(&self, at: Instant) {
        self.signs.lock().granted = Some(at);
    }

    /// Notes that this node refused an entry of the leader of `term`, because its program does not
    /// know the entry's format level.
    pub(crate) fn note_outgrown(&self, term: u64, at: Instant) {
        self.signs.lock().outgrown = Some((term, at));
    }

    /// Tells whether this node refused an entry of the leader of `term`, because of its format
    /// level, within the time `recent` before `at`. The leader sends a refused entry again, which
    /// renews the time.
    pub(crate) fn is_outgrown(&self, term: u64, at: Instant, recent: Duration) -> bool {
        let outgrown = self.signs().outgrown;
        outgrown.is_some_and(|(then, since)| then == term && at.saturating_duration_since(since) < recent)
    }

    /// Wakes the task that waits in [`LeaderWatch::changed`], because this node has got its vote,
    /// or a stall of its disk has begun or ended.
    pub(crate) fn look_again(&self) {
        self.changed.notify_one();
    }

    /// Waits for the next [`LeaderWatch::note_end`] or [`LeaderWatch::look_again`].
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}
