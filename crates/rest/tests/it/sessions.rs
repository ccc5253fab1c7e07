//! `/v1/sessions`: sessions are opened, kept alive, listed and closed.

use axum::http::Method;
use serde_json::json;

use crate::node::{Node, number, text};

#[tokio::test]
async fn a_session_is_opened_kept_alive_shown_and_closed() {
    let node = Node::start().await;
    let opened = node.post("/v1/sessions", r#"{"timeout":"30s","label":"it"}"#).await.expect(201);
    let id = number(&opened, "session");
    let session = text(&opened, "session_key").to_owned();
    let secret = session.strip_prefix(&format!("{id}.")).unwrap();
    let expected = json!({"session": id, "session_key": session, "timeout_ms": 30_000, "safe_for_ms": 29_400});
    assert_eq!(opened.body, expected);
    assert_eq!((secret.len(), opened.zxid()), (32, id));
    assert_eq!(opened.header("location"), format!("/v1/sessions/{id}"));

    let uri = format!("/v1/sessions/{id}");
    let kept = node.in_session(&session, Method::POST, &format!("{uri}/keepalive")).await.expect(200);
    assert_eq!(kept.body, json!({"session": id, "timeout_ms": 30_000, "safe_for_ms": 29_400}));

    let shown = node.get(&uri).await.expect(200);
    let opened_ms = number(&shown, "opened_at_ms");
    let expected =
        json!({"session": id, "timeout_ms": 30_000, "label": "it", "opened_at_ms": opened_ms, "ephemeral_count": 0});
    assert_eq!(shown.body, expected);

    let closed = node.in_session(&session, Method::DELETE, &uri).await.expect(200);
    assert_eq!(closed.body, json!({"zxid": closed.zxid()}));
    node.get(&uri).await.expect_problem(410, "session-expired");
    node.in_session(&session, Method::POST, &format!("{uri}/keepalive")).await.expect_problem(410, "session-expired");
    node.in_session(&session, Method::DELETE, &uri).await.expect_problem(410, "session-expired");
}

#[tokio::test]
async fn timeouts_are_agreed_within_the_bounds() {
    let node = Node::start().await;
    for (wish, agreed) in [
        ("", 30_000),
        ("{}", 30_000),
        (r#"{"timeout":"1ms"}"#, 2_000),
        (r#"{"timeout":"3600s"}"#, 300_000),
        (r#"{"timeout":"18446744073709551615ms"}"#, 300_000),
    ] {
        let opened = node.post("/v1/sessions", wish).await.expect(201);
        assert_eq!(number(&opened, "timeout_ms"), agreed, "{wish}");
    }
    for bad in ["{", r#"{"timeout":-1}"#, r#"{"timeout":"-1s"}"#, r#"{"timeuot":"1s"}"#, " [5000]"] {
        node.post("/v1/sessions", bad).await.expect_problem(400, "bad-request");
    }
}

#[tokio::test]
async fn only_the_secret_opens_a_session() {
    let node = Node::start().await;
    let (session, other) = (node.session().await, node.session().await);
    let (id, _) = session.split_once('.').unwrap();
    let (_, other_secret) = other.split_once('.').unwrap();
    let uri = format!("/v1/sessions/{id}");
    let wrong = format!("{id}.{other_secret}");
    node.in_session(&wrong, Method::POST, &format!("{uri}/keepalive")).await.expect_problem(403, "auth-failed");
    node.in_session(&wrong, Method::DELETE, &uri).await.expect_problem(403, "auth-failed");
    node.in_session(&other, Method::DELETE, &uri).await.expect_problem(400, "bad-request");
    let missing = node.delete(&uri).await.expect_problem(401, "session-required");
    assert_eq!(missing.header("www-authenticate"), "Zlock-Session-Key");
    node.acquire(&wrong, "/l").await.expect_problem(403, "auth-failed");
    for malformed in ["5", "5.", "x.y", "0.00000000000000000000000000000000"] {
        node.in_session(malformed, Method::GET, &uri).await.expect_problem(400, "bad-request");
    }
    // Only the answer to the open shows a secret.
    let list = node.get("/v1/sessions").await.expect(200);
    assert!(!String::from_utf8_lossy(&list.bytes).contains(other_secret));
}

#[tokio::test]
async fn sessions_and_their_ephemerals_come_in_pages() {
    let node = Node::start().await;
    let session = node.session().await;
    for path in ["/c", "/a", "/b"] {
        node.in_session(&session, Method::POST, &format!("/v1/znodes{path}?mode=ephemeral")).await.expect(201);
    }
    let (id, _) = session.split_once('.').unwrap();
    let page = node.get(&format!("/v1/sessions/{id}?page_size=2")).await.expect(200);
    assert_eq!((&page.body["ephemerals"], &page.body["cursor"]), (&json!(["/a", "/b"]), &json!("/b")));
    let page = node.get(&format!("/v1/sessions/{id}?page_size=2&after=/b")).await.expect(200);
    assert_eq!((&page.body["ephemerals"], &page.body["cursor"]), (&json!(["/c"]), &json!(null)));

    node.session().await;
    let mut ids = Vec::new();
    let mut after = 0;
    loop {
        let page = node.get(&format!("/v1/sessions?page_size=1&after={after}")).await.expect(200);
        ids.extend(
            page.body["sessions"].as_array().unwrap().iter().map(|session| session["session"].as_u64().unwrap()),
        );
        match page.body["cursor"].as_u64() {
            Some(next) => after = next,
            None => break,
        }
    }
    let all = node.get("/v1/sessions").await.expect(200);
    let all: Vec<u64> =
        all.body["sessions"].as_array().unwrap().iter().map(|s| s["session"].as_u64().unwrap()).collect();
    assert_eq!((ids.len(), &ids), (2, &all));
}

#[tokio::test]
async fn closing_a_session_takes_its_ephemerals_and_wakes_who_waits_for_its_lock() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    node.acquire(&first, "/l").await.expect(200);
    let waiting = node.acquire(&second, "/l?wait=20s");
    let closing = async {
        node.until_contenders("/l", 2).await;
        node.close(&first).await.expect(200)
    };
    let (held, closed) = tokio::join!(waiting, closing);
    assert_eq!(held.expect(200).zxid(), closed.zxid());
}

/// Characters that are invisible or change the direction of the text could deceive an operator who
/// reads a label or owner. So requests with such characters are refused.
#[tokio::test]
async fn labels_and_owners_have_no_characters_that_hide_or_turn_a_text() {
    let node = Node::start().await;
    let session = node.session().await;
    for c in ["\u{202e}", "\u{200b}", "\u{2028}"] {
        let escaped = format!("\\u{:04x}", c.chars().next().unwrap() as u32);
        for field in [r#""label":"aCb""#, r#""client":{"host":"aCb"}"#, r#""client":{"program":"aCb"}"#] {
            let body = format!("{{{}}}", field.replace('C', &escaped));
            let refused = node.post("/v1/sessions", &body).await.expect_problem(400, "bad-request");
            assert!(text(&refused, "detail").contains("invisible or turns the text around"), "{refused:?}");
        }
        let encoded: String = c.bytes().map(|byte| format!("%{byte:02X}")).collect();
        for uri in ["locks/l?label=aCb", "locks/l?owner=aCb", "elections/l?label=aCb", "simple-locks/s?owner=aCb"] {
            let uri = format!("/v1/{}", uri.replace('C', &encoded));
            node.in_session(&session, Method::POST, &uri).await.expect_problem(400, "bad-request");
        }
        for field in ["label", "owner"] {
            let body = format!(r#"{{"locks":[{{"path":"/l"}}],"{field}":"a{escaped}b"}}"#);
            let headers = [("zlock-session-key", &*session), ("content-type", "application/json")];
            let refused = node.call(Method::POST, "/v1/multilocks", &headers, body.as_bytes()).await;
            refused.expect_problem(400, "bad-request");
        }
    }
    node.post("/v1/sessions", r#"{"label":"n\u00fcchtern \ud83d\udd12"}"#).await.expect(201);
}
