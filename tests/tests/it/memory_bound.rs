//! Memory bound of a node. However much state clients create, a node takes at most twice
//! `limits.state_bytes_max`, plus the fixed amounts of docs/operating.md ("How much memory a node
//! needs").

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::Pid;
use serde_json::json;

use crate::harness::{Answer, Call, Client, Cluster, Options, Session, until};

/// `limits.state_bytes_max` of the nodes.
const BOUND: u64 = 16 << 20;
/// Allowed memory besides the replicated state: threads' stacks, the allocator, connections and the
/// snapshot database.
const OWN: u64 = 16 << 20;
/// `disk.snapshot_log_entries` of the nodes.
const SNAPSHOT_LOG_ENTRIES: u64 = 1_000;
/// Number of clients that fill the node at the same time.
const CLIENTS: u64 = 16;

const OPTIONS: Options = Options {
    joining: 0,
    nodes: 1,
    settings: "limits.state_bytes_max = \"16MiB\"\nlimits.sessions_max = 1000000\nlimits.sessions_per_address_max = 1000000\nnode.session_rate_max = 0\n\
        limits.ephemerals_max = 1000000\nlimits.waiters_max = 1000000\nnode.kept_events_max = 1000\nnode.kept_events_bytes_max = \"1MiB\"\ndisk.snapshot_log_entries = 1000\n\
        disk.kept_log_entries = 100\n",
    proxied: false,
    zookeeper: false,
    open_files_max: None,
    disk_may_hang: false,
    notifies: false,
    memory_is_measured: true,
};

/// Function that makes a request from a number and a session. Requests with new numbers add to the
/// state until it is full.
type More = fn(u64, &Session) -> Call;

fn json_body(call: Call) -> Call {
    call.header("content-type", "application/json")
}

/// Resident anonymous memory of a process, in bytes: heap and stacks. Pages of the program's file
/// are left out: they become resident as code runs for the first time, and a debug build has many.
pub(crate) fn resident(pid: Pid) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Bytes of all files below a directory.
pub(crate) fn bytes_below(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
    entries
        .map(|entry| {
            if entry.path().is_dir() {
                bytes_below(&entry.path())
            } else {
                entry.metadata().map_or(0, |file| file.len())
            }
        })
        .sum()
}

/// Sends one request after the other until the node answers that its state is full. Returns the
/// number of requests that succeeded.
async fn fill(endpoint: String, session: Session, number: Arc<AtomicU64>, more: More) -> u64 {
    let (mut client, mut added) = (Client::new(&endpoint), 0);
    loop {
        let call = json_body(more(number.fetch_add(1, Ordering::SeqCst), &session));
        let answer: Answer = client.send(call).await.unwrap();
        match answer.status {
            200..300 => added += 1,
            507 => {
                assert_eq!(answer.problem().type_uri, "urn:zlock:problem:quota-exceeded");
                return added;
            }
            status => panic!("{status}: {:?}", answer.problem()),
        }
    }
}

/// Writes until the node has its first snapshot. sled, which holds snapshots, takes 20 MiB for its
/// statistics when its first database opens, however small the state is.
async fn make_first_snapshot(client: &mut Client) {
    let entry = || Call::put("/v1/znodes/");
    for _ in 0..SNAPSHOT_LOG_ENTRIES {
        assert_eq!(client.send(entry()).await.unwrap().status, 200);
    }
    until("the node has a snapshot", async || {
        let metrics = client.send(Call::get("/metrics")).await.ok()?;
        (!String::from_utf8_lossy(&metrics.body).contains("zlock_snapshots_built_total 0")).then_some(())
    })
    .await;
}

async fn fills_at_most_twice_the_bound(kind: &str, more: More) {
    let mut cluster = Cluster::start_with(OPTIONS).await;
    let session = cluster.client(1).open_session(60_000).await;
    let _kept_alive = session.keep_alive(cluster.endpoints());
    make_first_snapshot(&mut cluster.client(1)).await;
    let before = resident(cluster.pid(1));
    let number = Arc::new(AtomicU64::new(0));
    let fill = |_| tokio::spawn(fill(cluster.endpoint(1).to_owned(), session.clone(), Arc::clone(&number), more));
    let mut added = 0;
    for client in (0..CLIENTS).map(fill).collect::<Vec<_>>() {
        added += client.await.unwrap();
    }
    let taken = resident(cluster.pid(1)).saturating_sub(before);
    // raft-log keeps the newest entries in memory, at most as many bytes as it has on the disk.
    cluster.kill(1);
    let log = bytes_below(&cluster.data_dir(1).join("log"));
    println!("{kind}: {added} requests, {taken} bytes taken, {log} of them at most by the log");
    assert!(taken <= 2 * BOUND + log + OWN, "{kind}: {taken} bytes, log {log}");
    assert!(taken >= BOUND / 8, "{kind}: the node was hardly filled: {taken} bytes");
}

#[tokio::test]
async fn data_of_znodes_fills_a_node_with_at_most_twice_its_bound() {
    fills_at_most_twice_the_bound("data", |number, _| {
        Call::post(format!("/v1/znodes/{number}")).body(vec![b'x'; 20_000])
    })
    .await;
}

#[tokio::test]
async fn small_znodes_fill_a_node_with_at_most_twice_its_bound() {
    fills_at_most_twice_the_bound("small znodes", |number, _| {
        let create = |index: u64| json!({"op": "create", "path": format!("/{}", number * 100 + index)});
        Call::post("/v1/txn").body(json!({"ops": (0..100).map(create).collect::<Vec<_>>()}).to_string())
    })
    .await;
}

#[tokio::test]
async fn sessions_fill_a_node_with_at_most_twice_its_bound() {
    fills_at_most_twice_the_bound("sessions", |number, _| {
        let body = json!({"timeout":"60s", "label": format!("{number:0>256}")}).to_string();
        Call::post("/v1/sessions").body(body)
    })
    .await;
}

#[tokio::test]
async fn tickets_fill_a_node_with_at_most_twice_its_bound() {
    fills_at_most_twice_the_bound("tickets", |number, session| {
        let (lock, text) = (number / 100, format!("{number:0>256}"));
        Call::post(format!("/v1/locks/{lock}?keep=true&wait=0&owner={text}&label={text}")).session(session)
    })
    .await;
}

#[tokio::test]
async fn kept_answers_fill_a_node_with_at_most_twice_its_bound() {
    fills_at_most_twice_the_bound("kept answers", |number, session| {
        let path = format!("/v1/znodes/{number:0>240}");
        Call::post(path).session(session).once()
    })
    .await;
}
