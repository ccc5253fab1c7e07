//! The state that this node has applied, and the callers that wait for its changes.
//!
//! A batch of entries changes the state and publishes its events under one lock. A caller that
//! finds in the state that it must wait registers under the same lock. So no change comes between
//! its look at the state and its registration.

pub(crate) mod event_ring;
pub(crate) mod forced;
pub(crate) mod histories;
pub(crate) mod life;
pub(crate) mod observer;
pub(crate) mod scrub;
pub(crate) mod watches;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock, Weak};

use accept::Mutex;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout_at};
use znode::{EventRecord, Request, State, Zxid};

use crate::local::counters::Counters;
use crate::local::times::Times;
use crate::view::event_ring::{EventRing, RingScan};
use crate::view::histories::LastHashes;
use crate::view::observer::Observer;
use crate::view::scrub::Scrub;
use crate::view::watches::{Registration, Wake, WatchTable};
use crate::{Config, EventBatch, EventQuery, EventsError, Step, WaitEnd, WatchKey};

/// Panic message for readers after a panic in the middle of a batch: the state may have only a part
/// of the batch's changes.
const NOT_HALF_CHANGED: &str = "applying ended without a panic";

/// The applied state, and all callers and observers that wait for its changes.
pub(crate) struct View {
    state: RwLock<Arc<State>>,
    /// Last zxid of the state, readable without the state's lock. While a batch is applied, it is
    /// still the zxid before the batch.
    applied: AtomicU64,
    subscriptions: Mutex<Subscriptions>,
    /// Reason with which all waits end now; `None` while callers may wait. It is changed only under
    /// the lock of `subscriptions`.
    ends: watch::Sender<Option<WaitEnd>>,
    /// Hashes of the state's history after each of the last entries.
    pub(crate) histories: Mutex<LastHashes>,
    pub(crate) scrub: Scrub,
    pub(crate) counters: Counters,
    pub(crate) times: Times,
}

/// Watches, waiting callers and observers that are told of changes, under one lock.
struct Subscriptions {
    watches: WatchTable,
    ring: EventRing,
    /// Callers that wait until a zxid is applied here, by that zxid. The limits on proposals and on
    /// reads also bound their number.
    gates: BTreeMap<Zxid, Vec<oneshot::Sender<()>>>,
    /// Observers, which are told of each change before the waiting callers. Dropped observers are
    /// removed when the next observer registers.
    observers: Vec<Weak<dyn Observer>>,
}

/// Limits on the watches and the kept events of a [`View`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct ViewLimits {
    pub(crate) watches_max: usize,
    pub(crate) events_max: usize,
    pub(crate) event_bytes_max: usize,
}

impl ViewLimits {
    pub(crate) fn of(config: &Config) -> ViewLimits {
        ViewLimits {
            watches_max: config.watches_max,
            events_max: config.event_ring_max,
            event_bytes_max: config.event_ring_bytes_max,
        }
    }
}

impl View {
    pub(crate) fn new(state: State, limits: ViewLimits) -> View {
        let ring = EventRing::new(limits.events_max, limits.event_bytes_max, state.last_zxid());
        let watches = WatchTable::new(limits.watches_max);
        View {
            applied: AtomicU64::new(state.last_zxid().0),
            state: RwLock::new(Arc::new(state)),
            histories: Mutex::default(),
            scrub: Scrub::new(),
            counters: Counters::default(),
            times: Times::default(),
            subscriptions: Mutex::new(Subscriptions { watches, ring, gates: BTreeMap::new(), observers: Vec::new() }),
            ends: watch::Sender::new(None),
        }
    }

    /// The state that this node has applied.
    pub(crate) fn state(&self) -> Arc<State> {
        Arc::clone(&self.state.read().expect(NOT_HALF_CHANGED))
    }

    /// The last zxid that is applied here.
    pub(crate) fn applied(&self) -> Zxid {
        Zxid(self.applied.load(Ordering::Acquire))
    }

    /// The latest time that an applied entry carried, in milliseconds since 1970.
    pub(crate) fn time_ms(&self) -> u64 {
        self.state().time_ms()
    }

    /// Lets `change` apply entries to the state, publishes the state, and wakes the first waiters
    /// that the events concern. No reader sees the state between the first entry and the last.
    /// `change` also gets a function: it tells whether an observer wants the state to be published
    /// right after the entry of a request, before later entries are applied.
    ///
    /// A reader that holds the state keeps it as it is: parts that change are then copied first.
    pub(crate) fn change(&self, change: impl FnOnce(&mut State, &dyn Fn(&Request) -> bool) -> Vec<EventRecord>) {
        let mut subscriptions = self.subscriptions.lock();
        let observers: Vec<_> = subscriptions.observers().collect();
        let observing: Vec<_> = observers.iter().map(|observer| observer.before_change()).collect();
        let wanted = |request: &Request| {
            let (Some(credential), Some(turn)) = (&request.credential, &request.turn) else { return false };
            observing.iter().any(|observing| observing.wants(credential.session, turn))
        };
        let mut state = self.state.write().expect(NOT_HALF_CHANGED);
        let events = change(Arc::make_mut(&mut state), &wanted);
        observing.into_iter().for_each(|observing| observing.published(&state, &events));
        let applied = state.last_zxid();
        self.applied.store(applied.0, Ordering::Release);
        drop(state);
        subscriptions.watches.fire(events.iter().map(|recorded| &recorded.event));
        subscriptions.ring.push(events, applied);
        subscriptions.open_gates(applied);
    }

    /// Wakes some of the waiters that the last events concern. Returns true if there are more to
    /// wake.
    pub(crate) fn wake_some(&self) -> bool {
        self.subscriptions.lock().watches.wake_some()
    }

    /// Publishes the state of a snapshot in place of the old state. The events between the two are
    /// not known, so all waiters look at the state again.
    pub(crate) fn replace(&self, state: Arc<State>) {
        let applied = state.last_zxid();
        let mut subscriptions = self.subscriptions.lock();
        let mut published = self.state.write().expect(NOT_HALF_CHANGED);
        subscriptions.observers().for_each(|observer| observer.replaced(&state));
        self.applied.store(applied.0, Ordering::Release);
        let before = std::mem::replace(&mut *published, state);
        drop(published);
        subscriptions.watches.fire_all();
        subscriptions.ring.reset(applied);
        subscriptions.open_gates(applied);
        drop(subscriptions);
        // Freeing a large tree takes a while, for which no other task should wait.
        drop(before);
    }

    /// Ends all waits because the node stops, and allows no new ones.
    pub(crate) fn stop(&self) {
        let mut subscriptions = self.subscriptions.lock();
        self.end_waits(&mut subscriptions, WaitEnd::Stopped);
        subscriptions.observers.clear();
    }

    /// Ends all waits while `suspended` is true, because this node cannot serve. Allows waits again
    /// when it is false.
    pub(crate) fn suspend(&self, suspended: bool) {
        let mut subscriptions = self.subscriptions.lock();
        let ends = *self.ends.borrow();
        match ends {
            None if suspended => self.end_waits(&mut subscriptions, WaitEnd::CannotServe),
            Some(WaitEnd::CannotServe) if !suspended => drop(self.ends.send_replace(None)),
            _ => {}
        }
    }

    /// See [`crate::Replica::cannot_serve`].
    pub(crate) async fn suspended(&self) {
        // The sender lives as long as `self`.
        let _ = self.ends.subscribe().wait_for(|ends| *ends == Some(WaitEnd::CannotServe)).await;
    }

    fn end_waits(&self, subscriptions: &mut Subscriptions, end: WaitEnd) {
        self.ends.send_replace(Some(end));
        subscriptions.watches.fire_all();
        subscriptions.gates.clear();
    }

    /// Fails if no wait is allowed now. The caller holds the lock of `subscriptions`.
    fn may_wait(&self) -> Result<(), WaitEnd> {
        self.ends.borrow().map_or(Ok(()), Err)
    }

    /// See [`crate::Replica::observe`].
    pub(crate) fn observe(&self, observer: Weak<dyn Observer>) {
        let mut subscriptions = self.subscriptions.lock();
        subscriptions.observers.retain(|observer| observer.strong_count() > 0);
        if let Some(observer) = observer.upgrade() {
            observer.replaced(&self.state());
        }
        subscriptions.observers.push(observer);
    }

    /// Number of watches of callers that wait for a change.
    pub(crate) fn watches(&self) -> usize {
        self.subscriptions.lock().watches.len()
    }

    /// Number of watches that the observers of the state (the ZooKeeper server is one) keep for
    /// their clients.
    pub(crate) fn observed(&self) -> usize {
        let observers: Vec<_> = self.subscriptions.lock().observers().collect();
        observers.iter().map(|observer| observer.watches()).sum()
    }

    /// Waits until `zxid` is applied here. Returns false if the deadline comes first, or if waits
    /// end because this node stops or cannot serve.
    pub(crate) async fn applied_at_least(&self, zxid: Zxid, deadline: Instant) -> bool {
        if self.applied() >= zxid {
            return true;
        }
        let gate = {
            let mut subscriptions = self.subscriptions.lock();
            if self.applied() >= zxid {
                return true;
            }
            if *self.ends.borrow() == Some(WaitEnd::Stopped) {
                return false;
            }
            let (open, gate) = oneshot::channel();
            let waiting = subscriptions.gates.entry(zxid).or_default();
            waiting.push(open);
            Gate { view: self, zxid, opened: gate }
        };
        gate.open(deadline).await
    }

    /// See [`crate::Replica::wait_for`].
    pub(crate) async fn wait_for<T>(
        &self,
        deadline: Instant,
        mut step: impl FnMut(&State) -> Step<T>,
    ) -> Result<T, WaitEnd> {
        let wake = Arc::new(Wake::default());
        loop {
            // The first call of `step` needs no lock. Under the lock, `step` is called again only
            // if the state has changed since.
            let seen = self.state();
            let key = match step(&seen) {
                Step::Ready(value) => return Ok(value),
                Step::Watch(key) => key,
            };
            let watch = {
                let mut subscriptions = self.subscriptions.lock();
                let now = self.state();
                let key = if Arc::ptr_eq(&seen, &now) {
                    key
                } else {
                    match step(&now) {
                        Step::Ready(value) => return Ok(value),
                        Step::Watch(key) => key,
                    }
                };
                self.may_wait()?;
                self.register(&mut subscriptions, key, &wake).ok_or(WaitEnd::TooMany)?
            };
            // Dropped before the wait: while a reader holds the state, every part that changes is
            // copied first.
            drop(seen);
            let woken = timeout_at(deadline, wake.fired()).await;
            drop(watch);
            if woken.is_err() {
                return Err(WaitEnd::Deadline);
            }
        }
    }

    /// See [`crate::Replica::events`].
    pub(crate) async fn events(&self, mut query: EventQuery<'_>, deadline: Instant) -> Result<EventBatch, EventsError> {
        let wake = Arc::new(Wake::default());
        loop {
            let watch = {
                let mut subscriptions = self.subscriptions.lock();
                match subscriptions.ring.find(&query)? {
                    RingScan::Batch(batch) => return Ok(batch),
                    // A long scan releases the lock now and then.
                    RingScan::NotYet { scanned, more: true } => {
                        query.since = scanned;
                        continue;
                    }
                    RingScan::NotYet { scanned, more: false } => query.since = scanned,
                }
                self.may_wait()?;
                self.register(&mut subscriptions, query.key.clone(), &wake).ok_or(WaitEnd::TooMany)?
            };
            // Events in between may have left the ring. None of them matched, or the watch would
            // have fired earlier.
            match timeout_at(deadline, wake.fired()).await {
                Ok(fired_at) => query.since = query.since.max(Zxid(fired_at.0.saturating_sub(1))),
                Err(_) => {
                    if let Some(upto) = watch.cancel() {
                        return Ok(EventBatch { events: Vec::new(), upto: upto.max(query.since) });
                    }
                }
            }
        }
    }

    fn register(&self, subscriptions: &mut Subscriptions, key: WatchKey, wake: &Arc<Wake>) -> Option<Watch<'_>> {
        let registration = subscriptions.watches.set(key, Arc::clone(wake))?;
        Some(Watch { view: self, registration: Some(registration) })
    }
}

/// A caller's wait until a zxid is applied here. Its drop removes the caller from the waiters.
struct Gate<'a> {
    view: &'a View,
    zxid: Zxid,
    opened: oneshot::Receiver<()>,
}

impl Gate<'_> {
    async fn open(mut self, deadline: Instant) -> bool {
        matches!(timeout_at(deadline, &mut self.opened).await, Ok(Ok(())))
    }
}

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        if self.view.applied() >= self.zxid {
            return;
        }
        self.opened.close();
        let mut subscriptions = self.view.subscriptions.lock();
        if let Some(waiting) = subscriptions.gates.get_mut(&self.zxid) {
            waiting.retain(|sender| !sender.is_closed());
            if waiting.is_empty() {
                subscriptions.gates.remove(&self.zxid);
            }
        }
    }
}

impl Subscriptions {
    fn observers(&self) -> impl Iterator<Item = Arc<dyn Observer>> {
        self.observers.iter().filter_map(Weak::upgrade)
    }

    fn open_gates(&mut self, applied: Zxid) {
        while let Some(gate) = self.gates.first_entry().filter(|gate| *gate.key() <= applied) {
            for open in gate.remove() {
                let _ = open.send(());
            }
        }
    }
}

/// A caller's watch. Its drop removes the watch from the table of watches.
struct Watch<'a> {
    view: &'a View,
    registration: Option<Registration>,
}

impl Watch<'_> {
    /// Removes the watch. Returns the zxid up to which no event matched; `None` if the watch has
    /// fired.
    fn cancel(mut self) -> Option<Zxid> {
        let registration = self.registration.take()?;
        let mut subscriptions = self.view.subscriptions.lock();
        subscriptions.watches.remove(&registration).then(|| subscriptions.ring.upto())
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if let Some(registration) = self.registration.take() {
            self.view.subscriptions.lock().watches.remove(&registration);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use znode::{Event, EventKind, LogPosition, Term, ZPath};

    use crate::Observing;

    use super::*;

    /// Observer that records each call, and what a reader could see at that moment.
    struct Listener {
        view: Arc<View>,
        heard: Mutex<Vec<(Zxid, usize, Zxid)>>,
        /// For each call, whether a reader could read the state at that moment.
        readable: Mutex<Vec<bool>>,
    }

    impl Listener {
        fn hear(&self, zxid: Zxid, events: usize) {
            self.heard.lock().push((zxid, events, self.view.applied()));
            self.readable.lock().push(self.view.state.try_read().is_ok());
        }
    }

    impl Observer for Listener {
        fn before_change(&self) -> Box<dyn Observing + '_> {
            Box::new(self)
        }

        fn replaced(&self, state: &Arc<State>) {
            self.hear(state.last_zxid(), usize::MAX);
        }
    }

    impl Observing for &Listener {
        fn published(self: Box<Self>, state: &Arc<State>, events: &[EventRecord]) {
            self.hear(state.last_zxid(), events.len());
        }
    }

    fn skip(state: &mut State, zxid: u64) {
        state.skip(LogPosition { term: Term(1), zxid: Zxid(zxid) });
    }

    fn view() -> Arc<View> {
        Arc::new(View::new(State::default(), ViewLimits { watches_max: 1, events_max: 1, event_bytes_max: 100 }))
    }

    fn change(view: &View, zxid: u64, events: Vec<Event>) {
        view.change(|state, _| {
            skip(state, zxid);
            events.into_iter().map(EventRecord::from).collect()
        });
    }

    #[tokio::test]
    async fn a_state_that_nobody_has_is_changed_in_place() {
        let view = view();
        let at = || Arc::as_ptr(&view.state());
        let first = at();
        change(&view, 1, Vec::new());
        assert_eq!(at(), first);
        let seen = view.state();
        change(&view, 2, Vec::new());
        assert_eq!((seen.last_zxid(), view.applied(), view.state().last_zxid()), (Zxid(1), Zxid(2), Zxid(2)));
        drop(seen);
        // A waiting reader holds no state.
        let second = at();
        let wait = view.wait_for(Instant::now() + Duration::from_secs(600), |state| match state.last_zxid() {
            Zxid(3) => Step::Ready(()),
            _ => Step::Watch(WatchKey::Node(ZPath::root())),
        });
        tokio::pin!(wait);
        assert!(futures_util::poll!(&mut wait).is_pending());
        change(&view, 3, vec![Event { zxid: Zxid(3), kind: EventKind::DataChanged, path: ZPath::root() }]);
        assert_eq!(at(), second);
        wait.await.unwrap();
    }

    #[test]
    fn an_observer_hears_of_everything_before_it_can_be_read() {
        let view = view();
        change(&view, 1, Vec::new());
        let listener =
            Arc::new(Listener { view: Arc::clone(&view), heard: Mutex::default(), readable: Mutex::default() });
        let observer: Arc<dyn Observer> = Arc::clone(&listener) as _;
        view.observe(Arc::downgrade(&observer));
        let event = Event { zxid: Zxid(2), kind: EventKind::DataChanged, path: ZPath::root() };
        change(&view, 2, vec![event]);
        let mut brought = State::default();
        skip(&mut brought, 5);
        view.replace(Arc::new(brought));
        let (start, snapshot) = ((Zxid(1), usize::MAX, Zxid(1)), (Zxid(5), usize::MAX, Zxid(2)));
        assert_eq!(*listener.heard.lock(), [start, (Zxid(2), 1, Zxid(1)), snapshot]);
        assert_eq!(*listener.readable.lock(), [true, false, false]);
        drop((observer, listener));
        change(&view, 6, Vec::new());
    }
}
