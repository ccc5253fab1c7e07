//! Groups over HTTP: members join, leave, and end with their sessions.

use axum::http::Method;
use rest::RestConfig;
use serde_json::json;

use crate::node::{Answer, Node, number, text};

async fn end(node: &Node, session: &str) {
    let id = session.split_once('.').unwrap().0;
    node.in_session(session, Method::DELETE, &format!("/v1/sessions/{id}")).await.expect(200);
}

async fn join(node: &Node, session: &str, member: &str, data: &[u8]) -> Answer {
    node.call(Method::POST, &format!("/v1/groups/g?member={member}"), &[("zlock-session-key", session)], data).await
}

#[tokio::test]
async fn a_group_is_those_whose_sessions_live() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    let empty = node.get("/v1/groups/g").await.expect(200);
    assert_eq!(empty.body, json!({"path": "/g", "count": 0, "members": [], "upto": 0}));
    let joined = join(&node, &first, "a", b"here").await.expect(201);
    let again = join(&node, &first, "a", b"there").await.expect(200);
    assert_eq!((&joined.body, text(&again, "data")), (&again.body, "here"));
    join(&node, &second, "a", b"").await.expect_problem(409, "node-exists");
    join(&node, &second, "b", b"\xff").await.expect(201);
    node.post("/v1/groups/g?member=c", "").await.expect_problem(401, "session-required");
    let group = node.get("/v1/groups/g?page_size=1").await.expect(200);
    let id: u64 = first.split_once('.').unwrap().0.parse().unwrap();
    let member = &group.body["members"][0];
    assert_eq!(*member, json!({"member": "a", "session": id, "data": "here", "joined_at_ms": member["joined_at_ms"]}));
    assert_eq!((&group.body["count"], &group.body["cursor"]), (&json!(2), &json!("a")));
    let rest = node.get("/v1/groups/g?after=a").await.expect(200);
    assert_eq!((&rest.body["members"][0]["data_base64"], &rest.body["cursor"]), (&json!("/w=="), &json!(null)));
    let uri = format!("/v1/groups/g?since={}&wait=20s", number(&group, "upto"));
    let (changed, ()) = tokio::join!(node.get(&uri), end(&node, &first));
    let changed = changed.expect(200);
    assert_eq!((number(&changed, "count"), &changed.body["members"][0]["member"]), (1, &json!("b")));
    let still = node.get(&format!("/v1/groups/g?since={}&wait=50ms", number(&changed, "upto"))).await.expect(200);
    assert_eq!(still.body, changed.body);
    let leave = async || node.in_session(&second, Method::DELETE, "/v1/groups/g?member=b").await.expect(200);
    leave().await;
    leave().await;
    assert_eq!(number(&node.get("/v1/groups/g").await.expect(200), "count"), 0);
}

#[tokio::test]
async fn a_retry_does_not_find_another_session_under_its_name() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    let key = [("zlock-session-key", &*first), ("idempotency-key", "67e55044-10b1-426f-9247-bb680e5fe0c8")];
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
    let key = [("zlock-session-key", &*session), ("idempotency-key", "67e55044-10b1-426f-9247-bb680e5fe0c8")];
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
        // The requests reach the log about in this order: the second leave was checked before the
        // first was done.
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

/// A join or a leave is one log entry, and is answered without another read. So it succeeds on a
/// node that admits no reads after the write.
#[tokio::test]
async fn who_joins_or_leaves_needs_no_read_of_the_cluster() {
    let node = Node::start_with(RestConfig::default(), |config| config.reads_max = 1).await;
    let session = node.session().await;
    let joined = node.without_reads_behind_a_write(join(&node, &session, "a", b"here")).await.expect(201);
    assert_eq!(text(&joined, "data"), "here");
    let leave = node.in_session(&session, Method::DELETE, "/v1/groups/g?member=a");
    node.without_reads_behind_a_write(leave).await.expect(200);
    assert_eq!(number(&node.get("/v1/groups/g").await.expect(200), "count"), 0);
}

/// The znodes above the group and the first member are created by one log entry, or not at all.
#[tokio::test]
async fn a_join_is_one_entry_of_the_log_with_its_directories() {
    let node = Node::start().await;
    let session = node.session().await;
    let before = node.get("/v1/znodes").await.expect(200).zxid();
    let joined = node
        .call(Method::POST, "/v1/groups/a/b/c?member=m", &[("zlock-session-key", &*session)], b"")
        .await
        .expect(201);
    assert_eq!(joined.zxid(), before + 1);
    for path in ["/a", "/a/b", "/a/b/c", "/a/b/c/m"] {
        let made = node.get(&format!("/v1/znodes{path}")).await.expect(200);
        assert_eq!(made.body["stat"]["czxid"], before + 1, "{path}");
    }
    node.post("/v1/znodes/e?mode=persistent", "").await.expect(201);
    node.in_session(&session, Method::POST, "/v1/znodes/e/own?mode=ephemeral").await.expect(201);
    let refused = node.in_session(&session, Method::POST, "/v1/groups/e/own/x?member=m").await;
    refused.expect_problem(409, "no-children-for-ephemerals");
    node.get("/v1/znodes/e/own/x").await.expect_problem(404, "no-node");
}
