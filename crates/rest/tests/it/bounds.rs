//! Every bound of the HTTP server, with the answer beyond it.

use axum::body::Body;
use axum::http::{Method, Request};
use rest::RestConfig;
use tower::ServiceExt;
use znode::Limits;

use crate::node::{Node, text};

async fn limited(edit: impl FnOnce(&mut Limits)) -> Node {
    Node::start_with(RestConfig::default(), |config| edit(&mut config.limits)).await
}

#[tokio::test]
async fn a_body_has_a_bound() {
    let node = limited(|limits| limits.data_bytes_max = 8).await;
    node.post("/v1/znodes/a", "12345678").await.expect(201);
    node.post("/v1/znodes/b", "123456789").await.expect_problem(413, "body-too-large");
    node.put("/v1/znodes/a", "123456789").await.expect_problem(413, "body-too-large");
    // A body without an announced length is counted as it comes.
    let pieces = futures_util::stream::iter([Ok::<_, std::io::Error>("12345"), Ok("6789")]);
    let request = Request::post("/v1/znodes/c").body(Body::from_stream(pieces)).unwrap();
    node.send(request).await.expect_problem(413, "body-too-large");
    let ops = r#"{"ops":[{"op":"create","path":"/d","data":"123456789"}]}"#;
    node.post("/v1/txn", ops).await.expect_problem(413, "body-too-large");

    let config = RestConfig { body_bytes_max: 100, ..RestConfig::default() };
    let node = Node::start_with(config, |_| {}).await;
    node.post("/v1/txn", &" ".repeat(101)).await.expect_problem(413, "body-too-large");
}

/// An unread answer takes memory: its JSON text, or raw data that a later write has replaced in the
/// state. While one client leaves a long answer unread, further long answers to reads become 503.
#[tokio::test]
async fn long_answers_that_are_not_read_yet_have_a_bound() {
    // Half of the memory is for answers.
    let config = RestConfig { bodies_bytes_max: 300 << 10, ..RestConfig::default() };
    let node = Node::start_with(config, |_| {}).await;
    node.post("/v1/znodes/a", &"x".repeat(100_000)).await.expect(201);
    let get = || Request::get("/v1/znodes/a").body(Body::empty()).unwrap();
    let unread = node.router.clone().oneshot(get()).await.unwrap();
    assert_eq!(unread.status(), 200);
    let refused = node.get("/v1/znodes/a").await.expect_problem(503, "unavailable");
    assert_eq!(refused.header("retry-after"), "1");
    let raw = async || node.call(Method::GET, "/v1/znodes/a", &[("accept", "application/octet-stream")], b"").await;
    raw().await.expect_problem(503, "unavailable");
    node.get("/v1/znodes/a?children").await.expect(200);
    let ops: Vec<String> =
        (0..100).map(|at| format!(r#"{{"op":"create","path":"/a/{at}{}"}}"#, "n".repeat(200))).collect();
    let written = node.post("/v1/txn", &format!(r#"{{"ops":[{}]}}"#, ops.join(","))).await.expect(200);
    assert!(written.bytes.len() > 20_000, "a write that is done is answered, however long the answer");
    drop(unread);
    raw().await.expect(200);
    node.get("/v1/znodes/a").await.expect(200);
}

#[tokio::test]
async fn a_body_that_does_not_come_is_given_up() {
    let config = RestConfig { body_read_timeout_ms: 50, ..RestConfig::default() };
    let node = Node::start_with(config, |_| {}).await;
    let never = futures_util::stream::pending::<Result<&'static str, std::io::Error>>();
    let request = Request::post("/v1/znodes/a").body(Body::from_stream(never)).unwrap();
    node.send(request).await.expect_problem(408, "request-timeout");
}

#[tokio::test]
async fn the_head_has_bounds() {
    let node = Node::start().await;
    let uri = format!("/v1/znodes/{}", "a".repeat(9_000));
    node.get(&uri).await.expect_problem(414, "uri-too-long");
    let long = "x".repeat(17_000);
    let refused = node.call(Method::GET, "/v1/znodes", &[("x-long", &long)], b"").await;
    refused.expect_problem(431, "headers-too-large");
    let many: Vec<String> = (0..65).map(|at| format!("x-{at}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|name| (&**name, "1")).collect();
    let refused = node.call(Method::GET, "/v1/znodes", &many, b"").await.expect_problem(431, "headers-too-large");
    assert_eq!(refused.header("zlock-node"), "1");
}

#[tokio::test]
async fn paths_and_their_families_have_bounds() {
    let edit = |limits: &mut Limits| {
        (limits.path_bytes_max, limits.path_depth_max, limits.name_bytes_max) = (20, 3, 10);
        limits.children_max = 2;
    };
    let node = limited(edit).await;
    node.post("/v1/znodes/12345678901", "").await.expect_problem(414, "uri-too-long");
    node.post("/v1/znodes/a", "").await.expect(201);
    node.post("/v1/znodes/a/b", "").await.expect(201);
    node.post("/v1/znodes/a/b/c", "").await.expect(201);
    node.post("/v1/znodes/a/b/c/d", "").await.expect_problem(414, "uri-too-long");
    node.post("/v1/znodes/a/b/d", "").await.expect(201);
    let refused = node.post("/v1/znodes/a/b/e", "").await.expect_problem(409, "limit-reached");
    assert_eq!((&refused.body["name"], &refused.body["code"]), (&"TooManyChildren".into(), &(-1006).into()));
}

#[tokio::test]
async fn sessions_waiters_and_ephemerals_have_bounds() {
    let edit = |limits: &mut Limits| (limits.sessions_max, limits.waiters_max, limits.ephemerals_max) = (2, 2, 2);
    let node = limited(edit).await;
    let (first, second) = (node.session().await, node.session().await);
    let refused = node.post("/v1/sessions", "").await.expect_problem(429, "too-many");
    assert_eq!((refused.header("retry-after"), &refused.body["name"]), ("1", &"TooManySessions".into()));
    node.acquire(&first, "/l?keep").await.expect(200);
    node.acquire(&first, "/l?keep").await.expect(202);
    let refused = node.acquire(&second, "/l?keep").await.expect_problem(429, "too-many");
    assert_eq!((refused.header("retry-after"), &refused.body["name"]), ("1", &"TooManyWaiters".into()));
    let refused = node.in_session(&first, Method::POST, "/v1/znodes/e?mode=ephemeral").await;
    let refused = refused.expect_problem(409, "limit-reached");
    assert_eq!(refused.body["name"], "TooManyEphemerals");
}

#[tokio::test]
async fn operations_of_a_txn_have_a_bound() {
    let node = limited(|limits| limits.ops_max = 2).await;
    let check = r#"{"op":"check","path":"/"}"#;
    let two = format!(r#"{{"ops":[{check},{check}]}}"#);
    node.post("/v1/txn", &two).await.expect(200);
    let three = format!(r#"{{"ops":[{check},{check},{check}]}}"#);
    node.post("/v1/txn", &three).await.expect_problem(413, "too-many-operations");
}

#[tokio::test]
async fn a_txn_that_no_replica_could_read_back_is_refused() {
    // The check of so many operations takes seconds in a program without optimisations.
    let node = Node::start_with(RestConfig { propose_timeout_ms: 60_000, ..RestConfig::default() }, |_| {}).await;
    // The bound is on the operations' size in memory, which is larger than in the body and in the
    // log entry.
    let ops = vec![r#"{"op":"check","path":"/"}"#; 161_318].join(",");
    let body = format!(r#"{{"ops":[{ops}]}}"#);
    let guard = format!("/{};1", "l".repeat(250));
    let refused = node.call(Method::POST, "/v1/txn", &[("if-lock", &guard)], body.as_bytes()).await;
    refused.expect_problem(413, "body-too-large");
    node.post("/v1/znodes/a", "the node lives on").await.expect(201);
}

#[tokio::test]
async fn waiting_requests_have_a_bound() {
    let config = RestConfig { waits_max: 1, ..RestConfig::default() };
    let node = Node::start_with(config, |_| {}).await;
    let (first, second) = (node.session().await, node.session().await);
    node.acquire(&first, "/l").await.expect(200);
    let bounded = async {
        node.until_queued("/l", 2).await;
        let refused = node.get("/v1/znodes/a?watch=data&wait=1s").await.expect_problem(429, "too-many");
        assert_eq!((refused.header("retry-after"), &refused.body["outcome"]), ("1", &"unavailable".into()));
        node.acquire(&first, "/other").await.expect_problem(429, "too-many");
        node.get("/v1/znodes/a?watch=data").await.expect(200);
    };
    tokio::select! {
        answer = node.acquire(&second, "/l?wait=20s") => panic!("{}", answer.body),
        () = bounded => {}
    }
    // Another request may wait once the waiting acquire has left the queue.
    while node.get("/v1/znodes/a?watch=data&wait=1ms").await.status == 429 {}
    assert_eq!(node.get("/v1/locks/l").await.expect(200).body["contenders"], 1);
}

#[tokio::test]
async fn those_who_keep_their_place_wait_within_the_same_bound() {
    let config = RestConfig { waits_max: 1, ..RestConfig::default() };
    let node = Node::start_with(config, |_| {}).await;
    let (first, second) = (node.session().await, node.session().await);
    node.acquire(&first, "/l").await.expect(200);
    let bounded = async {
        node.until_queued("/l", 2).await;
        node.acquire(&first, "/other").await.expect_problem(429, "too-many");
    };
    tokio::select! {
        answer = node.acquire(&second, "/l?keep&wait=20s") => panic!("{}", answer.body),
        () = bounded => {}
    }
    while node.get("/v1/znodes/a?watch=data&wait=1ms").await.status == 429 {}
    assert_eq!(node.get("/v1/locks/l").await.expect(200).body["contenders"], 2, "the place is kept");
}

#[tokio::test]
async fn watches_of_the_node_have_a_bound() {
    let node = Node::start_with(RestConfig::default(), |config| config.watches_max = 0).await;
    let refused = node.get("/v1/znodes/a?watch=data&wait=1s").await.expect_problem(429, "too-many");
    assert_eq!(refused.header("retry-after"), "1");
}

#[tokio::test]
async fn waits_and_pages_have_bounds() {
    let config = RestConfig { wait_max_ms: 1_000, page_max: 2, ..RestConfig::default() };
    let node = Node::start_with(config, |_| {}).await;
    let session = node.session().await;
    node.acquire(&session, "/l?wait=2s").await.expect_problem(400, "bad-request");
    node.get("/v1/znodes/a?watch=data&wait=2s").await.expect_problem(400, "bad-request");
    node.get("/v1/tickets/l/x-0000000000?wait=2s").await.expect_problem(400, "bad-request");
    for path in ["/a", "/b", "/c"] {
        node.post(&format!("/v1/znodes{path}"), "").await.expect(201);
    }
    let refused = node.get("/v1/znodes?children&page_size=3").await.expect_problem(400, "bad-request");
    assert_eq!(refused.body["detail"], "page_size: at most 2");
    let page = node.get("/v1/znodes?children").await.expect(200);
    assert_eq!(page.body["children"].as_array().unwrap().len(), 2);
    assert!(page.body["cursor"].is_string());
}

#[tokio::test]
async fn a_text_that_is_too_long_is_refused_by_its_name() {
    let node = limited(|limits| limits.label_bytes_max = 8).await;
    let session = node.session().await;
    let check = async |method: Method, uri: &str, body: &str, name: &str| {
        let answer = node.call(method, uri, &[("zlock-session-key", &session)], body.as_bytes()).await;
        let refused = answer.expect_problem(400, "bad-request");
        let detail = format!("{name}: 9 bytes, and at most 8 are taken");
        assert_eq!((&refused.body["detail"], &refused.body["code"]), (&detail.into(), &(-8).into()), "{uri}");
    };
    let reader = node.acquire(&session, "/l?mode=read&owner=12345678&label=12345678").await.expect(200);
    check(Method::POST, "/v1/locks/l?owner=123456789", "", "owner").await;
    check(Method::POST, "/v1/locks/l?label=123456789", "", "label").await;
    let upgrade = format!("/v1/locks/l?upgrade={}&label=123456789", text(&reader, "ticket"));
    check(Method::POST, &upgrade, "", "label").await;
    check(Method::POST, "/v1/elections/e?owner=123456789", "", "owner").await;
    check(Method::POST, "/v1/sessions", r#"{"label":"123456789"}"#, "label").await;
    check(Method::POST, "/v1/multilocks", r#"{"locks":[{"path":"/a"}],"label":"123456789"}"#, "label").await;
    // A refusal of data names no parameter, because data is the body.
    let node = limited(|limits| limits.data_bytes_max = 8).await;
    let refused = node.post("/v1/znodes/b", "123456789").await.expect_problem(413, "body-too-large");
    assert!(!text(&refused, "detail").contains(':'), "{}", refused.body);
}

#[tokio::test]
async fn a_page_of_a_queue_has_no_more_data_than_labels() {
    let node = limited(|limits| limits.label_bytes_max = 8).await;
    node.post("/v1/znodes/l", "").await.expect(201);
    node.post("/v1/znodes/l/n-lock-?mode=persistent-sequential", "12345678").await.expect(201);
    node.post("/v1/znodes/l/n-lock-?mode=persistent-sequential", "123456789").await.expect(201);
    let queue = node.get("/v1/locks/l").await.expect(200);
    assert_eq!(queue.body["holders"][0]["label"], "12345678");
    // A lock node that a client created as a znode may have much longer data than a label. Such
    // data is left out, as a page has up to a thousand entries.
    assert_eq!(queue.body["waiters"][0].get("label"), None, "{}", queue.body);
}

#[tokio::test]
async fn proposals_on_their_way_have_a_bound() {
    let node = Node::start_with(RestConfig::default(), |config| config.proposals_max = 1).await;
    let (mut done, mut refused) = (0, 0);
    let node = &node;
    let posts = (0..32).map(|at| async move { node.post(&format!("/v1/znodes/n{at}"), "").await });
    for answer in futures_util::future::join_all(posts).await {
        if answer.status == 201 {
            done += 1;
        } else {
            let answer = answer.expect_problem(503, "unavailable");
            assert_eq!((answer.header("retry-after"), &answer.body["outcome"]), ("1", &"unavailable".into()));
            refused += 1;
        }
    }
    assert!(done >= 1 && refused >= 1, "{done} done, {refused} refused");
}

#[tokio::test]
async fn the_state_has_a_bound() {
    let node = limited(|limits| limits.znodes_max = 6).await;
    let mut made = Vec::new();
    let refused = loop {
        let path = format!("/v1/znodes/n{}", made.len());
        let answer = node.post(&path, "x").await;
        if answer.status != 201 {
            break answer;
        }
        made.push(path);
    };
    let refused = refused.expect_problem(507, "quota-exceeded");
    assert_eq!((&refused.body["outcome"], &refused.body["name"]), (&"refused".into(), &"QuotaExceeded".into()));
    // In a full state, existing znodes may be read, changed and deleted; a deletion makes room
    // again.
    node.put(&made[0], "y").await.expect(200);
    node.delete(&made[0]).await.expect(200);
    node.post("/v1/znodes/again", "x").await.expect(201);

    let node = limited(|limits| limits.state_bytes_max = 100_000).await;
    node.post("/v1/znodes/a", &"x".repeat(60_000)).await.expect(201);
    node.post("/v1/znodes/b", &"x".repeat(60_000)).await.expect_problem(507, "quota-exceeded");
    node.put("/v1/znodes/a", &"x".repeat(120_000)).await.expect_problem(507, "quota-exceeded");
    // Sessions take part of the state's bytes, too.
    let body = format!("{{\"label\":\"{}\"}}", "x".repeat(200));
    let mut sessions = 0;
    let refused = loop {
        let answer = node.post("/v1/sessions", &body).await;
        if answer.status != 201 && answer.status != 200 {
            break answer;
        }
        sessions += 1;
        assert!(sessions < 100, "{sessions} sessions beside 60,000 bytes of data");
    };
    refused.expect_problem(507, "quota-exceeded");
    node.delete("/v1/znodes/a").await.expect(200);
}

/// One fifth of the state's bytes is kept for sessions and locks. Without it, 450 znodes of 1 MB
/// would keep every client from opening a session or taking a lock.
#[tokio::test]
async fn locks_are_taken_where_znodes_have_filled_the_state() {
    let edit = |limits: &mut Limits| (limits.state_bytes_max, limits.subtree_bytes_max) = (200_000, 100_000);
    let node = limited(edit).await;
    node.post("/v1/znodes/big", &"x".repeat(60_000)).await.expect(201);
    node.post("/v1/znodes/big/more", &"x".repeat(30_000)).await.expect(201);
    let refused = node.post("/v1/znodes/big/one", &"x".repeat(20_000)).await.expect_problem(507, "quota-exceeded");
    assert_eq!(text(&refused, "path"), "/big", "the subtree has its share");
    assert!(text(&refused, "detail").contains("largest subtree is /big with 91"), "{}", text(&refused, "detail"));
    node.post("/v1/znodes/other", &"x".repeat(55_000)).await.expect(201);
    let refused = node.post("/v1/znodes/third", &"x".repeat(20_000)).await.expect_problem(507, "quota-exceeded");
    assert_eq!(text(&refused, "path"), "/third", "znodes have four fifths");
    let session = node.session().await;
    node.acquire(&session, "/big/lock").await.expect(200);
    node.in_session(&session, Method::POST, "/v1/simple-locks/s").await.expect(200);
    let cluster = node.get("/v1/cluster").await.expect(200).body["largest_subtree"].clone();
    assert_eq!((&cluster["path"], &cluster["bytes_max"]), (&"/big".into(), &100_000.into()));
    let metrics = node.get("/metrics").await;
    let metrics = String::from_utf8_lossy(&metrics.bytes).into_owned();
    assert!(metrics.contains("zlock_largest_subtree_bytes 91"), "{metrics}");
}
