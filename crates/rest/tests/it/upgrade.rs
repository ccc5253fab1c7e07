//! Upgrades of read locks to write locks, downgrades, and acquires that would wait for a ticket of
//! their own session or close a cycle of waits.

use axum::http::Method;
use serde_json::json;

use crate::node::{Node, number, text};

#[tokio::test]
async fn a_reader_upgrades_in_front_of_waiting_writers_and_goes_back_to_reading() {
    let node = Node::start().await;
    let (one, two, three) = (node.session().await, node.session().await, node.session().await);
    let first = node.acquire(&one, "/rw?mode=read").await.expect(200);
    let second = node.acquire(&two, "/rw?mode=read").await.expect(200);
    let writer = node.acquire(&three, "/rw?mode=write&keep=true").await.expect(202);
    let upgrade = format!("/rw?upgrade={}&wait=20s&label=up", text(&first, "ticket"));
    let releasing = async {
        node.until_contenders("/rw", 4).await;
        // The second upgrade is refused at once, even though it could wait.
        let uri = format!("/rw?upgrade={}&wait=20s", text(&second, "ticket"));
        let refused = node.acquire(&two, &uri).await.expect_problem(409, "upgrade-conflict");
        assert_eq!((&refused.body["name"], &refused.body["code"]), (&json!("UpgradeConflict"), &json!(-1031)));
        node.release(&two, text(&second, "ticket")).await.expect(200)
    };
    let (up, released) = tokio::join!(node.acquire(&one, &upgrade), releasing);
    let up = up.expect(200);
    assert_eq!(up.zxid(), released.zxid(), "the last other reader's release is the grant");
    assert!(text(&up, "ticket").contains("__WRIT__"), "{}", up.body);
    let waiting = node.get(&format!("/v1/tickets{}", text(&writer, "ticket"))).await.expect(202);
    assert_eq!(waiting.body["predecessor"], up.body["ticket"]);

    node.release(&one, text(&up, "ticket")).await.expect(200);
    let reading = node.get(&format!("/v1/tickets{}", text(&first, "ticket"))).await.expect(200);
    assert_eq!(reading.body["fencing_token"], first.body["fencing_token"]);
    node.release(&one, text(&first, "ticket")).await.expect(200);
    let written = node.get(&format!("/v1/tickets{}", text(&writer, "ticket"))).await.expect(200);
    assert!(number(&written, "fencing_token") > number(&up, "fencing_token"), "tokens rise: {}", written.body);
    let token = number(&written, "fencing_token");
    node.get(&format!("/v1/fence?path=/rw&fencing_token={token}")).await.expect(204);
}

#[tokio::test]
async fn an_upgrade_that_is_not_granted_in_time_leaves_the_reader_alone() {
    let node = Node::start().await;
    let (one, two) = (node.session().await, node.session().await);
    let first = node.acquire(&one, "/rw?mode=read").await.expect(200);
    let second = node.acquire(&two, "/rw?mode=read").await.expect(200);
    let upgrade = format!("/rw?upgrade={}", text(&first, "ticket"));
    node.acquire(&one, &format!("{upgrade}&wait=20ms")).await.expect_problem(409, "not-acquired");
    node.get(&format!("/v1/tickets{}", text(&first, "ticket"))).await.expect(200);
    let kept = node.acquire(&one, &format!("{upgrade}&keep=true")).await.expect(202);
    assert_eq!(number(&kept, "position"), 2);
    node.acquire(&two, &upgrade).await.expect_problem(403, "not-owner");
    let other = format!("/rw?upgrade={}", text(&second, "ticket"));
    node.acquire(&two, &other).await.expect_problem(409, "upgrade-conflict");
    for bad in ["/rw?upgrade=x", "/other?upgrade=/rw/x-0000000001", "/rw?upgrade=/rw/a-0000000001&mode=write"] {
        node.acquire(&one, bad).await.expect_problem(400, "bad-request");
    }
}

#[tokio::test]
async fn an_acquire_that_would_close_a_cycle_is_refused_with_the_cycle() {
    let node = Node::start().await;
    let (one, two) = (node.session().await, node.session().await);
    let id = |session: &str| session.split_once('.').unwrap().0.parse::<u64>().unwrap();
    let a = node.acquire(&one, "/a?owner=o").await.expect(200);
    let b = node.acquire(&two, "/b?owner=p").await.expect(200);
    let waiting = node.acquire(&one, "/b?owner=o&wait=20s");
    let asking = async {
        node.until_contenders("/b", 2).await;
        let refused = node.acquire(&two, "/a?owner=p&wait=20s").await.expect_problem(409, "deadlock");
        let cycle = json!([
            {"session": id(&two), "owner": "p", "path": "/a", "blocker": a.body["ticket"]},
            {"session": id(&one), "owner": "o", "path": "/b", "blocker": b.body["ticket"]},
        ]);
        assert_eq!(refused.body["cycle"], cycle);
        let (name, code) = (&refused.body["name"], &refused.body["code"]);
        assert_eq!((name, code, &refused.body["outcome"]), (&json!("Deadlock"), &json!(-1030), &json!("refused")));
        let queue = node.get("/v1/locks/a").await.expect(200);
        assert_eq!(number(&queue, "contenders"), 1, "it has no place in the queue");
        let history = node.get("/v1/history/a").await.expect(200);
        assert_eq!(history.body["history"][0]["ended"]["how"], "deadlock");
        // The holder releases its lock, and the waiting client gets it.
        node.release(&two, text(&b, "ticket")).await.expect(200);
    };
    let (granted, ()) = tokio::join!(waiting, asking);
    granted.expect(200);
    // A reader that acquires to write waits for itself.
    node.acquire(&one, "/rw?owner=o&mode=read").await.expect(200);
    let refused = node.acquire(&one, "/rw?owner=o&mode=write&wait=20s").await.expect_problem(409, "deadlock");
    assert_eq!(refused.body["cycle"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_lock_without_an_owner_is_not_reentrant_and_anybody_of_the_session_releases_it() {
    let node = Node::start().await;
    let session = node.session().await;
    let held = node.acquire(&session, "/l").await.expect(200);
    // Within one session this is no deadlock: the second acquire waits until another thread
    // releases the first.
    let waiting = node.acquire(&session, "/l?wait=20s");
    let releasing = async {
        node.until_contenders("/l", 2).await;
        let headers = [("zlock-session-key", &*session)];
        let uri = format!("/v1/tickets{}", text(&held, "ticket"));
        node.call(Method::DELETE, &uri, &headers, b"").await.expect(200)
    };
    let (again, released) = tokio::join!(waiting, releasing);
    assert_eq!((again.expect(200).zxid(), number(&released, "holds")), (released.zxid(), 0));
}
