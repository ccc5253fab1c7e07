//! Simple locks over HTTP, each an ephemeral znode without a queue.

use axum::http::Method;
use rest::RestConfig;
use serde_json::json;

use crate::node::{Answer, Node, number, text};

async fn acquire(node: &Node, session: &str, query: &str) -> Answer {
    node.in_session(session, Method::POST, &format!("/v1/simple-locks/s/l?{query}")).await
}

async fn release(node: &Node, session: &str, owner: &str) -> Answer {
    node.in_session(session, Method::DELETE, &format!("/v1/simple-locks/s/l?owner={owner}")).await
}

#[tokio::test]
async fn one_znode_is_the_lock() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    assert_eq!(node.get("/v1/simple-locks/s/l").await.expect(200).body, json!({"path": "/s/l"}));
    let held = acquire(&node, &first, "owner=a").await.expect(200);
    let token = number(&held, "fencing_token");
    assert_eq!((text(&held, "ticket"), text(&held, "path")), ("/s/l", "/s/l"));
    let shown = node.get("/v1/simple-locks/s/l").await.expect(200).body["holder"].clone();
    let id: u64 = first.split_once('.').unwrap().0.parse().unwrap();
    let since = &shown["granted_at_ms"];
    assert_eq!(shown, json!({"session": id, "owner": "a", "fencing_token": token, "granted_at_ms": since}));
    acquire(&node, &second, "owner=a").await.expect_problem(409, "not-acquired");
    release(&node, &second, "a").await.expect_problem(412, "lock-not-held");
    release(&node, &first, "b").await.expect_problem(412, "lock-not-held");
    let guarded = async |token: u64| {
        let guard = format!("/s/l;{token}");
        node.call(Method::POST, "/v1/znodes/x-?mode=persistent-sequential", &[("if-lock", &guard)], b"").await
    };
    guarded(token).await.expect(201);
    release(&node, &first, "a").await.expect(200);
    release(&node, &first, "a").await.expect(200);
    guarded(token).await.expect_problem(412, "lock-not-held");
    let next = acquire(&node, &second, "owner=b").await.expect(200);
    assert!(number(&next, "fencing_token") > token);
}

/// A znode whose name ends in ten digits counts as a ticket, so its lock could not be released.
#[tokio::test]
async fn a_simple_lock_has_no_name_of_a_ticket() {
    let node = Node::start().await;
    let session = node.session().await;
    let named = async |path: &str| node.in_session(&session, Method::POST, &format!("/v1/simple-locks/{path}")).await;
    named("jobs/1795248151").await.expect_problem(400, "bad-request");
    named("jobs/20261128-2026112811").await.expect_problem(400, "bad-request");
    named("1795248151/179524815").await.expect(200);
}

#[tokio::test]
async fn who_lost_the_answer_finds_its_own_lock_by_owner_and_session() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    let held = acquire(&node, &first, "owner=a").await.expect(200);
    let again = acquire(&node, &first, "owner=a").await.expect(200);
    assert_eq!(number(&held, "fencing_token"), number(&again, "fencing_token"));
    // An equal owner in another session is another client, or a client that has lost its session
    // and lock.
    acquire(&node, &second, "owner=a").await.expect_problem(409, "not-acquired");
    // A request without an owner cannot be distinguished from others of its session.
    acquire(&node, &first, "").await.expect_problem(409, "not-acquired");
    release(&node, &first, "a").await.expect(200);
    let key = [("zlock-session-key", &*first), ("idempotency-key", "67e55044-10b1-426f-9247-bb680e5fe0c8")];
    let keyed = async || node.call(Method::POST, "/v1/simple-locks/s/l", &key, b"").await.expect(200);
    assert_eq!(keyed().await.body["fencing_token"], keyed().await.body["fencing_token"]);
}

#[tokio::test]
async fn a_try_with_a_key_is_done_once() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    let key = [("zlock-session-key", &*second), ("idempotency-key", "67e55044-10b1-426f-9247-bb680e5fe0c8")];
    let again = async |uri: &str| node.call(Method::POST, uri, &key, b"").await;
    acquire(&node, &first, "owner=a").await.expect(200);
    again("/v1/simple-locks/s/l?owner=b").await.expect_problem(409, "not-acquired");
    release(&node, &first, "a").await.expect(200);
    // A late retry takes no lock for a client that no longer waits.
    again("/v1/simple-locks/s/l?owner=b").await.expect_problem(409, "not-acquired");
    assert_eq!(node.get("/v1/simple-locks/s/l").await.expect(200).body["holder"], json!(null));
    // A lock that was acquired and has ended since is not reported as held.
    let key = [("zlock-session-key", &*second), ("idempotency-key", "67e55044-10b1-426f-9247-bb680e5fe0c9")];
    let again = async || node.call(Method::POST, "/v1/simple-locks/s/l?owner=c", &key, b"").await;
    let token = number(&again().await.expect(200), "fencing_token");
    assert_eq!(number(&again().await.expect(200), "fencing_token"), token);
    release(&node, &second, "c").await.expect(200);
    let used = again().await.expect_problem(410, "ticket-gone");
    assert!(text(&used, "detail").ends_with("take a new key"), "{}", used.body);
    acquire(&node, &first, "owner=c").await.expect(200);
    again().await.expect_problem(410, "ticket-gone");
}

#[tokio::test]
async fn a_release_by_token_is_answered_again_also_when_another_holds() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    let held = acquire(&node, &first, "owner=a").await.expect(200);
    let uri = format!("/v1/simple-locks/s/l?fencing_token={}", number(&held, "fencing_token"));
    let key = [("zlock-session-key", &*first), ("idempotency-key", "67e55044-10b1-426f-9247-bb680e5fe0c8")];
    let release = async |headers: &[(&str, &str)]| node.call(Method::DELETE, &uri, headers, b"").await;
    let other = [key[0], ("if-lock", "/other;7")];
    let refused = release(&other).await.expect_problem(400, "bad-request");
    assert!(text(&refused, "detail").starts_with("If-Lock:"), "{}", refused.body);
    let released = release(&key).await.expect(200);
    acquire(&node, &second, "owner=a").await.expect(200);
    assert_eq!(release(&key).await.expect(200).body, released.body);
    // Without the key this is another release, whose token holds no lock.
    release(&key[..1]).await.expect_problem(412, "lock-not-held");
}

#[tokio::test]
async fn all_who_wait_try_again_when_the_znode_goes() {
    let node = Node::start().await;
    let first = node.session().await;
    acquire(&node, &first, "owner=a").await.expect(200);
    let second = node.session().await;
    let cycle = async |owner: usize| {
        let held = acquire(&node, &second, &format!("owner={owner}&wait=20s")).await.expect(200);
        release(&node, &second, &owner.to_string()).await.expect(200);
        number(&held, "fencing_token")
    };
    let end = async {
        let id = first.split_once('.').unwrap().0;
        node.in_session(&first, Method::DELETE, &format!("/v1/sessions/{id}")).await.expect(200);
    };
    let (mut tokens, ()) = tokio::join!(futures_util::future::join_all((0..8).map(cycle)), end);
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 8, "each held it once, alone");
    acquire(&node, &second, "owner=a").await.expect(200);
    acquire(&node, &second, "owner=b&wait=50ms").await.expect_problem(409, "not-acquired");
}

#[tokio::test]
async fn an_owner_is_no_longer_than_a_label() {
    let node = Node::start().await;
    let session = node.session().await;
    let take = |owner: String| {
        let (node, session) = (&node, &session);
        async move { node.in_session(session, Method::POST, &format!("/v1/simple-locks/s?owner={owner}")).await }
    };
    let long = take("x".repeat(257)).await.expect_problem(400, "bad-request");
    assert!(text(&long, "detail").contains("owner: 257 bytes"), "{}", long.body);
    take("x".repeat(256)).await.expect(200);
}

/// The owner's name is the key's original text, so that the client can send it in a release. The
/// state keeps the key itself as a UUID.
#[tokio::test]
async fn without_an_owner_the_text_of_the_key_is_the_owner() {
    let node = Node::start_with(RestConfig::default(), |config| config.limits.label_bytes_max = 40).await;
    let session = node.session().await;
    let uuid = "67E55044-10B1-426F-9247-BB680E5FE0C8";
    for (key, owner) in [("nightly run", "nightly run"), ("\"quoted\"", "quoted"), (uuid, uuid)] {
        for query in ["", "?wait=1s"] {
            let headers = [("zlock-session-key", &*session), ("idempotency-key", key)];
            let uri = format!("/v1/simple-locks/s/l{query}");
            let take = || node.call(Method::POST, &uri, &headers, b"");
            let held = take().await.expect(200);
            assert_eq!(take().await.expect(200).body["fencing_token"], held.body["fencing_token"]);
            let shown = node.get("/v1/simple-locks/s/l").await.expect(200);
            assert_eq!(shown.body["holder"]["owner"], owner);
            release(&node, &session, &owner.replace(' ', "%20")).await.expect(200);
            assert_eq!(node.get("/v1/simple-locks/s/l").await.expect(200).body.get("holder"), None);
            if query.is_empty() {
                take().await.expect_problem(410, "ticket-gone");
            }
        }
    }
    let headers = [("zlock-session-key", &*session), ("idempotency-key", &*"x".repeat(41))];
    let long = node.call(Method::POST, "/v1/simple-locks/s/l", &headers, b"").await;
    let long = long.expect_problem(400, "bad-request");
    assert_eq!(text(&long, "detail"), "Idempotency-Key: 41 bytes, and at most 40 are taken");
    node.call(Method::POST, "/v1/simple-locks/s/l?owner=short", &headers, b"").await.expect(200);
}

/// An acquire or a release is one log entry, and is answered without another read. So it succeeds
/// on a node that admits no reads after the write.
#[tokio::test]
async fn who_takes_it_or_gives_it_back_needs_no_read_of_the_cluster() {
    let node = Node::start_with(RestConfig::default(), |config| config.reads_max = 1).await;
    let session = node.session().await;
    let taken = node.without_reads_behind_a_write(acquire(&node, &session, "owner=a")).await.expect(200);
    let (token, zxid) = (number(&taken, "fencing_token"), taken.zxid());
    assert_eq!(token, zxid, "with its directory, in one entry");
    assert_eq!(node.get("/v1/znodes/s").await.expect(200).body["stat"]["czxid"], token);
    let again = node.without_reads_behind_a_write(acquire(&node, &session, "owner=a")).await.expect(200);
    assert_eq!(number(&again, "fencing_token"), token);
    node.without_reads_behind_a_write(release(&node, &session, "a")).await.expect(200);
}

#[tokio::test]
async fn a_retried_release_by_owner_is_answered_as_the_first_one_also_when_another_holds() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    let key = [("zlock-session-key", &*first), ("idempotency-key", "67e55044-10b1-426f-9247-bb680e5fe0c8")];
    let release = || node.call(Method::DELETE, "/v1/simple-locks/s/l?owner=a", &key, b"");
    acquire(&node, &first, "owner=a").await.expect(200);
    let released = release().await.expect(200);
    acquire(&node, &second, "owner=a").await.expect(200);
    assert_eq!(release().await.expect(200).body, released.body);
    assert_eq!(node.get("/v1/simple-locks/s/l").await.expect(200).body["holder"]["owner"], "a");
}
