//! Bad requests, and the parts that every answer has.

use axum::http::Method;
use replica::{Member, Replica};
use rest::RestConfig;
use serde_json::json;
use tokio::time::{Duration, Instant};

use crate::node::{Node, PATIENCE, text};

#[tokio::test]
async fn what_is_not_there_is_a_problem_too() {
    let node = Node::start().await;
    for uri in ["/", "/v1", "/v2/znodes", "/v1/znode/a", "/v1/tickets", "/v1/sessions/1/2"] {
        let missing = node.get(uri).await.expect_problem(404, "no-route");
        assert_eq!((missing.header("zlock-node"), missing.zxid() > 0), ("1", true));
        assert_eq!(missing.header("content-type"), "application/problem+json");
    }
    for (method, uri, allow) in [
        (Method::PATCH, "/v1/znodes/a", "DELETE,GET,HEAD,POST,PUT"),
        (Method::PATCH, "/v1/locks/a", "DELETE,GET,HEAD,POST"),
        (Method::PATCH, "/v1/settings/a", "DELETE,GET,HEAD,PUT"),
        (Method::POST, "/v1/tickets/a", "DELETE,GET,HEAD"),
        (Method::GET, "/v1/txn", "POST"),
        (Method::DELETE, "/v1/cluster", "GET,HEAD"),
    ] {
        let refused = node.call(method, uri, &[], b"").await.expect_problem(405, "method-not-allowed");
        let mut methods: Vec<&str> = refused.header("allow").split(',').collect();
        methods.sort_unstable();
        assert_eq!(methods.join(","), allow, "{uri}");
    }
}

#[tokio::test]
async fn a_path_that_breaks_a_rule_is_refused() {
    let node = Node::start().await;
    for path in ["//", "/a/", "/a//b", "/a/../b", "/%2e%2e/b", "/a%2f/b", "/a%2F..%2Fb", "/a%00", "/%ff", "/a%7f", "/."]
    {
        for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE] {
            let refused = node.call(method, &format!("/v1/znodes{path}"), &[], b"").await;
            let refused = refused.expect_problem(400, "bad-request");
            assert_eq!((&refused.body["name"], &refused.body["code"]), (&json!("BadArguments"), &json!(-8)));
        }
        node.get(&format!("/v1/locks{path}")).await.expect_problem(400, "bad-request");
    }
    let created = node.post("/v1/znodes/a%20b%252f%E6%BC%A2", "").await.expect(201);
    assert_eq!(created.body["path"], "/a b%2f漢");
    assert_eq!(created.header("location"), "/v1/znodes/a%20b%252f%E6%BC%A2");
    node.get(created.header("location")).await.expect(200);
}

#[tokio::test]
async fn a_parameter_that_is_unknown_or_bad_is_named() {
    let node = Node::start().await;
    let session = node.session().await;
    for (method, uri, name) in [
        (Method::GET, "/v1/znodes/a?chidlren", "chidlren"),
        (Method::GET, "/v1/znodes/a?children=all", "children"),
        (Method::GET, "/v1/znodes/a?page_size=5", "page_size"),
        (Method::GET, "/v1/sessions/1?after=x", "after"),
        (Method::POST, "/v1/znodes/a?mode=forever", "mode"),
        (Method::POST, "/v1/znodes/a?ttl=5s", "ttl"),
        (Method::POST, "/v1/znodes/a?mode=persistent-ttl", "ttl"),
        (Method::POST, "/v1/locks/a?owner=a%0Ab", "owner"),
        (Method::POST, "/v1/locks/a?wiat=5s", "wiat"),
        (Method::POST, "/v1/locks/a?wait=soon", "wait"),
        (Method::POST, "/v1/locks/a?mode=shared", "mode"),
        (Method::POST, "/v1/locks/a?keep=maybe", "keep"),
        (Method::POST, "/v1/locks/a?lock_delay=-1", "lock_delay"),
        (Method::POST, "/v1/locks/a?lock_delay=61s", "lock_delay"),
        (Method::POST, "/v1/locks/a?lock_delay=2000h", "lock_delay"),
        (Method::POST, "/v1/elections/a?lock_delay=5m", "lock_delay"),
        (Method::GET, "/v1/locks?page_size=1001", "page_size"),
        (Method::GET, "/v1/locks/a?page_size=1001", "page_size"),
        (Method::GET, "/v1/znodes?children&page_size=1001", "page_size"),
        (Method::GET, "/v1/groups/a?page_size=1001", "page_size"),
        (Method::GET, "/v1/locks/a?after=-1", "after"),
        (Method::GET, "/v1/sessions?after=x", "after"),
        (Method::GET, "/v1/sessions?page_size=0", "page_size"),
        (Method::GET, "/v1/sessions/x", "session"),
        (Method::GET, "/v1/cluster?x=1", "x"),
        (Method::GET, "/v1/cluster?digest=sha1", "digest"),
        (Method::GET, "/livez?x", "x"),
        (Method::POST, "/v1/txn?a=1&a=2", "a"),
    ] {
        let refused = node.in_session(&session, method, uri).await.expect_problem(400, "bad-request");
        let detail = refused.body["detail"].as_str().unwrap();
        assert!(detail.starts_with(&format!("{name}: ")), "{uri}: {detail}");
    }
    for acl in ["all", "", "world:anyone", "world:anyone:x"] {
        let uri = format!("/v1/znodes/a?acl={acl}");
        node.in_session(&session, Method::POST, &uri).await.expect_problem(400, "invalid-acl");
    }
    node.get("/v1/znodes/a").await.expect_problem(404, "no-node");
}

#[tokio::test]
async fn the_node_tells_about_itself() {
    let node = Node::start().await;
    node.session().await;
    let cluster = node.get("/v1/cluster").await.expect(200);
    let members = cluster.body["members"].as_array().unwrap();
    assert_eq!((members.len(), &members[0]["role"]), (1, &json!("leader")));
    for (field, value) in [
        ("node_id", json!(1)),
        ("role", json!("leader")),
        ("leader", json!(1)),
        ("sessions", json!(1)),
        ("status", json!("ready")),
        ("applied_zxid", json!(cluster.zxid())),
    ] {
        assert_eq!(cluster.body[field], value, "{field}");
    }
    assert_eq!(node.get("/livez").await.expect(200).body, json!({"live": true}));
    assert_eq!(node.get("/readyz").await.expect(200).body, json!({"status": "ready"}));
    let version = json!({"name": "zlock", "version": env!("CARGO_PKG_VERSION")});
    assert_eq!(node.get("/version").await.expect(200).body, version);
}

#[tokio::test]
async fn a_node_without_a_quorum_says_so() {
    let config = RestConfig { propose_timeout_ms: 50, read_timeout_ms: 50, ..RestConfig::default() };
    // No process can have the reserved port 0, so the other members never run.
    let absent = |id| Member { id, peer_addr: "127.0.0.1:0".into(), http_addr: "127.0.0.1:0".into() };
    let node = Node::start_unready(config, |config| config.members.extend([absent(2), absent(3)])).await;
    let refused = node.get("/readyz").await.expect_problem(503, "unavailable");
    assert_eq!((refused.header("retry-after"), &refused.body["outcome"]), ("1", &json!("unavailable")));
    assert_eq!(node.get("/v1/cluster").await.expect(200).body["leader"], json!(null));
    node.get("/livez").await.expect(200);
    node.post("/v1/znodes/a", "x").await.expect_problem(503, "unavailable");
    node.post("/v1/sessions", "").await.expect_problem(503, "unavailable");
    node.get("/v1/znodes").await.expect_problem(503, "unavailable");
}

/// The node must refuse requests before its clients' timeouts. After a timeout, a client does not
/// know whether its write was done.
#[tokio::test]
async fn a_node_that_hears_no_leader_refuses_everything_at_once() {
    let absent = |id| Member { id, peer_addr: "127.0.0.1:0".into(), http_addr: "127.0.0.1:0".into() };
    let node = Node::start_unready(RestConfig::default(), |config| config.members.extend([absent(2), absent(3)])).await;
    let election = Duration::from_millis(node.replica.disconnected_after_ms());
    let began = Instant::now();
    // At first an election may be in progress: a request waits for its end, and no longer.
    while !text(&node.get("/v1/znodes").await.expect_problem(503, "unavailable"), "detail").contains("no quorum") {
        assert!(began.elapsed() < election * 2, "{:?}", began.elapsed());
    }
    let session = "5.000102030405060708090a0b0c0d0e0f";
    for (method, uri) in [
        (Method::GET, "/v1/znodes"),
        (Method::GET, "/v1/locks"),
        (Method::GET, "/v1/fence?path=/l&fencing_token=1"),
        (Method::POST, "/v1/znodes/a"),
        (Method::POST, "/v1/locks/l?wait=60s"),
        (Method::POST, "/v1/sessions"),
        (Method::POST, "/v1/sessions/5/keepalive"),
    ] {
        let mut took = Duration::MAX;
        // The thread may be paused during one of the requests.
        for _ in 0..3 {
            let began = Instant::now();
            let refused = node.in_session(session, method.clone(), uri).await.expect_problem(503, "unavailable");
            took = took.min(began.elapsed());
            let why = "no leader is heard, or this leader has lost its quorum";
            assert!(text(&refused, "detail").contains(why), "{uri}: {}", refused.body);
            assert_eq!(refused.body["outcome"], "unavailable");
        }
        assert!(took < election / 2, "{uri}: {took:?}");
    }
}

#[tokio::test]
async fn the_node_gives_a_digest_of_its_state_when_asked() {
    let super_digest = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=".to_owned();
    let node = Node::start_with(RestConfig { super_digest, ..RestConfig::default() }, |_| {}).await;
    let operator = [("authorization", "Basic c3VwZXI6dGVzdA==")];
    assert_eq!(node.get("/v1/cluster").await.expect(200).body.get("state"), None);
    let mut seen = Vec::new();
    for path in ["/v1/znodes/a", "/v1/znodes/b"] {
        let written = node.post(path, "").await.expect(201).zxid();
        let deadline = Instant::now() + PATIENCE;
        let cluster = loop {
            let cluster = node.call(Method::GET, "/v1/cluster?digest=true", &operator, b"").await;
            if cluster.status == 200 {
                break cluster;
            }
            // The node rests after a digest, for longer if its thread was paused in it.
            cluster.expect_problem(503, "unavailable");
            assert!(Instant::now() < deadline, "no digest is made");
        };
        let state = node.replica.state();
        let digest: String = Replica::digest(&state).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!((state.last_zxid().0, digest.len()), (written, 64));
        assert_eq!(cluster.body["state"], json!({"zxid": written, "digest": digest}));
        seen.push(digest);
    }
    assert_ne!(seen[0], seen[1]);
}

#[tokio::test]
async fn the_description_is_of_what_is_there() {
    let node = Node::start().await;
    let described = node.get("/openapi.json").await.expect(200);
    assert_eq!(described.body["openapi"], "3.1.0");
    assert_eq!(described.body["paths"], rest::openapi_document()["paths"]);
    for (path, item) in described.body["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            let method: Method = method.to_uppercase().parse().unwrap();
            let uri =
                path.replace("{id}", "1").replace("{session}", "1").replace("{path}", "a").replace("{ticket}", "a");
            let answer = node.call(method.clone(), &uri, &[], b"").await;
            assert!(!matches!(answer.problem(), "no-route" | "method-not-allowed"), "{method} {path}");
            let responses = &item[method.as_str().to_lowercase()]["responses"];
            let documented = responses.get(answer.status.to_string());
            assert!(documented.is_some(), "{method} {path}: {}", answer.status);
        }
    }
    for schema in ["Problem", "Ticket", "TextZnode", "Children", "Events", "LockQueue", "Txn"] {
        assert!(described.body["components"]["schemas"][schema].is_object(), "{schema}");
    }
}

#[tokio::test]
async fn a_header_that_must_be_one_is_given_once() {
    let node = Node::start().await;
    for name in ["zlock-session-key", "idempotency-key", "if-lock", "zlock-min-zxid", "if-match", "if-none-match"] {
        let twice = [(name, "1"), (name, "1")];
        let refused = node.call(Method::PUT, "/v1/znodes", &twice, b"").await.expect_problem(400, "bad-request");
        assert_eq!(refused.body["detail"], format!("{name}: given twice"));
    }
}

#[tokio::test]
async fn a_condition_that_a_route_does_not_read_is_refused_by_name() {
    let node = Node::start().await;
    node.post("/v1/znodes/a", "").await.expect(201);
    let routes = [
        (Method::GET, "/v1/znodes/a"),
        (Method::HEAD, "/v1/znodes/a"),
        (Method::PUT, "/v1/znodes/a"),
        (Method::DELETE, "/v1/znodes/a"),
        (Method::POST, "/v1/znodes/b"),
        (Method::POST, "/v1/txn"),
        (Method::PUT, "/v1/settings/l"),
        (Method::GET, "/v1/locks/l"),
        (Method::GET, "/livez"),
        (Method::PUT, "/v1/admin/drain"),
        (Method::POST, "/v1/sessions/1/keepalive"),
    ];
    for (method, uri) in routes {
        let reads_if_lock =
            !matches!(method, Method::GET | Method::HEAD) && !uri.contains("/admin/") && !uri.ends_with("/keepalive");
        let reads_if_match = uri == "/v1/znodes/a" && matches!(method, Method::PUT | Method::DELETE);
        for (name, value, is_read) in [
            ("if-match", "\"0\"", reads_if_match),
            ("if-none-match", "*", reads_if_match && method == Method::PUT),
            ("if-lock", "/l;1", reads_if_lock),
            ("if-modified-since", "Wed, 21 Oct 2026 07:28:00 GMT", false),
            ("if-unmodified-since", "Wed, 21 Oct 2026 07:28:00 GMT", false),
            ("if-range", "\"0\"", false),
            ("range", "bytes=0-1", false),
            ("content-range", "bytes 0-1/2", false),
            ("content-encoding", "gzip", false),
        ] {
            if is_read {
                continue;
            }
            let refused = node.call(method.clone(), uri, &[(name, value)], b"").await.expect(400);
            if method != Method::HEAD {
                let detail = format!("{name}: {method} of this path does not take this header");
                assert_eq!((refused.problem(), &refused.body["detail"]), ("bad-request", &json!(detail)));
            }
        }
    }
    for (method, uri, status) in
        [(Method::TRACE, "/v1/znodes/a", 405), (Method::PATCH, "/v1/txn", 405), (Method::GET, "/v1/znode/a", 404)]
    {
        node.call(method, uri, &[("if-match", "\"0\"")], b"").await.expect(status);
    }
    let read = node.get("/v1/znodes/a").await.expect(200);
    assert_eq!((read.header("etag"), read.body["data"].as_str()), ("\"0\"", Some("")));
}
