//! `/metrics`, read as Prometheus reads it:
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::Method;
use replica::{Entrance, RequestEnd};

use crate::node::{Node, text};

/// Samples by name and labels.
type Samples = BTreeMap<String, f64>;

fn is_name(name: &str) -> bool {
    let good = |(at, c): (usize, char)| c.is_ascii_alphabetic() || c == '_' || (at > 0 && c.is_ascii_digit());
    !name.is_empty() && name.char_indices().all(good)
}

/// Reads the labels between the braces, and returns the text behind them. Values are quoted, and
/// escape backslash, quote and newline only.
fn labels(mut rest: &str) -> &str {
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
            ("}", behind) => return behind,
            (other, _) => panic!("{other:?} behind a label"),
        }
    }
}

fn parse(text: &str) -> Samples {
    assert!(text.ends_with('\n'), "the last line has an end, too");
    let (mut samples, mut family, mut families) = (Samples::new(), None, BTreeSet::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, words) = help.split_once(' ').unwrap();
            assert!(is_name(name) && name.starts_with("zlock_") && !words.is_empty(), "{line}");
            assert!(families.insert(name), "{name} comes once, with all its samples");
            let kind = lines.next().unwrap().strip_prefix(&format!("# TYPE {name} ")).expect("TYPE follows HELP");
            assert!(matches!(kind, "gauge" | "counter"), "{kind}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
            family = Some(name);
            continue;
        }
        let name = &line[..line.find(['{', ' ']).unwrap()];
        assert_eq!(Some(name), family, "{line}");
        let value = match line[name.len()..].strip_prefix('{') {
            Some(rest) => labels(rest),
            None => &line[name.len()..],
        };
        let series = line[..line.len() - value.len()].to_owned();
        let value: f64 = value.strip_prefix(' ').unwrap().parse().unwrap();
        assert!(value >= 0.0 && samples.insert(series, value).is_none(), "{line}");
    }
    samples
}

async fn scrape(node: &Node) -> Samples {
    let answer = node.get("/metrics").await.expect(200);
    assert_eq!(answer.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    parse(std::str::from_utf8(&answer.bytes).unwrap())
}

#[track_caller]
fn check(samples: &Samples, expected: &[(&str, u64)]) {
    for (name, value) in expected {
        assert_eq!(samples.get(&format!("zlock_{name}")), Some(&(*value as f64)), "{name}: {samples:#?}");
    }
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
    check(&samples, &[("state_bytes_max", 1 << 30)]);
    assert!((5_000.0..50_000.0).contains(&samples["zlock_state_bytes"]), "{}", samples["zlock_state_bytes"]);
    check(&samples, &[("locks", 2), ("lock_holders", 3), ("lock_waiters", 1), ("mixed_clients_locks", 0)]);
    check(&samples, &[("proposals_in_flight", 0), ("waiting_requests", 0), ("sessions_expired_total", 0)]);
    check(&samples, &[("disk_stalled", 0), ("sequence_numbers_used", 3)]);
    assert!(samples["zlock_flush_waiting_seconds"] < 1.0);
    assert!(samples["zlock_unsaved_log_bytes"] > 0.0 && samples["zlock_committed_zxid"] >= last.zxid() as f64);
    let version = env!("CARGO_PKG_VERSION");
    let info = format!("node_info{{cluster_id=\"zlock\",node_id=\"1\",version=\"{version}\"}}");
    check(&samples, &[(&info, 1)]);
    // The numbers are the same as elsewhere.
    let cluster = node.get("/v1/cluster").await.expect(200);
    for name in ["term", "applied_zxid", "sessions", "znodes", "mixed_clients_locks"] {
        assert_eq!(cluster.body[name].as_f64(), Some(samples[&format!("zlock_{name}")]), "{name}");
    }
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
        check(&samples, &[("waiting_requests", 1), ("watches{door=\"zookeeper\"}", 0)]);
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
    // These are two scrapes, a release and an acquire.
    assert_eq!(requests(&after, "done") - requests(&before, "done"), 4);
    assert_eq!(requests(&after, "refused") - requests(&before, "refused"), 1);
    assert_eq!((requests(&after, "unavailable"), requests(&after, "unknown")), (0, 0));
    check(&after, &[("requests_total{door=\"zookeeper\",outcome=\"done\"}", 0)]);
}

#[tokio::test]
async fn expired_sessions_and_mixed_locks_are_counted() {
    let node = Node::start().await;
    let session = node.session().await;
    let short = node.post("/v1/sessions", r#"{"timeout":"2s"}"#).await.expect(201);
    node.post("/v1/znodes/l", "").await.expect(201);
    for name in ["_c_0a3a5b6c-0000-4000-8000-00000000000a-lock-", "0123456789abcdef0123456789abcdef__lock__"] {
        let uri = format!("/v1/znodes/l/{name}?mode=ephemeral-sequential");
        node.in_session(&session, Method::POST, &uri).await.expect(201);
    }
    let held = node.acquire(text(&short, "session_key"), "/m").await.expect(200);
    let gone = format!("/v1/znodes{}?watch=exists&since={}&wait=15s", text(&held, "ticket"), held.zxid());
    node.get(&gone).await.expect(200);
    let samples = scrape(&node).await;
    check(&samples, &[("sessions_expired_total", 1), ("sessions", 1), ("mixed_clients_locks", 1), ("lock_waiters", 1)]);
}
