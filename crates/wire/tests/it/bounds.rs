//! Every bound of the server for ZooKeeper clients, with the answer beyond it.

use jute::{
    AuthRequest, ConnectRequest, Input, MultiOp, MultiResult, PathWatch, Record, Request, RequestHeader, SetWatches2,
    framed, op, read_multi_results,
};
use replica::Bound;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use wire::WireConfig;

use crate::client::{Client, create, greet, set};
use crate::node::{Node, PATIENCE};
use crate::words::{number, number_is};

/// Reads until the server closes the connection. Returns the bytes read.
async fn until_closed(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let closed = timeout(PATIENCE, stream.read_to_end(&mut all)).await.expect("the server does not close");
    // A reset counts as a close, too.
    let _ = closed;
    all
}

#[tokio::test]
async fn connections_have_a_bound() {
    let config = WireConfig { connections_max: 2, connections_per_address_max: 2, ..WireConfig::default() };
    let node = Node::start_with(config, |_| {}).await;
    let (first, _second) = (node.client().await, node.client().await);
    let asked = ConnectRequest { timeout_ms: 9_000, ..ConnectRequest::default() };
    let mut refused = TcpStream::connect(node.addr).await.unwrap();
    let _ = refused.write_all(&framed(|out| asked.write(out))).await;
    assert_eq!(until_closed(&mut refused).await, [0_u8; 0]);
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
    assert_eq!(client.exists("/b", true).await, Err(-1));
    assert_eq!(client.exists("/b", false).await, Err(-101));
    assert_eq!(client.exists("/a", true).await, Err(-101), "the one that is set already");
    let set = SetWatches2 { exist: vec!["/c".into()], ..SetWatches2::default() };
    client.send(&Request::SetWatches2(set)).await;
    assert_eq!(client.packet().await, None, "who brings too many goes to another node");
    let counts = node.replica.status().counts;
    assert_eq!(Bound::ALL.map(|bound| counts.refused(bound)).iter().sum::<u64>(), 2);
    assert_eq!(counts.refused(Bound::ZooKeeperWatches), 2, "the watch, and the watches of setWatches");
    let mut other = node.client().await;
    while other.exists("/b", true).await == Err(-1) {}
}

/// The memory of watches is bounded for all clients, and for each address. Without this bound, ten
/// connections with 100,000 paths of 1 KB each would take 1.2 GB, and use up the number of watches.
#[tokio::test]
async fn what_watches_take_has_a_bound_and_an_address_its_share() {
    let config = WireConfig { watch_bytes_max: 400_000, ..WireConfig::default() };
    let node = Node::start_with(config, |_| {}).await;
    let paths = |from: usize, count: usize| (from..from + count).map(|at| format!("/{at:0999}")).collect();
    let brought = |exist: Vec<String>| Request::SetWatches2(SetWatches2 { exist, ..SetWatches2::default() });
    let mut first = Client::open_from([127, 0, 0, 2], node.addr, 30_000).await;
    first.call(brought(paths(0, 80))).await.unwrap();
    assert_eq!(first.exists("/a", true).await, Err(-101), "there is room for a short one");
    let mut second = Client::open_from([127, 0, 0, 2], node.addr, 30_000).await;
    second.send(&brought(paths(80, 80))).await;
    assert_eq!(second.packet().await, None, "its address has its share");
    assert_eq!(first.exists(&format!("/{:0>999}", "a"), true).await, Err(-1));
    let mut other = Client::open_from([127, 0, 0, 3], node.addr, 30_000).await;
    other.call(brought(paths(0, 80))).await.unwrap();
    first.close().await;
    let mut again = Client::open_from([127, 0, 0, 2], node.addr, 30_000).await;
    while again.exists(&format!("/{:0>999}", "a"), true).await == Err(-1) {}
}

#[tokio::test]
async fn one_connection_does_not_take_all_watches() {
    let node = Node::start_with(WireConfig { connection_watches_max: 2, ..WireConfig::default() }, |_| {}).await;
    let (mut client, mut other) = (node.client().await, node.client().await);
    for (path, answer) in [("/a", -101), ("/b", -101), ("/c", -1), ("/a", -101)] {
        assert_eq!(client.exists(path, true).await, Err(answer), "{path}");
    }
    assert_eq!(client.exists("/c", false).await, Err(-101));
    let exist = ["/c", "/d", "/e"].map(String::from).to_vec();
    other.send(&Request::SetWatches2(SetWatches2 { exist, ..SetWatches2::default() })).await;
    assert_eq!(other.packet().await, None, "who brings too many is cut");
    // A watch that has fired makes room.
    client.create("/a", 0).await.unwrap();
    assert_eq!(client.exists("/c", true).await, Err(-101));
}

/// A full state is not answered with the code -125 (`QuotaExceeded`), on which kazoo 2.8 hangs and
/// node-zookeeper-client ends its process. Only an operator's quota is answered with it.
#[tokio::test]
async fn a_full_state_answers_with_a_code_that_every_client_knows() {
    let node = Node::start_with(WireConfig::default(), |config| config.limits.znodes_max = 30).await;
    let mut client = node.client().await;
    let mut made = 0;
    let refused = loop {
        match client.create(&format!("/n{made}"), 0).await {
            Ok(_) => made += 1,
            Err(code) => break code,
        }
    };
    assert_eq!((refused, made > 5), (-1, true));
    let Request::Create(op, one) = create("/a", 0) else { panic!("what else?") };
    let multi = client.call(Request::Multi(vec![MultiOp::Create(op, one)])).await.unwrap();
    let results = jute::read_multi_results(&mut jute::Input::new(&multi)).unwrap();
    assert_eq!(results, [jute::MultiResult::Error(-1)]);
    client.call(Request::Delete(jute::PathVersion { path: "/n0".into(), version: -1 })).await.unwrap();
    client.create("/a", 0).await.unwrap();
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

/// The second long write waits for the window of long writes, and the short ones overtake it.
#[tokio::test]
async fn writes_that_wait_for_their_turn_keep_no_place() {
    let exempt = "127.0.0.0/8".parse().unwrap();
    let node = Node::start_with(WireConfig { writes_max: 2, exempt, ..WireConfig::default() }, |_| {}).await;
    let mut client = node.client().await;
    client.create("/a", 0).await.unwrap();
    for bytes in [600_000, 600_000].into_iter().chain([1; 10]) {
        client.send(&set("/a", &"x".repeat(bytes))).await;
    }
    for _ in 0..12 {
        assert_eq!(client.answer().await.error, 0);
    }
}

/// No connection exceeds its own bound. All connections together reach the bound on requests.
#[tokio::test]
async fn requests_of_all_connections_have_a_bound_and_long_ones_wait() {
    let exempt = "127.0.0.0/8".parse().unwrap();
    let wire = WireConfig { requests_bytes_max: 100_000, exempt, words: "*".into(), ..WireConfig::default() };
    let wire = WireConfig { propose_timeout_ms: 60_000, ..wire };
    // The writes of 60,000 bytes are never proposed, so they stay unanswered.
    let node = Node::start_with(wire, |config| config.proposal_bytes_max = 20_000).await;
    let long = set("/", &"x".repeat(60_000));
    let (mut first, mut second, mut small) = (node.client().await, node.client().await, node.client().await);
    for _ in 0..10 {
        first.send(&long).await;
    }
    number_is(&node, "zk_requests_bytes", |bytes| bytes >= 100_000).await;
    second.send(&long).await;
    number_is(&node, "zk_incomplete_packets_bytes", |bytes| bytes > 60_000).await;
    let full = number(&node, "zk_requests_bytes").await;
    assert!(full < 200_000, "{full}: one packet more than the bound at most");
    small.create("/small", 0).await.unwrap();
    // The sessions are resumed on other connections, which closes these.
    let _first = Client::resume(node.addr, &first).await;
    number_is(&node, "zk_requests_bytes", |bytes| (40_000..50_000).contains(&bytes)).await;
    let _second = Client::resume(node.addr, &second).await;
    number_is(&node, "zk_requests_bytes", |bytes| bytes == 0).await;
    assert_eq!(number(&node, "zk_incomplete_packets_bytes").await, 0);
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_cut_and_others_are_served() {
    let config = WireConfig { unread_bytes_max: 200_000, write_timeout_ms: 300, ..WireConfig::default() };
    let node = Node::start_with(config, |_| {}).await;
    let (mut slow, mut other) = (node.client().await, node.client().await);
    other.create("/a", 0).await.unwrap();
    other.set("/a", &"x".repeat(100_000)).await.unwrap();
    // The answers are many MiB, more than the sockets at both ends hold.
    let get = framed(|out| {
        RequestHeader { xid: 1, op: op::GET_DATA }.write(out);
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
        // The loop runs until the server closes the slow connection, which removes its watch.
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
    assert_eq!(client.create("/a/f", 1).await, Err(-1));
    client.create("/a/f", 0).await.unwrap();
    client.create("/a/g", 0).await.unwrap();
    assert_eq!(client.create("/a/h", 0).await, Err(-1));
    let Request::Create(op, one) = create("/b", 0) else { panic!("what else?") };
    let many = vec![MultiOp::Create(op, one); 3];
    assert_eq!(client.call(Request::Multi(many)).await, Err(-8));
}

#[tokio::test]
async fn packets_that_are_not_whole_have_a_bound_and_the_oldest_gives_way() {
    let config = WireConfig { incomplete_packets_bytes_max: 100_000, ..WireConfig::default() };
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
        // Only connections with incomplete packets are closed; writes of other connections go on.
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

/// A multiRead of a few KiB could ask for many GiB if its answer had no bound.
#[tokio::test]
async fn a_multi_read_has_no_longer_answer_than_a_packet_may_be() {
    let config = WireConfig { packet_bytes_max: 100_000, ..WireConfig::default() };
    let node = Node::start_with(config, |_| {}).await;
    let mut client = node.client().await;
    client.create("/a", 0).await.unwrap();
    client.set("/a", &"x".repeat(40_000)).await.unwrap();
    let reads = |count| {
        let which = PathWatch { path: "/a".into(), watch: false };
        Request::MultiRead(vec![MultiOp::GetData(which); count])
    };
    assert!(client.call(reads(2)).await.unwrap().len() > 80_000);
    assert_eq!(client.call(reads(3)).await, Err(-8));
    assert_eq!(client.call(reads(4_000)).await, Err(-8));
    // The headers of the answer, of 16 and 9 bytes, count as well. A result has 81 bytes beside its
    // data.
    client.set("/a", &"x".repeat(100_000 - 25 - 81)).await.unwrap();
    assert_eq!(client.call(reads(1)).await.unwrap().len(), 100_000 - 16);
    client.set("/a", &"x".repeat(100_000 - 25 - 80)).await.unwrap();
    assert_eq!(client.call(reads(1)).await, Err(-8));
    client.close().await;
}

/// Decoding a megabyte of the shortest operations would take milliseconds.
#[tokio::test]
async fn a_multi_or_multi_read_has_at_most_4096_operations() {
    let node = Node::start_with(WireConfig::default(), |config| config.limits.ops_max = 10_000).await;
    let mut client = node.client().await;
    let checks = |count| {
        let root = jute::PathVersion { path: "/".into(), version: -1 };
        Request::Multi(vec![MultiOp::Check(root); count])
    };
    let reads = |count| {
        let none = PathWatch { path: "/none".into(), watch: false };
        Request::MultiRead(vec![MultiOp::GetData(none); count])
    };
    client.call(checks(4_096)).await.unwrap();
    assert_eq!(client.call(checks(4_097)).await, Err(-8));
    client.call(reads(4_096)).await.unwrap();
    assert_eq!(client.call(reads(4_097)).await, Err(-8));
    client.close().await;
}

/// The ACL entry `auth` is replaced by an entry for each identity of the client. Without a bound on
/// the resulting ACL, a packet of 1 MiB could become millions of ACL entries.
#[tokio::test]
async fn an_acl_that_grows_has_its_bound_before_it_has_grown() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.prove_fifty_names("u").await;
    let entry = |perms| jute::Acl { perms, scheme: "auth".into(), id: String::new() };
    let with_acl = |acl: Vec<jute::Acl>| {
        let Request::Create(op, one) = create("/a", 0) else { panic!("what else?") };
        Request::Create(op, jute::CreateRequest { acl, ..one })
    };
    assert_eq!(client.call(with_acl((1..=30_000).map(entry).collect())).await, Err(-114));
    client.ask::<jute::PathOnly>(with_acl(vec![entry(31); 30_000])).await.unwrap();
    client.close().await;
}

/// Every write of a connection carries all identities that its client has proven, so their user
/// names have a bound.
#[tokio::test]
async fn a_name_that_is_proven_has_a_bound() {
    let node = Node::start().await;
    let prove = |user: usize| {
        let auth = format!("{}:{}", "u".repeat(user), "p".repeat(100_000));
        Request::Auth(AuthRequest { kind: 0, scheme: "digest".into(), auth: auth.as_bytes().into() })
    };
    let mut client = node.client().await;
    client.call(prove(900)).await.unwrap();
    client.create("/a", 0).await.unwrap();
    assert_eq!(client.call(prove(1_100)).await, Err(-115));
    assert_eq!(client.packet().await, None);
}

/// Makes a create of a znode with the ACL entry `auth`, which is replaced by an entry for each
/// identity of the client.
fn by_who_asks(path: &str) -> Request {
    let Request::Create(op, one) = create(path, 0) else { panic!("what else?") };
    let acl = vec![jute::Acl { perms: 31, scheme: "auth".into(), id: String::new() }];
    Request::Create(op, jute::CreateRequest { acl, ..one })
}

#[tokio::test]
async fn what_an_acl_grows_to_counts_among_the_bytes_on_their_way() {
    let config = WireConfig { outstanding_bytes_max: 50_000, propose_timeout_ms: 2_000, ..WireConfig::default() };
    // These writes are too long to be proposed.
    let node = Node::start_with(config, |config| config.proposal_bytes_max = 20_000).await;
    let mut client = node.client().await;
    client.prove_fifty_names(&"u".repeat(150)).await;
    for _ in 0..100 {
        client.send(&by_who_asks("/a")).await;
    }
    client.send(&Request::Ping).await;
    assert_eq!(client.packet().await, None, "the ping is behind more than there is room for");
}

/// A write longer than the longest log entry never reaches the log. The client's later writes must
/// not wait for it.
#[tokio::test]
async fn a_write_that_is_too_long_for_an_entry_is_refused_and_those_behind_it_are_done() {
    let node = Node::start_with(WireConfig::default(), |config| config.limits.ops_max = 4_096).await;
    let mut client = node.client().await;
    client.prove_fifty_names(&"u".repeat(150)).await;
    let Request::Create(op, one) = by_who_asks("/a") else { panic!("what else?") };
    let long = client.send(&Request::Multi(vec![MultiOp::Create(op, one); 4_096])).await;
    let behind = client.send(&create("/b", 0)).await;
    let answer = client.answer().await;
    assert_eq!((answer.xid, answer.error), (long, -8));
    let answer = client.answer().await;
    assert_eq!((answer.xid, answer.error), (behind, 0));
    client.create("/c", 0).await.unwrap();
    client.close().await;
}

/// The multi exceeds the bound on the cost of a log entry. It is refused when its entry is applied,
/// and the refusal names the operation that exceeds the bound.
#[tokio::test]
async fn a_multi_that_costs_too_much_is_answered_with_its_results_and_those_behind_it_are_done() {
    let node = Node::start_with(WireConfig::default(), |config| config.limits.entry_cost_max = 5).await;
    let mut client = node.client().await;
    let one = |at: usize| {
        let Request::Create(op, one) = create(&format!("/{at}"), 0) else { panic!("what else?") };
        MultiOp::Create(op, one)
    };
    let long = client.send(&Request::Multi((0..7).map(one).collect())).await;
    let behind = client.send(&create("/b", 0)).await;
    let answer = client.answer().await;
    assert_eq!((answer.xid, answer.error), (long, 0));
    let codes = read_multi_results(&mut Input::new(&answer.body)).unwrap().into_iter().map(|result| match result {
        MultiResult::Error(code) => code,
        done => panic!("{done:?}"),
    });
    assert_eq!(codes.collect::<Vec<_>>(), [0, 0, 0, 0, 0, -8, -2]);
    let answer = client.answer().await;
    assert_eq!((answer.xid, answer.error), (behind, 0));
    assert_eq!(client.exists("/0", false).await.map(drop), Err(-101));
    client.close().await;
}

/// A client sends a write and 100 long reads before it reads an answer. All reads can be answered
/// when the write is applied, but their answers together exceed the bound on unread bytes. The
/// connection must stay open, and all answers must come.
#[tokio::test]
async fn answers_wait_until_the_client_has_taken_those_before_them() {
    let config = WireConfig { unread_bytes_max: 400_000, ..WireConfig::default() };
    let node = Node::start_with(config, |_| {}).await;
    let mut client = node.client().await;
    client.create("/a", 0).await.unwrap();
    client.set("/a", &"x".repeat(100_000)).await.unwrap();
    for _ in 0..3 {
        let mut xids = vec![client.send(&set("/a", &"y".repeat(100_000))).await];
        for _ in 0..100 {
            xids.push(client.send(&Request::GetData(PathWatch { path: "/a".into(), watch: false })).await);
        }
        xids.push(client.send(&set("/a", &"z".repeat(100_000))).await);
        for xid in xids {
            let answer = client.answer().await;
            assert_eq!((answer.xid, answer.error), (xid, 0));
        }
    }
    client.close().await;
}
