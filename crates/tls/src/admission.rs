//! Connections of one door: how many there may be, how many of them from one address, and which
//! give way.
//!
//! A connection is *silent* until its client has sent what the door is there for: a whole request,
//! or the packet that opens a session. At a bound the oldest silent connection gives way to the new
//! one. Where none is silent, the one does that has been idle for longest: it may be open for
//! minutes after its last request. So neither many connections that say nothing nor one address can
//! shut others out, and a client that asks for something keeps its connection.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::Future;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::networks::{Networks, source};

/// How many connections a door has room for.
#[derive(Clone, Debug)]
pub struct AdmissionConfig {
    /// All of them.
    pub connections_max: usize,
    /// Those from one address; 0 is a quarter of all, and at least one.
    pub connections_per_address_max: usize,
    /// Addresses that stand for many clients: connections from there are bounded by
    /// `connections_max` alone.
    pub exempt: Networks,
}

/// Lets connections in, and counts them.
#[derive(Debug)]
pub struct Admission {
    connections_max: usize,
    per_address_max: usize,
    exempt: Networks,
    inner: Mutex<Inner>,
    emptied: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    numbers: u64,
    /// Connections that count.
    open: usize,
    /// The same, and those that gave way and have not ended yet.
    places: usize,
    /// In the order in which they came.
    silent: BTreeMap<u64, Silent>,
    /// In the order in which they became idle.
    idle: BTreeMap<u64, Silent>,
    sources: HashMap<IpAddr, Source>,
}

/// A connection that may have to give way.
#[derive(Debug)]
struct Silent {
    source: Option<IpAddr>,
    task: Option<AbortHandle>,
}

#[derive(Debug, Default)]
struct Source {
    open: usize,
    silent: BTreeSet<u64>,
    idle: BTreeSet<u64>,
}

/// Which connection gives way.
#[derive(Clone, Copy, Debug)]
enum Leaver {
    Silent(u64),
    Idle(u64),
}

/// Why there is no place, and none that has one is silent or idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The door has as many connections as it may have.
    Door,
    /// The address has.
    Address,
}

/// A connection's place, for as long as it is kept.
#[derive(Debug)]
pub struct Place {
    admission: Arc<Admission>,
    number: u64,
    source: Option<IpAddr>,
    heard: AtomicBool,
    /// Its number among the idle ones; 0 while it is not.
    idle: AtomicU64,
    task: Arc<OnceLock<AbortHandle>>,
}

impl Admission {
    /// All places are free.
    pub fn new(config: &AdmissionConfig) -> Arc<Admission> {
        let per_address_max = match config.connections_per_address_max {
            0 => (config.connections_max / 4).max(1),
            max => max,
        };
        Arc::new(Admission {
            connections_max: config.connections_max,
            per_address_max,
            exempt: config.exempt.clone(),
            inner: Mutex::default(),
            emptied: Notify::new(),
        })
    }

    /// A place for a connection that has just come.
    ///
    /// # Errors
    /// [`Full`] when there is none, and no silent or idle connection that would give way.
    pub fn enter(self: &Arc<Admission>, addr: IpAddr) -> Result<Place, Full> {
        let source = (!self.exempt.contain(addr)).then(|| source(addr));
        let mut inner = self.lock();
        let of_address = source.and_then(|source| inner.sources.get(&source));
        let (address_is_full, door_is_full) =
            (of_address.is_some_and(|source| source.open >= self.per_address_max), inner.open >= self.connections_max);
        let gives_way = match (address_is_full, door_is_full) {
            (false, false) => None,
            (true, _) => Some(of_address.and_then(Source::leaver).ok_or(Full::Address)?),
            (false, true) => Some(inner.leaver().ok_or(Full::Door)?),
        };
        let ended = gives_way.and_then(|leaver| inner.end(leaver));
        inner.numbers += 1;
        let number = inner.numbers;
        inner.open += 1;
        inner.places += 1;
        inner.silent.insert(number, Silent { source, task: None });
        if let Some(source) = source {
            let source = inner.sources.entry(source).or_default();
            source.open += 1;
            source.silent.insert(number);
        }
        drop(inner);
        if let Some(task) = ended {
            task.abort();
        }
        let (heard, idle, task) = Default::default();
        Ok(Place { admission: Arc::clone(self), number, source, heard, idle, task })
    }

    /// Resolves when every connection has ended.
    pub async fn emptied(&self) {
        loop {
            let mut emptied = pin!(self.emptied.notified());
            emptied.as_mut().enable();
            if self.lock().places == 0 {
                return;
            }
            emptied.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("nothing panics under this guard")
    }
}

impl Source {
    fn leaver(&self) -> Option<Leaver> {
        let silent = self.silent.first().copied().map(Leaver::Silent);
        silent.or_else(|| self.idle.first().copied().map(Leaver::Idle))
    }
}

impl Inner {
    fn leaver(&self) -> Option<Leaver> {
        let silent = self.silent.keys().next().copied().map(Leaver::Silent);
        silent.or_else(|| self.idle.keys().next().copied().map(Leaver::Idle))
    }

    /// Takes the place of a connection that gives way, whose task is to be ended.
    fn end(&mut self, leaver: Leaver) -> Option<AbortHandle> {
        let Silent { source, task } = match leaver {
            Leaver::Silent(number) => self.silent.remove(&number)?,
            Leaver::Idle(number) => self.idle.remove(&number)?,
        };
        if let (Leaver::Idle(number), Some(known)) = (leaver, source.and_then(|source| self.sources.get_mut(&source))) {
            known.idle.remove(&number);
        }
        // For an idle one, which is not among the silent, the number does not matter.
        let (Leaver::Silent(number) | Leaver::Idle(number)) = leaver;
        self.count_out(number, source);
        task
    }

    /// Whether an idle connection still had its place; it is not idle from here on.
    fn wake(&mut self, number: u64, source: Option<IpAddr>) -> bool {
        if let Some(source) = source.and_then(|source| self.sources.get_mut(&source)) {
            source.idle.remove(&number);
        }
        self.idle.remove(&number).is_some()
    }

    /// A connection counts no more.
    fn count_out(&mut self, number: u64, source: Option<IpAddr>) {
        self.open -= 1;
        let Some(source) = source else { return };
        let Some(known) = self.sources.get_mut(&source) else { return };
        known.open -= 1;
        known.silent.remove(&number);
        if known.open == 0 {
            self.sources.remove(&source);
        }
    }
}

impl Place {
    /// Serves the connection in a task of its own, which is dropped when the connection is silent
    /// and gives way.
    pub fn serve<F>(self, serve: impl FnOnce(Arc<Place>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (admission, number, own) = (Arc::clone(&self.admission), self.number, Arc::clone(&self.task));
        let task = tokio::spawn(serve(Arc::new(self)));
        let _ = own.set(task.abort_handle());
        // It may have been heard, or have ended, before this.
        if let Some(silent) = admission.lock().silent.get_mut(&number) {
            silent.task = Some(task.abort_handle());
        }
    }

    /// The client has been answered and asks for nothing: its connection may give way from now on.
    pub fn rest(&self) {
        let Some(task) = self.task.get().filter(|_| self.heard.load(Ordering::Relaxed)) else { return };
        let mut inner = self.admission.lock();
        inner.numbers += 1;
        let number = inner.numbers;
        inner.idle.insert(number, Silent { source: self.source, task: Some(task.clone()) });
        if let Some(source) = self.source.and_then(|source| inner.sources.get_mut(&source)) {
            source.idle.insert(number);
        }
        self.idle.store(number, Ordering::Relaxed);
    }

    /// The client asks again. False when its connection has just given way.
    pub fn resume(&self) -> bool {
        // Called by the connection's own task only, as is `rest`.
        let number = self.idle.load(Ordering::Relaxed);
        if number == 0 {
            return true;
        }
        let stays = self.admission.lock().wake(number, self.source);
        if stays {
            self.idle.store(0, Ordering::Relaxed);
        }
        stays
    }

    /// The client has sent what shows that it is one: its connection gives way to none from now on,
    /// until it rests.
    pub fn heard(&self) {
        // Asked for every request, and by the connection's own task only.
        if self.heard.load(Ordering::Relaxed) {
            return;
        }
        let mut inner = self.admission.lock();
        // It may have given way just now.
        if inner.silent.remove(&self.number).is_none() {
            return;
        }
        self.heard.store(true, Ordering::Relaxed);
        if let Some(source) = self.source.and_then(|source| inner.sources.get_mut(&source)) {
            source.silent.remove(&self.number);
        }
    }

    /// Whether the client's address is one of those that stand for many.
    pub fn is_exempt(&self) -> bool {
        self.source.is_none()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inner = self.admission.lock();
        let silent = inner.silent.remove(&self.number).is_some();
        let idle = self.idle.load(Ordering::Relaxed);
        // One that gave way is counted out already.
        let heard = self.heard.load(Ordering::Relaxed) && (idle == 0 || inner.wake(idle, self.source));
        if silent || heard {
            inner.count_out(self.number, self.source);
        }
        inner.places -= 1;
        if inner.places == 0 {
            drop(inner);
            self.admission.emptied.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn door(connections_max: usize, per_address_max: usize, exempt: &str) -> Arc<Admission> {
        let exempt = exempt.parse().unwrap();
        Admission::new(&AdmissionConfig { connections_max, connections_per_address_max: per_address_max, exempt })
    }

    fn addr(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    /// A connection that is served until it is ended; whether that has happened.
    fn serve(place: Place) -> Arc<AtomicBool> {
        struct Ended(Arc<AtomicBool>);
        impl Drop for Ended {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let ended = Arc::new(AtomicBool::new(false));
        let tell = Ended(Arc::clone(&ended));
        place.serve(|place| async move {
            let _both = (place, tell);
            std::future::pending::<()>().await;
        });
        ended
    }

    async fn is_ended(ended: &AtomicBool) -> bool {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        ended.load(Ordering::Relaxed)
    }

    #[tokio::test]
    async fn a_full_door_is_left_by_the_oldest_silent_connection() {
        let door = door(3, 3, "");
        let heard = door.enter(addr(1)).unwrap();
        heard.heard();
        let (oldest, newer) = (serve(door.enter(addr(2)).unwrap()), serve(door.enter(addr(3)).unwrap()));
        let third = door.enter(addr(4)).expect("a silent one gives way");
        assert!(is_ended(&oldest).await && !is_ended(&newer).await);
        third.heard();
        let fourth = door.enter(addr(4)).expect("the next silent one gives way");
        assert!(is_ended(&newer).await);
        fourth.heard();
        assert_eq!(door.enter(addr(5)).unwrap_err(), Full::Door);
        drop(third);
        assert!(door.enter(addr(5)).is_ok());
    }

    #[tokio::test]
    async fn a_door_without_silent_connections_is_left_by_the_one_that_is_idle_for_longest() {
        let door = door(3, 2, "");
        // A place that its connection can be asked about.
        let connect = |last: u8| {
            let (tx, mut rx) = tokio::sync::mpsc::channel(1);
            let place = door.enter(addr(last)).unwrap();
            place.heard();
            place.serve(|place| async move {
                tx.send(Arc::clone(&place)).await.unwrap();
                let _place = place;
                std::future::pending::<()>().await;
            });
            async move { (rx.recv().await.unwrap(), rx) }
        };
        // The connection's end closes the channel.
        let ended = |rx: &tokio::sync::mpsc::Receiver<Arc<Place>>| rx.sender_strong_count() == 0;
        let (first, first_end) = connect(1).await;
        let (second, second_end) = connect(2).await;
        let (third, _third_end) = connect(3).await;
        assert_eq!(door.enter(addr(4)).unwrap_err(), Full::Door, "all of them are asking");
        [&second, &first, &third].into_iter().for_each(|place| place.rest());
        assert!(third.resume() && third.resume(), "it was there");
        let fourth = door.enter(addr(4)).expect("an idle one gives way");
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(ended(&second_end) && !ended(&first_end));
        assert!(!second.resume(), "it has no place to ask from");
        fourth.heard();
        drop((second, fourth));
        assert!(first.resume());
        assert_eq!(door.lock().open, 2);
        // Of an address that is full, its own.
        let (fifth, _fifth_end) = connect(1).await;
        assert_eq!(door.enter(addr(1)).unwrap_err(), Full::Address);
        third.rest();
        assert_eq!(door.enter(addr(1)).unwrap_err(), Full::Address, "that of another stays");
        fifth.rest();
        door.enter(addr(1)).expect("its own gives way");
        assert!(!fifth.resume() && third.resume());
    }

    #[tokio::test]
    async fn one_address_has_its_share_and_others_keep_theirs() {
        let door = door(8, 0, "10.0.0.0/8");
        let [first, second] = [door.enter(addr(1)).unwrap(), door.enter(addr(1)).unwrap()];
        first.heard();
        let second = serve(second);
        let third = door.enter(addr(1)).expect("the silent one of the same address gives way");
        assert!(is_ended(&second).await);
        third.heard();
        assert_eq!(door.enter(addr(1)).unwrap_err(), Full::Address);
        assert!(door.enter(addr(2)).is_ok());
        drop(first);
        assert!(door.enter(addr(1)).is_ok(), "there is room again");
        let exempt: Vec<Place> = (0..7).map(|_| door.enter([10, 0, 0, 1].into()).unwrap()).collect();
        assert!(exempt.iter().all(Place::is_exempt));
    }

    #[tokio::test]
    async fn the_door_is_empty_when_the_last_connection_has_ended() {
        let door = door(1, 1, "");
        door.emptied().await;
        // The second takes the first one's place, and both must have gone.
        let (first, second) = (serve(door.enter(addr(1)).unwrap()), door.enter(addr(1)).unwrap());
        assert!(is_ended(&first).await);
        let mut emptied = Box::pin(door.emptied());
        tokio::select! {
            biased;
            () = &mut emptied => panic!("one is there"),
            () = tokio::task::yield_now() => {}
        }
        second.heard();
        drop(second);
        emptied.await;
        let inner = door.lock();
        assert_eq!((inner.open, inner.sources.len()), (0, 0));
    }
}
