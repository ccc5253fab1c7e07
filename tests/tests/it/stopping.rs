//! Stops of a node: their duration, requests that are served meanwhile, and errors during a stop.

use jute::{Input, ReplyHeader, Request, xid};
use rustix::process::{Resource, Rlimit, Signal, kill_process, prlimit};
use testkit::zookeeper::Connection;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::harness::{Call, Cluster, Options, PROGRAM, until};

const FAILED: i32 = 3;
const FILE_MAX: u64 = 1 << 20;

async fn one_node(settings: &'static str) -> Cluster {
    Cluster::start_with(Options { nodes: 1, zookeeper: true, settings, ..Options::default() }).await
}

/// Sends SIGTERM.
async fn tell_to_stop(cluster: &Cluster) {
    kill_process(cluster.pid(1), Signal::TERM).unwrap();
    until("it stops", async || cluster.log(1).contains(": stopping ").then_some(())).await;
}

/// Waits until the node has ended, and returns its exit code.
async fn code(cluster: &mut Cluster) -> Option<i32> {
    until("the node has ended", async || cluster.ended(1)).await.code()
}

/// The log line with this message. Panics unless there is exactly one.
fn line(cluster: &Cluster, message: &str) -> String {
    let log = cluster.log(1);
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(message)).collect();
    let [line] = lines[..] else { panic!("{message}: {log}") };
    line.to_owned()
}

fn took_ms(line: &str) -> u64 {
    let (_, took) = line.split_once("took_ms=").unwrap();
    took.split(' ').next().unwrap().parse().unwrap()
}

/// Opens a ZooKeeper client's session.
async fn zookeeper_client(addr: &str) -> Connection {
    Connection::open(addr, 20_000).await.expect("a session")
}

#[tokio::test]
async fn a_node_whose_disk_fails_while_it_stops_says_so_and_ends_with_the_code_of_a_failure() {
    let mut cluster = one_node("node.drain_time = \"5m\"").await;
    tell_to_stop(&cluster).await;
    let limit = Rlimit { current: Some(FILE_MAX), maximum: Some(FILE_MAX) };
    prlimit(Some(cluster.pid(1)), Resource::Fsize, limit).unwrap();
    // A draining node writes as before.
    let (mut client, data) = (cluster.client(1), "x".repeat(100_000));
    let code = until("the node has ended", async || {
        let _ = client.send(Call::post("/v1/znodes/n-?mode=persistent-sequential").body(data.clone()).once()).await;
        cluster.ended(1)
    })
    .await
    .code();
    assert_eq!(code, Some(FAILED), "{}", cluster.log(1));
    let (log, told) = (cluster.log(1), line(&cluster, "this node cannot go on"));
    assert!(told.contains(" exit_code=3 ") && told.contains("reason="), "{told}");
    assert!(log.find("stopping").unwrap() < log.find(&told).unwrap(), "{log}");
    assert!(!log.contains(": stopped "), "{log}");
}

#[tokio::test]
async fn a_stop_takes_the_drain_time_and_then_no_longer_than_its_own_and_says_which_was_short() {
    let mut cluster = one_node("node.drain_time = \"1s\"\nnode.stop_timeout = \"100ms\"").await;
    // The stop waits for this incomplete request. The server's `100 Continue` shows that the node
    // has received it.
    let mut open = TcpStream::connect(cluster.endpoint(1)).await.unwrap();
    let half = "POST /v1/znodes/half HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\nexpect: 100-continue\r\n\r\n";
    open.write_all(half.as_bytes()).await.unwrap();
    open.read_exact(&mut [0; "HTTP/1.1 100 Continue\r\n\r\n".len()]).await.unwrap();
    tell_to_stop(&cluster).await;
    assert_eq!(code(&mut cluster).await, Some(FAILED), "{}", cluster.log(1));
    let begun = line(&cluster, ": stopping ");
    let told = line(&cluster, "the clean stop took too long and was cut short");
    for line in [&begun, &told] {
        assert!(line.contains("drain_time_ms=1000") && line.contains("stop_timeout_ms=100"), "{line}");
    }
    assert!(took_ms(&told) >= 1_100, "{told}");
}

#[tokio::test]
async fn a_status_tells_of_a_node_that_drains_and_that_it_still_serves() {
    let cluster = one_node("node.drain_time = \"5m\"").await;
    tell_to_stop(&cluster).await;
    until("it is told", async || {
        let asked = Command::new(PROGRAM).args(["status", "--endpoints", cluster.endpoint(1)]).output().await.unwrap();
        assert!(asked.status.success(), "{asked:?}");
        String::from_utf8_lossy(&asked.stdout).contains("  draining").then_some(())
    })
    .await;
}

#[tokio::test]
async fn zookeeper_clients_are_served_while_the_node_drains() {
    let cluster = one_node("node.drain_time = \"5m\"").await;
    let addr = cluster.zookeeper_endpoint(1).to_owned();
    let mut before = zookeeper_client(&addr).await;
    tell_to_stop(&cluster).await;
    // A new client is accepted, and an earlier one gets an answer to its ping.
    let mut meanwhile = zookeeper_client(&addr).await;
    for client in [&mut before, &mut meanwhile] {
        client.send(xid::PING, &Request::Ping).await.unwrap();
        let pong = client.packet().await.unwrap().expect("a pong");
        assert_eq!(Input::new(&pong).read::<ReplyHeader>().unwrap().xid, xid::PING);
    }
}

#[tokio::test]
async fn zookeeper_clients_are_sent_away_when_the_drain_time_is_over() {
    let mut cluster = one_node("node.drain_time = \"1s\"").await;
    let mut client = zookeeper_client(cluster.zookeeper_endpoint(1)).await;
    tell_to_stop(&cluster).await;
    assert_eq!(client.packet().await.unwrap(), None, "the connection is closed");
    assert_eq!(code(&mut cluster).await, Some(0), "{}", cluster.log(1));
    let told = line(&cluster, ": stopped ");
    assert!(took_ms(&told) >= 1_000, "{told}");
}
