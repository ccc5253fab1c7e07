//! ZooKeeper's guarantees about the order of writes, reads and events.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use jute::{
    Buffer, DataStat, NamesStat, PathOnly, PathWatch, Record, Request, SetWatches, SetWatches2, Stat, event, xid,
};
use replica::{Observer, Observing};
use tokio::time::timeout;
use wire::WireConfig;
use znode::{EventKind, EventRecord, State};

use crate::client::{Client, create, set};
use crate::node::{Node, PATIENCE};

#[tokio::test]
async fn pipelined_requests_are_done_and_answered_in_order_on_every_node() {
    let nodes = Node::start_many(3, WireConfig::default(), |_| {}).await;
    let path = |number: usize| format!("/n{number}");
    for (number, node) in nodes.iter().enumerate() {
        let mut client = node.client().await;
        client.create(&path(number), 0).await.unwrap();
        let mut xids = Vec::new();
        for round in 1..=60 {
            xids.push(client.send(&set(&path(number), &round.to_string())).await);
            xids.push(client.send(&Request::GetData(PathWatch { path: path(number), watch: false })).await);
            if round % 20 == 0 {
                xids.push(client.send(&Request::Sync(PathOnly { path: path(number) })).await);
                xids.push(client.send(&Request::Unknown(999)).await);
            }
        }
        let mut answers = Vec::new();
        for _ in &xids {
            answers.push(client.answer().await);
        }
        assert_eq!(answers.iter().map(|answer| answer.xid).collect::<Vec<_>>(), xids);
        let mut answers = answers.iter();
        for round in 1..=60 {
            let written = Stat::from_bytes(&answers.next().unwrap().body).unwrap();
            let read = DataStat::from_bytes(&answers.next().unwrap().body).unwrap();
            assert_eq!(written.version, round);
            // This client is the only writer: a read sees the client's last write before it, and
            // none sent after it.
            let data = round.to_string().into_bytes();
            assert_eq!((read.stat.version, read.data), (round, Buffer::from(data)));
            if round % 20 == 0 {
                assert_eq!((answers.next().unwrap().error, answers.next().unwrap().error), (0, -6));
            }
        }
    }
}

/// The version in an answer belongs to the answered write, even if writes at other nodes have been
/// applied since.
#[tokio::test]
async fn a_set_at_any_node_is_answered_with_its_own_version() {
    const EACH: usize = 200;
    let nodes = Node::start_many(3, WireConfig::default(), |_| {}).await;
    nodes[0].client().await.create("/shared", 0).await.unwrap();
    let writing = nodes.iter().map(async |node| {
        let mut client = node.client().await;
        client.call(Request::Sync(PathOnly { path: "/shared".into() })).await.unwrap();
        for _ in 0..EACH {
            client.send(&set("/shared", "x")).await;
        }
        let mut versions = Vec::new();
        for _ in 0..EACH {
            versions.push(Stat::from_bytes(&client.answer().await.body).unwrap().version);
        }
        assert!(versions.is_sorted_by(|one, next| one < next), "{versions:?}");
        versions
    });
    let mut all = futures_util::future::join_all(writing).await.concat();
    all.sort_unstable();
    assert!(all.into_iter().eq(1..=(3 * EACH) as i32), "each write has a version of its own");
}

#[tokio::test]
async fn an_event_comes_before_the_answer_that_shows_the_change() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("/a", 0).await.unwrap();
    for _ in 0..100 {
        client.get("/a", true).await.unwrap();
        client.set("/a", "y").await.unwrap();
        assert_eq!(client.events.pop_front(), Some((event::NODE_DATA_CHANGED, "/a".into())));
    }
    // Another client changes the znode, and a read shows the change.
    let mut other = node.client().await;
    for _ in 0..100 {
        let before = client.get("/a", true).await.unwrap().stat.version;
        other.set("/a", "z").await.unwrap();
        assert_eq!(client.get("/a", false).await.unwrap().stat.version, before + 1);
        assert_eq!(client.events.pop_front(), Some((event::NODE_DATA_CHANGED, "/a".into())));
    }
}

/// All reads sent after a write can be answered when the write is applied, but then wait for room
/// in the outbox. An event does not wait, and so comes before some answers.
#[tokio::test]
async fn an_answer_never_shows_less_than_an_event_before_it() {
    let config = WireConfig { unread_bytes_max: 400_000, ..WireConfig::default() };
    let node = Node::start_with(config, |_| {}).await;
    let (mut watching, mut other) = (node.client().await, node.client().await);
    other.create("/a", 0).await.unwrap();
    other.set("/a", &"x".repeat(100_000)).await.unwrap();
    other.create("/k", 0).await.unwrap();
    other.create("/written", 0).await.unwrap();
    let recursive = jute::AddWatchRequest { path: "/k".into(), mode: 1 };
    watching.call(Request::AddWatch(recursive)).await.unwrap();
    let read = |path: &str| Request::GetData(PathWatch { path: path.into(), watch: false });
    let mut requests = vec![set("/written", "y")];
    requests.extend((0..300).map(|_| read("/a")));
    requests.push(read("/k"));
    let last = watching.send_together(&requests).await;
    while other.get("/written", false).await.unwrap().stat.version == 0 {}
    other.delete("/k").await.unwrap();
    let answer = loop {
        let answer = watching.answer().await;
        if answer.xid == last {
            break answer;
        }
    };
    assert!(watching.events.is_empty() || answer.error == -101, "{:?}, and then it is there", watching.events);
}

/// The watch fires as soon as it is set. The client must get the answer that sets the watch before
/// the event; otherwise it knows no watch for the event.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_never_comes_before_the_answer_that_sets_its_watch() {
    let node = Node::start().await;
    let (mut reading, mut writing) = (node.client().await, node.client().await);
    writing.create("/a", 0).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let writer = tokio::spawn(async move {
        while !stopped.load(Ordering::Relaxed) {
            for _ in 0..50 {
                writing.send(&set("/a", "x")).await;
            }
            for _ in 0..50 {
                writing.answer().await;
            }
        }
    });
    for _ in 0..100 {
        let xid = reading.send(&Request::GetData(PathWatch { path: "/a".into(), watch: true })).await;
        let answer = reading.packet().await.unwrap();
        assert_eq!(answer.xid, xid, "an event before its watch");
        let seen = DataStat::from_bytes(&answer.body).unwrap().stat.version;
        let event = reading.packet().await.unwrap();
        assert_eq!(event.xid, xid::EVENT);
        assert!(reading.get("/a", false).await.unwrap().stat.version > seen);
    }
    stop.store(true, Ordering::Relaxed);
    writer.await.unwrap();
}

#[tokio::test]
async fn watches_that_are_brought_along_tell_what_they_missed_before_the_answer() {
    let nodes = Node::start_many(3, WireConfig::default(), |_| {}).await;
    let mut client = nodes[0].client().await;
    for path in ["/set", "/same", "/gone", "/list", "/list-same", "/p"] {
        client.create(path, 0).await.unwrap();
    }
    let relative_zxid = client.last_zxid;
    let mut other = nodes[1].client().await;
    other.set("/set", "y").await.unwrap();
    other.delete("/gone").await.unwrap();
    other.create("/list/child", 0).await.unwrap();
    other.create("/new", 0).await.unwrap();
    let mut client = Client::resume(nodes[2].addr, &client).await;
    // The new node has to catch up with the zxid and the events that the client has seen.
    client.call(Request::Sync(PathOnly { path: "/".into() })).await.unwrap();
    let paths = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>();
    let watches = SetWatches2 {
        relative_zxid,
        data: paths(&["/set", "/same", "/gone"]),
        exist: paths(&["/new", "/later"]),
        child: paths(&["/list", "/list-same", "/gone"]),
        persistent: paths(&["/p"]),
        persistent_recursive: paths(&["/p"]),
    };
    assert_eq!(client.call(Request::SetWatches2(watches)).await, Ok(Vec::new()));
    let missed = [
        (event::NODE_DATA_CHANGED, "/set"),
        (event::NODE_DELETED, "/gone"),
        (event::NODE_CREATED, "/new"),
        (event::NODE_CHILDREN_CHANGED, "/list"),
        (event::NODE_DELETED, "/gone"),
    ];
    let missed = missed.map(|(kind, path)| (kind, path.to_owned()));
    assert_eq!(client.events.drain(..).collect::<Vec<_>>(), missed);
    // Watches that missed no event are set; watches that missed one have fired.
    for path in ["/same", "/set"] {
        client.set(path, "z").await.unwrap();
    }
    for path in ["/later", "/list-same/child", "/list/other", "/p/child"] {
        client.create(path, 0).await.unwrap();
    }
    let fired = [
        (event::NODE_DATA_CHANGED, "/same"),
        (event::NODE_CREATED, "/later"),
        (event::NODE_CHILDREN_CHANGED, "/list-same"),
        (event::NODE_CREATED, "/p/child"),
        (event::NODE_CHILDREN_CHANGED, "/p"),
    ];
    let fired = fired.map(|(kind, path)| (kind, path.to_owned()));
    assert_eq!(client.events.drain(..).collect::<Vec<_>>(), fired);
    let old = SetWatches { relative_zxid: client.last_zxid, data: paths(&["/same"]), ..SetWatches::default() };
    assert_eq!(client.call(Request::SetWatches(old)).await, Ok(Vec::new()));
    client.set("/same", "z").await.unwrap();
    assert_eq!(client.event().await, (event::NODE_DATA_CHANGED, "/same".to_owned()));
}

/// A write at one node may be acknowledged before another node has applied it. After a `sync`, a
/// client of the other node must read it.
#[tokio::test]
async fn a_read_behind_a_sync_sees_what_was_acknowledged_before() {
    let nodes = Node::start_many(3, WireConfig::default(), |_| {}).await;
    let (mut writer, mut reader) = (nodes[0].client().await, nodes[1].client().await);
    writer.create("/a", 0).await.unwrap();
    for round in 1..=50 {
        writer.set("/a", "x").await.unwrap();
        reader.send(&Request::Sync(PathOnly { path: "/a".into() })).await;
        reader.send(&Request::GetData(PathWatch { path: "/a".into(), watch: false })).await;
        reader.answer().await;
        assert_eq!(DataStat::from_bytes(&reader.answer().await.body).unwrap().stat.version, round);
    }
    // Two clients that send at the same time each get their answers in order.
    for client in [&mut writer, &mut reader] {
        for name in 0..20 {
            client.send(&create(&format!("/a/{name}"), 0)).await;
        }
    }
    let (mut created, mut there) = (0, 0);
    for client in [&mut writer, &mut reader] {
        for _ in 0..20 {
            match client.answer().await.error {
                0 => created += 1,
                -110 => there += 1,
                other => panic!("{other}"),
            }
        }
    }
    assert_eq!((created, there), (20, 20));
}

/// Writes are proposed while the reads before them still wait for their answers. Without a quorum,
/// all writes are proposed and no request is answered.
#[tokio::test]
async fn a_write_does_not_wait_for_the_reads_before_it() {
    let mut nodes = Node::start_many(3, WireConfig::default(), |_| {}).await;
    let node = nodes.remove(0);
    let mut client = node.client().await;
    client.create("/a", 0).await.unwrap();
    for other in nodes {
        other.replica.shutdown().await;
    }
    let get = Request::GetData(PathWatch { path: "/a".into(), watch: false });
    for _ in 0..20 {
        client.send(&set("/a", "x")).await;
        client.send(&get).await;
    }
    // Without a quorum, four-letter words are refused, so the number is taken from the node itself.
    let proposed = async {
        while node.replica.status().proposals < 20 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, proposed).await.expect("the writes wait for the reads");
}

/// A read sees all writes that its client sent before it and no later write, whatever requests come
/// between. This also holds for reads that set watches and for syncs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_of_every_kind_see_what_was_sent_before_them_and_nothing_else() {
    let nodes = Node::start_many(3, WireConfig::default(), |_| {}).await;
    nodes[0].client().await.create("/a", 0).await.unwrap();
    for node in &nodes {
        let mut client = node.client().await;
        let mut version = client.get("/a", false).await.unwrap().stat.version;
        for seed in 0..20 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut expected = Vec::new();
            for _ in 0..60 {
                match rng.u8(..8) {
                    0 => _ = client.send(&Request::Sync(PathOnly { path: "/a".into() })).await,
                    1 => _ = client.send(&Request::GetData(PathWatch { path: "/none".into(), watch: true })).await,
                    2 => _ = client.send(&create("/no/parent", 0)).await,
                    3..5 => {
                        let watch = rng.u8(..6) == 0;
                        client.send(&Request::GetData(PathWatch { path: "/a".into(), watch })).await;
                        expected.push((expected.len(), version));
                        continue;
                    }
                    _ => {
                        client.send(&set("/a", "x")).await;
                        version += 1;
                    }
                }
                expected.push((expected.len(), i32::MIN));
            }
            // The tests' client also checks that the zxids of answers never fall.
            for (at, wanted) in expected {
                let answer = client.answer().await;
                if wanted != i32::MIN {
                    let seen = DataStat::from_bytes(&answer.body).unwrap().stat.version;
                    assert_eq!(seen, wanted, "seed {seed}, request {at}");
                }
            }
        }
    }
}

/// Observer of the state that delays the publishing of a change of data until the test continues.
/// The hub, an earlier observer, has been told of the change by then.
struct Between {
    come: SyncSender<()>,
    go_on: Mutex<Receiver<()>>,
}

impl Observer for Between {
    fn before_change(&self) -> Box<dyn Observing + '_> {
        Box::new(self)
    }

    fn replaced(&self, _: &Arc<State>) {}
}

impl Observing for &Between {
    fn published(self: Box<Self>, _: &Arc<State>, events: &[EventRecord]) {
        if events.iter().any(|recorded| recorded.event.kind == EventKind::DataChanged) {
            let _ = self.come.send(());
            let _ = self.go_on.lock().unwrap().recv();
        }
    }
}

/// A read that sets a watch uses the hub's state, which shows a change a moment before the node's
/// published state does. Later reads must show that change, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_read_never_sees_less_than_the_one_before_it() {
    let node = Node::start().await;
    let (mut reading, mut writing) = (node.client().await, node.client().await);
    writing.create("/a", 0).await.unwrap();
    let (come, coming) = sync_channel(1);
    let (go, go_on) = sync_channel(1);
    let between = Arc::new(Between { come, go_on: Mutex::new(go_on) });
    node.replica.observe(&between);
    writing.send(&set("/a", "y")).await;
    tokio::task::spawn_blocking(move || coming.recv().unwrap()).await.unwrap();
    // The hub knows the change already; a reader waits until the node has published the state.
    for watch in [true, false, true, false] {
        reading.send(&Request::GetData(PathWatch { path: "/a".into(), watch })).await;
    }
    reading.send(&Request::GetChildren2(PathWatch { path: "/a".into(), watch: false })).await;
    go.send(()).unwrap();
    for _ in 0..4 {
        assert_eq!(DataStat::from_bytes(&reading.answer().await.body).unwrap().stat.version, 1);
    }
    assert_eq!(NamesStat::from_bytes(&reading.answer().await.body).unwrap().stat.version, 1);
    assert_eq!(writing.answer().await.error, 0);
}

/// A state is changed in place only while nothing else refers to it. So the hub must drop its
/// reference before each change.
#[tokio::test]
async fn a_write_copies_nothing_of_the_state() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("/a", 0).await.unwrap();
    for _ in 0..10 {
        client.get("/a", true).await.unwrap();
        let before = Arc::as_ptr(&node.replica.state());
        client.set("/a", "y").await.unwrap();
        assert_eq!(Arc::as_ptr(&node.replica.state()), before);
    }
}
