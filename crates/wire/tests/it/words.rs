//! Four-letter words.

use jute::ConnectRequest;
use replica::{Entrance, RequestEnd};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use wire::WireConfig;

use crate::client::greet;
use crate::node::{Node, PATIENCE};

pub(crate) async fn ask(node: &Node, word: &str) -> String {
    let mut stream = TcpStream::connect(node.addr).await.unwrap();
    stream.write_all(word.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

/// Asks `mntr`, and returns the number in one of its fields.
pub(crate) async fn number(node: &Node, field: &str) -> usize {
    let mntr = ask(node, "mntr").await;
    let line = mntr.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix('\t'));
    line.unwrap_or_else(|| panic!("{field}: {mntr}")).parse().unwrap()
}

/// Asks `mntr` repeatedly until `wanted` is true for the number in a field.
pub(crate) async fn number_is(node: &Node, field: &str, wanted: impl Fn(usize) -> bool) {
    let waiting = async {
        while !wanted(number(node, field).await) {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("{field} does not become as wanted"));
}

#[tokio::test]
async fn words_answer_what_tools_read() {
    let node = Node::start_with(WireConfig { words: "*".into(), ..WireConfig::default() }, |_| {}).await;
    let mut client = node.client().await;
    client.create("/e", 1).await.unwrap();
    client.get("/e", true).await.unwrap();
    client.children("/", true).await.unwrap();
    let session = format!("0x{:x}", client.session);
    assert_eq!((ask(&node, "ruok").await, ask(&node, "isro").await), ("imok".into(), "rw".into()));
    let contains =
        |text: &str, parts: &[&str]| parts.iter().for_each(|part| assert!(text.contains(part), "{part}: {text}"));
    let srvr = ask(&node, "srvr").await;
    contains(&srvr, &["Zookeeper version: 3.8.0-zlock-", "Latency min/avg/max: ", "Mode: standalone\n"]);
    contains(&srvr, &["Connections: 1\n", "Zxid: 0x", "Node count: 5\n", "Outstanding: 0\n"]);
    contains(&ask(&node, "stat").await, &["Clients:\n /127.0.0.1:", "](queued=0,recved=3,", "Node count: 5\n"]);
    contains(
        &ask(&node, "cons").await,
        &[&format!("sid={session}"), ",to=30000,", "lop=GETC,", ",lzxid=0x", ",llat=", ",lresp="],
    );
    let mntr = ask(&node, "mntr").await;
    contains(&mntr, &["zk_server_state\tstandalone\n", "zk_num_alive_connections\t1\n", "zk_watch_count\t2\n"]);
    contains(
        &mntr,
        &["built on 20", "zk_auth_failed_count\t0\n", "zk_max_client_response_size\t", "zk_unread_bytes\t0\n"],
    );
    contains(&mntr, &["zk_ephemerals_count\t1\n", "zk_znode_count\t5\n", "zk_global_sessions\t1\n"]);
    assert!(mntr.lines().all(|line| line.starts_with("zk_") && line.contains('\t')), "{mntr}");
    let status = node.replica.status();
    assert_eq!(status.observed, 2, "what /metrics tells of watches");
    let requests = |end| status.counts.requests(Entrance::ZooKeeper, end);
    assert_eq!((requests(RequestEnd::Done), requests(RequestEnd::Refused)), (3, 0));
    client.get("/none", false).await.unwrap_err();
    let refused = node.replica.status().counts.requests(Entrance::ZooKeeper, RequestEnd::Refused);
    assert_eq!(refused, 1);
    let dump = ask(&node, "dump").await;
    contains(&dump, &["Sessions with Ephemerals (1):\n", &format!("{session}:\n\t/e\n")]);
    contains(&ask(&node, "wchs").await, &["1 connections watching 2 paths\n", "Total watches:2\n"]);
    contains(&ask(&node, "wchc").await, &[&format!("{session}\n\t/\n\t/e\n")]);
    contains(&ask(&node, "wchp").await, &[&format!("/e\n\t{session}\n")]);
    contains(&ask(&node, "conf").await, &["clientPort=", "minSessionTimeout=2000\n", "membership: \nserver.1="]);
    let conf = ask(&node, "conf").await;
    contains(&conf, &["dataDir=/", "dataDirSize=", "tickTime=1000\n", "secureClientPort=-1\n", "maxClientCnxns=0\n"]);
    let hash = ask(&node, "hash").await;
    assert_eq!(hash, ask(&node, "hash").await, "nothing has changed");
    let (zxid, digest) = hash.trim_end().split_once(": ").unwrap();
    assert_eq!(u64::from_str_radix(zxid, 16), Ok(node.replica.state().last_zxid().0));
    assert!(digest.parse::<u64>().is_ok(), "{hash}");
    assert_eq!((ask(&node, "gtmk").await, ask(&node, "stmk").await), ("0".into(), "0".into()));
    contains(&dump, &["Connections dump:\nConnections Sets (1)/(1):\n", &format!(" sessionId: {session}\n")]);
    contains(&ask(&node, "envi").await, &["Environment:\nzookeeper.version=3.8.0-"]);
    contains(&ask(&node, "dirs").await, &["datadir_size: ", "logdir_size: "]);
    assert_eq!(ask(&node, "crst").await, "Connection stats reset.\n");
    contains(&ask(&node, "stat").await, &["recved=0,"]);
    assert_eq!(ask(&node, "srst").await, "Server stats reset.\n");
    contains(&ask(&node, "srvr").await, &["Received: 0\n"]);
}

/// A node without a quorum opens no session, not even for a client that only reads. ZooKeeper with
/// `readonlymode.enabled=false` behaves so, too.
#[tokio::test]
async fn a_node_without_a_quorum_lets_nobody_in_also_not_to_read() {
    let wire = WireConfig { words: "*".into(), ..WireConfig::default() };
    let nodes = Node::start_many(3, wire, |_| {}).await;
    let asked = ConnectRequest { timeout_ms: 30_000, read_only: Some(true), ..ConnectRequest::default() };
    let (_stream, _frames, answer) = greet(nodes[0].addr, &asked).await;
    assert_eq!(answer.map(|answer| answer.read_only), Some(Some(false)), "it can be written here");
    tokio::join!(nodes[1].replica.shutdown(), nodes[2].replica.shutdown());
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while ask(&nodes[0], "isro").await != "null" {
        assert!(tokio::time::Instant::now() < deadline, "it still says that it can be written");
        tokio::task::yield_now().await;
    }
    // The refusals come at once: a request that waited for the log would take seconds.
    let refused = async {
        for _ in 0..50 {
            let (_stream, _frames, answer) = greet(nodes[0].addr, &asked).await;
            assert!(answer.is_none(), "{answer:?}");
        }
    };
    tokio::time::timeout(PATIENCE, refused).await.expect("it makes clients wait before it sends them away");
    for word in ["srvr", "stat", "mntr", "conf", "cons", "crst", "dirs", "dump", "hash", "srst", "wchc", "wchp", "wchs"]
    {
        let expected = "This ZooKeeper instance is not currently serving requests\n";
        assert_eq!(ask(&nodes[0], word).await, expected, "{word}");
    }
    assert_eq!(ask(&nodes[0], "ruok").await, "imok");
    assert!(ask(&nodes[0], "envi").await.starts_with("Environment:\n"));
}

#[tokio::test]
async fn a_leader_tells_how_many_follow_it_and_a_follower_that_it_follows() {
    let wire = WireConfig { words: "*".into(), ..WireConfig::default() };
    let nodes = Node::start_many(3, wire, |_| {}).await;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let (mut leaders, mut followers) = (0, 0);
        for node in &nodes {
            let mntr = ask(node, "mntr").await;
            let field = |name: &str| {
                let line = mntr.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
                line.map(str::to_owned)
            };
            let following = ["zk_learners", "zk_followers", "zk_synced_followers", "zk_pending_syncs"].map(field);
            match field("zk_server_state").as_deref() {
                Some("leader") if following == ["2", "2", "2", "0"].map(|value| Some(value.into())) => {
                    assert_eq!(field("zk_peer_state").as_deref(), Some("leading - broadcast"));
                    leaders += 1;
                }
                Some("follower") => {
                    assert_eq!(following, [None, None, None, None]);
                    assert_eq!(field("zk_peer_state").as_deref(), Some("following - broadcast"));
                    followers += 1;
                }
                _ => {}
            }
            if !mntr.starts_with("This ZooKeeper instance") {
                assert_eq!(field("zk_quorum_size").as_deref(), Some("3"), "all who vote, as ZooKeeper counts: {mntr}");
            }
        }
        if (leaders, followers) == (1, 2) {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{leaders} leaders with followers, {followers} followers");
    }
}

#[tokio::test]
async fn only_listed_words_are_answered() {
    let node = Node::start().await;
    assert!(ask(&node, "srvr").await.starts_with("Zookeeper version: "));
    assert_eq!(ask(&node, "mntr").await, "mntr is not executed because it is not in the whitelist.\n");
    assert_eq!(ask(&node, "nope").await, "", "an unknown word is a length, and too long");
}
