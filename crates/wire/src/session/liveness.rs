//! Signs of life of one client, on their way to the leader.

use std::sync::Mutex;
use std::sync::atomic::Ordering;

use jute::{Record, ReplyHeader, framed, xid};
use replica::Error;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::session::connection::{Connection, End};

/// What was heard of a client and not yet passed on.
pub(crate) struct Pulse {
    inner: Mutex<Inner>,
    beat: Notify,
}

struct Inner {
    /// When the last packet came.
    heard: Instant,
    /// Whether one came that was not passed on.
    news: bool,
    /// Whether what was taken is still on its way.
    passing: bool,
    /// Pings that wait for their answer.
    pings: usize,
}

impl Pulse {
    pub(crate) fn new() -> Pulse {
        Pulse {
            inner: Mutex::new(Inner { heard: Instant::now(), news: false, passing: false, pings: 0 }),
            beat: Notify::new(),
        }
    }

    /// A packet came.
    pub(crate) fn heard(&self, now: Instant) {
        let mut inner = self.lock();
        inner.heard = now;
        let first = !std::mem::replace(&mut inner.news, true);
        drop(inner);
        if first {
            self.beat.notify_one();
        }
    }

    /// A ping came. Its answer says that the session lives, so it waits for the leader's word.
    pub(crate) fn ping(&self, now: Instant) {
        let mut inner = self.lock();
        (inner.heard, inner.news) = (now, true);
        inner.pings += 1;
        drop(inner);
        self.beat.notify_one();
    }

    /// Whether something came that was not passed on.
    pub(crate) fn has_news(&self) -> bool {
        self.lock().news
    }

    /// Takes what came: it is about to be passed on. The pings that wait for their answer.
    pub(crate) fn take(&self) -> usize {
        let mut inner = self.lock();
        (inner.news, inner.passing) = (false, true);
        std::mem::take(&mut inner.pings)
    }

    /// What was taken has reached the leader.
    pub(crate) fn passed(&self) {
        self.lock().passing = false;
    }

    /// Whether something came of which the leader may not have heard.
    pub(crate) fn is_owed(&self) -> bool {
        let inner = self.lock();
        inner.news || inner.passing
    }

    /// Whether a client waits for an answer to a ping.
    pub(crate) fn is_pinged(&self) -> bool {
        self.lock().pings > 0
    }

    /// When the last packet came.
    pub(crate) fn last(&self) -> Instant {
        self.lock().heard
    }

    /// Resolves when something new came since the last call.
    pub(crate) async fn beats(&self) {
        self.beat.notified().await;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().expect("nothing panics under this guard")
    }
}

impl Connection {
    /// Passes signs of life on to the leader, and answers pings when it has them.
    ///
    /// So a client that hears from this node may believe it: its session lives, or lived a moment
    /// ago. When the leader does not hear of it in time, the connection is cut, well before the
    /// session can expire.
    pub(crate) async fn keep_alive(&self) -> End {
        let (client, pulse) = (&self.client, &self.client.pulse);
        loop {
            while !pulse.has_news() {
                let silence = timeout_at(pulse.last() + client.timeout, pulse.beats()).await;
                if silence.is_err() && pulse.last().elapsed() >= client.timeout {
                    return End::Cut("the client said nothing for its whole timeout");
                }
            }
            let pings = pulse.take();
            let began = Instant::now();
            match self.door.replica.touch(client.credential, began + client.timeout / 3).await {
                Ok(_) => pulse.passed(),
                Err(Error::Refused(_)) => return End::Cut("the session is gone"),
                Err(_) => return End::Cut("the leader does not hear of the session"),
            }
            if !self.is_attached() {
                return End::Cut("the session is gone, or at another connection");
            }
            for _ in 0..pings {
                let pong = ReplyHeader { xid: xid::PING, zxid: self.told.load(Ordering::Relaxed), error: 0 };
                client.outbox.push(framed(|out| pong.write(out)));
            }
            client.outbox.send_now();
            // Requests come by the thousand: their news can wait, pings cannot.
            let next = began + client.timeout / 12;
            while !pulse.is_pinged() && timeout_at(next, pulse.beats()).await.is_ok() {}
        }
    }

    fn is_attached(&self) -> bool {
        let state = self.door.replica.state();
        state.session(self.client.session()).is_some_and(|session| session.connection == self.client.connection)
    }
}
