//! Barriers and groups.

use axum::http::Method;
use rest::RestConfig;
use serde_json::json;

use crate::node::{Answer, Node, number, text};

async fn end(node: &Node, session: &str) {
    let id = session.split_once('.').unwrap().0;
    node.in_session(session, Method::DELETE, &format!("/v1/sessions/{id}")).await.expect(200);
}

#[tokio::test]
async fn all_pass_a_barrier_when_it_opens() {
    let node = Node::start().await;
    assert_eq!(node.get("/v1/barriers/b/x").await.expect(200).body["state"], "open");
    node.put("/v1/barriers/b/x", "").await.expect(201);
    assert_eq!(node.put("/v1/barriers/b/x", "").await.expect(200).body["state"], "closed");
    assert_eq!(node.get("/v1/barriers/b/x?wait=50ms").await.expect(200).body["state"], "closed");
    let pass = async || node.get("/v1/barriers/b/x?wait=20s").await.expect(200).body["state"].clone();
    let (first, second, opened) = tokio::join!(pass(), pass(), node.delete("/v1/barriers/b/x"));
    assert_eq!((first, second), (json!("open"), json!("open")));
    opened.expect(200);
    node.delete("/v1/barriers/b/x").await.expect(200);
}

#[tokio::test]
async fn an_ephemeral_barrier_opens_when_its_session_ends() {
    let node = Node::start().await;
    let session = node.session().await;
    node.put("/v1/barriers/b?ephemeral", "").await.expect_problem(401, "session-required");
    node.in_session(&session, Method::PUT, "/v1/barriers/b?ephemeral").await.expect(201);
    let (passed, ()) = tokio::join!(node.get("/v1/barriers/b?wait=20s"), end(&node, &session));
    assert_eq!(passed.expect(200).body["state"], "open");
}

async fn enter(node: &Node, session: &str, query: &str) -> Answer {
    node.in_session(session, Method::POST, &format!("/v1/double-barriers/d?{query}")).await
}

async fn leave(node: &Node, session: &str, query: &str) -> Answer {
    node.in_session(session, Method::DELETE, &format!("/v1/double-barriers/d?{query}")).await
}

#[tokio::test]
async fn members_of_a_double_barrier_begin_and_end_together() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    for _ in 0..2 {
        let one = enter(&node, &first, "count=2&member=a&wait=20s");
        let two = async {
            node.get("/v1/znodes/d/a?watch=exists&since=1&wait=20s").await.expect(200);
            enter(&node, &second, "count=2&member=b&wait=20s").await
        };
        let (one, two) = tokio::join!(one, two);
        assert_eq!((text(&one.expect(200), "state"), text(&two.expect(200), "state")), ("entered", "entered"));
        let leaving = leave(&node, &first, "member=a").await.expect(202);
        assert_eq!((text(&leaving, "state"), number(&leaving, "members")), ("leaving", 1));
        let (one, two) =
            tokio::join!(leave(&node, &first, "member=a&wait=20s"), leave(&node, &second, "member=b&wait=20s"));
        assert_eq!((text(&one.expect(200), "state"), text(&two.expect(200), "state")), ("left", "left"));
        node.get("/v1/znodes/d/ready").await.expect_problem(404, "no-node");
    }
}

#[tokio::test]
async fn who_enters_a_double_barrier_in_vain_is_no_member_any_more() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    enter(&node, &first, "count=2&member=a&wait=50ms").await.expect_problem(409, "not-acquired");
    enter(&node, &second, "count=2&member=b").await.expect_problem(409, "not-acquired");
    let kept = enter(&node, &first, "count=2&member=a&keep").await.expect(202);
    assert_eq!((text(&kept, "state"), number(&kept, "members")), ("entering", 1));
    // A retry is the same member; another session's is not.
    enter(&node, &first, "count=2&member=a&keep").await.expect(202);
    enter(&node, &second, "count=2&member=a").await.expect_problem(409, "node-exists");
    leave(&node, &second, "member=a").await.expect_problem(412, "lock-not-held");
    enter(&node, &second, "count=2").await.expect(200);
    for (query, name) in [("member=a", "count"), ("count=0", "count"), ("count=1&member=ready", "member")] {
        let refused = enter(&node, &first, query).await.expect_problem(400, "bad-request");
        assert!(text(&refused, "detail").starts_with(name), "{}", refused.body);
    }
}

#[tokio::test]
async fn without_a_name_the_text_of_the_key_is_the_member() {
    let node = Node::start().await;
    let session = node.session().await;
    let enter = async |key: &str, query: &str| {
        let headers = [("zlock-session", &*session), ("idempotency-key", key)];
        node.call(Method::POST, &format!("/v1/double-barriers/d?count=2{query}"), &headers, b"").await
    };
    for _ in 0..2 {
        let entering = enter("worker 7", "&keep").await.expect(202);
        assert_eq!((text(&entering, "member"), number(&entering, "members")), ("worker 7", 1));
    }
    for (key, why) in
        [("a/b", "not the name of a znode"), ("..", "not the name of a znode"), ("ready", "the name is taken")]
    {
        let refused = enter(key, "").await.expect_problem(400, "bad-request");
        let detail = text(&refused, "detail");
        assert!(detail.starts_with("Idempotency-Key, ") && detail.ends_with(why), "{detail}");
    }
    let entered = enter("a/b", "&member=b").await.expect(200);
    assert_eq!((text(&entered, "member"), number(&entered, "members")), ("b", 2));
    leave(&node, &session, "member=worker%207").await.expect(202);
    leave(&node, &session, "member=b").await.expect(200);
}

#[tokio::test]
async fn a_member_whose_session_ends_is_told() {
    let node = Node::start().await;
    let session = node.session().await;
    let ending = async {
        node.get("/v1/znodes/d/a?watch=exists&since=1&wait=20s").await.expect(200);
        end(&node, &session).await;
    };
    let (gone, ()) = tokio::join!(enter(&node, &session, "count=2&member=a&wait=20s"), ending);
    gone.expect_problem(410, "ticket-gone");
}

async fn join(node: &Node, session: &str, member: &str, data: &[u8]) -> Answer {
    node.call(Method::POST, &format!("/v1/groups/g?member={member}"), &[("zlock-session", session)], data).await
}

#[tokio::test]
async fn a_group_is_those_whose_sessions_live() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    let empty = node.get("/v1/groups/g").await.expect(200);
    assert_eq!(empty.body, json!({"group": "/g", "count": 0, "members": [], "changed": 0}));
    let joined = join(&node, &first, "a", b"here").await.expect(201);
    let again = join(&node, &first, "a", b"there").await.expect(200);
    assert_eq!((&joined.body, text(&again, "data")), (&again.body, "here"));
    join(&node, &second, "a", b"").await.expect_problem(409, "node-exists");
    join(&node, &second, "b", b"\xff").await.expect(201);
    node.post("/v1/groups/g?member=c", "").await.expect_problem(401, "session-required");
    let group = node.get("/v1/groups/g?limit=1").await.expect(200);
    let id: u64 = first.split_once('.').unwrap().0.parse().unwrap();
    let member = &group.body["members"][0];
    assert_eq!(*member, json!({"member": "a", "session": id, "data": "here", "since_ms": member["since_ms"]}));
    assert_eq!((&group.body["count"], &group.body["next"]), (&json!(2), &json!("a")));
    let rest = node.get("/v1/groups/g?after=a").await.expect(200);
    assert_eq!((&rest.body["members"][0]["data_base64"], &rest.body["next"]), (&json!("/w=="), &json!(null)));
    let uri = format!("/v1/groups/g?since={}&wait=20s", number(&group, "changed"));
    let (changed, ()) = tokio::join!(node.get(&uri), end(&node, &first));
    let changed = changed.expect(200);
    assert_eq!((number(&changed, "count"), &changed.body["members"][0]["member"]), (1, &json!("b")));
    let still = node.get(&format!("/v1/groups/g?since={}&wait=50ms", number(&changed, "changed"))).await.expect(200);
    assert_eq!(still.body, changed.body);
    let leave = async || node.in_session(&second, Method::DELETE, "/v1/groups/g?member=b").await.expect(200);
    leave().await;
    leave().await;
    assert_eq!(number(&node.get("/v1/groups/g").await.expect(200), "count"), 0);
}

#[tokio::test]
async fn who_cannot_wait_at_a_double_barrier_is_no_member() {
    for rest in [RestConfig { waits_max: 0, ..RestConfig::default() }, RestConfig::default()] {
        let node = Node::start_with(rest, |config| config.watches_max = 0).await;
        let (first, second) = (node.session().await, node.session().await);
        let refused = enter(&node, &first, "count=2&wait=20s").await.expect_problem(429, "too-many");
        assert_eq!(refused.body["outcome"], "unavailable");
        assert_eq!(node.get("/v1/znodes/d?children").await.expect(200).body["children"], json!([]));
        // With a key a retry may find its member, here or at another node.
        let key = [("zlock-session", &*first), ("idempotency-key", "67e55044-10b1-426f-9247-bb680e5fe0c8")];
        let keyed = async |uri| node.call(Method::POST, uri, &key, b"").await;
        keyed("/v1/double-barriers/k?count=2&wait=20s").await.expect_problem(504, "outcome-unknown");
        node.in_session(&second, Method::POST, "/v1/double-barriers/k?count=2").await.expect(200);
        keyed("/v1/double-barriers/k?count=2&wait=20s").await.expect(200);
        // Who wants to stay hears under which name.
        let kept = enter(&node, &first, "count=2&wait=20s&keep").await.expect(202);
        assert_eq!((text(&kept, "state"), number(&kept, "members")), ("entering", 1));
        enter(&node, &second, "count=2&member=b").await.expect(200);
        // Who has left is told so.
        let left = leave(&node, &second, "member=b&wait=20s").await.expect(202);
        assert_eq!((text(&left, "state"), number(&left, "members")), ("leaving", 1));
    }
}

#[tokio::test]
async fn a_guard_is_for_entering_and_for_leaving_and_not_for_what_follows() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    let guarded = async |method, query: &str, wait_for: &str| {
        let held = node.acquire(&first, "/l").await.expect(200);
        let guard = format!("/l;{}", number(&held, "fencing_token"));
        let headers = [("zlock-session", &*first), ("if-lock", &guard)];
        let uri = format!("/v1/double-barriers/d?{query}");
        let lost = async {
            node.get(wait_for).await.expect(200);
            node.release(&first, text(&held, "ticket")).await.expect(200);
        };
        let (answer, ()) = tokio::join!(node.call(method, &uri, &headers, b""), lost);
        answer
    };
    let since = node.get("/v1/znodes").await.expect(200).zxid();
    let entered = format!("/v1/znodes/d/a?watch=exists&since={since}&wait=20s");
    let over = guarded(Method::POST, "count=2&member=a&wait=300ms", &entered).await;
    over.expect_problem(409, "not-acquired");
    node.get("/v1/znodes/d/a").await.expect_problem(404, "no-node");
    enter(&node, &first, "count=2&member=a&keep").await.expect(202);
    enter(&node, &second, "count=2&member=b").await.expect(200);
    let since = node.get("/v1/znodes").await.expect(200).zxid();
    let left = format!("/v1/znodes/d/a?watch=exists&since={since}&wait=20s");
    let other = async {
        node.get(&left).await.expect(200);
        node.until_contenders("/l", 0).await;
        leave(&node, &second, "member=b&wait=20s").await.expect(200);
    };
    let (all, ()) = tokio::join!(guarded(Method::DELETE, "member=a&wait=20s", &left), other);
    all.expect(200);
    node.get("/v1/znodes/d/ready").await.expect_problem(404, "no-node");
}

#[tokio::test]
async fn a_retry_does_not_find_another_session_under_its_name() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    let key = [("zlock-session", &*first), ("idempotency-key", "67e55044-10b1-426f-9247-bb680e5fe0c8")];
    let keyed = async || node.call(Method::POST, "/v1/groups/g?member=a", &key, b"").await;
    assert_eq!(keyed().await.expect(201).body, keyed().await.expect(201).body);
    node.in_session(&first, Method::DELETE, "/v1/groups/g?member=a").await.expect(200);
    keyed().await.expect_problem(410, "ticket-gone");
    join(&node, &second, "a", b"").await.expect(201);
    keyed().await.expect_problem(410, "ticket-gone");
}

#[tokio::test]
async fn a_retried_leave_is_answered_as_the_first_one_and_ends_no_later_membership() {
    let node = Node::start().await;
    let session = node.session().await;
    let key = [("zlock-session", &*session), ("idempotency-key", "67e55044-10b1-426f-9247-bb680e5fe0c8")];
    let leave = || node.call(Method::DELETE, "/v1/groups/g?member=a", &key, b"");
    join(&node, &session, "a", b"").await.expect(201);
    let first = leave().await.expect(200);
    join(&node, &session, "a", b"").await.expect(201);
    assert_eq!(leave().await.expect(200).body, first.body);
    node.get("/v1/znodes/g/a").await.expect(200);
}

#[tokio::test]
async fn who_leaves_twice_takes_nobody_else_out() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    join(&node, &second, "b", b"").await.expect(201);
    for _ in 0..20 {
        join(&node, &first, "a", b"").await.expect(201);
        let leave = || node.in_session(&first, Method::DELETE, "/v1/groups/g?member=a");
        // In the log in this order, or nearly: the second one was looked at before the first one was done.
        let (one, joined, two) = tokio::join!(biased; leave(), join(&node, &second, "a", b""), leave());
        one.expect(200);
        assert!([200, 412].contains(&two.status), "{}", two.body);
        match joined.status {
            409 => {}
            _ => {
                joined.expect(201);
                node.get("/v1/znodes/g/a").await.expect(200);
                node.in_session(&second, Method::DELETE, "/v1/groups/g?member=a").await.expect(200);
            }
        }
    }
}

#[tokio::test]
async fn who_joins_and_cannot_look_behind_it_is_not_told_that_nothing_was_done() {
    let node = Node::start_with(RestConfig::default(), |config| config.reads_max = 1).await;
    let session = node.session().await;
    join(&node, &session, "a", b"").await.expect(201);
    let unclear = node.without_reads_behind_a_write(join(&node, &session, "b", b"")).await;
    let unclear = unclear.expect_problem(504, "outcome-unknown");
    assert_eq!(unclear.body["outcome"], "unknown");
    join(&node, &session, "b", b"").await.expect(200);
    let enter = || enter(&node, &session, "count=1&member=a");
    node.post("/v1/znodes/d?mode=container", "").await.expect(201);
    let unclear = node.without_reads_behind_a_write(enter()).await.expect_problem(504, "outcome-unknown");
    assert_eq!(unclear.body["outcome"], "unknown");
    enter().await.expect(200);
    let leave = || leave(&node, &session, "member=a");
    let unclear = node.without_reads_behind_a_write(leave()).await.expect_problem(504, "outcome-unknown");
    assert_eq!(unclear.body["outcome"], "unknown");
    leave().await.expect(200);
    node.get("/v1/znodes/d/ready").await.expect_problem(404, "no-node");
}
