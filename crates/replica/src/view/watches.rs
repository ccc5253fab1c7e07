//! Watches on the state: their keys and results, and the table of all watches.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use indexmap::IndexMap;
use tokio::sync::Notify;
use znode::{Event, EventKind, Identity, ZPath, Zxid};

/// Part of the state whose changes end a wait.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WatchKey {
    /// One znode: it is created or deleted, its data is set, or its lock is granted.
    Node(ZPath),
    /// The list of a znode's children, and the znode's own creation and deletion.
    Children(ZPath),
    /// The znode at the path and all znodes below it.
    Subtree(ZPath),
}

/// Result of one call of a wait's `step` on the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<T> {
    /// The wait is over.
    Ready(T),
    /// The wait goes on: call `step` again when this part of the state changes.
    Watch(WatchKey),
}

/// A set of event kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventKinds(u8);

impl EventKinds {
    /// Every kind.
    pub const ALL: EventKinds = EventKinds(0b1_1111);
    /// A znode is created or deleted.
    pub const EXISTS: EventKinds = EventKinds(0b0011);
    /// A znode is created or deleted, or its data changes.
    pub const DATA: EventKinds = EventKinds(0b0111);
    /// A znode's list of children changes, or the znode itself is created or deleted.
    pub const CHILDREN: EventKinds = EventKinds(0b1011);

    /// Tells whether the kind is in the set.
    pub fn contains(self, kind: EventKind) -> bool {
        let bit = match kind {
            EventKind::Created => 0b0001,
            EventKind::Deleted => 0b0010,
            EventKind::DataChanged => 0b0100,
            EventKind::ChildrenChanged => 0b1000,
            EventKind::Granted => 0b1_0000,
        };
        self.0 & bit != 0
    }
}

/// Question for the events of `kinds` at `key` after the zxid `since`.
#[derive(Clone, Debug)]
pub struct EventQuery<'a> {
    /// The part of the state.
    pub key: WatchKey,
    /// The kinds of events.
    pub kinds: EventKinds,
    /// The zxid after which events are looked for.
    pub since: Zxid,
    /// Identities of the reader, who gets no event of a znode that they may not read; `None` for a
    /// reader that may read everything.
    pub reader: Option<&'a [Identity]>,
}

/// Events after a zxid. The next batch follows from a call with `since = upto`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventBatch {
    /// Events in order of zxid. Of each zxid it has all matching events or none. Empty when the
    /// deadline came first.
    pub events: Vec<Event>,
    /// Zxid up to which all matching events are in this batch.
    pub upto: Zxid,
}

/// Table of all watches that are set. It is kept under the lock of [`crate::view::View`].
///
/// A watch fires once and is then removed. A waiter whose condition is still not met sets another
/// watch.
pub(crate) struct WatchTable {
    max: usize,
    count: usize,
    next_id: u64,
    node: Watchers,
    children: Watchers,
    subtree: Watchers,
    /// Waiters whose watches have fired and that must still be woken, each with the zxid of its
    /// event.
    fired: VecDeque<(Arc<Wake>, Zxid)>,
}

/// Largest number of waiters that are woken in one step, so that other tasks can run in between.
const WOKEN_TOGETHER: usize = 256;

/// Waiters by the path that they watch. Those of one path are in the order in which they set their
/// watches, so by rising id. `IndexMap` stores the hash of each path, which saves hashing when the
/// map grows.
type Watchers = IndexMap<ZPath, Vec<(u64, Arc<Wake>)>>;

/// Wake-up of one waiter.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    notify: Notify,
    /// Zxid of the event that fired the watch: the first matching event since the watch was set. 0
    /// when all waiters were woken without an event.
    fired_at: AtomicU64,
}

impl Wake {
    fn fire(&self, at: Zxid) {
        self.fired_at.store(at.0, Ordering::Release);
        self.notify.notify_one();
    }

    /// Waits for the watch to fire. Returns the zxid of the event; 0 when all waiters were woken
    /// without an event.
    pub(crate) async fn fired(&self) -> Zxid {
        self.notify.notified().await;
        Zxid(self.fired_at.load(Ordering::Acquire))
    }
}

/// Handle with which a watch is removed.
#[derive(Debug)]
pub(crate) struct Registration {
    key: WatchKey,
    id: u64,
}

impl WatchTable {
    pub(crate) fn new(max: usize) -> WatchTable {
        let none = Watchers::new;
        let (node, children, subtree) = (none(), none(), none());
        WatchTable { max, count: 0, next_id: 0, node, children, subtree, fired: VecDeque::new() }
    }

    /// Number of watches that are set.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Sets a watch. Returns `None` when the largest number of watches is reached.
    pub(crate) fn set(&mut self, key: WatchKey, wake: Arc<Wake>) -> Option<Registration> {
        if self.count >= self.max {
            return None;
        }
        let id = self.next_id;
        self.next_id += 1;
        self.count += 1;
        let (watchers, path) = self.of(&key);
        watchers.entry(path.clone()).or_default().push((id, wake));
        Some(Registration { key, id })
    }

    /// Removes a watch. Returns false if the watch has fired, and so was removed before.
    pub(crate) fn remove(&mut self, registration: &Registration) -> bool {
        let (watchers, path) = self.of(&registration.key);
        let Some(list) = watchers.get_mut(path) else {
            return false;
        };
        let Ok(at) = list.binary_search_by_key(&registration.id, |(id, _)| *id) else {
            return false;
        };
        list.remove(at);
        if list.is_empty() {
            watchers.swap_remove(path);
        }
        self.count -= 1;
        true
    }

    /// Removes the watches that the events concern, and wakes the first waiters.
    /// [`WatchTable::wake_some`] wakes the others.
    pub(crate) fn fire<'a>(&mut self, events: impl IntoIterator<Item = &'a Event>) {
        for event in events {
            let before = self.fired.len();
            let fired = &mut self.fired;
            // A client that waits with a lock node also hears of its grant, although `Granted` is
            // no kind in [`EventKinds::DATA`].
            if EventKinds::DATA.contains(event.kind) || event.kind == EventKind::Granted {
                fire(&mut self.node, event, &event.path, fired);
            }
            if EventKinds::CHILDREN.contains(event.kind) {
                fire(&mut self.children, event, &event.path, fired);
            }
            if !self.subtree.is_empty() {
                let mut at = Some(event.path.clone());
                while let Some(path) = at {
                    fire(&mut self.subtree, event, &path, fired);
                    at = path.parent();
                }
            }
            self.count -= self.fired.len() - before;
        }
        self.wake_some();
    }

    /// Wakes some waiters whose watches have fired. Returns true if there are more.
    pub(crate) fn wake_some(&mut self) -> bool {
        let count = self.fired.len().min(WOKEN_TOGETHER);
        self.fired.drain(..count).for_each(|(wake, at)| wake.fire(at));
        !self.fired.is_empty()
    }

    /// Wakes all waiters, and removes all watches.
    pub(crate) fn fire_all(&mut self) {
        while self.wake_some() {}
        let tables = [&mut self.node, &mut self.children, &mut self.subtree];
        let mut set: Vec<_> = tables.into_iter().flat_map(|table| table.drain(..)).flat_map(|(_, list)| list).collect();
        // In the order in which they were set.
        set.sort_unstable_by_key(|(id, _)| *id);
        set.iter().for_each(|(_, wake)| wake.fire(Zxid(0)));
        self.count = 0;
    }

    fn of<'a>(&mut self, key: &'a WatchKey) -> (&mut Watchers, &'a ZPath) {
        match key {
            WatchKey::Node(path) => (&mut self.node, path),
            WatchKey::Children(path) => (&mut self.children, path),
            WatchKey::Subtree(path) => (&mut self.subtree, path),
        }
    }
}

/// Moves the waiters that watch `path` to `fired`, with the event's zxid.
fn fire(watchers: &mut Watchers, event: &Event, path: &ZPath, fired: &mut VecDeque<(Arc<Wake>, Zxid)>) {
    if !watchers.is_empty() {
        let list = watchers.swap_remove(path).unwrap_or_default();
        fired.extend(list.into_iter().map(|(_, wake)| (wake, event.zxid)));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use znode::EventKind;

    use super::*;

    fn path(text: &str) -> ZPath {
        ZPath::parse(text).unwrap()
    }

    fn event(kind: EventKind, at: &str) -> Event {
        Event { zxid: Zxid(1), kind, path: path(at) }
    }

    /// Checks whether a watch on `key` fires for the event.
    #[track_caller]
    fn check(key: WatchKey, event: Event, fires: bool) {
        let mut table = WatchTable::new(10);
        table.set(key.clone(), Arc::new(Wake::default())).unwrap();
        table.fire(std::slice::from_ref(&event));
        assert_eq!(table.len() == 0, fires, "{key:?} {event:?}");
    }

    #[test]
    fn a_watch_fires_for_its_own_events_only() {
        for kind in [EventKind::Created, EventKind::Deleted, EventKind::DataChanged, EventKind::Granted] {
            check(WatchKey::Node(path("/a")), event(kind, "/a"), true);
            check(WatchKey::Node(path("/a")), event(kind, "/a/b"), false);
        }
        check(WatchKey::Node(path("/a")), event(EventKind::ChildrenChanged, "/a"), false);
        check(WatchKey::Children(path("/a")), event(EventKind::ChildrenChanged, "/a"), true);
        check(WatchKey::Children(path("/a")), event(EventKind::Deleted, "/a"), true);
        check(WatchKey::Children(path("/a")), event(EventKind::DataChanged, "/a"), false);
        check(WatchKey::Subtree(path("/a")), event(EventKind::DataChanged, "/a"), true);
        check(WatchKey::Subtree(path("/a")), event(EventKind::DataChanged, "/a/b/c"), true);
        check(WatchKey::Subtree(ZPath::root()), event(EventKind::DataChanged, "/x"), true);
        check(WatchKey::Subtree(path("/a")), event(EventKind::DataChanged, "/ab"), false);
    }

    #[test]
    fn removed_watches_leave_nothing_behind() {
        let mut table = WatchTable::new(3);
        let keys = [WatchKey::Node(path("/a")), WatchKey::Node(path("/a")), WatchKey::Children(path("/a"))];
        let set: Vec<_> = keys.into_iter().map(|key| table.set(key, Arc::new(Wake::default())).unwrap()).collect();
        assert!(table.set(WatchKey::Node(path("/b")), Arc::new(Wake::default())).is_none());
        table.fire(&[event(EventKind::ChildrenChanged, "/a")]);
        assert_eq!(table.len(), 2);
        let left: Vec<_> = set.iter().map(|registration| table.remove(registration)).collect();
        assert_eq!(left, [true, true, false]);
        assert_eq!((table.len(), table.node.len(), table.children.len()), (0, 0, 0));
    }

    #[tokio::test]
    async fn a_crowd_is_woken_bit_by_bit_in_the_order_in_which_it_came() {
        let mut table = WatchTable::new(1_000);
        let wakes: Vec<Arc<Wake>> = (0..2 * WOKEN_TOGETHER + 1).map(|_| Arc::default()).collect();
        for wake in &wakes {
            table.set(WatchKey::Node(path("/a")), Arc::clone(wake)).unwrap();
        }
        table.fire(&[event(EventKind::DataChanged, "/a")]);
        assert_eq!(table.len(), 0);
        let is_woken = |at: usize| wakes[at].fired().now_or_never();
        assert_eq!((is_woken(WOKEN_TOGETHER - 1), is_woken(WOKEN_TOGETHER)), (Some(Zxid(1)), None));
        assert!(table.wake_some());
        assert_eq!((is_woken(WOKEN_TOGETHER), is_woken(2 * WOKEN_TOGETHER)), (Some(Zxid(1)), None));
        assert!(!table.wake_some());
        assert_eq!(is_woken(2 * WOKEN_TOGETHER), Some(Zxid(1)));
    }
}
