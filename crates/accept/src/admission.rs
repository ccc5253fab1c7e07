//! Admission of client connections to one server (HTTP or ZooKeeper), which the project calls a
//! door: bounds on the number of connections, in total and for each address, and the choice of the
//! connection that is closed for a new one.
//!
//! A connection is *silent* until its client has sent a complete request, or the packet that opens
//! a session. It is *idle* between requests, *waiting* during a long poll, and *busy* otherwise.
//! These four are its *stages*. At a bound, an old connection *gives way*: it is closed for the new
//! one.
//!
//! 1. When a bound for one address is configured, and the new connection's address is at it: the
//!    oldest silent connection of that address, or else its oldest idle one.
//! 2. When the door is full, and the address with the most connections has at least two more than
//!    the new connection's address: the oldest silent connection of the address with the most
//!    connections, or else that address's oldest idle, waiting or busy one.
//! 3. Otherwise, when the door is full: the oldest silent connection of all addresses, or else the
//!    oldest idle one. If no bound for one address is configured, an address that has a quarter of
//!    all connections gives only its own: as in rule 1.
//!
//! Rule 2 first compares sites, and then the networks within the largest site; a site is an IPv4
//! address or a /48 network of IPv6. A full door accepts a few extra connections from addresses
//! without a connection, and from programs on this machine. So neither many silent connections nor
//! one address can shut other clients out. Rules 1 and 2 do not count exempt addresses, each of
//! which stands for many clients.
//!
//! When the process has no file descriptor left, one connection is closed by similar rules, but
//! never a busy one.

use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::{AbortHandle, Abortable};
use tokio::sync::Notify;

use crate::mutex::Mutex;
use crate::networks::{Networks, site_of_source, source};
use crate::turns::{Group, Seat, Turns};

/// Number of connections beyond `connections_max` that a server accepts from addresses without a
/// connection. From programs on this machine, the server accepts twice this number.
const LAST_PLACES: usize = 16;

/// Bounds on the connections of one server (HTTP or ZooKeeper).
#[derive(Clone, Debug)]
pub struct AdmissionConfig {
    /// Largest number of connections.
    pub connections_max: usize,
    /// Largest number of connections from one address. 0 means no bound while the server is not
    /// full; a full server grants an address a quarter of `connections_max`, but at least one.
    pub connections_per_address_max: usize,
    /// Addresses that stand for many clients, such as a NAT. Only `connections_max` bounds their
    /// connections.
    pub exempt: Networks,
}

/// Admission of new connections to one server, within the bounds on its connections.
#[derive(Debug)]
pub struct Admission {
    connections_max: usize,
    per_address_max: usize,
    /// True if `per_address_max` holds only while the server is full.
    is_share: bool,
    exempt: Networks,
    inner: Mutex<Inner>,
    emptied: Notify,
    turns: Turns,
}

#[derive(Debug, Default)]
struct Inner {
    numbers: u64,
    /// Connections that count against the bounds, by connection number. A connection that was
    /// closed to make room for a new one no longer counts, even before its task has ended.
    open: HashMap<u64, Open>,
    /// Number of connections whose task has not ended, including connections that were closed to
    /// make room for new ones.
    tasks: usize,
    /// Connections in `open`, in the order in which they are closed to make room for new ones.
    leavers: BTreeSet<Leaver>,
    sources: HashMap<IpAddr, BTreeSet<Leaver>>,
    /// Sites (IPv4 addresses and /48 networks of IPv6), sorted by the number of their connections.
    largest: BTreeSet<(usize, IpAddr)>,
    sites: HashMap<IpAddr, Site>,
}

/// A connection that counts against the server's bounds.
#[derive(Debug)]
struct Open {
    source: Option<IpAddr>,
    leaver: Leaver,
    task: Option<AbortHandle>,
}

/// Sort key of a connection in the order in which connections are closed to make room for new
/// ones. The connection with the smallest key is closed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Leaver {
    stage: Stage,
    /// Sequence number of the connection's last change of stage (silent, idle, waiting or busy).
    /// Among connections in the same stage, the first to enter that stage is closed first.
    since: u64,
    number: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Silent,
    Idle,
    Waiting,
    Busy,
}

/// Connections of one site: an IPv4 address, or a /48 network of IPv6. A full server compares the
/// numbers of connections of whole sites.
#[derive(Debug, Default)]
struct Site {
    open: usize,
    sources: BTreeSet<(usize, IpAddr)>,
}

/// Bound that refuses a new connection, as no open connection can be closed for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The server has its largest number of connections in total.
    Door,
    /// The client's address has its largest number of connections.
    Address,
}

/// Permission for one open connection, which counts against the server's bounds until it is
/// dropped.
#[derive(Debug)]
pub struct Place {
    admission: Arc<Admission>,
    number: u64,
    source: Option<IpAddr>,
    ousted: Option<IpAddr>,
    heard: AtomicBool,
    seat: Arc<Seat>,
}

/// Guard that marks a connection as waiting in a long poll. The drop marks it as busy again.
#[derive(Debug)]
pub struct Waiting {
    place: Arc<Place>,
}

impl Admission {
    /// Creates the admission of one server, without connections.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub fn new(config: &AdmissionConfig) -> Arc<Admission> {
        let per_address_max = match config.connections_per_address_max {
            0 => (config.connections_max / 4).max(1),
            max => max,
        };
        Arc::new(Admission {
            connections_max: config.connections_max,
            per_address_max,
            is_share: config.connections_per_address_max == 0,
            exempt: config.exempt.clone(),
            inner: Mutex::default(),
            emptied: Notify::new(),
            turns: Turns::start(),
        })
    }

    /// Admits a new connection from `addr` and counts it. At a bound, closes another connection for
    /// it.
    ///
    /// # Errors
    /// [`Full`] at a bound, when no open connection can be closed for the new one.
    pub fn enter(self: &Arc<Admission>, addr: IpAddr) -> Result<Place, Full> {
        let source = (!self.exempt.contain(addr)).then(|| source(addr));
        let mut inner = self.inner.lock();
        let own = source.map_or(0, |source| inner.sources.get(&source).map_or(0, BTreeSet::len));
        let is_at_bound = source.is_some() && own >= self.per_address_max;
        let gives_way = if is_at_bound && !self.is_share {
            Some(inner.resting_of(source).ok_or(Full::Address)?)
        } else if inner.open.len() >= self.connections_max {
            let resting = |inner: &Inner| if is_at_bound { inner.resting_of(source) } else { inner.resting() };
            let leaver = inner.of_the_largest(source, own).or_else(|| resting(&inner));
            let last_places = match source {
                Some(_) if is_this_machine(addr) => 2 * LAST_PLACES,
                Some(_) if own == 0 => LAST_PLACES,
                _ => 0,
            };
            match leaver {
                None if inner.open.len() < self.connections_max + last_places => None,
                leaver => Some(leaver.ok_or(if is_at_bound { Full::Address } else { Full::Door })?),
            }
        } else {
            None
        };
        let ended = gives_way.and_then(|leaver| inner.leave(leaver.number));
        let number = inner.come(source);
        drop(inner);
        let mut ousted = None;
        if let Some(Open { source, leaver, task }) = ended {
            ousted = source.filter(|_| leaver.stage > Stage::Idle);
            task.iter().for_each(AbortHandle::abort);
        }
        let seat = Seat::new(source.map_or(Group::Connection(number), Group::Address));
        Ok(Place { admission: Arc::clone(self), number, source, ousted, heard: AtomicBool::new(false), seat })
    }

    /// Closes one connection because the process has no file descriptor left. Closes a silent or
    /// idle connection of the address with the most connections; else one of any address; else a
    /// waiting connection of the address with the most connections. Returns the closed
    /// connection's address, where the inner `None` stands for an exempt address. Returns the outer
    /// `None` when there is no connection to close.
    pub fn give_one(&self) -> Option<Option<IpAddr>> {
        let ended = {
            let mut inner = self.inner.lock();
            let leaver = inner.dispensable()?;
            inner.leave(leaver.number)?
        };
        ended.task.iter().for_each(AbortHandle::abort);
        Some(ended.source)
    }

    /// Waits until the tasks of all connections have ended.
    pub async fn emptied(&self) {
        loop {
            let mut emptied = pin!(self.emptied.notified());
            emptied.as_mut().enable();
            if self.inner.lock().tasks == 0 {
                return;
            }
            emptied.await;
        }
    }
}

/// Tells whether an address is 127.0.0.1 or ::1, so that the client is a program on this machine.
fn is_this_machine(addr: IpAddr) -> bool {
    [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)].contains(&addr.to_canonical())
}

impl Inner {
    /// Returns the first silent connection of all addresses, or else the first idle one, in the
    /// order in which connections are closed to make room.
    fn resting(&self) -> Option<Leaver> {
        self.leavers.first().copied().filter(|leaver| leaver.stage <= Stage::Idle)
    }

    /// Returns the first silent connection of `source` (an IPv4 address or a /64 network of IPv6),
    /// or else the first idle one, in the order in which connections are closed to make room.
    /// Returns `None` if `source` is `None`, which stands for an exempt address.
    fn resting_of(&self, source: Option<IpAddr>) -> Option<Leaver> {
        let first = self.sources.get(&source?)?.first().copied();
        first.filter(|leaver| leaver.stage <= Stage::Idle)
    }

    /// Returns a connection of the largest source in the largest site, to be closed for a new
    /// connection from the source `comes`, which has `own` connections. `None` unless the largest
    /// site has at least two connections more than the site of `comes`. If `comes` is in the
    /// largest site, the largest source must have at least two connections more than `comes`.
    /// With a difference of one, the two sites or sources would only swap their numbers.
    fn of_the_largest(&self, comes: Option<IpAddr>, own: usize) -> Option<Leaver> {
        let (of_site, site) = self.largest.last()?;
        let own_site = comes.and_then(|source| self.sites.get(&site_of_source(source))).map_or(0, |site| site.open);
        let (of_source, source) = self.sites.get(site)?.sources.last()?;
        // Within the same site, sources are compared; otherwise whole sites are.
        let is_own_site = comes.is_some_and(|comes| site_of_source(comes) == *site);
        let is_larger = if is_own_site { *of_source > own + 1 } else { *of_site > own_site + 1 };
        if is_larger { self.sources.get(source)?.first().copied() } else { None }
    }

    /// Returns the connection that [`Admission::give_one`] closes to free its file descriptor.
    fn dispensable(&self) -> Option<Leaver> {
        let of_site = self.largest.last().and_then(|(_, site)| self.sites.get(site));
        let source = of_site.and_then(|site| site.sources.last()).map(|(_, source)| *source);
        let waiting = || self.sources.get(&source?)?.first().copied().filter(|leaver| leaver.stage == Stage::Waiting);
        self.resting_of(source).or_else(|| self.resting()).or_else(waiting)
    }

    /// Adds a new connection as silent: its client has not sent a complete request yet. Returns the
    /// connection's number.
    fn come(&mut self, source: Option<IpAddr>) -> u64 {
        self.numbers += 1;
        let number = self.numbers;
        let leaver = Leaver { stage: Stage::Silent, since: number, number };
        self.open.insert(number, Open { source, leaver, task: None });
        self.tasks += 1;
        self.leavers.insert(leaver);
        if let Some(source) = source {
            let of_source = self.sources.entry(source).or_default();
            of_source.insert(leaver);
            let before = of_source.len() - 1;
            self.recount(source, before);
        }
        number
    }

    /// Removes a connection from all counts. Returns `None` if it was removed before.
    fn leave(&mut self, number: u64) -> Option<Open> {
        let open = self.open.remove(&number)?;
        self.leavers.remove(&open.leaver);
        if let Some(source) = open.source {
            let of_source = self.sources.entry(source).or_default();
            let before = of_source.len();
            of_source.remove(&open.leaver);
            if of_source.is_empty() {
                self.sources.remove(&source);
            }
            self.recount(source, before);
        }
        Some(open)
    }

    /// Moves a connection to another stage (silent, idle, waiting or busy). Returns false when the
    /// connection was closed to make room for a new one.
    fn change(&mut self, number: u64, stage: Stage) -> bool {
        self.numbers += 1;
        let since = self.numbers;
        let Some(open) = self.open.get_mut(&number) else { return false };
        let before = open.leaver;
        let after = Leaver { stage, since, number };
        open.leaver = after;
        let of_source = open.source.and_then(|source| self.sources.get_mut(&source));
        for leavers in [&mut self.leavers].into_iter().chain(of_source) {
            leavers.remove(&before);
            leavers.insert(after);
        }
        true
    }

    /// Updates the counts of the site of `source` after the number of connections of `source` has
    /// changed. `before` is the former number.
    fn recount(&mut self, source: IpAddr, before: usize) {
        let now = self.sources.get(&source).map_or(0, BTreeSet::len);
        let key = site_of_source(source);
        let site = self.sites.entry(key).or_default();
        site.sources.remove(&(before, source));
        if now > 0 {
            site.sources.insert((now, source));
        }
        self.largest.remove(&(site.open, key));
        site.open = site.open + now - before;
        if site.open > 0 {
            self.largest.insert((site.open, key));
        } else {
            self.sites.remove(&key);
        }
    }
}

impl Place {
    /// Runs the future of `serve` in a new task, which is scheduled with equal time for each
    /// address. The task is aborted when the connection is closed to make room for a new one.
    pub fn serve<F>(self, serve: impl FnOnce(Arc<Place>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (admission, number) = (Arc::clone(&self.admission), self.number);
        let seat = Arc::clone(&self.seat);
        let (abort, registration) = AbortHandle::new_pair();
        match admission.inner.lock().open.get_mut(&number) {
            Some(open) => open.task = Some(abort),
            // The connection was closed for another one before its task began.
            None => abort.abort(),
        }
        let served = Abortable::new(serve(Arc::new(self)), registration);
        admission.turns.spawn(&seat, async move { _ = served.await });
    }

    /// Marks the connection as idle: the client got its answer and has sent no further request.
    pub fn rest(&self) {
        if self.heard.load(Ordering::Relaxed) {
            self.admission.inner.lock().change(self.number, Stage::Idle);
        }
    }

    /// Marks the connection as busy, because the client sends another request. Returns false when
    /// the connection was closed to make room for a new one.
    pub fn resume(&self) -> bool {
        !self.heard.load(Ordering::Relaxed) || self.admission.inner.lock().change(self.number, Stage::Busy)
    }

    /// Marks the connection as busy when the client has sent its first request, or the packet that
    /// opens its session. [`Place::rest`] later marks the connection as idle. A busy connection is
    /// closed only to make room for a client whose address has fewer connections.
    pub fn heard(&self) {
        // Only the connection's own task calls this, for every request; so most calls lock nothing.
        if !self.heard.load(Ordering::Relaxed) && self.admission.inner.lock().change(self.number, Stage::Busy) {
            self.heard.store(true, Ordering::Relaxed);
        }
    }

    /// Sets the session of the connection: a number that no other client knows. If the client's
    /// address is exempt, all connections of the session together get one share of the runtime's
    /// time from now on. Must be called by the connection's own task.
    pub fn is_of(&self, session: u64) {
        if self.source.is_none() {
            self.admission.turns.sit(&self.seat, Group::Session(session));
        }
    }

    /// Marks the connection as waiting in a long poll, until the returned guard is dropped.
    pub fn wait(self: &Arc<Place>) -> Waiting {
        self.admission.inner.lock().change(self.number, Stage::Waiting);
        Waiting { place: Arc::clone(self) }
    }

    /// Address of the waiting or busy connection that was closed to make room for this connection;
    /// `None` if no waiting or busy connection was closed.
    pub fn ousted(&self) -> Option<IpAddr> {
        self.ousted
    }

    /// Tells whether the client's address is exempt, because it stands for many clients.
    pub fn is_exempt(&self) -> bool {
        self.source.is_none()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.place.admission.inner.lock().change(self.place.number, Stage::Busy);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inner = self.admission.inner.lock();
        inner.leave(self.number);
        inner.tasks -= 1;
        if inner.tasks == 0 {
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

    /// Serves a connection until it is closed. Returns a flag that is set when the connection is
    /// closed.
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
        let fourth = door.enter(addr(5)).expect("the next silent one gives way");
        assert!(is_ended(&newer).await);
        fourth.heard();
        let enter = |last: usize| {
            let place = door.enter(addr(100 + last as u8)).unwrap();
            place.heard();
            place
        };
        let last: Vec<Place> = (0..LAST_PLACES).map(enter).collect();
        assert_eq!(door.enter(addr(6)).unwrap_err(), Full::Door);
        let local = door.enter([127, 0, 0, 1].into()).expect("programs on this machine have places of their own");
        drop((local, last, third));
        assert!(door.enter(addr(5)).is_ok());
    }

    #[tokio::test]
    async fn a_door_without_silent_connections_is_left_by_the_one_that_is_idle_for_longest() {
        let door = door(3, 2, "");
        // Returns the place and a channel that closes when the connection's task ends.
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
        // The end of the connection's task drops its sender.
        let ended = |rx: &tokio::sync::mpsc::Receiver<Arc<Place>>| rx.sender_strong_count() == 0;
        let (first, first_end) = connect(1).await;
        let (second, second_end) = connect(2).await;
        let (third, _third_end) = connect(3).await;
        let full = || door.inner.lock().resting().is_none();
        assert!(full(), "all of them are asking");
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
        assert_eq!(door.inner.lock().open.len(), 2);
        // At the bound of an address, a connection of the same address gives way.
        let (fifth, _fifth_end) = connect(1).await;
        assert_eq!(door.enter(addr(1)).unwrap_err(), Full::Address);
        third.rest();
        assert_eq!(door.enter(addr(1)).unwrap_err(), Full::Address, "that of another stays");
        fifth.rest();
        door.enter(addr(1)).expect("its own gives way");
        assert!(!fifth.resume() && third.resume());
    }

    #[tokio::test]
    async fn one_address_has_its_bound_and_others_keep_theirs() {
        let door = door(8, 2, "10.0.0.0/8");
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
    async fn a_share_binds_only_at_a_full_door_and_then_for_all() {
        let door = door(8, 0, "");
        let enter = |last: u8| {
            let place = Arc::new(door.enter(addr(last))?);
            place.heard();
            Ok::<_, Full>(place)
        };
        let has_place = |place: &Arc<Place>| door.inner.lock().open.contains_key(&place.number);
        let first: Vec<_> = (0..8).map(|_| enter(1).expect("nobody else wants a place")).collect();
        assert_eq!(enter(1).unwrap_err(), Full::Address);
        let second: Vec<_> = (0..4).map(|_| enter(2).expect("the first address has most")).collect();
        assert_eq!(second.iter().filter_map(|place| place.ousted()).collect::<Vec<_>>(), [addr(1); 4]);
        assert_eq!((first.iter().filter(|place| has_place(place)).count(), enter(2).err()), (4, Some(Full::Address)));
        first.iter().for_each(|place| place.rest());
        assert_eq!(enter(2).unwrap_err(), Full::Address, "the idle ones of the other address stay");
        second[0].rest();
        enter(2).expect("its own idle one gives way");
        assert!(!has_place(&second[0]) && second[1..].iter().all(has_place));
    }

    #[tokio::test]
    async fn the_door_is_empty_when_the_last_connection_has_ended() {
        let door = door(1, 1, "");
        door.emptied().await;
        // The second connection takes the place of the first, and both tasks must end.
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
        let inner = door.inner.lock();
        assert!(inner.open.is_empty() && inner.leavers.is_empty() && inner.sources.is_empty());
        assert!(inner.sites.is_empty() && inner.largest.is_empty());
    }

    #[tokio::test]
    async fn a_full_door_is_left_by_the_address_that_has_most_long_polls_first() {
        let door = door(6, 6, "");
        let enter = |addr: IpAddr| {
            let place = Arc::new(door.enter(addr).unwrap());
            place.heard();
            place
        };
        let has_place = |place: &Arc<Place>| door.inner.lock().open.contains_key(&place.number);
        let large: Vec<Arc<Place>> = (0..4).map(|_| enter(addr(1))).collect();
        let waiting = large[2].wait();
        let small: Vec<Arc<Place>> = (0..2).map(|_| enter(addr(2))).collect();
        let comes = enter(addr(3));
        assert_eq!(comes.ousted(), Some(addr(1)));
        assert!(!has_place(&large[2]), "the long poll goes before what is busy");
        let again = enter(addr(3));
        assert_eq!(again.ousted(), Some(addr(1)), "three are two more than one");
        assert_eq!(door.enter(addr(3)).unwrap_err(), Full::Door, "all have two");
        drop(waiting);
        assert!(small.iter().all(has_place) && has_place(&comes) && has_place(&again));
    }

    #[tokio::test]
    async fn without_descriptors_the_address_that_has_most_gives_one_and_none_that_is_busy() {
        let door = door(8, 8, "");
        let enter = |last: u8| {
            let place = Arc::new(door.enter(addr(last)).unwrap());
            place.heard();
            place
        };
        let small = enter(1);
        let large: Vec<Arc<Place>> = (0..3).map(|_| enter(2)).collect();
        assert_eq!(door.give_one(), None, "all are busy");
        let _waiting = large[0].wait();
        small.rest();
        large[1].rest();
        let has_place = |place: &Arc<Place>| door.inner.lock().open.contains_key(&place.number);
        assert_eq!(door.give_one(), Some(Some(addr(2))));
        assert!(!has_place(&large[1]) && has_place(&small), "though the other one has been idle for longer");
        assert_eq!(door.give_one(), Some(Some(addr(1))), "the only one that is idle");
        assert_eq!(door.give_one(), Some(Some(addr(2))));
        assert!(!has_place(&large[0]) && has_place(&large[2]), "a long poll goes before what is busy");
        assert_eq!(door.give_one(), None);
    }

    #[tokio::test]
    async fn networks_of_one_site_are_compared_as_one() {
        let door = door(4, 4, "");
        let network = |site: u16, network: u16| IpAddr::from([0x2001, 0xdb8, site, network, 0, 0, 0, 1]);
        let enter = |addr: IpAddr| {
            let place = door.enter(addr).unwrap();
            place.heard();
            place
        };
        let _many = [0, 1, 2].map(|number| enter(network(1, number)));
        let _one = enter(network(2, 0));
        let comes = enter(network(3, 0));
        assert_eq!(comes.ousted().map(site_of_source), Some(site_of_source(network(1, 0))));
    }
}
