//! The last events of this node, for clients that ask for all events since a zxid.

use std::collections::VecDeque;

use znode::{Event, EventRecord, Identity, Zxid};

use crate::{EventBatch, EventKinds, EventQuery, EventsError, WatchKey};

/// Number of events in an answer ([`EventBatch`]) after which it ends. An answer still gets all
/// matching events of its last zxid.
const BATCH_EVENTS_MAX: usize = 1_000;
/// Number of events after which a scan of the ring ends, so that other tasks get the view's lock.
const SCAN_MAX: usize = 4_096;

/// The last events, in order of zxid. They are kept under the lock of [`crate::view::View`].
pub(crate) struct EventRing {
    events_max: usize,
    bytes_max: usize,
    events: VecDeque<EventRecord>,
    bytes: usize,
    /// Zxid after which no event is missing in the ring.
    oldest: Zxid,
    /// Zxid up to which the events of all entries were added.
    upto: Zxid,
}

/// The result of a scan of the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RingScan {
    /// Events that match the key and the kinds.
    Batch(EventBatch),
    /// No event up to `scanned` matches the key and the kinds.
    NotYet {
        /// Zxid to pass as `since` to the next scan.
        scanned: Zxid,
        /// True if there are later events than `scanned`, so that the caller must scan again at
        /// once.
        more: bool,
    },
}

impl EventRing {
    /// Makes an empty ring that begins after `start`.
    pub(crate) fn new(events_max: usize, bytes_max: usize, start: Zxid) -> EventRing {
        EventRing { events_max, bytes_max, events: VecDeque::new(), bytes: 0, oldest: start, upto: start }
    }

    /// Drops all events, and begins after `start` with none. The events up to `start` are not known
    /// here, because the state came with a snapshot.
    pub(crate) fn reset(&mut self, start: Zxid) {
        self.events.clear();
        self.bytes = 0;
        self.oldest = start;
        self.upto = start;
    }

    /// Adds the events of all entries up to zxid `upto`, in order.
    pub(crate) fn push(&mut self, events: impl IntoIterator<Item = impl Into<EventRecord>>, upto: Zxid) {
        self.upto = upto;
        for recorded in events.into_iter().map(Into::into) {
            self.bytes += event_bytes(&recorded.event);
            self.events.push_back(recorded);
        }
        while self.events.len() > self.events_max || self.bytes > self.bytes_max {
            let Some(lost) = self.events.pop_front() else {
                break;
            };
            self.bytes -= event_bytes(&lost.event);
            self.oldest = lost.event.zxid;
        }
    }

    /// Zxid up to which the events of all entries were added.
    pub(crate) fn upto(&self) -> Zxid {
        self.upto
    }

    /// The first events that the query asks for.
    ///
    /// # Errors
    /// `Gone` when events after the query's zxid are lost.
    pub(crate) fn find(&self, query: &EventQuery<'_>) -> Result<RingScan, EventsError> {
        let EventQuery { ref key, kinds, since, reader } = *query;
        if since < self.oldest {
            return Err(EventsError::Gone { oldest: self.oldest });
        }
        let start = self.events.partition_point(|recorded| recorded.event.zxid <= since);
        let mut events: Vec<Event> = Vec::new();
        let mut previous = since;
        for (looked_at, recorded) in self.events.range(start..).enumerate() {
            let event = &recorded.event;
            let new_zxid = event.zxid > previous;
            let full = events.len() >= BATCH_EVENTS_MAX || looked_at >= SCAN_MAX;
            if new_zxid && full {
                return Ok(answer(events, previous, true));
            }
            if matches(key, kinds, event) && may_hear(key, recorded, reader) {
                events.push(event.clone());
            }
            previous = event.zxid;
        }
        Ok(answer(events, self.upto.max(since), false))
    }
}

fn answer(events: Vec<Event>, upto: Zxid, more: bool) -> RingScan {
    if events.is_empty() {
        RingScan::NotYet { scanned: upto, more }
    } else {
        RingScan::Batch(EventBatch { events, upto })
    }
}

fn matches(key: &WatchKey, kinds: EventKinds, event: &Event) -> bool {
    kinds.contains(event.kind)
        && match key {
            WatchKey::Node(path) => event.path == *path && EventKinds::DATA.contains(event.kind),
            WatchKey::Children(path) => event.path == *path && EventKinds::CHILDREN.contains(event.kind),
            WatchKey::Subtree(path) => event.path.is_under(path),
        }
}

/// Tells whether a reader may be told of an event. A watch on a subtree names only the subtree's
/// root, so the event itself may tell the name of a znode below. A reader is told such a name only
/// if it may list the children with that name.
fn may_hear(key: &WatchKey, recorded: &EventRecord, reader: Option<&[Identity]>) -> bool {
    let named = !matches!(key, WatchKey::Subtree(path) if *path != recorded.event.path);
    recorded.is_for(reader) && (named || recorded.names_it_to(reader))
}

fn event_bytes(event: &Event) -> usize {
    size_of::<Event>() + event.path.as_str().len()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use znode::{Acl, EventKind, READ, ZPath};

    use super::*;

    fn event(zxid: u64, path: &str) -> Event {
        Event { zxid: Zxid(zxid), kind: EventKind::Created, path: ZPath::parse(path).unwrap() }
    }

    fn find(ring: &EventRing, path: &str, since: u64) -> Result<RingScan, EventsError> {
        let key = WatchKey::Node(ZPath::parse(path).unwrap());
        ring.find(&EventQuery { key, kinds: EventKinds::ALL, since: Zxid(since), reader: None })
    }

    #[test]
    fn events_come_in_order_and_resume_where_the_last_batch_ended() {
        let mut ring = EventRing::new(10, 1 << 20, Zxid(0));
        ring.push(vec![event(1, "/a"), event(2, "/b"), event(4, "/a")], Zxid(5));
        let all = EventBatch { events: vec![event(1, "/a"), event(4, "/a")], upto: Zxid(5) };
        assert_eq!(find(&ring, "/a", 0), Ok(RingScan::Batch(all)));
        let rest = EventBatch { events: vec![event(4, "/a")], upto: Zxid(5) };
        assert_eq!(find(&ring, "/a", 1), Ok(RingScan::Batch(rest)));
        assert_eq!(find(&ring, "/a", 5), Ok(RingScan::NotYet { scanned: Zxid(5), more: false }));
        // A client that has seen a later zxid than this node has applied waits for events after
        // that zxid.
        assert_eq!(find(&ring, "/a", 9), Ok(RingScan::NotYet { scanned: Zxid(9), more: false }));
    }

    #[test]
    fn lost_events_are_gone_and_never_left_out() {
        let mut ring = EventRing::new(2, 1 << 20, Zxid(0));
        ring.push(vec![event(1, "/a"), event(2, "/a"), event(2, "/b"), event(3, "/a")], Zxid(3));
        // One event of zxid 2 is lost, so all events of zxid 2 count as lost.
        assert_eq!(find(&ring, "/a", 1), Err(EventsError::Gone { oldest: Zxid(2) }));
        let rest = EventBatch { events: vec![event(3, "/a")], upto: Zxid(3) };
        assert_eq!(find(&ring, "/a", 2), Ok(RingScan::Batch(rest)));
        ring.reset(Zxid(7));
        assert_eq!(find(&ring, "/a", 3), Err(EventsError::Gone { oldest: Zxid(7) }));
    }

    #[test]
    fn who_may_not_read_a_znode_is_passed_over() {
        let mut ring = EventRing::new(10, 1 << 20, Zxid(0));
        let bobs = Acl { perms: READ, scheme: "digest".into(), id: "bob:x".into() };
        let bobs: Arc<[Acl]> = [bobs].into();
        let (named, below) = (event(1, "/a"), event(2, "/a/b"));
        ring.push([EventRecord { event: named, acl: Some(Arc::clone(&bobs)), parent_acl: None }], Zxid(2));
        let (key, bob) =
            (WatchKey::Node(ZPath::parse("/a").unwrap()), Identity { scheme: "digest".into(), id: "bob:x".into() });
        let found = |reader| {
            let key = key.clone();
            ring.find(&EventQuery { key, kinds: EventKinds::ALL, since: Zxid(0), reader }).unwrap()
        };
        let batch = RingScan::Batch(EventBatch { events: vec![event(1, "/a")], upto: Zxid(2) });
        assert_eq!(found(Some(&[])), RingScan::NotYet { scanned: Zxid(2), more: false });
        assert_eq!((found(Some(std::slice::from_ref(&bob))), found(None)), (batch.clone(), batch));

        // The reader may read the znode, but not its parent's list of children. It hears of the
        // znode only if it watches the znode by name.
        ring.push([EventRecord { event: below.clone(), acl: None, parent_acl: Some(bobs) }], Zxid(2));
        let found = |watched: &str, reader| {
            let key = WatchKey::Subtree(ZPath::parse(watched).unwrap());
            ring.find(&EventQuery { key, kinds: EventKinds::ALL, since: Zxid(1), reader }).unwrap()
        };
        let batch = RingScan::Batch(EventBatch { events: vec![below], upto: Zxid(2) });
        assert_eq!(found("/a", Some(&[])), RingScan::NotYet { scanned: Zxid(2), more: false });
        assert_eq!(found("/", Some(&[])), RingScan::NotYet { scanned: Zxid(2), more: false });
        assert_eq!(
            (found("/a", Some(&[bob])), found("/a/b", Some(&[])), found("/", None)),
            (batch.clone(), batch.clone(), batch)
        );
    }

    #[test]
    fn a_batch_ends_between_two_zxids() {
        let mut ring = EventRing::new(10_000, 1 << 30, Zxid(0));
        let last = BATCH_EVENTS_MAX as u64 + 5;
        ring.push((1..=last).flat_map(|zxid| [event(zxid, "/a"), event(zxid, "/b")]), Zxid(last));
        let Ok(RingScan::Batch(batch)) = find(&ring, "/a", 0) else { panic!("a batch") };
        assert_eq!((batch.events.len(), batch.upto), (BATCH_EVENTS_MAX, Zxid(BATCH_EVENTS_MAX as u64)));
        let Ok(RingScan::Batch(rest)) = find(&ring, "/a", batch.upto.0) else { panic!("the rest") };
        assert_eq!((rest.events.len(), rest.upto), (5, Zxid(last)));
    }
}
