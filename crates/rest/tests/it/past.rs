//! Ended tickets and sessions that a node remembers: the history of a lock, and how a session
//! ended.

use axum::http::Method;
use serde_json::json;

use crate::node::{Node, number, text};

#[tokio::test]
async fn a_lock_tells_its_past() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    let id = |session: &str| session.split_once('.').unwrap().0.parse::<u64>().unwrap();
    let held = node.acquire(&first, "/a/l?owner=o&label=job").await.expect(200);
    let queued = node.acquire(&second, "/a/l?keep=true").await.expect(202);
    let tried = node.acquire(&first, "/a/l").await.expect_problem(409, "not-acquired");
    let released = node.release(&first, text(&held, "ticket")).await.expect(200);
    let uri = format!("/v1/sessions/{}", id(&second));
    let closed = node.in_session(&second, Method::DELETE, &uri).await.expect(200);

    let history = node.get("/v1/history/a/l").await.expect(200);
    let past = history.body["history"].as_array().unwrap();
    let ms = |at: usize, field: &str| past[at][field].clone();
    let ended_at = |at: usize| past[at]["ended"]["at_ms"].clone();
    let expected = json!({"path": "/a/l", "history": [
        {"ticket": queued.body["ticket"], "mode": "exclusive", "session": id(&second),
            "enqueued_zxid": queued.zxid(), "enqueued_at_ms": ms(0, "enqueued_at_ms"),
            "granted_zxid": released.zxid(), "granted_at_ms": ms(0, "granted_at_ms"), "fencing_token": queued.zxid(),
            "ended": {"how": "closed", "zxid": closed.zxid(), "at_ms": ended_at(0)}},
        {"ticket": held.body["ticket"], "mode": "exclusive", "session": id(&first), "owner": "o", "label": "job",
            "enqueued_zxid": held.zxid(), "enqueued_at_ms": ms(1, "enqueued_at_ms"),
            "granted_zxid": held.zxid(), "granted_at_ms": ms(1, "enqueued_at_ms"),
            "fencing_token": number(&held, "fencing_token"),
            "ended": {"how": "released", "zxid": released.zxid(), "at_ms": ms(0, "granted_at_ms")}},
        {"ticket": tried.body["path"], "mode": "exclusive", "session": id(&first),
            "enqueued_zxid": tried.zxid() - 1, "enqueued_at_ms": ms(2, "enqueued_at_ms"),
            "ended": {"how": "withdrawn", "zxid": tried.zxid(), "at_ms": ended_at(2)}},
    ]});
    assert_eq!(history.body, expected);
    let newest = node.get("/v1/history/a/l?page_size=1").await.expect(200);
    assert_eq!(newest.body["history"], json!([past[0]]));
    let unknown = node.get("/v1/history/never").await.expect(200);
    assert_eq!(unknown.body, json!({"path": "/never", "history": []}));
    node.get("/v1/history/a/l?after=1").await.expect_problem(400, "bad-request");
}

#[tokio::test]
async fn a_session_that_has_ended_says_when_and_why() {
    let node = Node::start().await;
    let opened = node.post("/v1/sessions", r#"{"timeout":"2s","label":"short"}"#).await.expect(201);
    let (id, session) = (number(&opened, "session"), text(&opened, "session_key").to_owned());
    let held = node.acquire(&session, "/l").await.expect(200);
    let uri = format!("/v1/sessions/{id}");
    // The session's lock node is deleted when the session expires, which ends the wait.
    let ticket = text(&held, "ticket");
    let gone = node.get(&format!("/v1/znodes{ticket}?watch=exists&since={}&wait=15s", held.zxid())).await.expect(200);
    let problem = node.get(&uri).await.expect_problem(410, "session-expired");
    let (ended, ended_session) = (&problem.body["ended"], &problem.body["ended_session"]);
    let expected = json!({"how": "expired", "zxid": gone.body["events"][0]["zxid"], "at_ms": ended["at_ms"]});
    assert_eq!(*ended, expected);
    let opened_at_ms = ended_session["opened_at_ms"].as_u64().unwrap();
    let expected = json!({"session": id, "opened_at_ms": opened_at_ms, "timeout_ms": 2_000, "label": "short",
        "ephemeral_count": 1});
    assert_eq!(*ended_session, expected);
    assert!(ended["at_ms"].as_u64().unwrap() >= opened_at_ms + 2_000);

    let other = node.session().await;
    let uri = format!("/v1/sessions/{}", other.split_once('.').unwrap().0);
    node.in_session(&other, Method::DELETE, &uri).await.expect(200);
    let problem = node.get(&uri).await.expect_problem(410, "session-expired");
    assert_eq!(problem.body["ended"]["how"], "closed");
    node.get("/v1/sessions/999999").await.expect_problem(404, "no-session");
}
