//! Who watches what. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use znode::{EventKind, ZPath};

/// What a watch is about, and whether it stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum WatchKind {
    /// Set by getData and exists; fires once.
    Data,
    /// Set by getChildren; fires once.
    Child,
    /// Set by addWatch; both of the above, and stays.
    Persistent,
    /// Set by addWatch; the znode and all below it, but no lists of children; stays.
    Recursive,
}

/// Where a watch is.
type Place = (WatchKind, ZPath);

/// How many watches there may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchLimits {
    /// Of all connections.
    pub(crate) all_max: usize,
    /// Of one.
    pub(crate) connection_max: usize,
}

/// The watches of all connections, which are known by number.
#[derive(Debug)]
pub(crate) struct WatchTable {
    limits: WatchLimits,
    count: usize,
    /// By kind and path.
    watchers: [HashMap<ZPath, BTreeSet<u64>>; 4],
    by_connection: HashMap<u64, BTreeSet<Place>>,
}

/// There are as many watches as there may be, of all connections or of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl WatchTable {
    pub(crate) fn new(limits: WatchLimits) -> WatchTable {
        WatchTable { limits, count: 0, watchers: Default::default(), by_connection: HashMap::new() }
    }

    /// How many watches are set.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Sets a watch. Setting it again changes nothing.
    pub(crate) fn set(&mut self, connection: u64, kind: WatchKind, path: &ZPath) -> Result<(), Full> {
        if self.has(connection, kind, path) {
            return Ok(());
        }
        let own = self.by_connection.get(&connection).map_or(0, BTreeSet::len);
        if self.count >= self.limits.all_max || own >= self.limits.connection_max {
            return Err(Full);
        }
        self.count += 1;
        self.watchers[kind as usize].entry(path.clone()).or_default().insert(connection);
        self.by_connection.entry(connection).or_default().insert((kind, path.clone()));
        Ok(())
    }

    /// Whether the connection has such a watch.
    pub(crate) fn has(&self, connection: u64, kind: WatchKind, path: &ZPath) -> bool {
        self.watchers[kind as usize].get(path).is_some_and(|watchers| watchers.contains(&connection))
    }

    /// Whether the connection has any watch.
    pub(crate) fn has_any(&self, connection: u64) -> bool {
        self.by_connection.contains_key(&connection)
    }

    /// Takes a watch out; false when there is none.
    pub(crate) fn remove(&mut self, connection: u64, kind: WatchKind, path: &ZPath) -> bool {
        let Some(watchers) = self.watchers[kind as usize].get_mut(path) else { return false };
        if !watchers.remove(&connection) {
            return false;
        }
        if watchers.is_empty() {
            self.watchers[kind as usize].remove(path);
        }
        self.forget(connection, kind, path);
        true
    }

    /// Takes watches of a connection out, but not more than so many; false when it has none.
    pub(crate) fn remove_some(&mut self, connection: u64, count_max: usize) -> bool {
        let places = self.by_connection.get(&connection).into_iter().flatten();
        let some: Vec<Place> = places.take(count_max).cloned().collect();
        for (kind, path) in &some {
            self.remove(connection, *kind, path);
        }
        !some.is_empty()
    }

    /// The connections that an event concerns, each once: whether they have named the znode, or
    /// only one above it. Watches that fire once are taken out.
    pub(crate) fn fire(&mut self, event: EventKind, path: &ZPath) -> BTreeMap<u64, bool> {
        let mut concerned = BTreeSet::new();
        let mut above = BTreeSet::new();
        if event != EventKind::ChildrenChanged {
            concerned.append(&mut self.take(WatchKind::Data, path));
            above = self.recursive_watchers(path);
            concerned.extend(self.watchers[WatchKind::Recursive as usize].get(path).into_iter().flatten());
        }
        if matches!(event, EventKind::ChildrenChanged | EventKind::Deleted) {
            concerned.append(&mut self.take(WatchKind::Child, path));
        }
        concerned.extend(self.watchers[WatchKind::Persistent as usize].get(path).into_iter().flatten());
        let mut all: BTreeMap<u64, bool> = above.into_iter().map(|number| (number, false)).collect();
        all.append(&mut concerned.into_iter().map(|number| (number, true)).collect());
        all
    }

    /// Watches by connection: for people.
    pub(crate) fn by_connection(&self) -> impl Iterator<Item = (u64, &BTreeSet<Place>)> {
        self.by_connection.iter().map(|(connection, places)| (*connection, places))
    }

    fn recursive_watchers(&self, path: &ZPath) -> BTreeSet<u64> {
        let table = &self.watchers[WatchKind::Recursive as usize];
        let mut found = BTreeSet::new();
        if table.is_empty() {
            return found;
        }
        let mut at = path.as_str();
        loop {
            found.extend(table.get(at).into_iter().flatten());
            match at.rfind('/') {
                Some(0) if at != "/" => at = "/",
                Some(slash) if slash > 0 => at = &at[..slash],
                _ => return found,
            }
        }
    }

    fn take(&mut self, kind: WatchKind, path: &ZPath) -> BTreeSet<u64> {
        let taken = self.watchers[kind as usize].remove(path).unwrap_or_default();
        for connection in &taken {
            self.forget(*connection, kind, path);
        }
        taken
    }

    /// Takes a watch that is not among the watchers any more out of the rest.
    fn forget(&mut self, connection: u64, kind: WatchKind, path: &ZPath) {
        self.count -= 1;
        if let Some(places) = self.by_connection.get_mut(&connection) {
            places.remove(&(kind, path.clone()));
            if places.is_empty() {
                self.by_connection.remove(&connection);
            }
        }
    }
}

/// How many watches are brought back under the guard at once: a whole packet of them would keep the
/// node from applying for 100 ms and more.
pub(crate) const TOGETHER: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> ZPath {
        ZPath::parse(text).unwrap()
    }

    /// How often a watch of connection 1 fires for the same event, three times over.
    #[track_caller]
    fn check(kind: WatchKind, at: &str, event: EventKind, path_of_event: &str, expected: usize) {
        let mut table = WatchTable::new(WatchLimits { all_max: 10, connection_max: 10 });
        table.set(1, kind, &path(at)).unwrap();
        let fired: usize = (0..3).map(|_| table.fire(event, &path(path_of_event)).len()).sum();
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
        let mut table = WatchTable::new(WatchLimits { all_max: 10, connection_max: 10 });
        for kind in [WatchKind::Data, WatchKind::Child, WatchKind::Persistent, WatchKind::Recursive] {
            table.set(1, kind, &path("/a")).unwrap();
        }
        table.set(2, WatchKind::Child, &path("/a")).unwrap();
        assert_eq!(table.fire(EventKind::Deleted, &path("/a")), BTreeMap::from([(1, true), (2, true)]));
        assert_eq!((table.len(), table.has_any(2)), (2, false));
    }

    #[test]
    fn one_connection_does_not_take_all_watches() {
        let mut table = WatchTable::new(WatchLimits { all_max: 3, connection_max: 2 });
        assert_eq!(table.set(1, WatchKind::Data, &path("/a")), Ok(()));
        assert_eq!(table.set(1, WatchKind::Child, &path("/a")), Ok(()));
        assert_eq!(table.set(1, WatchKind::Data, &path("/b")), Err(Full));
        assert_eq!(table.set(1, WatchKind::Data, &path("/a")), Ok(()), "it is set already");
        assert_eq!(table.set(2, WatchKind::Data, &path("/b")), Ok(()));
        table.fire(EventKind::DataChanged, &path("/a"));
        assert_eq!(table.set(1, WatchKind::Data, &path("/b")), Ok(()), "one was used up");
    }

    #[test]
    fn watches_have_a_bound_and_leave_nothing_behind() {
        let mut table = WatchTable::new(WatchLimits { all_max: 3, connection_max: 2 });
        assert_eq!(table.set(1, WatchKind::Child, &path("/a")), Ok(()));
        assert_eq!(table.set(1, WatchKind::Data, &path("/a")), Ok(()));
        assert_eq!(table.set(1, WatchKind::Data, &path("/a")), Ok(()));
        assert_eq!(table.set(2, WatchKind::Recursive, &path("/a")), Ok(()));
        assert_eq!(table.set(2, WatchKind::Data, &path("/b")), Err(Full));
        assert!(!table.remove(2, WatchKind::Data, &path("/a")));
        assert!(table.remove(2, WatchKind::Recursive, &path("/a")));
        assert!(table.remove_some(1, 1));
        assert_eq!(table.len(), 1, "no more than were asked for");
        assert!(table.remove_some(1, 1));
        assert!(!table.remove_some(1, 1) && !table.remove_some(9, 1));
        assert_eq!((table.len(), table.by_connection.len()), (0, 0));
        assert!(table.watchers.iter().all(HashMap::is_empty));
    }
}
