//! Managed locks, which clients of ZooKeeper's lock recipes cannot use: priorities, bounded queues
//! and hand-over.

use axum::http::Method;
use serde_json::json;

use crate::node::{Node, number, text};

async fn close(node: &Node) {
    let set = node.put("/v1/settings/l", r#"{"managed":true}"#).await.expect(200);
    assert_eq!((&set.body["path"], &set.body["settings"]), (&json!("/l"), &json!({"managed": true})));
}

#[tokio::test]
async fn a_higher_priority_is_sooner() {
    let node = Node::start().await;
    let session = node.session().await;
    node.acquire(&session, "/l?priority=1").await.expect_problem(409, "lock-not-managed");
    close(&node).await;
    let held = node.acquire(&session, "/l").await.expect(200);
    let low = node.acquire(&session, "/l?priority=1&keep").await.expect(202);
    let high = node.acquire(&session, "/l?priority=2&keep").await.expect(202);
    let queue = node.get("/v1/locks/l").await.expect(200);
    assert_eq!(
        (&queue.body["settings"], &queue.body["waiters"][0]["priority"]),
        (&json!({"managed": true}), &json!(2))
    );
    let wait = format!("/v1/tickets{}?wait=20s", text(&high, "ticket"));
    let (granted, _) = tokio::join!(node.get(&wait), node.release(&session, text(&held, "ticket")));
    let granted = granted.expect(200);
    let wait = format!("/v1/tickets{}?wait=20s", text(&low, "ticket"));
    let (last, _) = tokio::join!(node.get(&wait), node.release(&session, text(&high, "ticket")));
    assert!(number(&last.expect(200), "fencing_token") > number(&granted, "fencing_token"));
}

#[tokio::test]
async fn recipe_clients_are_kept_out() {
    let node = Node::start().await;
    let session = node.session().await;
    close(&node).await;
    let create = "/v1/znodes/l/_c_x-lock-?mode=ephemeral-sequential";
    let refused = node.in_session(&session, Method::POST, create).await.expect_problem(409, "lock-managed");
    assert_eq!((&refused.body["name"], &refused.body["code"]), (&json!("LockManaged"), &json!(-1021)));
    node.acquire(&session, "/m").await.expect(200);
    node.put("/v1/settings/m", r#"{"managed":true}"#).await.expect_problem(409, "not-empty");
    node.put("/v1/settings/m", r#"{"managed":true,"permits_max":2}"#).await.expect_problem(400, "bad-request");
    node.put("/v1/settings/m", r#"{"close":true}"#).await.expect_problem(400, "bad-request");
}

#[tokio::test]
async fn no_more_may_wait_than_was_set() {
    let node = Node::start().await;
    let session = node.session().await;
    node.acquire(&session, "/l").await.expect(200);
    node.put("/v1/settings/l", r#"{"waiters_max":1}"#).await.expect(200);
    node.acquire(&session, "/l?keep").await.expect(202);
    let refused = node.acquire(&session, "/l?wait=20s").await.expect_problem(429, "too-many");
    assert_eq!(refused.body["code"], -1007);
    assert_eq!(node.get("/v1/locks/l").await.expect(200).body["settings"]["waiters_max"], 1);
}

#[tokio::test]
async fn the_holder_says_who_is_next() {
    let node = Node::start().await;
    let (first, second, third) = (node.session().await, node.session().await, node.session().await);
    close(&node).await;
    let held = node.acquire(&first, "/l").await.expect(200);
    let passed = node.acquire(&second, "/l?keep").await.expect(202);
    let named = node.acquire(&third, "/l?keep").await.expect(202);
    let hand_over = async |session: &str, ticket: &str, to: &str| {
        node.in_session(session, Method::POST, &format!("/v1/hand-overs{ticket}?to={to}")).await
    };
    let (from, to) = (text(&held, "ticket"), text(&named, "ticket"));
    hand_over(&third, from, to).await.expect_problem(403, "not-owner");
    let refused = hand_over(&first, from, "/l/nobody-0000000009").await.expect_problem(409, "hand-over-refused");
    assert!(text(&refused, "detail").contains("GET /v1/locks/l shows who waits"), "{refused:?}");
    let wait = format!("/v1/tickets{to}?wait=20s");
    let (granted, given) = tokio::join!(node.get(&wait), hand_over(&first, from, to));
    assert_eq!((given.expect(200).body["holds"].clone(), text(&granted.expect(200), "ticket")), (json!(0), to));
    assert_eq!(node.get(&format!("/v1/tickets{}", text(&passed, "ticket"))).await.status, 202);
    let open = node.acquire(&first, "/open").await.expect(200);
    hand_over(&first, text(&open, "ticket"), to).await.expect_problem(409, "lock-not-managed");
}
