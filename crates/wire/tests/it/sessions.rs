//! Sessions that are opened, resumed on the same or another node, closed, or expired.

use std::time::{Duration, Instant};

use jute::{Buffer, ConnectRequest, PASSWORD_BYTES, Record, Request, create_flags::EPHEMERAL, error, framed};
use tokio::io::AsyncWriteExt;
use wire::WireConfig;

use crate::client::{Client, create, greet, set};
use crate::node::Node;

#[tokio::test]
async fn a_new_session_has_an_id_a_password_and_a_timeout_within_bounds() {
    let node = Node::start().await;
    for (wish, agreed) in [(1, 2_000), (i32::MIN, 2_000), (30_000, 30_000), (i32::MAX, 300_000)] {
        for read_only in [None, Some(false), Some(true)] {
            let asked = ConnectRequest { timeout_ms: wish, read_only, ..ConnectRequest::default() };
            let (_, _, answer) = greet(node.addr, &asked).await;
            let answer = answer.unwrap();
            assert!(answer.session_id > 0);
            assert_eq!((answer.timeout_ms, answer.protocol_version), (agreed, 0));
            assert_eq!(answer.password.clone().into_bytes().len(), PASSWORD_BYTES);
            // The answer has `read_only` if the request had it. It is always false, because a node
            // never serves without a quorum.
            assert_eq!(answer.read_only, read_only.map(|_| false));
        }
    }
}

#[tokio::test]
async fn requests_may_come_with_the_handshake() {
    let node = Node::start().await;
    let asked = ConnectRequest { timeout_ms: 9_000, ..ConnectRequest::default() };
    let mut stream = tokio::net::TcpStream::connect(node.addr).await.unwrap();
    let mut both = framed(|out| asked.write(out));
    both.extend(framed(|out| {
        jute::RequestHeader { xid: 7, op: jute::op::CREATE }.write(out);
        create("/early", 0).write(out);
    }));
    // The bytes are sent one by one, because a stream does not keep packets together.
    for byte in both {
        stream.write_all(&[byte]).await.unwrap();
    }
    node.wait_until(|state| state.node(&znode::ZPath::parse("/early").unwrap()).is_some()).await;
}

#[tokio::test]
async fn a_session_is_resumed_on_any_node_with_its_password_only() {
    let nodes = Node::start_many(3, WireConfig::default(), |_| {}).await;
    let mut first = nodes[0].client().await;
    first.create("/e", EPHEMERAL).await.unwrap();
    for node in &nodes {
        let mut other = Client::resume(node.addr, &first).await;
        assert_eq!((other.session, &other.password), (first.session, &first.password));
        assert_eq!(other.exists("/e", false).await.unwrap().ephemeral_owner, first.session);
        let wrong = ConnectRequest { password: Buffer::from(vec![1; PASSWORD_BYTES]), ..first.resumption() };
        let (_, _, answer) = greet(node.addr, &wrong).await;
        let answer = answer.unwrap();
        assert_eq!((answer.timeout_ms, answer.session_id), (0, 0));
        assert_eq!(answer.password, Buffer::from(vec![0; PASSWORD_BYTES]));
        // An attempt without the password leaves the session as it is.
        assert!(other.exists("/e", false).await.is_ok());
        first = other;
    }
    let unknown = ConnectRequest { session_id: 1 << 40, ..first.resumption() };
    assert_eq!(greet(nodes[0].addr, &unknown).await.2.unwrap().timeout_ms, 0);
}

#[tokio::test]
async fn the_former_connection_of_a_session_writes_no_more() {
    let nodes = Node::start_many(3, WireConfig::default(), |_| {}).await;
    let mut here = nodes[0].client().await;
    here.create("/a", 0).await.unwrap();
    let mut there = Client::resume(nodes[1].addr, &here).await;
    there.set("/a", "there").await.unwrap();
    here.send(&set("/a", "late")).await;
    assert_eq!(here.packet().await, None, "a late write is not answered");
    assert_eq!(there.get("/a", false).await.unwrap().data, Buffer::from(b"there".as_slice()));
    // On the same node the former connection is closed at once.
    let mut again = Client::resume(nodes[1].addr, &there).await;
    assert_eq!(there.packet().await, None);
    again.set("/a", "again").await.unwrap();
}

#[tokio::test]
async fn a_client_that_has_seen_more_than_the_node_is_sent_away_without_a_word() {
    let node = Node::start().await;
    let asked = ConnectRequest { last_zxid_seen: 1 << 52, timeout_ms: 9_000, ..ConnectRequest::default() };
    assert_eq!(greet(node.addr, &asked).await.2, None);
}

#[tokio::test]
async fn a_closed_session_is_gone_with_its_znodes_after_what_came_before_was_answered() {
    let node = Node::start().await;
    let mut client = node.client().await;
    for path in ["/a", "/b"] {
        client.send(&create(path, EPHEMERAL)).await;
    }
    client.send(&Request::CloseSession).await;
    client.send(&create("/c", 0)).await;
    let resumption = client.resumption();
    let errors: Vec<i32> = [client.answer().await, client.answer().await, client.answer().await]
        .into_iter()
        .map(|answer| answer.error)
        .collect();
    assert_eq!(errors, [0, 0, 0]);
    assert_eq!(client.packet().await, None);
    let mut other = node.client().await;
    assert_eq!(other.children("/", false).await.unwrap(), ["zookeeper"]);
    assert_eq!(greet(node.addr, &resumption).await.2.unwrap().timeout_ms, 0);
}

/// A node tells the leader at a limited rate that a session is alive, so the leader may not know of
/// the last requests. When the connection breaks, the node tells it once more, and the timeout must
/// count from the last request.
#[tokio::test]
async fn a_session_lives_its_timeout_from_the_last_request_of_a_connection_that_broke() {
    const TIMEOUT: Duration = Duration::from_secs(6);
    let nodes = Node::start_many(3, WireConfig::default(), |_| {}).await;
    let mut broken = Vec::new();
    for (n, node) in nodes.iter().enumerate() {
        let mut breaking = Client::open(node.addr, i32::try_from(TIMEOUT.as_millis()).unwrap()).await;
        let path = format!("/e{n}");
        breaking.create(&path, EPHEMERAL).await.unwrap();
        let made = Instant::now();
        let last = loop {
            let asked = Instant::now();
            breaking.exists("/", false).await.unwrap();
            if made.elapsed() > TIMEOUT / 15 {
                break asked;
            }
        };
        broken.push((znode::ZPath::parse(&path).unwrap(), last));
    }
    for (path, last) in broken {
        nodes[0].wait_until(|state| state.node(&path).is_none()).await;
        assert!(last.elapsed() >= TIMEOUT, "{path} is gone after {:?}", last.elapsed());
    }
}

#[tokio::test]
async fn a_silent_client_loses_its_session_and_one_that_pings_or_asks_does_not() {
    let edit = |config: &mut replica::Config| config.limits.session_timeout_min_ms = 5_000;
    let node = Node::start_with(WireConfig::default(), edit).await;
    let mut silent = Client::open(node.addr, 1).await;
    let (mut pinging, mut asking) = (Client::open(node.addr, 1).await, Client::open(node.addr, 1).await);
    let mut watching = node.client().await;
    for (path, client) in [("/silent", &mut silent), ("/pinging", &mut pinging), ("/asking", &mut asking)] {
        client.create(path, EPHEMERAL).await.unwrap();
    }
    watching.exists("/silent", true).await.unwrap();
    let busy = async {
        loop {
            pinging.nothing_more().await;
            asking.exists("/", false).await.unwrap();
        }
    };
    tokio::select! {
        gone = watching.event() => assert_eq!(gone, (jute::event::NODE_DELETED, "/silent".into())),
        () = busy => {}
    }
    assert_eq!(silent.packet().await, None, "its connection is closed");
    for path in ["/pinging", "/asking"] {
        assert_eq!(watching.exists(path, false).await.map(|_| ()), Ok(()), "{path}");
    }
    assert_eq!(watching.exists("/silent", false).await, Err(error::NO_NODE));
}

/// Sessions and histories describe a ZooKeeper client only by its address and session, because the
/// protocol has no client's name. A lock's history also describes a client that deleted another
/// client's ticket.
#[tokio::test]
async fn a_session_says_where_its_client_is() {
    let node = Node::start().await;
    let (mut first, mut second) = (node.client().await, node.client().await);
    first.create("/l", 0).await.unwrap();
    let ticket = first.create("/l/x-", 3).await.unwrap();
    second.delete(&ticket).await.unwrap();
    let state = node.replica.state();
    let client = &state.session(znode::SessionId(first.session as u64)).unwrap().client;
    let known = ("zookeeper client", "", Some(std::net::Ipv4Addr::LOCALHOST.into()));
    assert_eq!((&*client.program, &*client.host, client.address), known);
    let history = znode::lock::history(&state, &znode::ZPath::parse("/l").unwrap(), 9);
    assert_eq!((history[0].end, &history[0].client), (znode::lock::TicketEnd::Admin, client));
    let by = history[0].by.as_deref().unwrap();
    assert_eq!((by.session, &*by.label), (Some(znode::SessionId(second.session as u64)), "zookeeper"));
}

#[tokio::test]
async fn sessions_of_both_doors_are_the_same() {
    let node = Node::start().await;
    let secret = [7; 16];
    let secret_hash = znode::secret_hash(<sha2::Sha256 as sha2::Digest>::digest(secret).into());
    let open = znode::Op::OpenSession {
        secret_hash,
        timeout_ms: 9_000,
        label: "http".into(),
        address: None,
        client: znode::ClientInfo::default(),
    };
    let deadline = tokio::time::Instant::now() + crate::node::PATIENCE;
    let opened = node.replica.propose(znode::Request::new(open), deadline).await.unwrap();
    let Ok(znode::Reply::SessionOpened { session, .. }) = opened.reply else { panic!("{opened:?}") };
    let asked = ConnectRequest {
        timeout_ms: 30_000,
        session_id: session.0 as i64,
        password: Buffer::from(secret.to_vec()),
        ..ConnectRequest::default()
    };
    let client = Client::of(greet(node.addr, &asked).await);
    // Resuming a session negotiates its timeout again.
    assert_eq!((client.session, client.timeout_ms), (session.0 as i64, 30_000));
    client.close().await;
    node.wait_until(|state| state.session(session).is_none()).await;
}

#[tokio::test]
async fn a_door_that_closes_ends_connections_and_leaves_sessions() {
    let mut nodes = Node::start_many(3, WireConfig::default(), |_| {}).await;
    let mut client = nodes[0].client().await;
    client.create("/e", EPHEMERAL).await.unwrap();
    nodes[0].close_door().await;
    assert_eq!(client.packet().await, None);
    let mut other = Client::resume(nodes[1].addr, &client).await;
    assert!(other.exists("/e", false).await.is_ok());
}
