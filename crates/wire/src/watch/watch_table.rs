//! The table of watches, and the bounds on them. It does no I/O.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use indexmap::IndexMap;
use replica::Bound;
use znode::{EventKind, ZPath};

use crate::watch::audience::{Audience, WatchKind};

/// Kind and path of a watch.
type WatchKey = (WatchKind, ZPath);

/// Bounds on the watches of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchLimits {
    /// Largest number of watches of all connections.
    pub(crate) all_max: usize,
    /// Largest number of watches of one connection.
    pub(crate) connection_max: usize,
    /// Largest number of bytes of the watches of all connections.
    pub(crate) bytes_max: usize,
}

/// Divisor of `all_max` and `bytes_max` that gives the bounds for all connections of one address.
const ADDRESS_PART: usize = 4;
/// Estimated memory in bytes of a watch besides its path, in both maps of [`WatchTable`].
const WATCH_BYTES: usize = 240;

/// Number of watches, and their memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct WatchTotals {
    watches: usize,
    bytes: usize,
}

/// Watches of all connections. A connection is known by its number.
#[derive(Debug)]
pub(crate) struct WatchTable {
    limits: WatchLimits,
    totals: WatchTotals,
    /// Connections with a watch, by the watch's kind and path. Events that are being given to
    /// clients share the sets of connections. An `IndexMap` does not hash the long paths again when
    /// it grows.
    watchers: [IndexMap<ZPath, Arc<BTreeSet<u64>>>; 4],
    by_connection: HashMap<u64, ConnectionWatches>,
    by_source: HashMap<IpAddr, WatchTotals>,
}

/// Watches of one connection, and the address whose bound they count against; `None` for an exempt
/// address, which has no bound of its own.
#[derive(Debug)]
struct ConnectionWatches {
    source: Option<IpAddr>,
    places: BTreeSet<WatchKey>,
}

impl WatchTable {
    pub(crate) fn new(limits: WatchLimits) -> WatchTable {
        let (totals, watchers) = (WatchTotals::default(), Default::default());
        WatchTable { limits, totals, watchers, by_connection: HashMap::new(), by_source: HashMap::new() }
    }

    /// Returns the number of watches that are set.
    pub(crate) fn len(&self) -> usize {
        self.totals.watches
    }

    /// Sets a watch of a connection, and counts it for the address `source`. A watch that is set
    /// already stays as it is. Returns the bound that the watch would exceed, if there is one.
    pub(crate) fn set(
        &mut self,
        connection: u64,
        source: Option<IpAddr>,
        kind: WatchKind,
        path: &ZPath,
    ) -> Result<(), Bound> {
        if self.has(connection, kind, path) {
            return Ok(());
        }
        self.check_room(connection, source, path)?;
        let shares = source.map(|source| self.by_source.entry(source).or_default());
        for totals in std::iter::once(&mut self.totals).chain(shares) {
            totals.watches += 1;
            totals.bytes += bytes_of(path);
        }
        let watchers = self.watchers[kind as usize].entry(path.clone()).or_default();
        Arc::make_mut(watchers).insert(connection);
        let watched = self.by_connection.entry(connection);
        watched
            .or_insert_with(|| ConnectionWatches { source, places: BTreeSet::new() })
            .places
            .insert((kind, path.clone()));
        Ok(())
    }

    fn check_room(&self, connection: u64, source: Option<IpAddr>, path: &ZPath) -> Result<(), Bound> {
        let WatchLimits { all_max, connection_max, bytes_max } = self.limits;
        let share = source.map(|source| self.by_source.get(&source).copied().unwrap_or_default());
        let has_room = |totals: WatchTotals, watches_max: usize| totals.watches < watches_max;
        let has_bytes = |totals: WatchTotals, bytes_max: usize| totals.bytes + bytes_of(path) <= bytes_max;
        if !has_room(self.totals, all_max) {
            return Err(Bound::ZooKeeperWatches);
        }
        if !has_bytes(self.totals, bytes_max) {
            return Err(Bound::WatchBytes);
        }
        if self.by_connection.get(&connection).is_some_and(|watched| watched.places.len() >= connection_max) {
            return Err(Bound::ConnectionWatches);
        }
        if share.is_some_and(|share| !has_room(share, (all_max / ADDRESS_PART).max(1))) {
            return Err(Bound::ZooKeeperWatchesOfAddress);
        }
        if share.is_some_and(|share| !has_bytes(share, bytes_max / ADDRESS_PART)) {
            return Err(Bound::WatchBytesOfAddress);
        }
        Ok(())
    }

    /// Tells whether the connection has a watch of this kind at this path.
    pub(crate) fn has(&self, connection: u64, kind: WatchKind, path: &ZPath) -> bool {
        self.watchers[kind as usize].get(path).is_some_and(|watchers| watchers.contains(&connection))
    }

    /// Tells whether the connection has any watch.
    pub(crate) fn has_any(&self, connection: u64) -> bool {
        self.by_connection.contains_key(&connection)
    }

    /// Removes a watch. False if it is not set.
    pub(crate) fn remove(&mut self, connection: u64, kind: WatchKind, path: &ZPath) -> bool {
        let Some(watchers) = self.watchers[kind as usize].get_mut(path) else { return false };
        if !watchers.contains(&connection) {
            return false;
        }
        Arc::make_mut(watchers).remove(&connection);
        if watchers.is_empty() {
            self.watchers[kind as usize].swap_remove(path);
        }
        self.forget(connection, kind, path);
        true
    }

    /// Removes at most `count_max` watches of a connection. False if it had none.
    pub(crate) fn remove_some(&mut self, connection: u64, count_max: usize) -> bool {
        let places = self.by_connection.get(&connection).into_iter().flat_map(|watched| &watched.places);
        let some: Vec<WatchKey> = places.take(count_max).cloned().collect();
        for (kind, path) in &some {
            self.remove(connection, *kind, path);
        }
        !some.is_empty()
    }

    /// Returns the connections that an event is for. Their watches that fire once are removed from
    /// `watchers`, so that no later event fires them. They still count against the bounds until
    /// [`WatchTable::forget`].
    pub(crate) fn fire(&mut self, event: EventKind, path: &ZPath) -> Audience {
        let mut audience = Audience::default();
        if event != EventKind::ChildrenChanged {
            self.take(WatchKind::Data, path, &mut audience);
            self.add_recursive(path, &mut audience);
        }
        if matches!(event, EventKind::ChildrenChanged | EventKind::Deleted) {
            self.take(WatchKind::Child, path, &mut audience);
        }
        if let Some(watchers) = self.watchers[WatchKind::Persistent as usize].get(path) {
            audience.add(WatchKind::Persistent, true, Arc::clone(watchers));
        }
        audience
    }

    /// Returns the watches of each connection, by the connection's number. For four-letter words of
    /// operators.
    pub(crate) fn by_connection(&self) -> impl Iterator<Item = (u64, &BTreeSet<WatchKey>)> {
        self.by_connection.iter().map(|(connection, watched)| (*connection, &watched.places))
    }

    fn add_recursive(&self, path: &ZPath, audience: &mut Audience) {
        let table = &self.watchers[WatchKind::Recursive as usize];
        if table.is_empty() {
            return;
        }
        let mut at = path.as_str();
        loop {
            if let Some(watchers) = table.get(at) {
                audience.add(WatchKind::Recursive, at == path.as_str(), Arc::clone(watchers));
            }
            match at.rfind('/') {
                Some(0) if at != "/" => at = "/",
                Some(slash) if slash > 0 => at = &at[..slash],
                _ => return,
            }
        }
    }

    fn take(&mut self, kind: WatchKind, path: &ZPath, audience: &mut Audience) {
        if let Some(watchers) = self.watchers[kind as usize].swap_remove(path) {
            audience.add(kind, true, watchers);
        }
    }

    /// Stops counting a watch that has fired, when its event is given to the client.
    pub(crate) fn forget(&mut self, connection: u64, kind: WatchKind, path: &ZPath) {
        let Some(ConnectionWatches { source, places }) = self.by_connection.get_mut(&connection) else { return };
        let source = *source;
        places.remove(&(kind, path.clone()));
        if places.is_empty() {
            self.by_connection.remove(&connection);
        }
        let share = source.and_then(|source| self.by_source.get_mut(&source));
        for totals in std::iter::once(&mut self.totals).chain(share) {
            totals.watches -= 1;
            totals.bytes -= bytes_of(path);
        }
        if let Some(source) = source.filter(|source| self.by_source.get(source) == Some(&WatchTotals::default())) {
            self.by_source.remove(&source);
        }
    }
}

/// Returns the memory in bytes of a watch at this path.
fn bytes_of(path: &ZPath) -> usize {
    path.as_str().len() + WATCH_BYTES
}

/// Largest number of watches that are set again, or removed, while the hub stays locked. All
/// watches of one packet at once would keep the node from applying entries for 100 ms or more.
pub(crate) const TOGETHER: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> ZPath {
        ZPath::parse(text).unwrap()
    }

    fn limits(all_max: usize, connection_max: usize) -> WatchLimits {
        WatchLimits { all_max, connection_max, bytes_max: 1 << 20 }
    }

    /// Returns the connections that get an event. The flag is true if a watch of the connection is
    /// at the event's znode.
    fn fire(table: &mut WatchTable, event: EventKind, at: &str) -> Vec<(u64, bool)> {
        let mut audience = table.fire(event, &path(at));
        let mut all = Vec::new();
        while let Some(hearer) = audience.take_first() {
            hearer.used_up.iter().for_each(|kind| table.forget(hearer.connection, *kind, &path(at)));
            all.push((hearer.connection, hearer.names_it));
        }
        all
    }

    /// Checks how often a watch of connection 1 fires when an event happens three times.
    #[track_caller]
    fn check(kind: WatchKind, at: &str, event: EventKind, path_of_event: &str, expected: usize) {
        let mut table = WatchTable::new(limits(10, 10));
        table.set(1, None, kind, &path(at)).unwrap();
        let fired: usize = (0..3).map(|_| fire(&mut table, event, path_of_event).len()).sum();
        assert_eq!(fired, expected, "{kind:?} at {at} for {event:?} of {path_of_event}");
        let stays = matches!(kind, WatchKind::Persistent | WatchKind::Recursive);
        assert_eq!(table.len(), usize::from(stays || expected == 0));
    }

    #[test]
    fn a_watch_fires_for_what_it_is_about_and_stays_if_it_should() {
        use EventKind::{ChildrenChanged, Created, DataChanged, Deleted};
        for event in [Created, DataChanged, Deleted] {
            check(WatchKind::Data, "/a", event, "/a", 1);
            check(WatchKind::Data, "/a", event, "/a/b", 0);
            check(WatchKind::Persistent, "/a", event, "/a", 3);
            check(WatchKind::Persistent, "/a", event, "/a/b", 0);
            check(WatchKind::Recursive, "/a", event, "/a", 3);
            check(WatchKind::Recursive, "/a", event, "/a/b/c", 3);
            check(WatchKind::Recursive, "/", event, "/a/b/c", 3);
            check(WatchKind::Recursive, "/", event, "/", 3);
            check(WatchKind::Recursive, "/a", event, "/ab", 0);
            check(WatchKind::Recursive, "/a/b", event, "/a", 0);
        }
        check(WatchKind::Data, "/a", ChildrenChanged, "/a", 0);
        check(WatchKind::Child, "/a", ChildrenChanged, "/a", 1);
        check(WatchKind::Child, "/a", Deleted, "/a", 1);
        check(WatchKind::Child, "/a", Created, "/a", 0);
        check(WatchKind::Child, "/a", DataChanged, "/a", 0);
        check(WatchKind::Persistent, "/a", ChildrenChanged, "/a", 3);
        check(WatchKind::Recursive, "/a", ChildrenChanged, "/a", 0);
    }

    #[test]
    fn a_connection_hears_of_an_event_once_however_many_watches_it_has() {
        let mut table = WatchTable::new(limits(10, 10));
        for kind in [WatchKind::Data, WatchKind::Child, WatchKind::Persistent, WatchKind::Recursive] {
            table.set(1, None, kind, &path("/a")).unwrap();
        }
        table.set(2, None, WatchKind::Child, &path("/a")).unwrap();
        assert_eq!(fire(&mut table, EventKind::Deleted, "/a"), [(1, true), (2, true)]);
        assert_eq!((table.len(), table.has_any(2)), (2, false));
    }

    #[test]
    fn one_connection_does_not_take_all_watches() {
        let mut table = WatchTable::new(limits(3, 2));
        assert_eq!(table.set(1, None, WatchKind::Data, &path("/a")), Ok(()));
        assert_eq!(table.set(1, None, WatchKind::Child, &path("/a")), Ok(()));
        assert_eq!(table.set(1, None, WatchKind::Data, &path("/b")), Err(Bound::ConnectionWatches));
        assert_eq!(table.set(1, None, WatchKind::Data, &path("/a")), Ok(()), "it is set already");
        assert_eq!(table.set(2, None, WatchKind::Data, &path("/b")), Ok(()));
        fire(&mut table, EventKind::DataChanged, "/a");
        assert_eq!(table.set(1, None, WatchKind::Data, &path("/b")), Ok(()), "one was used up");
    }

    #[test]
    fn watches_have_a_bound_and_leave_nothing_behind() {
        let mut table = WatchTable::new(limits(3, 2));
        assert_eq!(table.set(1, None, WatchKind::Child, &path("/a")), Ok(()));
        assert_eq!(table.set(1, None, WatchKind::Data, &path("/a")), Ok(()));
        assert_eq!(table.set(1, None, WatchKind::Data, &path("/a")), Ok(()));
        assert_eq!(table.set(2, None, WatchKind::Recursive, &path("/a")), Ok(()));
        assert_eq!(table.set(2, None, WatchKind::Data, &path("/b")), Err(Bound::ZooKeeperWatches));
        assert!(!table.remove(2, WatchKind::Data, &path("/a")));
        assert!(table.remove(2, WatchKind::Recursive, &path("/a")));
        assert!(table.remove_some(1, 1));
        assert_eq!(table.len(), 1, "no more than were asked for");
        assert!(table.remove_some(1, 1));
        assert!(!table.remove_some(1, 1) && !table.remove_some(9, 1));
        assert_eq!((table.len(), table.by_connection.len()), (0, 0));
        assert!(table.watchers.iter().all(IndexMap::is_empty));
    }

    const ONE: Option<IpAddr> = Some(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)));
    const OTHER: Option<IpAddr> = Some(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2)));

    #[test]
    fn connections_of_one_address_have_a_quarter_of_all_watches() {
        let mut table = WatchTable::new(limits(8, 8));
        for (connection, at) in [(1, "/a"), (2, "/a")] {
            assert_eq!(table.set(connection, ONE, WatchKind::Data, &path(at)), Ok(()));
        }
        assert_eq!(table.set(3, ONE, WatchKind::Data, &path("/a")), Err(Bound::ZooKeeperWatchesOfAddress));
        assert_eq!(table.set(4, OTHER, WatchKind::Data, &path("/a")), Ok(()));
        for at in 0..5 {
            assert_eq!(table.set(5, None, WatchKind::Data, &path(&format!("/{at}"))), Ok(()), "it is exempt");
        }
        assert_eq!(table.set(5, None, WatchKind::Data, &path("/b")), Err(Bound::ZooKeeperWatches));
        assert!(table.remove(1, WatchKind::Data, &path("/a")));
        assert_eq!(table.set(3, ONE, WatchKind::Data, &path("/a")), Ok(()));
    }

    /// The memory of watches is bounded for all clients, and for each address. Without this bound,
    /// a million watches with paths of 1 KB took 1.2 GB.
    #[test]
    fn what_watches_take_has_a_bound_and_an_address_its_share() {
        let long = |at: usize| path(&format!("/{at:0783}"));
        let mut table = WatchTable::new(WatchLimits { bytes_max: 8 << 10, ..limits(1_000, 1_000) });
        assert_eq!([0, 1].map(|at| table.set(1, ONE, WatchKind::Data, &long(at))), [Ok(()); 2]);
        assert_eq!(table.set(2, ONE, WatchKind::Data, &path("/")), Err(Bound::WatchBytesOfAddress));
        assert_eq!((2..8).map(|at| table.set(3, None, WatchKind::Data, &long(at))).collect::<Vec<_>>(), [Ok(()); 6]);
        assert_eq!(table.set(3, None, WatchKind::Data, &path("/")), Err(Bound::WatchBytes));
        fire(&mut table, EventKind::DataChanged, long(0).as_str());
        assert_eq!(table.set(2, ONE, WatchKind::Data, &long(9)), Ok(()));
        for connection in 1..4 {
            table.remove_some(connection, 100);
        }
        assert_eq!((table.totals, table.by_source.len()), (WatchTotals::default(), 0));
    }
}
