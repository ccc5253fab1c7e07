//! Kinds of watches, and the audience of an event: the connections whose watches it fires. Pure
//! functions and data.

use std::collections::BTreeSet;
use std::sync::Arc;

/// Kind of a watch, which determines its events and whether it fires once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum WatchKind {
    /// A watch of getData or exists, for changes of the znode. Fires once.
    Data,
    /// A watch of getChildren, for creations and deletions of children. Fires once.
    Child,
    /// A watch of addWatch for the events of `Data` and `Child`. Stays after an event.
    Persistent,
    /// A watch of addWatch for the znode and all znodes below it, without events about lists of
    /// children. Stays after an event.
    Recursive,
}

impl WatchKind {
    /// Tells whether the first event removes a watch of this kind.
    pub(crate) fn fires_once(self) -> bool {
        matches!(self, WatchKind::Data | WatchKind::Child)
    }
}

/// Connections that an event is for, and that have not got it yet.
///
/// Each connection is taken once, either as the connection with the lowest number or by its number.
#[derive(Debug, Default)]
pub(crate) struct Audience {
    watchers: Vec<Watchers>,
    /// Number below which all connections of the audience have been taken.
    next: u64,
    /// Numbers of connections from `next` on that were taken by their number.
    ahead: BTreeSet<u64>,
}

/// Connections with a watch of one kind at one path.
#[derive(Debug)]
struct Watchers {
    kind: WatchKind,
    /// True if the watches are at the event's znode; false if they are at a znode above it.
    names_it: bool,
    connections: Arc<BTreeSet<u64>>,
}

/// A connection that must get an event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hearer {
    pub(crate) connection: u64,
    /// True if one of the connection's watches is at the event's znode; false if all are at znodes
    /// above it.
    pub(crate) names_it: bool,
    /// Kinds of the connection's watches that the event removes, because they fire once.
    pub(crate) used_up: Vec<WatchKind>,
}

impl Audience {
    /// Adds the connections that have a watch of this kind at one path.
    pub(crate) fn add(&mut self, kind: WatchKind, names_it: bool, connections: Arc<BTreeSet<u64>>) {
        if !connections.is_empty() {
            self.watchers.push(Watchers { kind, names_it, connections });
        }
    }

    /// Tells whether all connections have been taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.first().is_none()
    }

    /// Takes the connection with the lowest number.
    pub(crate) fn take_first(&mut self) -> Option<Hearer> {
        let connection = self.first()?;
        self.next = connection + 1;
        self.ahead = self.ahead.split_off(&self.next);
        Some(self.hearer(connection))
    }

    /// Takes a connection by its number; `None` if it is not in the audience, or has been taken
    /// before.
    pub(crate) fn take(&mut self, connection: u64) -> Option<Hearer> {
        let is_left = connection >= self.next
            && self.watchers.iter().any(|watchers| watchers.connections.contains(&connection))
            && self.ahead.insert(connection);
        is_left.then(|| self.hearer(connection))
    }

    fn first(&self) -> Option<u64> {
        let left = |watchers: &Watchers| {
            let mut connections = watchers.connections.range(self.next..);
            connections.find(|connection| !self.ahead.contains(connection)).copied()
        };
        self.watchers.iter().filter_map(left).min()
    }

    fn hearer(&self, connection: u64) -> Hearer {
        let watching = || self.watchers.iter().filter(|watchers| watchers.connections.contains(&connection));
        Hearer {
            connection,
            names_it: watching().any(|watchers| watchers.names_it),
            used_up: watching().map(|watchers| watchers.kind).filter(|kind| kind.fires_once()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(numbers: &[u64]) -> Arc<BTreeSet<u64>> {
        Arc::new(numbers.iter().copied().collect())
    }

    fn hearer(connection: u64, names_it: bool, used_up: &[WatchKind]) -> Hearer {
        Hearer { connection, names_it, used_up: used_up.to_vec() }
    }

    #[test]
    fn each_connection_is_taken_once_whoever_asks_for_it() {
        let mut audience = Audience::default();
        audience.add(WatchKind::Data, true, set(&[2, 3, 5]));
        audience.add(WatchKind::Recursive, false, set(&[1, 3]));
        audience.add(WatchKind::Child, true, set(&[]));
        assert_eq!(audience.take(5), Some(hearer(5, true, &[WatchKind::Data])));
        assert_eq!([5, 4].map(|number| audience.take(number)), [None, None]);
        let both = Some(hearer(3, true, &[WatchKind::Data]));
        let expected = [Some(hearer(1, false, &[])), Some(hearer(2, true, &[WatchKind::Data])), both, None];
        assert_eq!([(); 4].map(|()| audience.take_first()), expected);
        assert_eq!(audience.take(2), None);
        assert!(audience.is_empty());
    }
}
