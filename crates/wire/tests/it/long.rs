//! Reads that take long, reads with long answers, and clients that do not read their answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use jute::{CreateRequest, MultiOp, NamesStat, PathOnly, PathWatch, Record, Request};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;
use wire::WireConfig;

use crate::client::{Client, create, set};
use crate::node::{Node, PATIENCE};
use crate::words::{number, number_is};

/// Creates `count` children of `parent`, each with a name of `bytes` bytes. `flags` are those of a
/// create: with 1, the children are ephemeral.
async fn fill(client: &mut Client, parent: &str, count: usize, bytes: usize, flags: i32) {
    client.create(parent, 0).await.unwrap();
    let one = |n: usize| {
        let Request::Create(op, one) = create(&format!("{parent}/{n:0bytes$}"), flags) else { panic!("what else?") };
        MultiOp::Create(op, CreateRequest { data: Vec::new().into(), ..one })
    };
    for some in (0..count).collect::<Vec<_>>().chunks(500) {
        client.call(Request::Multi(some.iter().map(|n| one(*n)).collect())).await.unwrap();
    }
}

async fn start(wire: WireConfig) -> Node {
    let wire = WireConfig { words: "*".into(), ..wire };
    Node::start_with(wire, |config| (config.limits.ops_max, config.limits.ephemerals_max) = (500, 100_000)).await
}

fn children(path: &str, watch: bool) -> Request {
    Request::GetChildren2(PathWatch { path: path.into(), watch })
}

#[tokio::test]
async fn one_answer_is_sent_however_long_it_is() {
    let node = start(WireConfig { unread_bytes_max: 1 << 20, ..WireConfig::default() }).await;
    let mut client = node.client().await;
    fill(&mut client, "/long", 36_000, 240, 0).await;
    for watch in [false, true] {
        let answer: NamesStat = client.ask(children("/long", watch)).await.unwrap();
        assert_eq!((answer.names.len(), answer.stat.num_children), (36_000, 36_000));
        assert!(answer.names.is_sorted() && answer.names.iter().all(|name| name.len() == 240));
    }
    client.create("/long/behind", 0).await.unwrap();
    assert_eq!(client.event().await, (4, "/long".into()));
    client.close().await;
}

/// The reads take long because they walk over many znodes; their answers are short.
#[tokio::test]
async fn many_long_reads_keep_neither_a_ping_nor_a_write_of_others_waiting() {
    let node = start(WireConfig { packet_bytes_max: 100_000, ..WireConfig::default() }).await;
    let (mut greedy, mut other) = (node.client().await, node.client().await);
    fill(&mut greedy, "/many", 20_000, 6, 1).await;
    let none = Request::GetEphemerals(PathOnly { path: "/none".into() });
    let which = || PathWatch { path: "/many".into(), watch: false };
    let all = Request::MultiRead(vec![MultiOp::GetChildren(which()); 2]);
    let asked: Vec<Request> = (0..200).map(|n| if n % 2 == 0 { none.clone() } else { all.clone() }).collect();
    let count = asked.len();
    let last = greedy.send_together(&asked).await;
    let answered = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&answered);
    let reading = tokio::spawn(async move {
        for xid in last - count as i32 + 1..=last {
            let answer = greedy.answer().await;
            // The answers come in the order of the requests, each with its own result.
            let expected = if (last - xid) % 2 == 0 { -8 } else { 0 };
            assert_eq!((answer.xid, answer.error), (xid, expected));
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    other.nothing_more().await;
    other.create("/other", 0).await.unwrap();
    assert!(answered.load(Ordering::Relaxed) < count, "all long reads were done before");
    for n in 0..4 {
        other.nothing_more().await;
        other.create(&format!("/other-{n}"), 0).await.unwrap();
    }
    timeout(4 * PATIENCE, reading).await.expect("the long reads end").unwrap();
}

/// A read sees its client's earlier writes, and not its later ones.
#[tokio::test]
async fn a_long_read_is_in_its_turn_among_writes_and_short_reads() {
    let node = start(WireConfig::default()).await;
    let mut client = node.client().await;
    fill(&mut client, "/many", 3_000, 6, 0).await;
    for watching in [false, true] {
        if watching {
            client.get("/many", true).await.unwrap();
        }
        for round in 0..20 {
            let path = format!("/many/{watching}{round}");
            let before = 3_000 + round + if watching { 20 } else { 0 };
            let short = || Request::Exists(PathWatch { path: path.clone(), watch: false });
            let long = || children("/many", false);
            client.send_together(&[long(), create(&path, 0), long(), short(), long(), set("/many", "x")]).await;
            let mut counts = Vec::new();
            for at in 0..6 {
                let answer = client.answer().await;
                assert_eq!(answer.error, 0);
                if matches!(at, 0 | 2 | 4) {
                    counts.push(NamesStat::from_bytes(&answer.body).unwrap().names.len());
                }
            }
            assert_eq!(counts, [before, before + 1, before + 1], "round {round}");
        }
    }
}

/// Length in bytes of an answer with 5,000 names of 200 bytes.
const LONG: usize = 5_000 * 204;

/// Returns settings without bounds for single addresses, so that all clients share the bound on all
/// connections.
fn one_bound(answers_bytes_max: usize) -> WireConfig {
    let exempt = "127.0.0.0/8".parse().unwrap();
    WireConfig { answers_bytes_max, exempt, write_timeout_ms: 600_000, ..WireConfig::default() }
}

/// Opens clients that request more than their sockets can hold, and read no answer.
async fn silent(node: &Node, source: [u8; 4], count: usize) -> Vec<Client> {
    let mut silent = Vec::new();
    for _ in 0..count {
        let mut one = Client::open_from(source, node.addr, 30_000).await;
        socket2::SockRef::from(&one.stream).set_recv_buffer_size(4_096).unwrap();
        for _ in 0..5 {
            one.send(&children("/long", false)).await;
        }
        silent.push(one);
    }
    silent
}

/// A read that waits for memory shows the state at the moment when there is memory for its answer.
/// So it also shows writes of other clients that were applied during the wait.
#[tokio::test]
async fn a_read_that_waits_for_room_keeps_neither_writes_nor_pings_nor_an_old_state() {
    let node = start(one_bound(4 * LONG)).await;
    let (mut other, mut reader) = (node.client().await, node.client().await);
    fill(&mut other, "/long", 5_000, 200, 0).await;
    let silent = silent(&node, [127, 0, 0, 1], 24).await;
    // So many clients have full sockets and wait that several rounds of eviction are needed.
    number_is(&node, "zk_num_alive_connections", |alive| alive < 26).await;
    number_is(&node, "zk_unread_bytes", |bytes| bytes > 3 * LONG - 1_000).await;
    let xids = [reader.send(&children("/long", true)).await, reader.send(&children("/long", false)).await];
    // The second answer shows the write, too, because it is made after the write.
    reader.send(&Request::Ping).await;
    assert_eq!(reader.answer().await.xid, jute::xid::PING, "a client that waits is alive");
    other.create("/long/new", 0).await.unwrap();
    other.nothing_more().await;
    drop(silent);
    for xid in xids {
        let answer = reader.answer().await;
        assert_eq!((answer.xid, answer.error), (xid, 0));
        assert_eq!(NamesStat::from_bytes(&answer.body).unwrap().names.len(), 5_001);
    }
    assert!(reader.events.is_empty());
    other.create("/long/newer", 0).await.unwrap();
    assert_eq!(reader.event().await, (4, "/long".into()));
}

#[tokio::test]
async fn one_address_does_not_use_up_what_all_may_have() {
    let answers_bytes_max = 16 * LONG;
    let config = WireConfig { answers_bytes_max, write_timeout_ms: 600_000, ..WireConfig::default() };
    let node = start(config).await;
    let mut client = node.client().await;
    fill(&mut client, "/long", 5_000, 200, 0).await;
    let _silent = silent(&node, [127, 0, 0, 2], 30).await;
    for _ in 0..4 {
        let answer: NamesStat = timeout(PATIENCE, client.ask(children("/long", false))).await.unwrap().unwrap();
        assert_eq!(answer.names.len(), 5_000);
    }
    let most = number(&node, "zk_max_unread_bytes").await;
    assert!(most <= answers_bytes_max / 4 + 2 * LONG, "{most} of {answers_bytes_max}");
    client.close().await;
}

#[tokio::test]
async fn a_packet_that_is_not_whole_keeps_no_room_from_others() {
    let node = start(one_bound(4 * LONG)).await;
    let (mut client, mut half) = (node.client().await, node.client().await);
    fill(&mut client, "/long", 5_000, 200, 0).await;
    let silent = silent(&node, [127, 0, 0, 1], 24).await;
    // So many clients have full sockets and wait that several rounds of eviction are needed.
    number_is(&node, "zk_num_alive_connections", |alive| alive < 26).await;
    number_is(&node, "zk_unread_bytes", |bytes| bytes > 3 * LONG - 1_000).await;
    half.stream.write_all(&[0, 0, 1, 0, 1]).await.unwrap();
    client.create("/behind", 0).await.unwrap();
    drop(silent);
    number_is(&node, "zk_incomplete_packets_bytes", |bytes| bytes == 5).await;
    number_is(&node, "zk_unread_bytes", |bytes| bytes == 0).await;
}

#[tokio::test]
async fn answers_that_nobody_takes_do_not_add_up_and_who_reads_is_answered() {
    let answers_bytes_max = 4 * LONG;
    let node = start(one_bound(answers_bytes_max)).await;
    let mut client = node.client().await;
    fill(&mut client, "/long", 5_000, 200, 0).await;
    let _silent = silent(&node, [127, 0, 0, 1], 30).await;
    // The answer waits until some of the silent clients have been evicted.
    let answer: NamesStat = timeout(4 * PATIENCE, client.ask(children("/long", false))).await.unwrap().unwrap();
    assert_eq!(answer.names.len(), 5_000);
    let most = number(&node, "zk_max_unread_bytes").await;
    assert!(most > LONG && most <= answers_bytes_max, "{most} of {answers_bytes_max}");
    client.close().await;
}

#[tokio::test]
async fn an_answer_beyond_what_all_may_have_is_refused() {
    let config = WireConfig { answers_bytes_max: 100_000, ..WireConfig::default() };
    let node = start(config).await;
    let mut client = node.client().await;
    fill(&mut client, "/long", 1_500, 100, 0).await;
    assert_eq!(client.call(children("/long", false)).await, Err(-8));
    assert_eq!(client.call(children("/long", true)).await, Err(-8));
    client.create("/b", 0).await.unwrap();
    // A multiRead has the same bound, even if packets may be longer.
    client.set("/b", &"x".repeat(400)).await.unwrap();
    let which = || PathWatch { path: "/b".into(), watch: false };
    let reads = |count| Request::MultiRead(vec![MultiOp::GetData(which()); count]);
    assert!(client.call(reads(90)).await.unwrap().len() > 40_000);
    for count in [110, 240, 300] {
        let read = client.call(reads(count)).await.map(|body| body.len());
        assert_eq!(read, Err(-8), "{count}");
    }
    client.close().await;
}

/// The watches are set again in several steps. Events of changes during these steps are sent after
/// the answer.
#[tokio::test]
async fn many_watches_come_back_and_others_are_served_meanwhile() {
    let node = start(WireConfig::default()).await;
    let (mut client, mut other) = (node.client().await, node.client().await);
    let exist: Vec<String> = (0..20_000).map(|n| format!("/w{n}")).collect();
    let set = jute::SetWatches2 { exist, ..jute::SetWatches2::default() };
    client.send(&Request::SetWatches2(set)).await;
    other.nothing_more().await;
    let answer = client.answer().await;
    assert_eq!((answer.xid, answer.error), (jute::xid::SET_WATCHES, 0));
    assert_eq!(number(&node, "zk_watch_count").await, 20_000);
    other.create("/w19999", 0).await.unwrap();
    assert_eq!(client.event().await, (1, "/w19999".into()));
}
