//! Acquires without `Idempotency-Key` and owner. A session must not wait behind its ghost: its own
//! ticket from an earlier request whose answer was lost.

use axum::http::Method;
use serde_json::json;

use crate::node::{Node, number, text};

/// A session has a waiting ticket of a request whose answer was lost. Every retry is refused. The
/// test calls the API without a connection that could break: the parameter `keep` leaves the ticket
/// in the queue instead.
#[tokio::test]
async fn a_retry_without_a_key_is_not_queued_behind_its_own_ghost() {
    let node = Node::start().await;
    let (holder, session) = (node.session().await, node.session().await);
    let held = node.acquire_keyless(&holder, "/l").await.expect(200);
    let ghost = node.acquire_keyless(&session, "/l?keep=true").await.expect(202);
    for query in ["", "?wait=20s", "?keep=true"] {
        let refused = node.acquire_keyless(&session, &format!("/l{query}")).await;
        let refused = refused.expect_problem(409, "blocked-by-own-session");
        assert_eq!(text(&refused, "path"), text(&ghost, "ticket"));
        assert_eq!(
            (&refused.body["outcome"], &refused.body["name"]),
            (&json!("refused"), &json!("BlockedByOwnSession"))
        );
        assert_eq!(number(&node.get("/v1/locks/l").await.expect(200), "contenders"), 2);
    }
    // The refusal is the same when the ticket of the lost request holds the lock.
    node.release(&holder, text(&held, "ticket")).await.expect(200);
    node.acquire_keyless(&session, "/l?wait=20s").await.expect_problem(409, "blocked-by-own-session");

    node.release(&session, text(&ghost, "ticket")).await.expect(200);
    let again = node.acquire_keyless(&session, "/l").await.expect(200);
    assert!(number(&again, "fencing_token") > ghost.zxid(), "the ghost's token is dead");
    node.get(&format!("/v1/tickets{}", text(&ghost, "ticket"))).await.expect_problem(410, "ticket-gone");
}

/// A client hangs up while it waits, and retries at once. While its first ticket still exists, the
/// retry is refused with that ticket's path. The client waits for the ticket's end, then queues.
#[tokio::test]
async fn a_retry_behind_a_broken_connection_goes_on_when_the_first_try_is_gone() {
    let node = Node::start().await;
    let (holder, session) = (node.session().await, node.session().await);
    let hang_up = async || {
        tokio::select! {
            answer = node.acquire_keyless(&session, "/l?wait=20s") => panic!("{}", answer.body),
            () = node.until_contenders("/l", 2) => {}
        }
    };
    let held = node.acquire_keyless(&holder, "/l").await.expect(200);
    hang_up().await;
    let again = loop {
        let answer = node.acquire_keyless(&session, "/l?keep=true").await;
        if answer.status == 202 {
            break answer;
        }
        let refused = answer.expect_problem(409, "blocked-by-own-session");
        let gone = format!("/v1/tickets{}?wait=20s", text(&refused, "path"));
        node.in_session(&session, Method::GET, &gone).await.expect_problem(410, "ticket-gone");
    };
    node.release(&holder, text(&held, "ticket")).await.expect(200);
    node.in_session(&session, Method::GET, &format!("/v1/tickets{}?wait=20s", text(&again, "ticket")))
        .await
        .expect(200);
}

#[tokio::test]
async fn a_key_or_an_owner_tells_the_threads_of_a_session_apart() {
    let node = Node::start().await;
    let session = node.session().await;
    node.acquire_keyless(&session, "/l").await.expect(200);
    node.acquire_keyless(&session, "/l?owner=two&keep=true").await.expect(202);
    let key = [("zlock-session-key", &*session), ("idempotency-key", "67e55044-10b1-426f-9247-bb680e5fe0c8")];
    node.call(Method::POST, "/v1/locks/l?keep=true", &key, b"").await.expect(202);
    assert_eq!(number(&node.get("/v1/locks/l").await.expect(200), "contenders"), 3);
}

/// A second request for a lock by one session is refused even if both could hold at once, because
/// the node cannot tell it from a retry.
#[tokio::test]
async fn readers_and_permits_without_a_key_are_one_for_each_lock() {
    let node = Node::start().await;
    let session = node.session().await;
    for lock in ["/rw?mode=read", "/s?mode=semaphore&permits_max=2"] {
        node.acquire_keyless(&session, lock).await.expect(200);
        node.acquire_keyless(&session, lock).await.expect_problem(409, "blocked-by-own-session");
        node.acquire_keyless(&session, &format!("{lock}&owner=two")).await.expect(200);
    }
    node.acquire_keyless(&session, "/rw?replace=true").await.expect_problem(400, "bad-request");
}

#[tokio::test]
async fn a_candidate_is_not_queued_behind_its_own_ghost() {
    let node = Node::start().await;
    let session = node.session().await;
    let uri = "/v1/elections/e";
    let leads = node.in_session(&session, Method::POST, uri).await.expect(200);
    node.in_session(&session, Method::POST, uri).await.expect_problem(409, "blocked-by-own-session");
    node.release(&session, text(&leads, "ticket")).await.expect(200);
    node.in_session(&session, Method::POST, uri).await.expect(200);
}
