//! `/metrics`, read as Prometheus reads it:
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>.
//!
//! `golden/metrics.txt` lists all metrics; `UPDATE_GOLDENFILES=1` rewrites it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use axum::http::Method;
use replica::{Entrance, RequestEnd};
use rest::RestConfig;

use crate::node::{Node, PATIENCE, text};

/// Value of each sample, by the sample's name with its labels.
type Samples = BTreeMap<String, f64>;

/// A metric, as its `TYPE` line and its samples describe it.
#[derive(Debug)]
struct Metric {
    kind: String,
    labels: BTreeSet<String>,
    help: String,
}

fn is_name(name: &str) -> bool {
    let good = |(at, c): (usize, char)| c.is_ascii_alphabetic() || c == '_' || (at > 0 && c.is_ascii_digit());
    !name.is_empty() && name.char_indices().all(good)
}

/// Parses the labels of a sample. Returns the labels' names and the text after the closing brace.
/// Values are quoted, and escape only backslash, quote and newline.
fn labels(mut rest: &str) -> (BTreeSet<String>, &str) {
    let mut seen = BTreeSet::new();
    loop {
        let (name, value) = rest.split_once("=\"").unwrap();
        assert!(is_name(name) && seen.insert(name.to_owned()), "label {name:?}");
        let mut chars = value.char_indices();
        let end = loop {
            match chars.next().expect("a quote ends the value") {
                (_, '\\') => assert!(matches!(chars.next(), Some((_, '\\' | '"' | 'n'))), "{value}"),
                (end, '"') => break end,
                (_, c) => assert_ne!(c, '\n'),
            }
        };
        match value[end + 1..].split_at(1) {
            (",", more) => rest = more,
            ("}", behind) => return (seen, behind),
            (other, _) => panic!("{other:?} behind a label"),
        }
    }
}

/// Returns the names of the samples that a metric of a type may have.
fn sample_names(name: &str, kind: &str) -> Vec<String> {
    match kind {
        "histogram" => ["_bucket", "_sum", "_count"].map(|part| format!("{name}{part}")).to_vec(),
        _ => vec![name.to_owned()],
    }
}

fn parse(text: &str) -> (BTreeMap<String, Metric>, Samples) {
    assert!(text.ends_with('\n'), "the last line has an end, too");
    let (mut metrics, mut samples, mut current) = (BTreeMap::<String, Metric>::new(), Samples::new(), String::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').unwrap();
            let is_ours = name.starts_with("zlock_") || name.starts_with("process_");
            assert!(is_name(name) && is_ours && !help.is_empty(), "{line}");
            let kind = lines.next().unwrap().strip_prefix(&format!("# TYPE {name} ")).expect("TYPE follows HELP");
            assert!(matches!(kind, "gauge" | "counter" | "histogram"), "{kind}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
            let metric = Metric { kind: kind.to_owned(), labels: BTreeSet::new(), help: help.to_owned() };
            assert!(metrics.insert(name.to_owned(), metric).is_none(), "{name} comes once, with all its samples");
            current = name.to_owned();
            continue;
        }
        let metric = metrics.get_mut(&current).expect("a head comes first");
        let name = &line[..line.find(['{', ' ']).unwrap()];
        assert!(sample_names(&current, &metric.kind).iter().any(|sample| sample == name), "{line}");
        let value = match line[name.len()..].strip_prefix('{') {
            Some(rest) => {
                let (names, value) = labels(rest);
                metric.labels.extend(names);
                value
            }
            None => &line[name.len()..],
        };
        let series = line[..line.len() - value.len()].to_owned();
        let value: f64 = value.strip_prefix(' ').unwrap().parse().unwrap();
        assert!(value >= 0.0 && samples.insert(series, value).is_none(), "{line}");
    }
    (metrics, samples)
}

async fn read(node: &Node) -> (BTreeMap<String, Metric>, Samples) {
    let answer = node.get("/metrics").await.expect(200);
    assert_eq!(answer.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    parse(std::str::from_utf8(&answer.bytes).unwrap())
}

async fn scrape(node: &Node) -> Samples {
    read(node).await.1
}

#[track_caller]
fn check(samples: &Samples, expected: &[(&str, u64)]) {
    for (name, value) in expected {
        assert_eq!(samples.get(&format!("zlock_{name}")), Some(&(*value as f64)), "{name}: {samples:#?}");
    }
}

/// Reads a file of this crate; `path` is relative to the crate's directory. Returns its full path
/// and its text, which is empty if the file is missing.
fn beside(path: &str) -> (std::path::PathBuf, String) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    (file, text)
}

#[tokio::test]
async fn metrics_are_those_of_the_table() {
    let node = Node::start().await;
    node.post("/v1/znodes/data", "12345").await.expect(201);
    let mut table = "name | type | labels | help\n".to_owned();
    for (name, Metric { kind, labels, help }) in read(&node).await.0 {
        let labels = labels.into_iter().collect::<Vec<_>>().join(",");
        table += &format!("{name} | {kind} | {labels} | {help}\n");
    }
    let (file, golden) = beside("tests/golden/metrics.txt");
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        std::fs::write(file, table).unwrap();
    } else {
        assert_eq!(table, golden, "UPDATE_GOLDENFILES=1 writes the table");
    }
}

#[tokio::test]
async fn a_page_tells_of_each_metric_and_of_no_other() {
    let (_, page) = beside("../../docs/operating.md");
    let words = page.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let told: BTreeSet<String> = words.filter(|word| word.starts_with("zlock_")).map(str::to_owned).collect();
    let (metrics, _) = read(&Node::start().await).await;
    let (ours, of_all_programs): (BTreeSet<_>, BTreeSet<_>) =
        metrics.into_keys().partition(|name| name.starts_with("zlock_"));
    assert_eq!(told, ours);
    assert_eq!(of_all_programs.iter().find(|name| !page.contains(&format!("`{name}`"))), None);
}

#[tokio::test]
async fn a_scrape_tells_what_the_node_is_and_has() {
    let node = Node::start().await;
    let session = node.session().await;
    node.post("/v1/znodes/data", "12345").await.expect(201);
    node.acquire(&session, "/l?mode=read").await.expect(200);
    node.acquire(&session, "/l?mode=read").await.expect(200);
    node.acquire(&session, "/l?mode=write&keep").await.expect(202);
    let last = node.acquire(&session, "/m").await.expect(200);
    let samples = scrape(&node).await;
    check(&samples, &[("role{role=\"leader\"}", 1), ("role{role=\"follower\"}", 0), ("ready", 1), ("leader_id", 1)]);
    check(&samples, &[("term", 1), ("members", 1), ("applied_zxid", last.zxid()), ("last_log_zxid", last.zxid())]);
    check(&samples, &[("sessions", 1), ("znodes", 8), ("data_bytes", 5), ("snapshot_bytes", 0)]);
    check(&samples, &[("state_max_bytes", 1 << 30)]);
    assert!((5_000.0..50_000.0).contains(&samples["zlock_state_bytes"]), "{}", samples["zlock_state_bytes"]);
    check(&samples, &[("locks", 2), ("lock_holders", 3), ("lock_waiters", 1), ("mixed_clients_locks", 0)]);
    check(&samples, &[("proposals_in_flight", 0), ("waits", 0), ("sessions_expired_total", 0)]);
    check(&samples, &[("disk_stalled", 0), ("sequence_numbers_used", 3)]);
    assert!(samples["zlock_log_sync_wait_seconds"] < 1.0);
    assert!(samples["zlock_log_since_snapshot_bytes"] > 0.0 && samples["zlock_committed_zxid"] >= last.zxid() as f64);
    let version = env!("CARGO_PKG_VERSION");
    let info = format!("node_info{{cluster_id=\"zlock\",node_id=\"1\",version=\"{version}\"}}");
    check(&samples, &[(&info, 1)]);
    // `/v1/cluster` shows the same numbers.
    let cluster = node.get("/v1/cluster").await.expect(200);
    for name in ["term", "applied_zxid", "sessions", "znodes"] {
        assert_eq!(cluster.body[name].as_f64(), Some(samples[&format!("zlock_{name}")]), "{name}");
    }
    let steps = ["bucket{le=\"+Inf\"}", "count"].map(|part| samples[&format!("zlock_long_step_seconds_{part}")]);
    assert_eq!(steps[0], steps[1]);
    node.close(&session).await.expect(200);
    let samples = scrape(&node).await;
    check(&samples, &[("sessions", 0), ("locks", 0), ("lock_holders", 0), ("lock_waiters", 0)]);
    node.get("/metrics?x=1").await.expect_problem(400, "bad-request");
    node.post("/metrics", "").await.expect_problem(405, "method-not-allowed");
}

#[tokio::test]
async fn requests_are_counted_by_what_came_of_them_and_waits_while_they_wait() {
    let node = Node::start().await;
    let session = node.session().await;
    let held = node.acquire(&session, "/l").await.expect(200);
    let before = scrape(&node).await;
    node.get("/v1/znodes/none").await.expect_problem(404, "no-node");
    let waiting = node.acquire(&session, "/l?wait=20s");
    let looking = async {
        node.until_watches(1).await;
        let samples = scrape(&node).await;
        check(&samples, &[("waits", 1), ("watches{door=\"zookeeper\"}", 0)]);
        assert!(samples["zlock_watches{door=\"http\"}"] >= 1.0, "{samples:?}");
        node.release(&session, text(&held, "ticket")).await.expect(200);
    };
    let (granted, ()) = tokio::join!(waiting, looking);
    granted.expect(200);
    let counts = node.replica.status().counts;
    let after = scrape(&node).await;
    let requests = |samples: &Samples, outcome: &str| {
        samples[&format!("zlock_requests_total{{door=\"http\",outcome=\"{outcome}\"}}")] as u64
    };
    assert_eq!(requests(&after, "done"), counts.requests(Entrance::Http, RequestEnd::Done));
    // Four requests were done between the scrapes: two scrapes, a release and an acquire.
    assert_eq!(requests(&after, "done") - requests(&before, "done"), 4);
    assert_eq!(requests(&after, "refused") - requests(&before, "refused"), 1);
    assert_eq!((requests(&after, "unavailable"), requests(&after, "unknown")), (0, 0));
    check(&after, &[("requests_total{door=\"zookeeper\",outcome=\"done\"}", 0)]);
}

#[tokio::test]
async fn durations_are_counted_where_they_are_measured() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    let held = node.acquire(&first, "/l").await.expect(200);
    node.acquire(&second, "/l?mode=write&keep").await.expect(202);
    let waits = async |locks: u64, ends: u64| {
        let samples = scrape(&node).await;
        check(&samples, &[("lock_wait_seconds_count", locks), ("lock_hold_seconds_count", ends)]);
        check(&samples, &[("lock_handoff_seconds_count", ends), ("lock_handoff_seconds_bucket{le=\"10\"}", ends)]);
        samples
    };
    // The second ticket still waits: a wait counts at its grant, and a hold at its end. The first
    // ticket got a free lock, which is no hand-off.
    waits(1, 0).await;
    node.release(&first, text(&held, "ticket")).await.expect(200);
    let samples = waits(2, 1).await;
    check(&samples, &[("lock_wait_seconds_bucket{le=\"+Inf\"}", 2), ("lock_hold_seconds_bucket{le=\"3600\"}", 1)]);
    let requests = |operation: &str| format!("request_seconds_count{{door=\"http\",operation=\"{operation}\"}}");
    check(&samples, &[(&requests("locksAcquire"), 2), (&requests("sessionsOpen"), 2)]);
    // Two sessions, two acquires and a release.
    check(&samples, &[("commit_seconds_count", 5)]);
    for measured in ["log_sync_seconds_count", "commit_seconds_sum", "disk_free_bytes", "level_max"] {
        assert!(samples[&format!("zlock_{measured}")] > 0.0, "{measured}: {samples:#?}");
    }
    assert!(samples["process_resident_memory_bytes"] > 1e6 && samples["process_open_fds"] >= 3.0, "{samples:#?}");
    check(&samples, &[("limit{limit=\"limits.sessions_max\"}", 200_000)]);
}

#[tokio::test]
async fn a_node_that_drains_is_serving_and_not_ready() {
    let node = Node::start().await;
    let shown = async || {
        let samples = scrape(&node).await;
        (samples["zlock_ready"], samples["zlock_serving"])
    };
    assert_eq!(shown().await, (1.0, 1.0));
    node.operate(Method::PUT, "/v1/admin/drain", "").await.expect(200);
    assert_eq!(shown().await, (0.0, 1.0));
}

/// The small state is in the queue of the answer before the client has taken a byte of it.
#[tokio::test]
async fn a_backup_that_its_client_does_not_take_is_none() {
    let node = Node::start().await;
    let (status, unread) = node.begin_as_operator("/v1/admin/backup").await;
    assert_eq!(status, 200);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let next = loop {
        match node.begin_as_operator("/v1/admin/backup").await {
            // The first one is written.
            (200, next) => break next,
            (status, _) => assert!(status == 429 && tokio::time::Instant::now() < deadline, "{status}"),
        }
    };
    drop((unread, next));
    let last = "zlock_backup_last_success_timestamp_seconds";
    assert_eq!(scrape(&node).await[last], 0.0);
    node.operate(Method::GET, "/v1/admin/backup", "").await.expect(200);
    assert!(scrape(&node).await[last] > 1e9);
}

#[tokio::test]
async fn expired_sessions_and_mixed_locks_are_counted() {
    let node = Node::start().await;
    let session = node.session().await;
    node.post("/v1/znodes/l", "").await.expect(201);
    for name in ["_c_0a3a5b6c-0000-4000-8000-00000000000a-lock-", "0123456789abcdef0123456789abcdef__lock__"] {
        let uri = format!("/v1/znodes/l/{name}?mode=ephemeral-sequential");
        node.in_session(&session, Method::POST, &uri).await.expect(201);
    }
    let short = node.post("/v1/sessions", r#"{"timeout":"2s"}"#).await.expect(201);
    let held = node.acquire(text(&short, "session_key"), "/m").await.expect(200);
    let gone = format!("/v1/znodes{}?watch=exists&since={}&wait=15s", text(&held, "ticket"), held.zxid());
    node.get(&gone).await.expect(200);
    let samples = scrape(&node).await;
    check(&samples, &[("sessions_expired_total", 1), ("sessions", 1), ("mixed_clients_locks", 1), ("lock_waiters", 1)]);
}

#[tokio::test]
async fn a_refusal_is_counted_for_its_bound() {
    let config = RestConfig { waits_max: 0, ..RestConfig::default() };
    let node = Node::start_with(config, |config| config.limits.subtree_bytes_max = 10_000).await;
    node.get("/v1/znodes?watch=children&wait=5s").await.expect_problem(429, "too-many");
    node.post("/v1/znodes/full", &"x".repeat(20_000)).await.expect_problem(507, "quota-exceeded");
    let refused = |bound: &str| format!("refused_total{{bound=\"{bound}\"}}");
    let [waits, subtree, bodies] = ["http.waits_max", "limits.subtree_bytes_max", "http.bodies_bytes_max"].map(refused);
    check(&scrape(&node).await, &[(&waits, 1), (&subtree, 1), (&bodies, 0)]);
}

/// Each round has other names, and another subtree is the largest.
#[tokio::test]
async fn clients_cannot_add_series_by_names_of_their_own() {
    let node = Node::start().await;
    let mut series = BTreeSet::new();
    for round in 0..20 {
        let opened = node.post("/v1/sessions", &format!(r#"{{"label":"session-{round}"}}"#)).await.expect(201);
        let session = text(&opened, "session_key");
        node.acquire(session, &format!("/lock-{round}?label=ticket-{round}")).await.expect(200);
        node.post(&format!("/v1/znodes/node-{round}"), &"x".repeat(1_000 * round)).await.expect(201);
        node.get(&format!("/v1/znodes/none-{round}")).await.expect(404);
        node.get(&format!("/unknown-{round}")).await.expect(404);
        let method = Method::from_bytes(format!("METHOD{round}").as_bytes()).unwrap();
        node.in_session(session, method, "/v1/znodes/node").await;
        scrape(&node).await;
        series.insert(scrape(&node).await.into_keys().collect::<Vec<_>>());
    }
    assert_eq!(series.len(), 1, "{series:#?}");
}
