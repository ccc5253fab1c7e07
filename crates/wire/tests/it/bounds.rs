//! Each bound with its answer.

use jute::{ConnectRequest, PathWatch, Record, Request, SetWatches2, framed, op};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use wire::WireConfig;

use crate::client::{Client, create, greet, set};
use crate::node::{Node, PATIENCE};

/// Reads until the server closes.
async fn until_closed(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let closed = timeout(PATIENCE, stream.read_to_end(&mut all)).await.expect("the server does not close");
    // A reset is an end too.
    let _ = closed;
    all
}

#[tokio::test]
async fn connections_have_a_bound() {
    let node = Node::start_with(WireConfig { connections_max: 2, ..WireConfig::default() }, |_| {}).await;
    let (first, _second) = (node.client().await, node.client().await);
    let asked = ConnectRequest { timeout_ms: 9_000, ..ConnectRequest::default() };
    let mut refused = TcpStream::connect(node.addr).await.unwrap();
    let _ = refused.write_all(&framed(|out| asked.write(out))).await;
    assert_eq!(until_closed(&mut refused).await, []);
    first.close().await;
    while greet(node.addr, &asked).await.2.is_none() {}
}

#[tokio::test]
async fn a_packet_has_a_bound() {
    let config = WireConfig { packet_bytes_max: 1_000, ..WireConfig::default() };
    let node = Node::start_with(config, |_| {}).await;
    let mut client = node.client().await;
    client.create("/a", 0).await.unwrap();
    client.set("/a", &"x".repeat(900)).await.unwrap();
    client.send(&set("/a", &"x".repeat(1_000))).await;
    assert_eq!(client.packet().await, None);
}

#[tokio::test]
async fn watches_have_a_bound() {
    let node = Node::start_with(WireConfig { watches_max: 1, ..WireConfig::default() }, |_| {}).await;
    let mut client = node.client().await;
    assert_eq!(client.exists("/a", true).await, Err(-101));
    assert_eq!(client.exists("/b", true).await, Err(-125));
    assert_eq!(client.exists("/b", false).await, Err(-101));
    assert_eq!(client.exists("/a", true).await, Err(-101), "the one that is set already");
    let set = SetWatches2 { exist: vec!["/c".into()], ..SetWatches2::default() };
    client.send(&Request::SetWatches2(set)).await;
    assert_eq!(client.packet().await, None, "who brings too many goes to another node");
    let mut other = node.client().await;
    while other.exists("/b", true).await == Err(-125) {}
}

#[tokio::test]
async fn requests_on_their_way_have_a_bound_and_wait() {
    let config = WireConfig { outstanding_max: 2, outstanding_bytes_max: 600, writes_max: 1, ..WireConfig::default() };
    let node = Node::start_with(config, |config| config.proposals_max = 1).await;
    let (mut first, mut second) = (node.client().await, node.client().await);
    first.create("/a", 0).await.unwrap();
    for _ in 0..50 {
        for client in [&mut first, &mut second] {
            client.send(&set("/a", &"x".repeat(400))).await;
            client.send(&Request::Exists(PathWatch { path: "/a".into(), watch: false })).await;
        }
    }
    for _ in 0..100 {
        assert_eq!((first.answer().await.error, second.answer().await.error), (0, 0));
    }
    assert_eq!(first.exists("/a", false).await.unwrap().version, 100);
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_cut_and_others_are_served() {
    let config = WireConfig { unread_bytes_max: 200_000, write_timeout_ms: 300, ..WireConfig::default() };
    let node = Node::start_with(config, |_| {}).await;
    let (mut slow, mut other) = (node.client().await, node.client().await);
    other.create("/a", 0).await.unwrap();
    other.set("/a", &"x".repeat(100_000)).await.unwrap();
    // Answers of many MiB: more than the sockets between the two hold.
    let get = framed(|out| {
        jute::RequestHeader { xid: 1, op: op::GET_DATA }.write(out);
        PathWatch { path: "/a".into(), watch: false }.write(out);
    });
    let (mut reading, mut writing) = slow.stream.split();
    let asking = async {
        while writing.write_all(&get).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, asking).await.expect("the server lets it ask for ever");
    other.nothing_more().await;
    let mut taken = Vec::new();
    let _ = reading.read_to_end(&mut taken).await;
}

#[tokio::test]
async fn events_that_nobody_takes_have_a_bound() {
    let config = WireConfig { unread_bytes_max: 10_000, write_timeout_ms: 60_000, ..WireConfig::default() };
    let node = Node::start_with(config, |_| {}).await;
    let (mut slow, mut other) = (node.client().await, node.client().await);
    let add = jute::AddWatchRequest { path: "/".into(), mode: 1 };
    slow.call(Request::AddWatch(add)).await.unwrap();
    socket2::SockRef::from(&slow.stream).set_recv_buffer_size(4_096).unwrap();
    let deep = format!("/{}", "d".repeat(200));
    other.create(&deep, 0).await.unwrap();
    let watched = |node: &Node| node.replica.state().last_zxid();
    let before = watched(&node);
    let sessions = async {
        // Until the door has had enough of the slow one: its watch goes with it.
        loop {
            for _ in 0..100 {
                other.send(&set(&deep, "x")).await;
            }
            for _ in 0..100 {
                other.answer().await;
            }
            let mut word = TcpStream::connect(node.addr).await.unwrap();
            word.write_all(b"srvr").await.unwrap();
            let text = String::from_utf8(until_closed(&mut word).await).unwrap();
            if text.contains("Connections: 1\n") {
                return;
            }
        }
    };
    timeout(PATIENCE, sessions).await.expect("the slow client is kept for ever");
    assert!(watched(&node) > before);
}

#[tokio::test]
async fn sessions_of_the_cluster_have_a_bound() {
    let node = Node::start_with(WireConfig::default(), |config| config.limits.sessions_max = 1).await;
    let first = node.client().await;
    let asked = ConnectRequest { timeout_ms: 9_000, ..ConnectRequest::default() };
    assert_eq!(greet(node.addr, &asked).await.2, None);
    first.close().await;
    Client::of(greet(node.addr, &asked).await).close().await;
}

#[tokio::test]
async fn bounds_of_the_state_are_told_in_zookeepers_numbers() {
    let edit = |config: &mut replica::Config| {
        let limits = &mut config.limits;
        (limits.data_bytes_max, limits.path_bytes_max, limits.name_bytes_max) = (200, 100, 50);
        (limits.children_max, limits.ephemerals_max, limits.ops_max) = (3, 1, 2);
    };
    let node = Node::start_with(WireConfig::default(), edit).await;
    let mut client = node.client().await;
    client.create("/a", 0).await.unwrap();
    assert_eq!(client.set("/a", &"x".repeat(201)).await, Err(-8));
    assert_eq!(client.create(&format!("/a/{}", "n".repeat(51)), 0).await, Err(-8));
    client.create("/a/e", 1).await.unwrap();
    assert_eq!(client.create("/a/f", 1).await, Err(-125));
    client.create("/a/f", 0).await.unwrap();
    client.create("/a/g", 0).await.unwrap();
    assert_eq!(client.create("/a/h", 0).await, Err(-125));
    let Request::Create(op, one) = create("/b", 0) else { panic!("what else?") };
    let many = vec![jute::MultiOp::Create(op, one); 3];
    assert_eq!(client.call(Request::Multi(many)).await, Err(-8));
}

#[tokio::test]
async fn packets_that_are_not_whole_have_a_bound_and_the_oldest_gives_way() {
    let config = WireConfig { half_packets_bytes_max: 100_000, ..WireConfig::default() };
    let node = Node::start_with(config, |_| {}).await;
    let mut other = node.client().await;
    other.create("/a", 0).await.unwrap();
    let (mut body, request) = (Vec::new(), set("/a", &"x".repeat(39_000)));
    request.write(&mut body);
    let frame = framed(|out| {
        jute::RequestHeader { xid: 1, op: op::SET_DATA }.write(out);
        out.extend_from_slice(&body);
    });
    let mut halves = Vec::new();
    for _ in 0..20 {
        let mut half = node.client().await;
        half.stream.write_all(&frame[..30_000]).await.unwrap();
        halves.push(half);
        // The bound is there for all, and nobody but those who do not go on pays for it.
        other.set("/a", &"x".repeat(50_000)).await.unwrap();
    }
    let mut last = halves.pop().unwrap();
    last.stream.write_all(&frame[30_000..]).await.unwrap();
    assert_eq!(last.answer().await.error, 0, "the youngest has all the time that it needs");
    for mut half in halves.drain(..17) {
        until_closed(&mut half.stream).await;
    }
}

#[tokio::test]
async fn a_slow_sender_is_answered_and_nobody_waits_for_it() {
    let node = Node::start().await;
    let (mut slow, mut other) = (node.client().await, node.client().await);
    other.create("/a", 0).await.unwrap();
    let mut body = Vec::new();
    set("/a", "slow").write(&mut body);
    let frame = framed(|out| {
        jute::RequestHeader { xid: 1, op: op::SET_DATA }.write(out);
        out.extend_from_slice(&body);
    });
    for byte in &frame {
        slow.stream.write_all(std::slice::from_ref(byte)).await.unwrap();
        assert_eq!(other.exists("/a", false).await.unwrap().version, 0);
    }
    assert_eq!((slow.answer().await.error, other.get("/a", false).await.unwrap().data), (0, b"slow".as_slice().into()));
}
