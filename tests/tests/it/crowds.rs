//! An address with many connections, and another with few, which must still be served.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use zlock_client::api::NewSession;

use crate::harness::{Call, Cluster, Options, until};

const LOCKS: usize = 300;
/// Number of connections from one address that list all locks again and again.
const CROWD: usize = 100;
const WRITES: usize = 20;

/// Connects from 127.0.1.`last`, a loopback address, which needs no privileges.
async fn connect_from(last: u8, to: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 1, last)), 0)).unwrap();
    socket.connect(to.parse().unwrap()).await.unwrap()
}

/// Reads the next HTTP answer. Returns its body, of the length that `content-length` gives.
async fn answer(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let text = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let length = text.split_once("content-length: ").and_then(|(_, rest)| rest.lines().next()?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await?;
    Ok(body)
}

/// Connects a crowd to a node. Each member lists all locks again and again, and counts its lists.
async fn crowd_at(endpoint: &str, listed: &Arc<AtomicUsize>) -> JoinSet<()> {
    let mut crowd = JoinSet::new();
    for _ in 0..CROWD {
        let (mut stream, listed) = (connect_from(1, endpoint).await, Arc::clone(listed));
        crowd.spawn(async move {
            loop {
                stream.write_all(b"GET /v1/locks?page_size=1000 HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
                assert!(answer(&mut stream).await.unwrap().len() > 10_000);
                listed.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    crowd
}

/// Writes to the leader while a crowd lists its locks. Returns the largest number of lists in the
/// time of one write, without the quarter of the writes that took longest, because a busy disk
/// stalls now and then. Returns `None` if another leader was elected.
async fn lists_per_write(cluster: &Cluster) -> Option<usize> {
    let leader = cluster.leader().await;
    let before = cluster.tenure(leader).await;
    let listed = Arc::<AtomicUsize>::default();
    let _crowd = crowd_at(cluster.endpoint(leader), &listed).await;
    until("the crowd is answered", async || (listed.load(Ordering::Relaxed) > 0).then_some(())).await;
    let mut writer = cluster.client(leader);
    let mut meanwhile = Vec::new();
    for _ in 0..WRITES {
        let count = listed.load(Ordering::Relaxed);
        let write = Call::put("/v1/znodes/w").body("x");
        assert_eq!(writer.ask(write).await.status, 200);
        meanwhile.push(listed.load(Ordering::Relaxed) - count);
    }
    meanwhile.sort_unstable();
    (cluster.tenure(leader).await == before).then_some(meanwhile[WRITES * 3 / 4 - 1])
}

#[tokio::test]
async fn many_connections_that_list_locks_depose_no_leader_and_keep_no_writer_waiting() {
    let cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    let mut writer = cluster.client(leader);
    writer.create("/v1/znodes/w", "").await;
    let session = writer.open_session(60_000).await;
    for number in 0..LOCKS {
        let call = Call::post(format!("/v1/locks/listed/{number}")).session(&session.key);
        assert_eq!(writer.ask(call.once()).await.status, 200);
    }
    // On a busy machine even a healthy leader may be replaced, but not in each of two rounds.
    for _ in 0..2 {
        let Some(lists) = lists_per_write(&cluster).await else { continue };
        assert!(lists < CROWD / 2, "a write waited for {lists} lists");
        return;
    }
    panic!("each crowd has deposed a leader: {}", cluster.log(leader));
}

#[tokio::test]
async fn a_full_door_lets_in_an_address_that_has_no_connection() {
    let settings = "http.connections_max = 64\nzookeeper.connections_max = 64";
    let cluster = Cluster::start_with(Options { nodes: 1, settings, ..Options::default() }).await;
    let mut waiting = JoinSet::new();
    // An address may have a quarter of all connections.
    for number in 0..64 {
        let mut stream = connect_from(1 + number % 4, cluster.endpoint(1)).await;
        stream.write_all(b"GET /v1/znodes?watch=children&wait=60s HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        waiting.spawn(async move { answer(&mut stream).await.map(drop) });
    }
    let mut operator = cluster.client(1);
    until("all wait", async || {
        let metrics = operator.send(Call::get("/metrics")).await.ok()?;
        let text = String::from_utf8_lossy(&metrics.body).into_owned();
        let waits = text.lines().find_map(|line| line.strip_prefix("zlock_waits ").map(str::to_owned));
        (waits?.parse::<usize>().ok()? >= 60).then_some(())
    })
    .await;
    let mut inside = Vec::new();
    for last in [9, 10, 11] {
        let mut comes = connect_from(last, cluster.endpoint(1)).await;
        comes.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        answer(&mut comes).await.expect("it is let in");
        inside.push(comes);
    }
    assert!(waiting.join_next().await.unwrap().unwrap().is_err(), "a long poll gave way");
    let metrics = String::from_utf8_lossy(&operator.send(Call::get("/metrics")).await.unwrap().body).into_owned();
    let gave_way = "zlock_connections_turned_away_total{door=\"http\",cause=\"gave-way\"} ";
    assert!(metrics.lines().any(|line| line.strip_prefix(gave_way).is_some_and(|count| count != "0")), "{metrics}");
    assert!(cluster.log(1).contains("gave way to another address door=\"http\" addr=127.0.1."), "{}", cluster.log(1));
}

#[tokio::test]
async fn a_client_behind_a_balancer_counts_by_its_own_address() {
    let settings = "node.proxies = \"127.0.1.0/24\"";
    let cluster = Cluster::start_with(Options { nodes: 1, settings, ..Options::default() }).await;
    let mut stream = connect_from(1, cluster.endpoint(1)).await;
    // The header has version 2, PROXY, TCP over IPv4, and 12 bytes of addresses and ports.
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    header.extend([192, 0, 2, 7, 192, 0, 2, 1, 0x9c, 0x40, 0x1b, 0xbb]);
    stream.write_all(&header).await.unwrap();
    stream.write_all(b"POST /v1/sessions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    let opened: NewSession = serde_json::from_slice(&answer(&mut stream).await.unwrap()).unwrap();
    let look = Call::get(format!("/v1/sessions/{}", opened.session)).session(&opened.session_key);
    let shown = cluster.client(1).send(look).await.unwrap();
    assert!(String::from_utf8_lossy(&shown.body).contains("192.0.2.7"), "{shown:?}");
    let mut without = connect_from(2, cluster.endpoint(1)).await;
    without.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    answer(&mut without).await.expect_err("it has no header");
    assert!(cluster.log(1).contains("no good PROXY header addr=127.0.1.2:"), "{}", cluster.log(1));
}

/// A node bounds the requests that it works on at once for each client address. A request counts
/// from its headers on, even if its body has not arrived.
#[tokio::test]
async fn an_address_has_a_share_of_the_requests_at_work() {
    let cluster = Cluster::start_with(Options { nodes: 1, ..Options::default() }).await;
    let half = b"PUT /v1/znodes/w HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\nx";
    let mut small = connect_from(1, cluster.endpoint(1)).await;
    small.write_all(half).await.unwrap();
    let mut crowd = JoinSet::new();
    for _ in 0..1_100 {
        let mut stream = connect_from(2, cluster.endpoint(1)).await;
        stream.write_all(half).await.unwrap();
        crowd.spawn(async move { answer(&mut stream).await.unwrap() });
    }
    let beyond = crowd.join_next().await.unwrap().unwrap();
    let beyond = String::from_utf8_lossy(&beyond);
    assert!(beyond.contains("too many requests at work from your address"), "{beyond}");
    small.write_all(b"x").await.unwrap();
    let answer = String::from_utf8(answer(&mut small).await.unwrap()).unwrap();
    assert!(answer.contains("no-node"), "the other address goes on: {answer}");
}
