//! Semaphores over HTTP: permits, their order, and their total number.

use serde_json::json;

use crate::node::{Node, number, text};

#[tokio::test]
async fn permits_are_shared_out_in_order_and_never_beyond_the_limit() {
    let node = Node::start().await;
    let (first, second, third) = (node.session().await, node.session().await, node.session().await);
    let two = node.acquire(&first, "/s?mode=semaphore&permits=2&permits_max=3").await.expect(200);
    let one = node.acquire(&second, "/s?mode=semaphore&permits_max=3&label=one").await.expect(200);
    assert!(text(&two, "ticket").contains("-lease-"), "{}", two.body);
    let queued = node.acquire(&third, "/s?mode=semaphore&permits=3&permits_max=3&keep").await.expect(202);
    node.acquire(&second, "/s?mode=semaphore&permits_max=3").await.expect_problem(409, "not-acquired");
    let queue = node.get("/v1/locks/s").await.expect(200);
    assert_eq!(queue.body["permits_held"], json!(3));
    let permits =
        |list: &str, at: usize| (queue.body[list][at]["mode"].clone(), queue.body[list][at]["permits"].clone());
    assert_eq!(permits("holders", 0), (json!("semaphore"), json!(2)));
    assert_eq!(permits("holders", 1), (json!("semaphore"), json!(1)));
    assert_eq!(permits("waiters", 0), (json!("semaphore"), json!(3)));
    // A waiter gets its permits when enough are released, by whichever holder.
    let uri = format!("/v1/tickets{}?wait=20s", text(&queued, "ticket"));
    let (granted, ()) = tokio::join!(node.get(&uri), async {
        node.release(&second, text(&one, "ticket")).await.expect(200);
        node.release(&first, text(&two, "ticket")).await.expect(200);
    });
    let granted = granted.expect(200);
    assert!(number(&granted, "fencing_token") > number(&one, "fencing_token"));
    assert_eq!(node.get("/v1/locks/s").await.expect(200).body["permits_held"], json!(3));
}

#[tokio::test]
async fn another_limit_is_refused() {
    let node = Node::start().await;
    let session = node.session().await;
    node.acquire(&session, "/s?mode=semaphore&permits_max=3").await.expect(200);
    let refused =
        node.acquire(&session, "/s?mode=semaphore&permits_max=4").await.expect_problem(409, "permits-max-differs");
    assert_eq!((&refused.body["name"], &refused.body["code"]), (&json!("PermitsMaxDiffers"), &json!(-1020)));
    assert_eq!(refused.body["detail"], "the semaphore has 3 permits, and permits_max is 4");
    node.acquire(&session, "/s?mode=semaphore&permits=2").await.expect(200);
    let unset = node.acquire(&session, "/new?mode=semaphore").await.expect_problem(400, "bad-request");
    assert!(text(&unset, "detail").starts_with("permits_max: it is missing"), "{}", unset.body);
    for (query, name) in [
        ("mode=semaphore&permits_max=0", "permits_max"),
        ("mode=semaphore&permits=4", "permits"),
        ("mode=semaphore&permits_max=2&permits=3", "permits"),
        ("permits_max=2", "permits"),
        ("mode=read&permits=1", "permits"),
        ("mode=semaphore&permits_max=-1", "permits_max"),
    ] {
        let refused = node.acquire(&session, &format!("/s?{query}")).await.expect_problem(400, "bad-request");
        assert!(text(&refused, "detail").starts_with(&format!("{name}: ")), "{query}: {}", refused.body);
    }
}

#[tokio::test]
async fn a_session_that_ends_gives_its_permits_to_all_who_fit() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    node.acquire(&first, "/s?mode=semaphore&permits=4&permits_max=4").await.expect(200);
    let waits: Vec<_> =
        (0..4).map(|_| Box::pin(node.acquire(&second, "/s?mode=semaphore&permits_max=4&wait=20s"))).collect();
    let ending = async {
        node.until_contenders("/s", 5).await;
        let id = first.split_once('.').unwrap().0;
        node.in_session(&first, axum::http::Method::DELETE, &format!("/v1/sessions/{id}")).await.expect(200);
    };
    let (answers, ()) = tokio::join!(futures_util::future::join_all(waits), ending);
    answers.into_iter().for_each(|answer| drop(answer.expect(200)));
}

#[tokio::test]
async fn a_client_that_hangs_up_leaves_no_permit_taken() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    let held = node.acquire(&first, "/s?mode=semaphore&permits_max=1").await.expect(200);
    tokio::select! {
        answer = node.acquire(&second, "/s?mode=semaphore&permits_max=1&wait=20s") => panic!("{}", answer.body),
        () = node.until_contenders("/s", 2) => {}
    }
    node.until_contenders("/s", 1).await;
    node.release(&first, text(&held, "ticket")).await.expect(200);
    assert_eq!(node.get("/v1/locks/s").await.expect(200).body["permits_held"], json!(0));
}
