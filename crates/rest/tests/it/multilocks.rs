//! Multi-locks.

use axum::http::Method;
use serde_json::{Value, json};

use crate::node::{Answer, Node, number, text};

async fn acquire(node: &Node, session: &str, query: &str, body: Value) -> Answer {
    let uri = format!("/v1/multilocks{query}");
    node.call(Method::POST, &uri, &[("zlock-session", session)], body.to_string().as_bytes()).await
}

fn both(policy: &str) -> Value {
    json!({"locks": [{"path": "/a"}, {"path": "/b", "mode": "write"}], "policy": policy, "label": "both"})
}

#[tokio::test]
async fn all_locks_are_held_or_none() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    let held = node.acquire(&first, "/b").await.expect(200);
    acquire(&node, &second, "", both("strict")).await.expect_problem(409, "not-acquired");
    node.until_contenders("/a", 0).await;
    let release = async {
        node.until_contenders("/a", 1).await;
        // Strict: nobody passes, although nobody holds.
        node.acquire(&first, "/a").await.expect_problem(409, "not-acquired");
        node.release(&first, text(&held, "ticket")).await.expect(200);
    };
    let (all, ()) = tokio::join!(acquire(&node, &second, "?wait=20s", both("strict")), release);
    let all = all.expect(200);
    let locks = all.body["locks"].as_array().unwrap();
    assert_eq!((text(&all, "state"), &locks[0]["lock"], &locks[1]["lock"]), ("held", &json!("/a"), &json!("/b")));
    assert!(locks[1]["ticket"].as_str().unwrap().contains("__WRIT__"), "{}", all.body);
    for lock in locks {
        let (path, token) = (lock["lock"].as_str().unwrap(), &lock["fencing_token"]);
        let check = node.get(&format!("/v1/locks{path}?fencing_token={token}")).await.expect(200);
        assert_eq!(check.body["held"], true);
    }
    node.release(&second, text(&all, "ticket")).await.expect(200);
    node.until_contenders("/b", 0).await;
}

#[tokio::test]
async fn others_pass_a_waiting_multi_lock_that_lets_them() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    let held = node.acquire(&first, "/b").await.expect(200);
    let waiting = acquire(&node, &second, "?keep", both("backfill")).await.expect(202);
    assert_eq!((text(&waiting, "state"), text(&waiting, "predecessor")), ("waiting", text(&held, "ticket")));
    let passed = node.acquire(&first, "/a").await.expect(200);
    node.release(&first, text(&held, "ticket")).await.expect(200);
    // Now it is the first on both, and waits for the one who passed.
    let uri = format!("/v1/multilocks{}", text(&waiting, "ticket"));
    node.get(&uri).await.expect(202);
    let uri = format!("{uri}?wait=20s");
    let (all, _) = tokio::join!(node.get(&uri), node.release(&first, text(&passed, "ticket")));
    let all = all.expect(200);
    assert!(all.body["locks"][0]["fencing_token"].as_u64().unwrap() > number(&passed, "fencing_token"));
    node.in_session(&second, Method::DELETE, &format!("/v1/tickets{}", text(&all, "ticket"))).await.expect(200);
    node.get(&uri).await.expect_problem(410, "ticket-gone");
}

#[tokio::test]
async fn a_waiter_that_was_there_before_the_multi_lock_is_told_of_its_grant() {
    let node = Node::start().await;
    let (first, second, third) = (node.session().await, node.session().await, node.session().await);
    let held = node.acquire(&first, "/a").await.expect(200);
    let later = async {
        node.until_contenders("/a", 2).await;
        acquire(&node, &third, "?keep", both("backfill")).await.expect(202);
        node.release(&first, text(&held, "ticket")).await.expect(200);
    };
    let (granted, ()) = tokio::join!(node.acquire(&second, "/a?wait=20s"), later);
    granted.expect(200);
}

#[tokio::test]
async fn a_client_that_hangs_up_leaves_no_part_behind() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    node.acquire(&first, "/b").await.expect(200);
    tokio::select! {
        answer = acquire(&node, &second, "?wait=20s", both("strict")) => panic!("{}", answer.body),
        () = node.until_contenders("/a", 1) => {}
    }
    node.until_contenders("/a", 0).await;
    node.until_contenders("/b", 1).await;
}

#[tokio::test]
async fn a_malformed_multi_lock_is_refused_by_the_lock_that_is_wrong() {
    let node = Node::start().await;
    let session = node.session().await;
    for (locks, index) in [
        (json!([{"path": "/a"}, {"path": "b"}]), json!(1)),
        (json!([{"path": "/a"}, {"path": "/a"}]), json!(1)),
        (json!([{"path": "/"}]), json!(0)),
        (json!([{"path": "/a", "mode": "latch"}]), json!(0)),
        (json!([{"path": "/a", "mode": "semaphore"}]), json!(0)),
        (json!([]), json!(null)),
        (json!([{"path": "/a", "mood": "read"}]), json!(null)),
    ] {
        let refused = acquire(&node, &session, "", json!({ "locks": locks })).await.expect_problem(400, "bad-request");
        assert_eq!(refused.body["op_index"], index, "{}", refused.body);
    }
    let many: Vec<Value> = (0..65).map(|index| json!({"path": format!("/x{index}")})).collect();
    acquire(&node, &session, "", json!({ "locks": many })).await.expect_problem(413, "limit-reached");
}
