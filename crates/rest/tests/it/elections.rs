//! Elections over HTTP: candidates, the leader's value, and observers.

use axum::http::Method;
use serde_json::{Value, json};

use crate::node::{Answer, Node, number, text};

async fn campaign(node: &Node, session: &str, query: &str) -> Answer {
    node.in_session(session, Method::POST, &format!("/v1/elections/e{query}")).await
}

async fn proclaim(node: &Node, session: &str, value: &str) -> Answer {
    node.call(Method::PUT, "/v1/elections/e", &[("zlock-session-key", session)], value.as_bytes()).await
}

#[tokio::test]
async fn the_first_candidate_leads_and_the_next_one_after_it() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    let leads = campaign(&node, &first, "?label=a").await.expect(200);
    assert!(text(&leads, "ticket").contains("__lock__"), "{}", leads.body);
    campaign(&node, &second, "").await.expect_problem(409, "not-acquired");
    let resign = async {
        node.until_contenders("/e", 2).await;
        node.in_session(&second, Method::DELETE, "/v1/elections/e").await.expect_problem(412, "lock-not-held");
        let resigned = node.in_session(&first, Method::DELETE, "/v1/elections/e").await.expect(200);
        assert_eq!(resigned.body["holds"], 0);
    };
    let (next, ()) = tokio::join!(campaign(&node, &second, "?label=b&wait=20s"), resign);
    assert!(number(&next.expect(200), "fencing_token") > number(&leads, "fencing_token"));
    campaign(&node, &first, "?mode=exclusive").await.expect_problem(400, "bad-request");
}

#[tokio::test]
async fn only_the_leader_proclaims() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    let none = node.get("/v1/elections/e").await.expect(200);
    assert_eq!(none.body, json!({"path": "/e", "candidates": 0, "upto": "0.0"}));
    let leads = campaign(&node, &first, "?label=a").await.expect(200);
    campaign(&node, &second, "?label=b&keep").await.expect(202);
    let leader = node.get("/v1/elections/e").await.expect(200);
    let id: u64 = first.split_once('.').unwrap().0.parse().unwrap();
    let ticket = text(&leads, "ticket");
    let token = number(&leads, "fencing_token");
    let expected = json!({"ticket": ticket, "session": id, "data": "a", "fencing_token": token});
    assert_eq!((&leader.body["leader"], &leader.body["candidates"]), (&expected, &json!(2)));
    proclaim(&node, &second, "me").await.expect_problem(412, "lock-not-held");
    node.put("/v1/elections/e", "me").await.expect_problem(401, "session-required");
    proclaim(&node, &first, "tcp://a:1").await.expect(200);
    let leader = node.get("/v1/elections/e").await.expect(200);
    assert_eq!(leader.body["leader"]["data"], "tcp://a:1");
    // An `If-Lock` that the client itself sends is checked, too.
    let stale = [("zlock-session-key", &*first), ("if-lock", "/e;1")];
    node.call(Method::PUT, "/v1/elections/e", &stale, b"x").await.expect_problem(412, "lock-not-held");
}

#[tokio::test]
async fn a_retried_proclamation_is_answered_after_the_leader_has_gone() {
    let node = Node::start().await;
    let session = node.session().await;
    let leads = campaign(&node, &session, "").await.expect(200);
    let uri =
        format!("/v1/elections/e?ticket={}&fencing_token={}", text(&leads, "ticket"), number(&leads, "fencing_token"));
    let key = [("zlock-session-key", &*session), ("idempotency-key", "67e55044-10b1-426f-9247-bb680e5fe0c8")];
    let first = node.call(Method::PUT, &uri, &key, b"x").await.expect(200);
    node.in_session(&session, Method::DELETE, "/v1/elections/e").await.expect(200);
    let again = node.call(Method::PUT, &uri, &key, b"x").await.expect(200);
    assert_eq!((first.body, first.headers["zlock-zxid"].clone()), (again.body, again.headers["zlock-zxid"].clone()));
    node.call(Method::PUT, &uri, &key[..1], b"x").await.expect_problem(412, "lock-not-held");
    node.call(Method::PUT, "/v1/elections/e?ticket=/e/x", &key, b"x").await.expect_problem(400, "bad-request");
    node.call(Method::PUT, "/v1/elections/e?ticket=/f/x&fencing_token=1", &key, b"x")
        .await
        .expect_problem(400, "bad-request");
}

#[tokio::test]
async fn a_retried_resignation_is_answered_by_its_ticket() {
    let node = Node::start().await;
    let session = node.session().await;
    let key = [("zlock-session-key", &*session), ("idempotency-key", "67e55044-10b1-426f-9247-bb680e5fe0c8")];
    campaign(&node, &session, "").await.expect(200);
    node.call(Method::DELETE, "/v1/elections/e", &key, b"").await.expect(200);
    node.call(Method::DELETE, "/v1/elections/e", &key, b"").await.expect_problem(412, "lock-not-held");
    let leads = campaign(&node, &session, "").await.expect(200);
    let key = [key[0], ("idempotency-key", "67e55044-10b1-426f-9247-bb680e5fe0c9")];
    let uri = format!("/v1/tickets{}", text(&leads, "ticket"));
    let first = node.call(Method::DELETE, &uri, &key, b"").await.expect(200);
    assert_eq!(first.body, node.call(Method::DELETE, &uri, &key, b"").await.expect(200).body);
}

#[tokio::test]
async fn an_observer_sees_each_leader_and_each_value_once() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    let mut upto = String::from("0.0");
    let observe = async |upto: &mut String| {
        let answer = node.get(&format!("/v1/elections/e?since={upto}&wait=20s")).await.expect(200);
        *upto = text(&answer, "upto").into();
        answer.body["leader"]["data"].clone()
    };
    let (seen, _) = tokio::join!(observe(&mut upto), campaign(&node, &first, "?label=a"));
    assert_eq!(seen, "a");
    // A new candidate does not change the observed leader.
    campaign(&node, &second, "?label=b&keep").await.expect(202);
    let (seen, _) = tokio::join!(observe(&mut upto), proclaim(&node, &first, "here"));
    assert_eq!(seen, "here");
    let resign = node.in_session(&first, Method::DELETE, "/v1/elections/e");
    let (seen, _) = tokio::join!(observe(&mut upto), resign);
    assert_eq!(seen, "b");
    // A late observer sees the present leader at once.
    let mut late = String::from("0.0");
    assert_eq!((observe(&mut late).await, &late), (json!("b"), &upto));
    let still = node.get(&format!("/v1/elections/e?since={upto}&wait=50ms")).await.expect(200);
    assert_eq!(still.body["upto"], *upto);
    let id = second.split_once('.').unwrap().0;
    let closing = format!("/v1/sessions/{id}");
    let (seen, _) = tokio::join!(observe(&mut upto), node.in_session(&second, Method::DELETE, &closing));
    assert_eq!((seen, &*upto), (Value::Null, "0.0"));
}

#[tokio::test]
async fn a_leader_latch_of_curator_stands_in_the_same_election() {
    let node = Node::start().await;
    let (latch, ours) = (node.session().await, node.session().await);
    node.post("/v1/znodes/e?mode=container", "").await.expect(201);
    let name = "/v1/znodes/e/_c_6f8a7f8e-0000-4000-8000-000000000000-latch-?mode=ephemeral-sequential";
    let made = node.call(Method::POST, name, &[("zlock-session-key", &*latch)], b"jvm").await.expect(201);
    assert_eq!(node.get("/v1/elections/e").await.expect(200).body["leader"]["data"], "jvm");
    let waiting = campaign(&node, &ours, "?wait=20s&label=ours");
    let closing = async {
        node.until_contenders("/e", 2).await;
        node.in_session(&latch, Method::DELETE, &format!("/v1/znodes{}", text(&made, "path"))).await.expect(200);
    };
    let (leads, ()) = tokio::join!(waiting, closing);
    // Curator orders names by the text behind the last "latch-", or by the whole name without it.
    let leads = leads.expect(200);
    let key = |path: &str| path.rsplit_once("latch-").unwrap_or(path.rsplit_once('/').unwrap()).1.to_owned();
    assert!(key(text(&leads, "ticket")) > key(text(&made, "path")));
}

#[tokio::test]
async fn nobody_proclaims_for_a_leader_but_itself() {
    let node = Node::start().await;
    let (leader, other) = (node.session().await, node.session().await);
    let leads = campaign(&node, &leader, "").await.expect(200);
    let (ticket, token) = (text(&leads, "ticket").to_owned(), number(&leads, "fencing_token"));
    let waits = campaign(&node, &other, "?keep=true&wait=1ms").await.expect(202);
    let waits = text(&waits, "ticket").to_owned();
    let proclaim = |session: &str, ticket: &str, more: &[(&str, &str)]| {
        let uri = format!("/v1/elections/e?ticket={ticket}&fencing_token={token}");
        let headers = [&[("zlock-session-key", session)], more].concat();
        let node = &node;
        let headers: Vec<_> = headers.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        async move {
            let headers: Vec<_> = headers.iter().map(|(name, value)| (&**name, &**value)).collect();
            node.call(Method::PUT, &uri, &headers, b"x").await
        }
    };
    // Another session cannot proclaim with the leader's ticket and token, which are no secret, or
    // with a candidate's ticket.
    proclaim(&other, &ticket, &[]).await.expect_problem(412, "lock-not-held");
    proclaim(&other, &waits, &[]).await.expect_problem(412, "lock-not-held");
    proclaim(&leader, &waits, &[]).await.expect_problem(412, "lock-not-held");
    // An `If-Lock` about another lock does not prove leadership.
    let lock = node.acquire(&other, "/l").await.expect(200);
    let held = format!("/l;{}", number(&lock, "fencing_token"));
    proclaim(&leader, &ticket, &[("if-lock", &held)]).await.expect_problem(400, "bad-request");
    proclaim(&leader, &ticket, &[]).await.expect(200);
    node.in_session(&leader, Method::DELETE, "/v1/elections/e").await.expect(200);
    proclaim(&leader, &ticket, &[]).await.expect_problem(412, "lock-not-held");
    assert_eq!(node.get("/v1/elections/e").await.expect(200).body["leader"]["ticket"], *waits);
}

#[tokio::test]
async fn observers_see_an_expired_leader_during_its_lock_delay() {
    let node = Node::start().await;
    let opened = node.post("/v1/sessions", r#"{"timeout":"4s"}"#).await.expect(201);
    let session = text(&opened, "session_key");
    campaign(&node, session, "?label=a&lock_delay=60s").await.expect(200);
    let observed = node.get("/v1/elections/e").await.expect(200);
    // This lock has no delay, so its lock node is deleted when the session expires.
    let other = node.acquire(session, "/other").await.expect(200);
    let gone = format!("/v1/znodes{}?watch=exists&since={}&wait=15s", text(&other, "ticket"), other.zxid());
    node.get(&gone).await.expect(200);
    assert_eq!(node.get("/v1/elections/e").await.expect(200).body, observed.body);
}
