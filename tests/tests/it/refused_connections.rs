//! Connections beyond a bound on their number. The node's log names the bound, and from time to
//! time the number of refused connections. Simultaneous connections wait while a node is busy.

use std::net::TcpStream as Socket;
use std::time::Duration;

use testkit::zookeeper::Connection;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::harness::{Cluster, Options, until};

const LOOK: &[u8] = b"HEAD /livez HTTP/1.1\r\nhost: localhost\r\n\r\n";
/// Request to which a node that accepts it answers `100 Continue` at once. The request's body is
/// never sent.
const WAIT: &[u8] =
    b"POST /v1/znodes/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\nexpect: 100-continue\r\n\r\n";

/// Starts a node, and waits until its log says that it is ready. A request to `/readyz` would open
/// a connection, which would count against the tested bound on connections.
async fn one_node(settings: &'static str) -> Cluster {
    let mut cluster = Cluster::prepare(Options { nodes: 1, zookeeper: true, settings, ..Options::default() }).await;
    cluster.restart(1);
    until("node 1 is ready", async || cluster.log(1).contains(": ready ").then_some(())).await;
    cluster
}

/// Reads the next bytes, up to this length.
async fn hear(stream: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut heard = Vec::new();
    // A reset is an end, too.
    let _ = stream.take(length as u64).read_to_end(&mut heard).await;
    heard
}

/// Connects again and again while the only allowed connection is open, until the log has a second
/// line about refused connections. `fields` are the server and the bound that the log names.
async fn check(cluster: &Cluster, addr: &str, fields: [&str; 2], refusal: &[u8]) {
    let [door, bound] = fields;
    let lines = || -> Vec<String> {
        let of_door = format!("a connection is refused: there are too many door=\"{door}\"");
        cluster.log(1).lines().filter(|line| line.contains(&of_door)).map(str::to_owned).collect()
    };
    assert!(lines().is_empty(), "{}", cluster.log(1));
    let mut refused = 0;
    let told = until("there is a second line", async || {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        assert_eq!(hear(&mut stream, refusal.len().max(1)).await, refusal);
        refused += 1;
        let told = lines();
        assert!(!told.is_empty(), "the first one is told at once");
        (told.len() > 1).then_some(told)
    })
    .await;
    let fields = |times: u64| format!(" addr=127.0.0.1 bound=\"{bound}\" times={times}");
    assert!(told[0].ends_with(&fields(1)), "{}", told[0]);
    assert!(told[1].ends_with(&fields(refused - 1)), "{refused} were refused: {}", told[1]);
}

#[tokio::test]
async fn refused_http_connections_have_a_line_now_and_then_that_counts_them() {
    // An address that stands for many clients meets the bound on all connections.
    let settings = "http.connections_max = 1\nnode.exempt_addresses = \"127.0.0.1\"\nhttp.body_read_timeout = \"5m\"";
    let cluster = one_node(settings).await;
    let addr = cluster.endpoint(1);
    // The node does not close this connection in favour of another, because a request is under way.
    let mut inside = TcpStream::connect(addr).await.unwrap();
    inside.write_all(LOOK).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(inside.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 200"));
    inside.write_all(WAIT).await.unwrap();
    assert_eq!(hear(&mut inside, 12).await, b"HTTP/1.1 100");
    check(&cluster, addr, ["http", "http.connections_max"], b"HTTP/1.1 503").await;
}

#[tokio::test]
async fn refused_zookeeper_connections_have_a_line_now_and_then_that_counts_them() {
    let cluster = one_node("zookeeper.connections_per_address_max = 1").await;
    let addr = cluster.zookeeper_endpoint(1);
    // The node does not close the connection of a client with a session in favour of another.
    let _inside = Connection::open(addr, 300_000).await.expect("a session");
    check(&cluster, addr, ["zookeeper", "zookeeper.connections_per_address_max"], b"").await;
}

/// Number of simultaneous connections that come while a node accepts none.
const BURST: usize = 600;
/// Time limit of one connect. It is shorter than a second, after which the system sends a dropped
/// packet again.
const AT_ONCE: Duration = Duration::from_millis(700);

#[tokio::test]
async fn connections_wait_for_a_node_that_is_busy() {
    let cluster = one_node("").await;
    let most = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    let burst = BURST.min(most.trim().parse().unwrap());
    for addr in [cluster.endpoint(1), cluster.zookeeper_endpoint(1)].map(|addr| addr.parse().unwrap()) {
        cluster.pause(1);
        let taken: Vec<_> = (0..burst).map(|_| Socket::connect_timeout(&addr, AT_ONCE).unwrap()).collect();
        cluster.resume(1);
        drop(taken);
    }
}
