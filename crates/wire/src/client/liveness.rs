//! Signs of life of a client (its packets), each of which keeps its session alive.

use accept::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Signs of life (arrived packets) of which the leader has not been told yet.
pub(crate) struct Liveness {
    signs: Mutex<Signs>,
    beat: Notify,
}

struct Signs {
    /// Time at which the last packet arrived.
    heard: Instant,
    /// True if a packet has arrived since [`Liveness::take`] was last called.
    news: bool,
    /// True from [`Liveness::take`] until the leader has been told that the session is alive.
    passing: bool,
    /// Number of pings that wait for their answer.
    pings: usize,
}

impl Liveness {
    pub(crate) fn new() -> Liveness {
        Liveness {
            signs: Mutex::new(Signs { heard: Instant::now(), news: false, passing: false, pings: 0 }),
            beat: Notify::new(),
        }
    }

    /// Notes that a packet has arrived.
    pub(crate) fn heard(&self, now: Instant) {
        let mut signs = self.signs.lock();
        signs.heard = now;
        let first = !std::mem::replace(&mut signs.news, true);
        drop(signs);
        if first {
            self.beat.notify_one();
        }
    }

    /// Notes that a ping has arrived. It is answered only after the leader has confirmed that the
    /// session is alive.
    pub(crate) fn ping(&self, now: Instant) {
        let mut signs = self.signs.lock();
        (signs.heard, signs.news) = (now, true);
        signs.pings += 1;
        drop(signs);
        self.beat.notify_one();
    }

    /// Tells whether a packet has arrived since [`Liveness::take`] was last called.
    pub(crate) fn has_news(&self) -> bool {
        self.signs.lock().news
    }

    /// Takes the signs of life: the caller must tell the leader that the session is alive. Returns
    /// the number of pings that wait for their answer.
    pub(crate) fn take(&self) -> usize {
        let mut signs = self.signs.lock();
        (signs.news, signs.passing) = (false, true);
        std::mem::take(&mut signs.pings)
    }

    /// Notes that the leader has been told, after the last [`Liveness::take`], that the session is
    /// alive.
    pub(crate) fn passed(&self) {
        self.signs.lock().passing = false;
    }

    /// Tells whether a packet has arrived that the leader may not know of.
    pub(crate) fn is_owed(&self) -> bool {
        let signs = self.signs.lock();
        signs.news || signs.passing
    }

    /// Tells whether a ping waits for its answer.
    pub(crate) fn is_pinged(&self) -> bool {
        self.signs.lock().pings > 0
    }

    /// Returns the time at which the last packet arrived.
    pub(crate) fn last(&self) -> Instant {
        self.signs.lock().heard
    }

    /// Resolves at the first packet after a [`Liveness::take`], and at each ping. Resolves at once
    /// if such a packet or a ping has arrived since the last call.
    pub(crate) async fn beats(&self) {
        self.beat.notified().await;
    }
}
