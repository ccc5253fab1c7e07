//! Signs of life of one client.

use std::sync::Mutex;

use tokio::sync::Notify;
use tokio::time::Instant;

/// Signs of life of a client that were not yet passed on.
pub(crate) struct Liveness {
    signs: Mutex<Signs>,
    beat: Notify,
}

struct Signs {
    /// Time at which the last packet came.
    heard: Instant,
    /// True if a packet came that was not passed on.
    news: bool,
    /// True while the signs that were taken are still on their way.
    passing: bool,
    /// Pings that wait for their answer.
    pings: usize,
}

impl Liveness {
    pub(crate) fn new() -> Liveness {
        Liveness {
            signs: Mutex::new(Signs { heard: Instant::now(), news: false, passing: false, pings: 0 }),
            beat: Notify::new(),
        }
    }

    /// Notes that a packet came.
    pub(crate) fn heard(&self, now: Instant) {
        let mut signs = self.lock();
        signs.heard = now;
        let first = !std::mem::replace(&mut signs.news, true);
        drop(signs);
        if first {
            self.beat.notify_one();
        }
    }

    /// Notes that a ping came. Its answer says that the session lives, so it waits for the leader's
    /// word.
    pub(crate) fn ping(&self, now: Instant) {
        let mut signs = self.lock();
        (signs.heard, signs.news) = (now, true);
        signs.pings += 1;
        drop(signs);
        self.beat.notify_one();
    }

    /// Tells whether something came that was not passed on.
    pub(crate) fn has_news(&self) -> bool {
        self.lock().news
    }

    /// Takes what came: it is about to be passed on. The pings that wait for their answer.
    pub(crate) fn take(&self) -> usize {
        let mut signs = self.lock();
        (signs.news, signs.passing) = (false, true);
        std::mem::take(&mut signs.pings)
    }

    /// Notes that the signs that were taken have reached the leader.
    pub(crate) fn passed(&self) {
        self.lock().passing = false;
    }

    /// Tells whether something came of which the leader may not have heard.
    pub(crate) fn is_owed(&self) -> bool {
        let signs = self.lock();
        signs.news || signs.passing
    }

    /// Tells whether a client waits for an answer to a ping.
    pub(crate) fn is_pinged(&self) -> bool {
        self.lock().pings > 0
    }

    /// Time at which the last packet came.
    pub(crate) fn last(&self) -> Instant {
        self.lock().heard
    }

    /// Resolves when something new came since the last call.
    pub(crate) async fn beats(&self) {
        self.beat.notified().await;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Signs> {
        self.signs.lock().expect("nothing panics under this guard")
    }
}
