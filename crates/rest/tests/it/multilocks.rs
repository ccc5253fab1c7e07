//! Multi-locks over HTTP: several locks that are acquired together or not at all.

use axum::body::Body;
use axum::http::{Method, Request};
use rest::RestConfig;
use serde_json::{Value, json};

use crate::node::{Answer, Node, PATIENCE, number, text};

async fn acquire(node: &Node, session: &str, query: &str, body: Value) -> Answer {
    let uri = format!("/v1/multilocks{query}");
    node.call(Method::POST, &uri, &[("zlock-session-key", session)], body.to_string().as_bytes()).await
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
        // With the strict policy, no later request may pass the waiting multi-lock, although the
        // lock is free.
        node.acquire(&first, "/a").await.expect_problem(409, "not-acquired");
        node.release(&first, text(&held, "ticket")).await.expect(200);
    };
    let (all, ()) = tokio::join!(acquire(&node, &second, "?wait=20s", both("strict")), release);
    let all = all.expect(200);
    let locks = all.body["locks"].as_array().unwrap();
    assert_eq!((text(&all, "state"), &locks[0]["path"], &locks[1]["path"]), ("held", &json!("/a"), &json!("/b")));
    assert!(locks[1]["ticket"].as_str().unwrap().contains("__WRIT__"), "{}", all.body);
    for lock in locks {
        let (path, token) = (lock["path"].as_str().unwrap(), &lock["fencing_token"]);
        node.get(&format!("/v1/fence?path={path}&fencing_token={token}")).await.expect(204);
    }
    node.release(&second, text(&all, "ticket")).await.expect(200);
    node.until_contenders("/b", 0).await;
}

#[tokio::test]
async fn the_ticket_of_a_single_lock_is_not_gone() {
    let node = Node::start().await;
    let session = node.session().await;
    let held = node.in_session(&session, Method::POST, "/v1/locks/one").await.expect(200);
    let ticket = text(&held, "ticket").to_owned();
    node.get(&format!("/v1/multilocks{ticket}")).await.expect_problem(400, "bad-request");
    node.in_session(&session, Method::DELETE, &format!("/v1/tickets{ticket}")).await.expect(200);
    node.get(&format!("/v1/multilocks{ticket}")).await.expect_problem(410, "ticket-gone");
}

/// A refused multi-lock must name the lock that was held, and not one of its locks that were free.
#[tokio::test]
async fn a_multi_lock_in_vain_names_the_lock_that_is_in_the_way() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    let id = first.split_once('.').unwrap().0;
    let held = node.acquire(&first, "/b").await.expect(200);
    let holder = format!("the lock /b is held by session {id} for ");
    for (query, begins, ends) in [
        ("", "", "; nothing is left of the try"),
        ("?wait=20ms", "the wait is over: ", "; the waiter has left the queue"),
    ] {
        let refused = acquire(&node, &second, query, both("strict")).await.expect_problem(409, "not-acquired");
        let detail = text(&refused, "detail");
        assert!(detail.starts_with(&format!("{begins}{holder}")) && detail.ends_with(ends), "{detail}");
        assert_eq!(refused.body["holder"]["ticket"], held.body["ticket"]);
    }
    // These holders leave room for the request, so they do not block it.
    for _ in 0..5 {
        node.acquire(&first, "/r?mode=read").await.expect(200);
        node.acquire(&first, "/s?mode=semaphore&permits_max=6").await.expect(200);
    }
    let wish = |read: &str, permits: u32| {
        json!({"locks": [{"path": "/r", "mode": read}, {"path": "/s", "mode": "semaphore", "permits": permits, "permits_max": 6},
            {"path": "/b"}]})
    };
    let refused = async |read: &str, permits: u32| {
        let refused = acquire(&node, &second, "", wish(read, permits)).await.expect_problem(409, "not-acquired");
        text(&refused, "detail").to_owned()
    };
    let detail = refused("read", 1).await;
    assert!(detail.starts_with(&holder) && !detail.contains(" too; "), "{detail}");
    let detail = refused("read", 2).await;
    assert!(
        detail.starts_with("the lock /s is held by ") && detail.contains("; another one of the locks "),
        "{detail}"
    );
    let detail = refused("write", 2).await;
    assert!(detail.starts_with("the lock /r is held by ") && detail.contains("; 2 more of the locks "), "{detail}");
    // The text names only a few of many holders.
    assert_eq!(
        (detail.matches(" by session ").count(), detail.matches(", and by others;").count()),
        (3, 1),
        "{detail}"
    );
    node.release(&first, text(&held, "ticket")).await.expect(200);
}

#[tokio::test]
async fn a_multi_lock_in_vain_names_no_holder_of_a_lock_that_the_request_may_not_read() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    node.post("/v1/znodes/d?acl=world:anyone:cd", "").await.expect(201);
    node.acquire(&first, "/d/l").await.expect(200);
    let wish = json!({"locks": [{"path": "/a"}, {"path": "/d/l"}]});
    let refused = acquire(&node, &second, "", wish).await.expect_problem(409, "not-acquired");
    assert_eq!(text(&refused, "detail"), "the locks were not all free at one moment; nothing is left of the try");
    assert_eq!(refused.body.get("holder"), None);
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
    // Now the multi-lock is first in both queues, and waits for the request that passed it.
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
        (json!([{"path": "/a", "mode": "election"}]), json!(0)),
        (json!([{"path": "/a", "mode": "semaphore"}]), json!(0)),
        (json!([]), json!(null)),
        (json!([{"path": "/a", "mood": "read"}]), json!(null)),
    ] {
        let refused = acquire(&node, &session, "", json!({ "locks": locks })).await.expect_problem(400, "bad-request");
        assert_eq!(refused.body["op_index"], index, "{}", refused.body);
    }
    let many: Vec<Value> = (0..65).map(|index| json!({"path": format!("/x{index}")})).collect();
    let before = node.replica.state().last_zxid();
    acquire(&node, &session, "", json!({ "locks": many })).await.expect_problem(413, "too-many-operations");
    assert_eq!(node.replica.state().last_zxid(), before, "the node refuses it without the log");
}

#[tokio::test]
async fn a_multi_lock_of_an_owner_is_refused_when_it_would_close_a_cycle() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    node.acquire(&first, "/a?owner=o").await.expect(200);
    let of = |owner: &str, locks: &[&str]| {
        let locks: Vec<Value> = locks.iter().map(|path| json!({ "path": path })).collect();
        json!({ "locks": locks, "owner": owner })
    };
    let held = acquire(&node, &second, "", of("p", &["/b", "/c"])).await.expect(200);
    node.acquire(&first, "/b?owner=o&keep").await.expect(202);
    let refused = acquire(&node, &second, "?wait=20s", of("p", &["/new", "/a"])).await;
    let refused = refused.expect_problem(409, "deadlock");
    let edge = |index: usize| {
        let edge = &refused.body["cycle"][index];
        (edge["owner"].as_str().unwrap().to_string(), edge["path"].as_str().unwrap().to_string())
    };
    assert_eq!(edge(0), ("p".into(), "/a".into()), "{}", refused.body);
    assert_eq!(edge(1), ("o".into(), "/b".into()), "{}", refused.body);
    assert_eq!((&refused.body["path"], &refused.body["cycle"][2]), (&json!("/a"), &json!(null)));
    node.get("/v1/znodes/new").await.expect_problem(404, "no-node");
    let history = node.get("/v1/history/a").await.expect(200);
    assert_eq!(history.body["history"][0]["ended"]["how"], "deadlock", "{}", history.body);
    // A request of another owner closes no cycle, and a request without an owner is not checked.
    acquire(&node, &second, "?keep", of("q", &["/new", "/a"])).await.expect(202);
    node.in_session(&second, Method::DELETE, &format!("/v1/tickets{}", text(&held, "ticket"))).await.expect(200);
}

#[tokio::test]
async fn the_same_owner_holds_the_same_set_once_more_and_nothing_else_of_it() {
    let node = Node::start().await;
    let session = node.session().await;
    let of = |locks: Value| json!({ "locks": locks, "owner": "o" });
    let (a, b) = (json!({"path": "/a"}), json!({"path": "/b", "mode": "read"}));
    let once = acquire(&node, &session, "", of(json!([a, b]))).await.expect(200);
    let twice = acquire(&node, &session, "", of(json!([b, a]))).await.expect(200);
    assert_eq!((number(&once, "holds"), number(&twice, "holds")), (1, 2));
    assert_eq!((text(&once, "ticket"), &once.body["locks"]), (text(&twice, "ticket"), &twice.body["locks"]));
    let refused = acquire(&node, &session, "", of(json!([{"path": "/c"}, a]))).await.expect_problem(409, "overlap");
    let told = (&refused.body["name"], &refused.body["code"], &refused.body["path"], &refused.body["op_index"]);
    assert_eq!(told, (&json!("Overlap"), &json!(-1024), &json!("/a"), &json!(1)));
    node.acquire(&session, "/a?owner=o").await.expect_problem(409, "overlap");
    let long = json!({ "locks": [{"path": "/d"}], "owner": "o".repeat(300) });
    let refused = acquire(&node, &session, "", long).await.expect_problem(400, "bad-request");
    assert!(text(&refused, "detail").starts_with("owner: 300 bytes"), "{}", refused.body);
    let delayed = json!({ "locks": [{"path": "/d"}], "lock_delay": "61s" });
    let refused = acquire(&node, &session, "", delayed).await.expect_problem(400, "bad-request");
    assert_eq!(text(&refused, "detail"), "lock_delay: at most 60s");
    for holds in [1, 0] {
        assert_eq!(number(&node.release(&session, text(&once, "ticket")).await.expect(200), "holds"), holds);
    }
    node.until_contenders("/a", 0).await;
}

#[tokio::test]
async fn who_waits_and_keeps_its_place_counts_among_those_who_wait() {
    let node = Node::start_with(RestConfig { waits_max: 1, ..RestConfig::default() }, |_| {}).await;
    let (first, second) = (node.session().await, node.session().await);
    let held = node.acquire(&first, "/b").await.expect(200);
    let other = async {
        node.until_watches(1).await;
        node.get("/v1/znodes?watch=data&wait=50ms").await.expect_problem(429, "too-many");
        node.release(&first, text(&held, "ticket")).await.expect(200);
    };
    let (all, ()) = tokio::join!(acquire(&node, &second, "?keep&wait=20s", both("strict")), other);
    all.expect(200);
}

#[tokio::test]
async fn who_waits_has_no_place_among_the_bodies() {
    let body = both("strict").to_string();
    // The memory has room for this body and no other.
    let config = RestConfig { bodies_bytes_max: body.len(), ..RestConfig::default() };
    let node = Node::start_with(config, |_| {}).await;
    let (first, second) = (node.session().await, node.session().await);
    let held = node.acquire(&first, "/b").await.expect(200);
    let pieces = futures_util::stream::iter([Ok::<_, std::io::Error>(body)]);
    let request = Request::post("/v1/multilocks?wait=20s").header("zlock-session-key", &second);
    let waiting = node.send(request.body(Body::from_stream(pieces)).unwrap());
    let other = async {
        node.until_watches(1).await;
        node.post("/v1/znodes/x", "x").await.expect(201);
        node.release(&first, text(&held, "ticket")).await.expect(200);
    };
    let (all, ()) = tokio::join!(waiting, other);
    all.expect(200);
}

#[tokio::test]
async fn a_hold_that_ran_out_of_time_is_given_back_in_whatever_order_it_was_asked_for() {
    let mut node = Node::start().await;
    let session = node.session().await;
    let set = |first, second| json!({"locks": [{"path": first}, {"path": second}], "owner": "o"});
    let granted = acquire(&node, &session, "", set("/a", "/b")).await.expect(200);
    let ticket = text(&granted, "ticket");
    // The timeout is about the duration of a disk write, so many outcomes are unknown at first.
    node.limit_proposals_to_ms(1);
    let mut held = 1;
    for _ in 0..20 {
        held += u64::from(acquire(&node, &session, "", set("/b", "/a")).await.status == 200);
    }
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let now = number(&node.get(&format!("/v1/multilocks{ticket}")).await.expect(200), "holds");
        if now == held {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{now} holds, and {held} that a waiter was told of");
        tokio::task::yield_now().await;
    }
}
