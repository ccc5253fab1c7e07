//! Waits and events: no event is lost, and a waiter is woken only by events at the key that it
//! watches.

use std::cell::Cell;
use std::time::Duration;

use crate::ensemble::{Ensemble, create, eventually, path, set, soon, write};
use replica::{EventKinds, EventQuery, EventsError, Step, WaitEnd, WatchKey};
use tokio::time::Instant;
use znode::{EventKind, Zxid};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_looks_again_exactly_when_its_key_changes() {
    let mut ensemble = Ensemble::started(3, |_| {}).await;
    let (here, there) = (ensemble.node(0), ensemble.node(1));
    write(there, create("/", "a", b"0")).await;
    write(there, create("/", "b", b"0")).await;
    eventually("applied here", || here.state().node(&path("/b")).is_some()).await;
    let looks = Cell::new(0);
    let wait = here.wait_for(soon(), |state| {
        looks.set(looks.get() + 1);
        match state.node(&path("/a")).unwrap().data()[..] {
            [b'2'] => Step::Ready("two"),
            _ => Step::Watch(WatchKey::Node(path("/a"))),
        }
    });
    let writes = async {
        for _ in 0..20 {
            write(there, set("/b", b"x")).await;
            write(there, create("/a", "child", b"")).await;
            write(there, znode::Request::new(delete("/a/child"))).await;
        }
        eventually("the first look", || looks.get() == 1).await;
        write(there, set("/a", b"1")).await;
        eventually("the second look", || looks.get() == 2).await;
        write(there, set("/a", b"2")).await;
    };
    let (waited, ()) = tokio::join!(wait, writes);
    assert_eq!((waited, looks.get()), (Ok("two"), 3));
    assert_eq!(here.status().watches, 0);
    ensemble.stop_all().await;
}

fn delete(at: &str) -> znode::Op {
    znode::Op::Znode(znode::ZnodeOp::Delete { path: path(at), version: -1 })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_ends_at_its_deadline_at_the_bound_and_with_the_node() {
    let mut ensemble = Ensemble::started(1, |config| config.watches_max = 1).await;
    let node = ensemble.node(0).clone();
    let never = || Step::<()>::Watch(WatchKey::Node(path("/never")));
    let short = Instant::now() + Duration::from_millis(20);
    assert_eq!(node.wait_for(short, |_| never()).await, Err(WaitEnd::Deadline));
    let waiter = tokio::spawn({
        let node = node.clone();
        async move { node.wait_for(soon(), |_| never()).await }
    });
    eventually("the watch is set", || node.status().watches == 1).await;
    assert_eq!(node.wait_for(soon(), |_| never()).await, Err(WaitEnd::TooMany));
    ensemble.stop(0).await;
    assert_eq!(waiter.await.unwrap(), Err(WaitEnd::Stopped));
    assert_eq!(node.wait_for(soon(), |_| never()).await, Err(WaitEnd::Stopped));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_resume_by_zxid_and_are_gone_when_the_ring_has_lost_them() {
    let mut ensemble = Ensemble::started(3, |config| config.event_ring_max = 8).await;
    let (here, there) = (ensemble.node(0), ensemble.node(1));
    let created = write(there, create("/", "a", b"")).await.zxid;
    let query = |kinds, since| EventQuery { key: WatchKey::Node(path("/a")), kinds, since, reader: None };
    let first = here.events(query(EventKinds::ALL, Zxid(created.0 - 1)), soon()).await.unwrap();
    let seen: Vec<_> = first.events.iter().map(|event| (event.zxid, event.kind)).collect();
    assert_eq!(seen, [(created, EventKind::Created)]);

    // Other events fill the ring while the watcher waits, and the watcher must not hear of them.
    let wait = here.events(query(EventKinds::DATA, first.upto), soon());
    let writes = async {
        write(there, create("/", "b", b"")).await;
        for _ in 0..20 {
            write(there, set("/b", b"")).await;
        }
        write(there, set("/a", b"1")).await.zxid
    };
    let (batch, changed) = tokio::join!(wait, writes);
    let batch = batch.unwrap();
    assert_eq!((batch.events.len(), batch.events[0].zxid), (1, changed));

    let gone = here.events(query(EventKinds::ALL, created), soon()).await;
    assert!(matches!(gone, Err(EventsError::Gone { oldest }) if oldest > created), "{gone:?}");
    let short = Instant::now() + Duration::from_millis(20);
    let nothing = here.events(query(EventKinds::ALL, batch.upto), short).await.unwrap();
    assert!(nothing.events.is_empty() && nothing.upto >= batch.upto, "{nothing:?}");
    ensemble.stop_all().await;
}
