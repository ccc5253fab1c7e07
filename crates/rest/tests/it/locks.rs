//! `/v1/locks` and `/v1/tickets`: locks are acquired, released and shown.

use axum::http::Method;
use serde_json::json;

use crate::node::{Node, number, text};

#[tokio::test]
async fn a_free_lock_is_held_at_once() {
    let node = Node::start().await;
    let session = node.session().await;
    let held = node.acquire(&session, "/orders/eu?label=worker%207").await.expect(200);
    let (ticket, token) = (text(&held, "ticket").to_owned(), number(&held, "fencing_token"));
    let expected = json!({"state": "held", "ticket": ticket, "path": "/orders/eu", "fencing_token": token, "holds": 1,
        "safe_for_ms": 29_400});
    assert_eq!(held.body, expected);
    assert_eq!(token, held.zxid());
    assert!(ticket.starts_with("/orders/eu/0000000000_") && ticket.ends_with("__lock__0000000000"), "{ticket}");
    let lock_node = node.get(&format!("/v1/znodes{ticket}")).await.expect(200);
    assert_eq!((&lock_node.body["data"], &lock_node.body["stat"]["czxid"]), (&json!("worker 7"), &json!(token)));

    let released = node.release(&session, &ticket).await.expect(200);
    assert_eq!(released.body, json!({"holds": 0, "zxid": released.zxid()}));
    node.release(&session, &ticket).await.expect_problem(410, "ticket-gone");
    node.get(&format!("/v1/tickets{ticket}")).await.expect_problem(410, "ticket-gone");
    let next = node.acquire(&session, "/orders/eu").await.expect(200);
    assert!(number(&next, "fencing_token") > token);
}

#[tokio::test]
async fn a_try_leaves_nothing_behind() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    node.acquire(&first, "/l").await.expect(200);
    for query in ["", "?wait=0", "?wait=20ms"] {
        let refused = node.acquire(&second, &format!("/l{query}")).await.expect_problem(409, "not-acquired");
        assert_eq!(refused.body["outcome"], "refused");
        let queue = node.get("/v1/locks/l").await.expect(200);
        assert_eq!(number(&queue, "contenders"), 1);
    }
}

#[tokio::test]
async fn a_release_wakes_the_next_in_line() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    let held = node.acquire(&first, "/l").await.expect(200);
    let waiting = node.acquire(&second, "/l?wait=20s");
    let releasing = async {
        node.until_contenders("/l", 2).await;
        node.release(&first, text(&held, "ticket")).await.expect(200)
    };
    let (next, released) = tokio::join!(waiting, releasing);
    let next = next.expect(200);
    assert_eq!(next.zxid(), released.zxid(), "the release is the grant");
    assert!(number(&next, "fencing_token") > number(&held, "fencing_token"));
}

#[tokio::test]
async fn a_kept_place_is_waited_for_again() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    let held = node.acquire(&first, "/l").await.expect(200);
    let queued = node.acquire(&second, "/l?keep=true&wait=10ms").await.expect(202);
    let ticket = text(&queued, "ticket").to_owned();
    let expected = json!({"state": "waiting", "ticket": ticket, "path": "/l", "position": 1,
        "predecessor": text(&held, "ticket")});
    assert_eq!(queued.body, expected);
    let uri = format!("/v1/tickets{ticket}");
    assert_eq!(node.get(&uri).await.expect(202).body, expected);
    assert_eq!(node.get(&format!("{uri}?wait=10ms")).await.expect(202).body, expected);

    let wait = format!("{uri}?wait=20s");
    let (granted, _) =
        tokio::join!(node.in_session(&second, Method::GET, &wait), node.release(&first, text(&held, "ticket")));
    let granted = granted.expect(200);
    assert_eq!((text(&granted, "ticket"), number(&granted, "safe_for_ms")), (&*ticket, 29_400));
    // Other sessions may look at the ticket, but do not get `safe_for_ms`.
    assert_eq!(number(&node.get(&uri).await.expect(200), "safe_for_ms"), 0);
    node.release(&first, &ticket).await.expect_problem(403, "not-owner");
    node.delete(&uri).await.expect_problem(401, "session-required");
    node.release(&second, &ticket).await.expect(200);
}

#[tokio::test]
async fn readers_share_and_writers_do_not() {
    let node = Node::start().await;
    let sessions = [node.session().await, node.session().await, node.session().await];
    let first = node.acquire(&sessions[0], "/rw?mode=read").await.expect(200);
    let second = node.acquire(&sessions[1], "/rw?mode=read").await.expect(200);
    assert!(text(&first, "ticket").contains("__READ__"), "{}", text(&first, "ticket"));
    let writer = node.acquire(&sessions[2], "/rw?mode=write&keep=true").await.expect(202);
    assert!(text(&writer, "ticket").contains("__WRIT__"));
    node.acquire(&sessions[2], "/rw?mode=read&owner=reader").await.expect_problem(409, "not-acquired");
    node.release(&sessions[0], text(&first, "ticket")).await.expect(200);
    node.release(&sessions[1], text(&second, "ticket")).await.expect(200);
    node.get(&format!("/v1/tickets{}", text(&writer, "ticket"))).await.expect(200);
}

#[tokio::test]
async fn an_owner_holds_its_ticket_over_and_gives_each_hold_back() {
    let node = Node::start().await;
    let session = node.session().await;
    let first = node.acquire(&session, "/l?owner=main").await.expect(200);
    let second = node.acquire(&session, "/l?owner=main").await.expect(200);
    assert_eq!((text(&first, "ticket"), number(&second, "holds")), (text(&second, "ticket"), 2));
    node.acquire(&session, "/l?owner=other").await.expect_problem(409, "not-acquired");
    let released = node.release(&session, text(&first, "ticket")).await.expect(200);
    assert_eq!(number(&released, "holds"), 1);
    let released = node.release(&session, text(&first, "ticket")).await.expect(200);
    assert_eq!(number(&released, "holds"), 0);
}

#[tokio::test]
async fn a_retried_acquire_counts_once() {
    let node = Node::start().await;
    let session = node.session().await;
    let headers = [("zlock-session-key", &*session), ("idempotency-key", "67e55044-10b1-426f-9247-bb680e5fe0c8")];
    let acquire = async || node.call(Method::POST, "/v1/locks/l?owner=main", &headers, b"").await;
    let (first, again) = (acquire().await.expect(200), acquire().await.expect(200));
    assert_eq!((text(&first, "ticket"), number(&again, "holds")), (text(&again, "ticket"), 1));
    assert!(text(&first, "ticket").contains("67e55044"), "{}", text(&first, "ticket"));
    let ticket = text(&first, "ticket");
    let headers = [("zlock-session-key", &*session), ("idempotency-key", "a7e55044-10b1-426f-9247-bb680e5fe0c8")];
    let release = async || node.call(Method::DELETE, &format!("/v1/tickets{ticket}"), &headers, b"").await;
    let (first, again) = (release().await.expect(200), release().await.expect(200));
    assert_eq!((&first.body, first.zxid()), (&again.body, again.zxid()));
    let used = acquire().await.expect_problem(410, "ticket-gone");
    let advice = "this Idempotency-Key was used before";
    assert!(text(&used, "detail").starts_with(advice) && text(&used, "detail").ends_with("take a new key"));
}

#[tokio::test]
async fn a_ticket_at_the_root_makes_no_lock_of_it() {
    let node = Node::start().await;
    let session = node.session().await;
    node.acquire(&session, "/l").await.expect(200);
    let at_root = node.in_session(&session, Method::POST, "/v1/znodes/task-?mode=ephemeral-sequential").await;
    let at_root = at_root.expect(201);
    let locks = node.get("/v1/locks").await.expect(200);
    let names: Vec<&str> =
        locks.body["locks"].as_array().unwrap().iter().map(|lock| lock["path"].as_str().unwrap()).collect();
    assert_eq!(names, ["/l"]);
    let ticket = format!("/v1/tickets{}", text(&at_root, "path"));
    for (method, uri) in [
        (Method::GET, "/v1/locks/%2F"),
        (Method::POST, "/v1/locks/%2F"),
        (Method::DELETE, "/v1/locks/%2F"),
        (Method::GET, "/v1/elections/%2F"),
        (Method::GET, "/v1/simple-locks/%2F"),
        (Method::POST, "/v1/revocations/%2F?deadline=0"),
        (Method::GET, &*ticket),
        (Method::DELETE, &*ticket),
    ] {
        let refused = node.in_session(&session, method, uri).await.expect_problem(400, "bad-request");
        assert!(text(&refused, "detail").contains("the root is no lock"), "{uri}: {}", refused.body);
    }
    let guard = format!("/;{}", at_root.zxid());
    node.call(Method::PUT, "/v1/znodes/l", &[("if-lock", &guard)], b"").await.expect_problem(400, "bad-request");
    node.get(at_root.header("location")).await.expect(200);
}

#[tokio::test]
async fn the_queue_is_shown_in_order_and_in_pages() {
    let node = Node::start().await;
    let session = node.session().await;
    let id: u64 = session.split_once('.').unwrap().0.parse().unwrap();
    let mut tickets = Vec::new();
    for label in ["a", "b", "c"] {
        let answer = node.acquire(&session, &format!("/l?keep=true&owner=o{label}&label={label}")).await;
        tickets.push(text(&answer, "ticket").to_owned());
    }
    let queue = node.get("/v1/locks/l").await.expect(200);
    let contender = |at: usize, label: &str, since: &serde_json::Value| {
        let mut contender = json!({"ticket": tickets[at], "position": at, "mode": "exclusive", "session": id, "owner": format!("o{label}"),
            "label": label, "enqueued_at_ms": since["enqueued_at_ms"], "holds": 1});
        if at == 0 {
            contender["granted_at_ms"] = since["enqueued_at_ms"].clone();
            contender["fencing_token"] = since["fencing_token"].clone();
        }
        contender
    };
    let (holders, waiters) = (&queue.body["holders"], &queue.body["waiters"]);
    let expected = json!({"path": "/l", "contenders": 3, "holders": [contender(0, "a", &holders[0])],
        "waiters": [contender(1, "b", &waiters[0]), contender(2, "c", &waiters[1])]});
    assert_eq!(queue.body, expected);
    let page = node.get("/v1/locks/l?page_size=1&after=1").await.expect(200);
    assert_eq!((&page.body["waiters"][0], &page.body["cursor"]), (&waiters[0], &json!(2)));
    let page = node.get("/v1/locks/l?page_size=1&after=2").await.expect(200);
    assert_eq!((&page.body["waiters"][0], &page.body["cursor"]), (&waiters[1], &json!(null)));
    let free = node.get("/v1/locks/never").await.expect(200);
    assert_eq!(free.body, json!({"path": "/never", "contenders": 0, "holders": [], "waiters": []}));
}

#[tokio::test]
async fn locks_are_listed_by_prefix() {
    let node = Node::start().await;
    let session = node.session().await;
    for lock in ["/a/1", "/a/2", "/ab", "/b"] {
        node.acquire(&session, lock).await.expect(200);
    }
    let locks = async |query: &str| {
        let list = node.get(&format!("/v1/locks{query}")).await.expect(200);
        let locks = list.body["locks"].as_array().unwrap();
        let locks: Vec<String> = locks.iter().map(|lock| lock["path"].as_str().unwrap().to_owned()).collect();
        (locks.join(" "), list.body["cursor"].as_str().map(String::from))
    };
    assert_eq!(locks("").await, ("/a/1 /a/2 /ab /b".into(), None));
    assert_eq!(locks("?prefix=/a").await, ("/a/1 /a/2".into(), None));
    assert_eq!(locks("/?prefix=/&page_size=3").await, ("/a/1 /a/2 /ab".into(), Some("/ab".into())));
    assert_eq!(locks("?page_size=3&after=/ab").await, ("/b".into(), None));
    node.get("/v1/locks?prefix=a").await.expect_problem(400, "bad-request");
    let list = node.get("/v1/locks?prefix=/b").await.expect(200);
    let first = &list.body["locks"][0];
    assert_eq!((&first["contenders"], &first["first"]["holds"]), (&json!(1), &json!(1)));
}

#[tokio::test]
async fn a_token_is_good_while_its_lock_is_held() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    let held = node.acquire(&first, "/l").await.expect(200);
    let token = number(&held, "fencing_token");
    let waiting = node.acquire(&second, "/l?keep=true").await.expect(202);
    let check = async |token: u64| node.get(&format!("/v1/fence?path=/l&fencing_token={token}")).await.status == 204;
    assert!(check(token).await);
    assert!(!check(token + 1).await);
    // A waiter's token is known, but holds no lock yet.
    let lock_node = node.get(&format!("/v1/znodes{}", text(&waiting, "ticket"))).await.expect(200);
    assert!(!check(lock_node.body["stat"]["czxid"].as_u64().unwrap()).await);
    node.release(&first, text(&held, "ticket")).await.expect(200);
    assert!(!check(token).await);
    node.get("/v1/locks/l?fencing_token=1").await.expect_problem(400, "bad-request");
}

#[tokio::test]
async fn every_write_can_be_guarded_with_a_lock() {
    let node = Node::start().await;
    let session = node.session().await;
    let held = node.acquire(&session, "/l").await.expect(200);
    let guard = format!("/l;{}", number(&held, "fencing_token"));
    let stale = format!("/l;{}", number(&held, "fencing_token") + 1);
    let writes: [(Method, &str, &[u8]); 5] = [
        (Method::POST, "/v1/znodes/a", b"x"),
        (Method::PUT, "/v1/znodes/a", b"y"),
        (Method::POST, "/v1/txn", br#"{"ops":[{"op":"check","path":"/a"}]}"#),
        (Method::POST, "/v1/locks/other", b""),
        (Method::DELETE, "/v1/znodes/a", b""),
    ];
    for (method, uri, body) in writes {
        let headers = [("zlock-session-key", &*session), ("if-lock", &*stale)];
        let refused = node.call(method.clone(), uri, &headers, body).await.expect_problem(412, "lock-not-held");
        assert_eq!(text(&refused, "path"), "/l");
        let headers = [("zlock-session-key", &*session), ("if-lock", &*guard)];
        let done = node.call(method, uri, &headers, body).await;
        assert!(done.status < 300, "{uri}: {}", done.body);
    }
    let headers = [("zlock-session-key", &*session), ("if-lock", &*guard)];
    let release = format!("/v1/tickets{}", text(&held, "ticket"));
    node.call(Method::DELETE, &release, &headers, b"").await.expect(200);
    node.call(Method::POST, "/v1/znodes/b", &headers, b"").await.expect_problem(412, "lock-not-held");
}
