//! Messages of a node to systemd and lines to journald, received by sockets of the test.

use std::io::{BufRead as _, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use tokio::net::UnixDatagram;
use tokio::time::timeout;

use crate::harness::{Call, Cluster, Options, PROGRAM};

/// Time within which the next message must come; a node sends one each second.
const NEXT_MAX: Duration = Duration::from_secs(10);
/// Number of other messages that may come before the expected one.
const MESSAGES_MAX: usize = 60;

async fn next(socket: &UnixDatagram) -> String {
    let mut message = vec![0; 4096];
    let bytes = timeout(NEXT_MAX, socket.recv(&mut message)).await.expect("a message in time").unwrap();
    String::from_utf8(message[..bytes].to_vec()).unwrap()
}

/// Waits for a message with these words, and returns it.
async fn message(socket: &UnixDatagram, words: &str) -> String {
    let mut others = Vec::new();
    while others.len() < MESSAGES_MAX {
        let message = next(socket).await;
        if message.contains(words) {
            return message;
        }
        others.push(message);
    }
    panic!("no message has the words `{words}`: {others:#?}");
}

/// Node 1 of `nodes`, started alone, and its socket.
async fn started(options: Options) -> (Cluster, UnixDatagram) {
    let mut cluster = Cluster::prepare(Options { notifies: true, ..options }).await;
    let socket = UnixDatagram::bind(cluster.config(1).with_extension("notify")).unwrap();
    cluster.restart(1);
    (cluster, socket)
}

#[tokio::test]
async fn a_node_tells_systemd_of_its_start_its_status_and_its_stop() {
    let settings = "node.drain_time = \"1s\"\nnode.stop_timeout = \"2s\"";
    let (mut cluster, socket) = started(Options { nodes: 1, settings, ..Options::default() }).await;
    message(&socket, "READY=1").await;
    message(&socket, "WATCHDOG=1\nSTATUS=leader, ready; leader: node 1; 0 entries behind").await;
    let told = tokio::spawn(async move { message(&socket, "STOPPING=1").await });
    assert_eq!(cluster.stop(1).await, Some(0));
    // The longest time of a clean stop, 3 s, and 5 s more.
    assert_eq!(told.await.unwrap(), "STOPPING=1\nEXTEND_TIMEOUT_USEC=8000000");
}

#[tokio::test]
async fn a_node_without_a_quorum_has_started() {
    let (_cluster, socket) = started(Options::default()).await;
    message(&socket, "READY=1").await;
    message(&socket, "recovering; leader: none known; ").await;
}

#[tokio::test]
async fn a_start_that_waits_for_its_disk_gets_more_time() {
    let mut cluster =
        Cluster::prepare(Options { nodes: 1, notifies: true, disk_may_hang: true, ..Options::default() }).await;
    let socket = UnixDatagram::bind(cluster.config(1).with_extension("notify")).unwrap();
    cluster.hang_disk(1);
    cluster.restart(1);
    for _ in 0..2 {
        assert_eq!(next(&socket).await, "EXTEND_TIMEOUT_USEC=30000000");
    }
}

#[tokio::test]
async fn the_watchdog_does_not_wait_for_a_disk_that_stands_still() {
    let settings = "disk.stall_max = \"100ms\"";
    let options = Options { nodes: 1, settings, disk_may_hang: true, ..Options::default() };
    let (mut cluster, socket) = started(options).await;
    message(&socket, "STATUS=leader, ready").await;
    cluster.hang_disk(1);
    let write = tokio::spawn({
        let mut client = cluster.client(1);
        async move { client.send(Call::post("/v1/znodes/x")).await }
    });
    message(&socket, "disk-stalled").await;
    for _ in 0..3 {
        assert!(next(&socket).await.starts_with("WATCHDOG=1\nSTATUS="));
    }
    assert!(cluster.ended(1).is_none());
    write.abort();
}

#[tokio::test]
async fn lines_to_journald_have_a_priority_and_no_time() {
    let cluster = Cluster::prepare(Options { nodes: 1, ..Options::default() }).await;
    let (ours, its) = UnixStream::pair().unwrap();
    let stat = rustix::fs::fstat(&its).unwrap();
    let first_line = |stream: &str, format: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "--log-format", format, "--config"]).arg(cluster.config(1));
        command.env("JOURNAL_STREAM", stream).stderr(OwnedFd::from(its.try_clone().unwrap()));
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(&ours).read_line(&mut line).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        line
    };
    let stream = format!("{}:{}", stat.st_dev, stat.st_ino);
    let line = first_line(&stream, "text");
    assert!(line.starts_with("<6>INFO replica::operate::story: started "), "{line}");
    let line = first_line(&stream, "json");
    assert!(line.starts_with("<6>{\"timestamp\":\"2"), "{line}");
    // Stderr is another stream, such as a pipe of a wrapper.
    let line = first_line("1:1", "text");
    assert!(line.starts_with('2') && line.contains(" started "), "{line}");
}
