//! Ends of a wait: the lock is granted, the time is over, the client hangs up, or the session
//! expires.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Method, Request, Uri};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use rest::RestConfig;
use tokio::time::timeout;
use tower::ServiceExt;

use crate::node::{Answer, Node, PATIENCE, number, text};

#[tokio::test]
async fn a_client_that_hangs_up_while_waiting_leaves_no_ghost() {
    let node = Node::start().await;
    let (first, second, third) = (node.session().await, node.session().await, node.session().await);
    let held = node.acquire(&first, "/l").await.expect(200);
    tokio::select! {
        answer = node.acquire(&second, "/l?wait=20s") => panic!("{}", answer.body),
        () = node.until_contenders("/l", 2) => {}
    }
    node.until_contenders("/l", 1).await;
    let (next, _) = tokio::join!(node.acquire(&third, "/l?wait=20s"), node.release(&first, text(&held, "ticket")));
    next.expect(200);
}

#[tokio::test]
async fn a_client_that_hangs_up_at_once_leaves_no_ghost() {
    let node = Node::start().await;
    let session = node.session().await;
    for _ in 0..20 {
        // The request is polled once and dropped: its proposal is in progress, and its outcome is
        // lost.
        assert!(node.acquire(&session, "/l?wait=20s").now_or_never().is_none());
    }
    // The log has this acquire after the twenty proposed acquires, and before or after the
    // withdrawals of their tickets.
    let other = node.session().await;
    let held = node.acquire(&other, "/l?wait=20s").await.expect(200);
    node.until_contenders("/l", 1).await;
    node.release(&other, text(&held, "ticket")).await.expect(200);
    node.until_contenders("/l", 0).await;
}

#[tokio::test]
async fn an_acquire_that_ran_out_of_time_leaves_no_ghost() {
    let mut node = Node::start().await;
    let (session, mut held) = (node.session().await, 0);
    // The timeout is about the duration of a disk write, so many outcomes are unknown at first.
    node.limit_proposals_to_ms(1);
    let out_of_time = |answer: Answer| {
        let problem = (answer.status, answer.problem(), answer.body["outcome"].as_str().unwrap());
        let expected = [(503, "unavailable", "unavailable"), (504, "outcome-unknown", "unknown")];
        assert!(expected.contains(&problem), "{}", answer.body);
    };
    for _ in 0..20 {
        match node.acquire(&session, "/l").await {
            answer if answer.status == 200 => held += 1,
            answer if answer.status == 409 => assert_eq!(answer.problem(), "not-acquired"),
            answer => out_of_time(answer),
        }
    }
    node.until_contenders("/l", held.min(1)).await;
}

#[tokio::test]
async fn a_retry_after_a_hang_up_queues_afresh() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    let held = node.acquire(&first, "/l").await.expect(200);
    let key = [("zlock-session-key", &*second), ("idempotency-key", "67e55044-10b1-426f-9247-bb680e5fe0c8")];
    tokio::select! {
        answer = node.call(Method::POST, "/v1/locks/l?wait=20s", &key, b"") => panic!("{}", answer.body),
        () = node.until_contenders("/l", 2) => {}
    }
    node.until_contenders("/l", 1).await;
    node.release(&first, text(&held, "ticket")).await.expect(200);
    let held = node.call(Method::POST, "/v1/locks/l?wait=20s", &key, b"").await.expect(200);
    assert!(text(&held, "ticket").ends_with("0000000002"), "{}", held.body);
}

#[tokio::test]
async fn a_client_that_hangs_up_keeps_its_place_if_it_said_so() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    let held = node.acquire(&first, "/l").await.expect(200);
    let key = [("zlock-session-key", &*second), ("idempotency-key", "67e55044-10b1-426f-9247-bb680e5fe0c8")];
    tokio::select! {
        answer = node.call(Method::POST, "/v1/locks/l?wait=20s&keep", &key, b"") => panic!("{}", answer.body),
        () = node.until_contenders("/l", 2) => {}
    }
    node.release(&first, text(&held, "ticket")).await.expect(200);
    let held = node.call(Method::POST, "/v1/locks/l?wait=20s&keep", &key, b"").await.expect(200);
    assert_eq!(number(&held, "holds"), 1);
}

#[tokio::test]
async fn a_retry_with_the_same_key_takes_the_place_over() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    let held = node.acquire(&first, "/l").await.expect(200);
    let key = [("zlock-session-key", &*second), ("idempotency-key", "67e55044-10b1-426f-9247-bb680e5fe0c8")];
    let first_try = node.call(Method::POST, "/v1/locks/l?wait=5s", &key, b"");
    let retry = async {
        node.until_contenders("/l", 2).await;
        node.call(Method::POST, "/v1/locks/l?wait=20s", &key, b"").await
    };
    let release = async {
        // The lock is released only after the first try was answered.
        first_try.await.expect_problem(409, "superseded");
        node.release(&first, text(&held, "ticket")).await.expect(200);
    };
    let (granted, ()) = tokio::join!(retry, release);
    assert_eq!(number(&granted.expect(200), "holds"), 1);
}

#[tokio::test]
async fn a_wait_ends_when_its_ticket_goes() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    node.acquire(&first, "/l").await.expect(200);
    let waiting = node.acquire(&second, "/l?wait=20s");
    let closing = async {
        node.until_contenders("/l", 2).await;
        node.close(&second).await.expect(200);
    };
    let (gone, ()) = tokio::join!(waiting, closing);
    gone.expect_problem(410, "ticket-gone");
    node.acquire(&second, "/l?wait=20s").await.expect_problem(410, "session-expired");
}

#[tokio::test]
async fn a_poll_alone_keeps_no_session_alive() {
    let node = Node::start().await;
    let first = node.session().await;
    node.acquire(&first, "/l").await.expect(200);
    let opened = node.post("/v1/sessions", r#"{"timeout":"2s"}"#).await.expect(201);
    // This waiting request is the session's only sign of life, so the session expires during the
    // wait.
    node.acquire(text(&opened, "session_key"), "/l?wait=20s").await.expect_problem(410, "ticket-gone");
    node.until_contenders("/l", 1).await;
}

#[tokio::test]
async fn a_ticket_is_waited_for_until_it_goes() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    node.acquire(&first, "/l").await.expect(200);
    let queued = node.acquire(&second, "/l?keep=true").await.expect(202);
    let uri = format!("/v1/tickets{}?wait=20s", text(&queued, "ticket"));
    let (gone, released) = tokio::join!(node.get(&uri), node.release(&second, text(&queued, "ticket")));
    gone.expect_problem(410, "ticket-gone");
    released.expect(200);
}

#[tokio::test]
async fn a_kept_place_is_told_also_when_the_node_cannot_wait() {
    let node = Node::start_with(RestConfig::default(), |config| config.watches_max = 0).await;
    let (first, second) = (node.session().await, node.session().await);
    node.acquire(&first, "/l").await.expect(200);
    node.acquire(&second, "/l?wait=20s&keep").await.expect(202);
    // A refused acquire without `keep` leaves no ticket.
    let refused = node.acquire(&first, "/l?wait=20s").await.expect_problem(429, "too-many");
    assert_eq!(refused.body["outcome"], "unavailable");
    assert_eq!(number(&node.get("/v1/locks/l").await.expect(200), "contenders"), 2);
}

#[tokio::test]
async fn many_waiters_get_the_lock_one_after_another() {
    let node = Node::start().await;
    let session = node.session().await;
    let cycle = async || {
        let held = node.acquire(&session, "/l?wait=20s").await.expect(200);
        let token = number(&held, "fencing_token");
        node.release(&session, text(&held, "ticket")).await.expect(200);
        token
    };
    let mut cycles: Vec<_> = (0..64).map(|_| Box::pin(cycle())).collect();
    let mut tokens = Vec::new();
    while !cycles.is_empty() {
        let (token, _, rest) = futures_util::future::select_all(cycles).await;
        tokens.push(token);
        cycles = rest;
    }
    let sorted = {
        let mut sorted = tokens.clone();
        sorted.sort_unstable();
        sorted
    };
    assert_eq!(tokens, sorted, "tokens rise from holder to holder");
    node.until_contenders("/l", 0).await;
}

/// A request that waits, perhaps for hours, must keep no `Arc` of a state: each write would have to
/// copy the data that it changes.
#[tokio::test]
async fn who_waits_does_not_keep_the_state() {
    let node = Node::start().await;
    let (holder, waiter) = (node.session().await, node.session().await);
    let held = node.acquire(&holder, "/l").await.expect(200);
    let kept = node.acquire(&waiter, "/l?keep").await.expect(202);
    node.in_session(&holder, Method::POST, "/v1/simple-locks/s?owner=a").await.expect(200);
    let election = node.get("/v1/elections/e").await.expect(200);
    let group = node.get("/v1/groups/g").await.expect(200);
    let uris = [
        (Method::POST, "/v1/locks/l?wait=20s&owner=o".into()),
        (Method::POST, "/v1/simple-locks/s?owner=b&wait=20s".into()),
        (Method::GET, format!("/v1/tickets{}?wait=20s", text(&kept, "ticket"))),
        (Method::GET, format!("/v1/tickets{}?wait=20s&until=revoked", text(&held, "ticket"))),
        (Method::GET, format!("/v1/elections/e?since={}&wait=20s", text(&election, "upto"))),
        (Method::GET, format!("/v1/groups/g?since={}&wait=20s", number(&group, "upto"))),
        (Method::GET, "/v1/znodes/?watch=data&wait=20s".into()),
    ];
    for (method, uri) in &uris {
        let before = node.replica.status().watches;
        let waiting = node.in_session(&waiter, method.clone(), uri);
        tokio::pin!(waiting);
        while node.replica.status().watches == before {
            assert!(waiting.as_mut().now_or_never().is_none(), "{uri} does not wait");
            tokio::task::yield_now().await;
        }
        // Only the node's own reference and the one here exist.
        assert_eq!(Arc::strong_count(&node.replica.state()), 2, "{uri}");
    }
}

/// A complete request counts as a heartbeat of its session. Single bytes of an incomplete request
/// do not.
#[tokio::test]
async fn a_half_request_keeps_no_session_alive_and_a_whole_one_does() {
    let node = Node::start().await;
    let open = async |body: &str| node.post("/v1/sessions", body).await.expect(201);
    let whole = open(r#"{"timeout":"6s"}"#).await;
    let half = open(r#"{"timeout":"2s"}"#).await;
    let at = |session: &Answer| format!("/v1/sessions/{}", number(session, "session"));
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while node.get(&at(&half)).await.status != 410 {
        assert!(tokio::time::Instant::now() < deadline, "half requests keep it alive");
        node.call(Method::PUT, "/v1/znodes/none", &[("zlock-session-key", text(&whole, "session_key"))], b"x").await;
        for (method, uri) in [(Method::PUT, "/v1/znodes/none"), (Method::POST, "/v1/locks/l")] {
            let begun: Result<_, std::io::Error> = Ok(bytes::Bytes::from_static(b"{"));
            let body = Body::from_stream(stream::iter([begun]).chain(stream::pending()));
            let request =
                Request::builder().method(method).uri(uri).header("zlock-session-key", text(&half, "session_key"));
            let request = request.body(body).unwrap();
            assert!(node.router.clone().oneshot(request).now_or_never().is_none(), "it waits for the rest");
        }
    }
    node.get(&at(&whole)).await.expect(200);
}

/// Some clients send every body in chunks, even an empty body. A request with such an empty body
/// must count as complete, and so as a heartbeat of its session.
#[tokio::test]
async fn a_request_whose_empty_body_has_no_length_is_a_whole_one() {
    let node = Node::start().await;
    let open = async |body: &str| node.post("/v1/sessions", body).await.expect(201);
    let (own, silent) = (open(r#"{"timeout":"6s"}"#).await, open(r#"{"timeout":"2s"}"#).await);
    let at = |session: &Answer| format!("/v1/sessions/{}", number(session, "session"));
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while node.get(&at(&silent)).await.status != 410 {
        assert!(tokio::time::Instant::now() < deadline, "the silent session lives");
        for (method, uri) in [(Method::DELETE, "/v1/znodes/none"), (Method::GET, "/v1/znodes/none")] {
            let body = Body::from_stream(stream::empty::<Result<bytes::Bytes, std::io::Error>>());
            let request =
                Request::builder().method(method).uri(uri).header("zlock-session-key", text(&own, "session_key"));
            let answer = node.router.clone().oneshot(request.body(body).unwrap()).await.unwrap();
            assert_eq!(answer.status(), 404);
        }
    }
    node.get(&at(&own)).await.expect(200);
}

/// Bytes of a request's head. The test sees by the count of the `Arc` when they are freed.
struct TrackedBytes {
    bytes: String,
    _kept: Arc<()>,
}

impl AsRef<[u8]> for TrackedBytes {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_bytes()
    }
}

/// A waiting request must free its head: 16,384 heads of 15.7 KB would take 850 MB.
#[tokio::test]
async fn a_request_that_waits_does_not_keep_its_head() {
    let node = Node::start().await;
    let (holder, session) = (node.session().await, node.session().await);
    node.acquire(&holder, "/l").await.expect(200);
    let queued = node.acquire(&session, "/l?keep=true").await.expect(202);
    let ticket = text(&queued, "ticket").to_owned();
    node.in_session(&holder, Method::POST, "/v1/simple-locks/s").await.expect(200);
    let multi = r#"{"locks":[{"path":"/l"},{"path":"/m"}],"wait":"60s"}"#;
    for (method, uri, body) in [
        (Method::GET, "/v1/znodes/a?watch=data&wait=60s", ""),
        (Method::POST, "/v1/locks/l?wait=60s&owner=other", ""),
        (Method::POST, "/v1/elections/l?wait=60s&owner=another", ""),
        (Method::GET, &format!("/v1/tickets{ticket}?wait=60s"), ""),
        (Method::POST, "/v1/simple-locks/s?wait=60s", ""),
        (Method::POST, "/v1/multilocks", multi),
        (Method::GET, "/v1/groups/g?since=0&wait=60s", ""),
        (Method::GET, "/v1/elections/e?since=0.0&wait=60s", ""),
    ] {
        let kept = Arc::new(());
        let watched = |bytes: &str| Bytes::from_owner(TrackedBytes { bytes: bytes.to_owned(), _kept: kept.clone() });
        let mut request = Request::new(Body::from(body));
        *request.method_mut() = method;
        *request.uri_mut() = Uri::from_maybe_shared(watched(uri)).unwrap();
        for (name, value) in
            [("x-long", &*"x".repeat(8_000)), ("zlock-session-key", &session), ("content-type", "application/json")]
        {
            let value = HeaderValue::from_maybe_shared(watched(value)).unwrap();
            request.headers_mut().insert(HeaderName::from_static(name), value);
        }
        let waits = tokio::spawn(node.router.clone().oneshot(request));
        let forgotten = async {
            while Arc::strong_count(&kept) > 1 && !waits.is_finished() {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, forgotten).await.unwrap_or_else(|_| panic!("{uri} keeps its head"));
        assert!(!waits.is_finished(), "{uri} does not wait: {:?}", waits.await);
        waits.abort();
    }
}
