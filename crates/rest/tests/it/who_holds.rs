//! Descriptions of holders, and of clients that took a lock away, in queues, histories and
//! refusals.

use axum::http::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::node::{Answer, Node, PATIENCE, number, text};

/// ACL of a directory, percent-encoded for a query: all clients may use locks in it, and only bob
/// may read them.
const HIDDEN: &str = "world:anyone:cd,digest:bob:ttt4KD2l%2FLR0Mpj5c6jU0hrwVdE%3D:cdrwa";
const BOB: (&str, &str) = ("authorization", "Basic Ym9iOng=");

/// Opens a session with a label and a client's host. Returns the session's key and id.
async fn named(node: &Node, label: &str, host: &str) -> (String, u64) {
    let body = json!({"label": label, "client": {"host": host, "pid": 71, "program": "backup"}});
    let opened = node.post("/v1/sessions", &body.to_string()).await.expect(201);
    (text(&opened, "session_key").to_owned(), number(&opened, "session"))
}

#[tokio::test]
async fn a_queue_and_a_history_say_whose_sessions_they_are_of() {
    let node = Node::start().await;
    let ((first, first_id), (second, _)) = (named(&node, "nightly", "web-1").await, named(&node, "", "web-2").await);
    let held = node.acquire(&first, "/l?owner=o").await.expect(200);
    let waits = node.acquire(&second, "/l?keep=true").await.expect(202);
    let queue = node.get("/v1/locks/l").await.expect(200);
    let web_1 = json!({"host": "web-1", "pid": 71, "program": "backup"});
    let holder = &queue.body["holders"][0];
    assert_eq!((&holder["session_label"], &holder["client"]), (&json!("nightly"), &web_1));
    let waiter = &queue.body["waiters"][0];
    assert_eq!((waiter.get("session_label"), &waiter["client"]["host"]), (None, &json!("web-2")));
    let summary = node.get("/v1/locks").await.expect(200);
    assert_eq!(summary.body["locks"][0]["first"]["client"], web_1);

    node.release(&first, text(&held, "ticket")).await.expect(200);
    node.release(&second, text(&waits, "ticket")).await.expect(200);
    node.close(&first).await.expect(200);
    let history = node.get("/v1/history/l").await.expect(200);
    let past = &history.body["history"][1];
    assert_eq!(
        (&past["session"], &past["session_label"], &past["client"]),
        (&json!(first_id), &json!("nightly"), &web_1)
    );
}

#[tokio::test]
async fn a_page_of_locks_has_their_queues_and_so_many_contenders() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    for lock in ["/a", "/b", "/c"] {
        node.acquire(&first, lock).await.expect(200);
    }
    node.acquire(&second, "/a?keep=true").await.expect(202);
    let bare = node.get("/v1/locks").await.expect(200);
    assert_eq!(bare.body["locks"][0].get("queue"), None, "they are asked for");
    let whole = node.get("/v1/locks?queues=true").await.expect(200);
    let locks = whole.body["locks"].as_array().unwrap();
    assert_eq!((locks.len(), whole.body.get("cursor")), (3, None));
    for lock in locks {
        let mut queue = lock["queue"].clone();
        for one in ["holders", "waiters"].iter().flat_map(|field| queue[field].as_array_mut().unwrap().clone()) {
            let ms = |field: &str| one[field].as_u64().unwrap();
            assert!(ms("silent_for_ms") <= 60_000 && ms("expires_in_ms") <= 60_000, "{one}");
        }
        for field in ["holders", "waiters"] {
            for one in queue[field].as_array_mut().unwrap() {
                let one = one.as_object_mut().unwrap();
                one.remove("silent_for_ms");
                one.remove("expires_in_ms");
            }
        }
        let name = lock["path"].as_str().unwrap();
        assert_eq!(queue, node.get(&format!("/v1/locks{name}")).await.expect(200).body, "{name}");
    }
    // The first lock has two contenders.
    for (limit, after, expected, next) in [(2, "", "/a", json!("/a")), (2, "&after=/a", "/b /c", json!(null))] {
        let page = node.get(&format!("/v1/locks?queues=true&page_size={limit}{after}")).await.expect(200);
        let names: Vec<&str> =
            page.body["locks"].as_array().unwrap().iter().map(|lock| lock["path"].as_str().unwrap()).collect();
        assert_eq!((names.join(" "), &page.body["cursor"]), (expected.to_owned(), &next));
    }
}

/// A ticket that never held its lock ends as `withdrawn`, and not as `released`.
#[tokio::test]
async fn a_wait_that_is_given_up_was_withdrawn() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    node.acquire(&first, "/l").await.expect(200);
    let waits = node.acquire(&second, "/l?keep=true").await.expect(202);
    node.release(&second, text(&waits, "ticket")).await.expect(200);
    let history = node.get("/v1/history/l").await.expect(200);
    assert_eq!(history.body["history"][0]["ended"]["how"], "withdrawn");
}

#[tokio::test]
async fn a_ticket_that_was_taken_away_names_who_did_it() {
    let node = Node::start().await;
    let (holder, (admin, admin_id)) = (node.session().await, named(&node, "ops", "desk").await);
    let desk = json!({"host": "desk", "pid": 71, "program": "backup"});
    let held = node.acquire(&holder, "/l").await.expect(200);
    let znode = format!("/v1/znodes{}", text(&held, "ticket"));
    node.in_session(&admin, Method::DELETE, &znode).await.expect(200);
    node.acquire(&holder, "/l").await.expect(200);
    let headers = [("zlock-session-key", &*admin), BOB];
    node.call(Method::POST, "/v1/revocations/l?deadline=0", &headers, b"").await.expect(200);
    node.acquire(&holder, "/l").await.expect(200);
    node.call(Method::POST, "/v1/revocations/l", &headers, b"").await.expect(200);

    let history = node.get("/v1/history/l").await.expect(200);
    let past = history.body["history"].as_array().unwrap();
    let by = json!({"session": admin_id, "label": "ops", "client": desk});
    assert_eq!((&past[1]["ended"]["how"], &past[1]["ended"]["by"]), (&json!("deleted"), &by));
    let by = json!({"session": admin_id, "label": "ops", "client": desk, "identity": "digest:bob"});
    assert_eq!((&past[0]["ended"]["how"], &past[0]["ended"]["by"]), (&json!("revoked"), &by));
    let queue = node.get("/v1/locks/l").await.expect(200);
    let revoke = &queue.body["holders"][0]["revoke"];
    assert_eq!((&revoke["session"], &revoke["by"]), (&json!(admin_id), &by));
}

#[tokio::test]
async fn a_try_says_who_holds_the_lock() {
    let node = Node::start().await;
    let ((first, first_id), second) = (named(&node, "nightly", "web-1").await, node.session().await);
    let held = node.acquire(&first, "/l").await.expect(200);
    let token = number(&held, "fencing_token");
    for (query, begins, ends) in [
        ("", "the lock is held by ", "nothing is left of the try"),
        ("?wait=20ms", "the wait is over: the lock is held by ", "the waiter has left the queue"),
    ] {
        let refused = node.acquire(&second, &format!("/l{query}")).await.expect_problem(409, "not-acquired");
        let detail = text(&refused, "detail");
        let who = format!("session {first_id} \"nightly\" (web-1, pid 71, backup) for ");
        assert!(detail.starts_with(begins) && detail.contains(&who) && detail.ends_with(ends), "{detail}");
        let holder = &refused.body["holder"];
        assert_eq!((&holder["fencing_token"], &holder["client"]["host"]), (&json!(token), &json!("web-1")));
        assert!(holder["granted_at_ms"].is_u64(), "{holder}");
    }
    let both = br#"{"locks":[{"path":"/l"},{"path":"/m"}]}"#;
    let headers = [("zlock-session-key", &*second), ("content-type", "application/json")];
    let refused = node.call(Method::POST, "/v1/multilocks", &headers, both).await.expect_problem(409, "not-acquired");
    assert_eq!(refused.body["holder"]["session"], first_id);
    assert!(text(&refused, "detail").starts_with(&format!("the lock /l is held by session {first_id} \"nightly\" (")));
    node.in_session(&first, Method::POST, "/v1/simple-locks/s?owner=o").await.expect(200);
    let refused = node.in_session(&second, Method::POST, "/v1/simple-locks/s?owner=o").await;
    let refused = refused.expect_problem(409, "not-acquired");
    let detail = text(&refused, "detail");
    assert!(detail.starts_with(&format!("the lock is held by session {first_id} \"o\" (web-1, ")), "{detail}");
}

#[tokio::test]
async fn who_may_not_read_a_lock_is_not_told_who_holds_it() {
    let node = Node::start().await;
    let ((first, first_id), second) = (named(&node, "", "web-1").await, node.session().await);
    node.post(&format!("/v1/znodes/d?acl={HIDDEN}"), "").await.expect(201);
    let held = node.acquire(&first, "/d/l").await.expect(200);
    let refused = node.acquire(&second, "/d/l").await.expect_problem(409, "not-acquired");
    let said = |answer: &Answer| String::from_utf8_lossy(&answer.bytes).into_owned();
    assert!(!said(&refused).contains("web-1") && !said(&refused).contains("holder"), "{}", said(&refused));
    let refused = node.release(&second, text(&held, "ticket")).await.expect_problem(403, "not-owner");
    assert_eq!(text(&refused, "detail"), "the ticket belongs to another session");
    let refused = node.in_session(&second, Method::DELETE, "/v1/locks/d/l").await.expect_problem(404, "not-holder");
    assert!(!said(&refused).contains("web-1"), "{}", said(&refused));
    // The list of sessions hides the client, too, because the request may read none of the
    // session's znodes.
    let one = node.get(&format!("/v1/sessions/{first_id}")).await.expect(200);
    let all = node.get("/v1/sessions").await.expect(200);
    assert!(!said(&one).contains("web-1") && !said(&all).contains("web-1"), "{} {}", said(&one), said(&all));
    for uri in [format!("/v1/sessions/{first_id}"), "/v1/sessions".into(), "/v1/locks/d/l".into()] {
        let read = node.call(Method::GET, &uri, &[BOB], b"").await.expect(200);
        assert!(said(&read).contains("web-1"), "{uri}: {}", said(&read));
    }
    let own = node.in_session(&first, Method::GET, &format!("/v1/sessions/{first_id}")).await.expect(200);
    assert_eq!(own.body["client"]["host"], "web-1");
}

#[tokio::test]
async fn a_session_that_has_ended_says_who_its_client_was() {
    let node = Node::start().await;
    let web_1 = json!({"host": "web-1", "pid": 71, "program": "backup"});
    let ended = async |id: u64, headers: &[(&str, &str)]| {
        let gone = node.call(Method::GET, &format!("/v1/sessions/{id}"), headers, b"").await;
        let gone = gone.expect_problem(410, "session-expired");
        (gone.body["ended_session"].get("client").cloned(), text(&gone, "detail").to_owned())
    };
    // One session held a lock, one had given it back, and one had tried; other sessions have used
    // the locks since.
    let (other, (first, first_id)) = (node.session().await, named(&node, "nightly", "web-1").await);
    node.acquire(&first, "/l").await.expect(200);
    let ((second, second_id), (third, third_id)) = (named(&node, "", "web-1").await, named(&node, "", "web-1").await);
    let held = node.acquire(&second, "/m").await.expect(200);
    node.release(&second, text(&held, "ticket")).await.expect(200);
    node.acquire(&third, "/l").await.expect_problem(409, "not-acquired");
    for session in [&first, &second, &third] {
        node.close(session).await.expect(200);
        for lock in ["/l", "/m", "/n"] {
            let held = node.acquire(&other, lock).await;
            if held.status == 200 {
                node.release(&other, text(&held, "ticket")).await.expect(200);
            }
        }
    }
    for id in [first_id, second_id, third_id] {
        let (client, detail) = ended(id, &[]).await;
        assert_eq!(client.as_ref(), Some(&web_1));
        assert!(detail.starts_with("the session of web-1, pid 71, backup was closed at zxid "), "{detail}");
    }

    // A client that was hidden while its session was open is hidden after the session's end.
    node.post(&format!("/v1/znodes/d?acl={HIDDEN}"), "").await.expect(201);
    let ((hidden, hidden_id), (idle, idle_id)) = (named(&node, "", "web-2").await, named(&node, "", "web-2").await);
    node.acquire(&hidden, "/d/l").await.expect(200);
    // Only the lock node is unreadable; all clients may read its lock.
    let (by_hand, by_hand_id) = named(&node, "", "web-2").await;
    node.post("/v1/znodes/open", "").await.expect(201);
    let uri = format!("/v1/znodes/open/_c_x-lock-?mode=ephemeral-sequential&acl={HIDDEN}");
    node.in_session(&by_hand, Method::POST, &uri).await.expect(201);
    for session in [&hidden, &idle, &by_hand] {
        node.close(session).await.expect(200);
    }
    for id in [hidden_id, idle_id, by_hand_id] {
        let (client, detail) = ended(id, &[]).await;
        assert!(client.is_none() && detail.starts_with("the session was closed at zxid "), "{client:?}: {detail}");
    }
    let (client, _) = ended(hidden_id, &[BOB]).await;
    assert_eq!(client.unwrap()["host"], "web-2");
}

#[tokio::test]
async fn what_a_client_says_of_itself_is_short_and_plain() {
    let node = Node::start().await;
    let open =
        async |client: serde_json::Value| node.post("/v1/sessions", &json!({ "client": client }).to_string()).await;
    open(json!({"host": "x".repeat(256)})).await.expect(201);
    let long = open(json!({"host": "x".repeat(257)})).await.expect_problem(400, "bad-request");
    assert_eq!(text(&long, "detail"), "client.host: 257 bytes, and at most 256 are taken");
    let odd = open(json!({"program": "a\nb"})).await.expect_problem(400, "bad-request");
    assert_eq!(text(&odd, "detail"), "client.program: the character U+000A is a control character, and not taken");
    open(json!({"pid": -1})).await.expect_problem(400, "bad-request");
    // A client cannot name its address: the node takes it from the connection.
    open(json!({"address": "10.0.0.7"})).await.expect_problem(400, "bad-request");
}

#[tokio::test]
async fn a_lock_is_given_back_by_its_name() {
    let node = Node::start().await;
    let ((first, _), second) = (named(&node, "", "web-1").await, node.session().await);
    let release = async |session: &str, query: &str| {
        node.in_session(session, Method::DELETE, &format!("/v1/locks/l{query}")).await
    };
    release(&first, "").await.expect_problem(404, "not-holder");
    node.acquire(&first, "/l").await.expect(200);
    let waits = node.acquire(&second, "/l?keep=true").await.expect(202);
    let refused = release(&second, "").await.expect_problem(404, "not-holder");
    assert!(text(&refused, "detail").contains("it is held by session "), "{}", text(&refused, "detail"));
    assert_eq!(refused.body["holder"]["client"]["host"], "web-1");
    release(&first, "?mode=read").await.expect_problem(404, "not-holder");
    release(&first, "?mode=nonsense").await.expect_problem(400, "bad-request");
    let released = release(&first, "?mode=exclusive").await.expect(200);
    assert_eq!(released.body, json!({"holds": 0, "zxid": released.zxid()}));
    node.get(&format!("/v1/tickets{}", text(&waits, "ticket"))).await.expect(200);
    release(&second, "").await.expect(200);

    let one = node.acquire(&first, "/l?mode=read&owner=a").await.expect(200);
    node.acquire(&first, "/l?mode=read&owner=b").await.expect(200);
    let refused = release(&first, "").await.expect_problem(409, "several-held");
    assert!(text(&refused, "detail").contains("fencing_token"), "{}", text(&refused, "detail"));
    release(&first, "?owner=b").await.expect(200);
    release(&first, &format!("?fencing_token={}", number(&one, "fencing_token"))).await.expect(200);
    node.delete("/v1/locks/l").await.expect_problem(401, "session-required");
}

/// A release with an idempotency key that is retried after a lost answer must get the first answer
/// again, and release nothing more.
#[tokio::test]
async fn a_release_by_name_is_answered_again() {
    let node = Node::start().await;
    let session = node.session().await;
    node.acquire(&session, "/l").await.expect(200);
    let headers = [("zlock-session-key", &*session), ("idempotency-key", "67e55044-10b1-426f-9247-bb680e5fe0c8")];
    let first = node.call(Method::DELETE, "/v1/locks/l", &headers, b"").await.expect(200);
    node.acquire(&session, "/l").await.expect(200);
    let again = node.call(Method::DELETE, "/v1/locks/l", &headers, b"").await.expect(200);
    assert_eq!(again.body, first.body);
    assert_eq!(number(&node.get("/v1/locks/l").await.expect(200), "contenders"), 1);
}

#[tokio::test]
async fn another_sessions_ticket_is_not_given_back() {
    let node = Node::start().await;
    let ((first, first_id), second) = (named(&node, "", "").await, node.session().await);
    let held = node.acquire(&first, "/l").await.expect(200);
    let refused = node.release(&second, text(&held, "ticket")).await.expect_problem(403, "not-owner");
    assert_eq!(text(&refused, "detail"), format!("the ticket belongs to session {first_id}, not to this one"));
}

#[tokio::test]
async fn a_session_is_shown_with_the_address_that_it_came_from() {
    let node = Node::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let config = rest::RestConfig::default();
    tokio::spawn(rest::serve(listener, node.replica.clone(), config, std::future::pending()));
    let ask = async |request: String| {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer)).await.expect("in time").unwrap();
        answer
    };
    let body = r#"{"client":{"host":"web-1"}}"#;
    let head = "HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
    let opened = ask(format!("POST /v1/sessions {head}content-length: {}\r\n\r\n{body}", body.len())).await;
    let opened: serde_json::Value = serde_json::from_str(opened.split_once("\r\n\r\n").unwrap().1).unwrap();
    let session = opened["session_key"].as_str().unwrap();
    node.acquire(session, "/l").await.expect(200);
    let queue = node.get("/v1/locks/l").await.expect(200);
    assert_eq!(queue.body["holders"][0]["client"], json!({"host": "web-1", "address": "127.0.0.1"}));
    // The history names a client without a session by its address.
    ask(format!("POST /v1/revocations/l?deadline=0 {head}content-length: 0\r\n\r\n")).await;
    let history = node.get("/v1/history/l").await.expect(200);
    assert_eq!(history.body["history"][0]["ended"]["by"], json!({"client": {"address": "127.0.0.1"}}));
}
