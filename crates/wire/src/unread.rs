//! Answers and events that clients have not taken yet, of all connections: a bound on their bytes.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::sleep;
use tracing::debug;

use crate::client::Client;
use crate::hub::Hub;

/// What each connection may keep without being counted.
pub(crate) const UNCOUNTED_BYTES_MAX: usize = 16 << 10;
/// How long an answer waits for its place, and none before it gets one, until the slowest client is given up.
const PATIENCE: Duration = Duration::from_secs(1);

/// The bytes of answers that are being made, or wait for their clients.
///
/// At the bound nothing more is read: answers wait for a place, in the order in which they came. When none gets one for a while,
/// the connections that have taken nothing in that time are closed, or the one that has taken the least. Events cannot wait:
/// where they have filled twice the bound, a client that has something to read is closed with the next of them.
pub(crate) struct Unread {
    bytes_max: usize,
    /// So that whoever asks does not need the guard.
    is_full: AtomicBool,
    inner: Mutex<Inner>,
    pressed: Notify,
}

#[derive(Default)]
struct Inner {
    bytes: usize,
    peak: usize,
    waiting: VecDeque<(usize, oneshot::Sender<Place>)>,
    /// How many of them have got a place.
    served: u64,
}

/// A place for an answer that is being made.
pub(crate) struct Place {
    all: Arc<Unread>,
    bytes: usize,
}

impl Unread {
    pub(crate) fn new(bytes_max: usize) -> Unread {
        Unread { bytes_max, is_full: AtomicBool::new(false), inner: Mutex::default(), pressed: Notify::new() }
    }

    /// The longest answer that there can be a place for.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// What there is now, and the most that there was.
    pub(crate) fn look(&self) -> (usize, usize) {
        let inner = self.lock();
        (inner.bytes, inner.peak)
    }

    /// Forgets the most that there was.
    pub(crate) fn reset_peak(&self) {
        let mut inner = self.lock();
        inner.peak = inner.bytes;
    }

    /// Whether another answer may be made, and nobody waits to make one.
    pub(crate) fn has_room(&self) -> bool {
        !self.is_full.load(Ordering::Relaxed)
    }

    /// Whether events have filled twice the bound.
    pub(crate) fn overflows(&self) -> bool {
        !self.has_room() && self.lock().bytes > self.bytes_max.saturating_mul(2)
    }

    /// A connection keeps that many bytes now, which were counted as `before`.
    pub(crate) fn recount(self: &Arc<Unread>, before: usize, now: usize) {
        if before != now {
            let mut inner = self.lock();
            let bytes = inner.bytes.saturating_sub(before).saturating_add(now);
            inner.set(bytes);
            self.go_on(inner);
        }
    }

    /// Waits for a place, behind those who came before. Whoever is alone gets one of any size.
    pub(crate) async fn place(self: &Arc<Unread>, bytes: usize) -> Place {
        let place = {
            let mut inner = self.lock();
            if inner.waiting.is_empty() && inner.fits(bytes, self.bytes_max) {
                let now = inner.bytes + bytes;
                inner.set(now);
                self.go_on(inner);
                return Place { all: Arc::clone(self), bytes };
            }
            let (tell, place) = oneshot::channel();
            inner.waiting.push_back((bytes, tell));
            self.go_on(inner);
            place
        };
        self.pressed.notify_one();
        place.await.expect("whoever waits is told for as long as there is this")
    }

    /// Gives up the slowest clients while those who wait do not get on, until it is dropped.
    pub(crate) async fn evict(&self, hub: &Hub) {
        loop {
            self.pressed.notified().await;
            while let Some(served) = self.pressed_since() {
                let before: HashMap<u64, u64> =
                    hub.clients().iter().map(|client| (client.number, client.outbox.taken())).collect();
                sleep(PATIENCE).await;
                if self.pressed_since() == Some(served) {
                    give_up_the_slowest(hub, &before);
                }
            }
        }
    }

    /// How many had got a place when somebody waits for one.
    fn pressed_since(&self) -> Option<u64> {
        let inner = self.lock();
        inner.waiting.iter().any(|(_, tell)| !tell.is_closed()).then_some(inner.served)
    }

    /// Gives places to those whose turn has come, and lets go of the guard.
    fn go_on(self: &Arc<Unread>, mut inner: MutexGuard<'_, Inner>) {
        let mut given = Vec::new();
        while let Some((bytes, tell)) = inner.waiting.front() {
            let is_gone = tell.is_closed();
            if !is_gone && !inner.fits(*bytes, self.bytes_max) {
                break;
            }
            let Some((bytes, tell)) = inner.waiting.pop_front() else { break };
            if !is_gone {
                inner.served += 1;
                let now = inner.bytes + bytes;
                inner.set(now);
                given.push((bytes, tell));
            }
        }
        self.is_full.store(!inner.waiting.is_empty() || inner.bytes >= self.bytes_max, Ordering::Relaxed);
        drop(inner);
        for (bytes, tell) in given {
            // Whoever does not want it any more gives it back at once.
            let _ = tell.send(Place { all: Arc::clone(self), bytes });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("nothing panics under this guard")
    }
}

/// Closes those who have taken nothing since `before`; when there are none, the one who has taken the least.
fn give_up_the_slowest(hub: &Hub, before: &HashMap<u64, u64>) {
    // One that came in between has had no time to take anything.
    let since = |client: &Arc<Client>| client.outbox.taken().checked_sub(*before.get(&client.number)?);
    let keeps = |client: &Arc<Client>| client.outbox.unread() > UNCOUNTED_BYTES_MAX;
    let clients = hub.clients().into_iter().filter(keeps);
    let mut taken: Vec<_> = clients.filter_map(|client| Some((since(&client)?, client))).collect();
    taken.sort_by_key(|(taken, client)| (*taken, Reverse(client.outbox.unread())));
    let nothing = taken.iter().take_while(|(taken, _)| *taken == 0).count();
    for (_, slow) in taken.into_iter().take(nothing.max(1)) {
        debug!(session = %slow.session(), addr = %slow.addr, "a client that takes too little is given up");
        slow.outbox.abort();
        slow.close();
    }
}

impl Inner {
    fn set(&mut self, bytes: usize) {
        self.bytes = bytes;
        self.peak = self.peak.max(bytes);
    }

    fn fits(&self, bytes: usize, max: usize) -> bool {
        self.bytes == 0 || self.bytes.saturating_add(bytes) <= max
    }
}

impl Place {
    /// The bytes, which whoever calls this counts as its own from here on.
    pub(crate) fn keep(mut self) -> usize {
        std::mem::take(&mut self.bytes)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.all.recount(self.bytes, 0);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn places_are_given_in_order_and_never_beyond_the_bound() {
        let all = Arc::new(Unread::new(100));
        let first = all.place(90).now_or_never().unwrap();
        let mut long = Box::pin(all.place(60));
        let mut short = Box::pin(all.place(5));
        assert!(long.as_mut().now_or_never().is_none() && !all.has_room());
        // It would fit, but the long one came first and must not wait for ever.
        assert!(short.as_mut().now_or_never().is_none());
        drop(first);
        let long = long.now_or_never().unwrap();
        let short = short.now_or_never().unwrap();
        assert_eq!(all.look(), (65, 90));
        let mut given_up = Box::pin(all.place(50));
        assert!(given_up.as_mut().now_or_never().is_none());
        drop(given_up);
        drop((long, short));
        assert_eq!((all.look().0, all.has_room()), (0, true));
    }

    #[test]
    fn one_that_is_longer_than_the_bound_is_alone() {
        let all = Arc::new(Unread::new(100));
        let first = all.place(1).now_or_never().unwrap();
        let mut long = Box::pin(all.place(1_000));
        assert!(long.as_mut().now_or_never().is_none());
        drop(first);
        assert_eq!(long.now_or_never().unwrap().keep(), 1_000);
        assert_eq!(all.look().0, 1_000);
        all.recount(1_000, 0);
        assert!(all.has_room());
    }
}
