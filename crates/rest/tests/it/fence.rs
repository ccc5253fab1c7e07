//! `/v1/fence`: fence checks that proxies send before they pass on a client's request.

use std::time::Duration;

use axum::http::Method;
use rest::RestConfig;

use crate::node::{Node, number, text};

#[tokio::test]
async fn a_token_passes_while_it_holds_the_lock() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    let held = node.acquire(&first, "/team/x").await.expect(200);
    let old = number(&held, "fencing_token");
    let ask = async |token: &str| node.get(&format!("/v1/fence?path=/team/x&fencing_token={token}")).await;
    let passes = ask(&old.to_string()).await.expect(204);
    assert!(passes.bytes.is_empty() && passes.zxid() >= held.zxid());
    node.call(Method::HEAD, &format!("/v1/fence?path=/team/x&fencing_token={old}"), &[], b"").await.expect(204);
    ask(&(old + 1).to_string()).await.expect_problem(403, "fenced");
    node.get(&format!("/v1/fence?path=/team/y&fencing_token={old}")).await.expect_problem(403, "fenced");

    node.release(&first, text(&held, "ticket")).await.expect(200);
    let next = node.acquire(&second, "/team/x").await.expect(200);
    let stale = ask(&old.to_string()).await.expect_problem(403, "fenced");
    assert_eq!(text(&stale, "detail"), format!("the lock is not held with token {old}"));
    ask(&number(&next, "fencing_token").to_string()).await.expect(204);
}

/// Invalid tokens are answered with 403, because a client of the proxy has sent them. For a 400,
/// the proxy would answer its client with 500.
#[tokio::test]
async fn what_is_no_token_is_refused_as_one_that_holds_nothing() {
    let node = Node::start().await;
    for token in ["=", "=x", "=-1", "=%2B1", "=1%20", "=99999999999999999999999"] {
        node.get(&format!("/v1/fence?path=/l&fencing_token{token}")).await.expect_problem(403, "fenced");
    }
    let bad = ["", "?fencing_token=1", "?path=l&fencing_token=1", "?path=/l&fencing_token=1&fencing_token=2"];
    for query in bad.into_iter().chain(["?path=/l&path=/m", "?path=/l&x=1"]) {
        node.get(&format!("/v1/fence{query}")).await.expect_problem(400, "bad-request");
    }
}

/// Envoy appends its client's path to the prefix `/v1/fence/`, uses its client's method, and
/// accepts only 200.
#[tokio::test]
async fn a_proxy_may_ask_behind_the_path_of_another_request() {
    let node = Node::start().await;
    let session = node.session().await;
    let token = number(&node.acquire(&session, "/team/x").await.expect(200), "fencing_token").to_string();
    let good = [("zlock-lock", "/team/x"), ("zlock-fencing-token", &*token)];
    for (method, uri) in [
        (Method::GET, "/v1/fence/"),
        (Method::PUT, "/v1/fence/files/a%2Fb?fencing_token=1&fencing_token=2&path=/l"),
        (Method::PATCH, "/v1/fence//x"),
    ] {
        assert!(node.call(method.clone(), uri, &good, b"").await.expect(200).bytes.is_empty());
        node.call(method.clone(), uri, &good[..1], b"").await.expect_problem(403, "fenced");
        node.call(method.clone(), uri, &good[1..], b"").await.expect_problem(400, "bad-request");
        let twice = [good[0], good[1], ("zlock-lock", "/mine")];
        node.call(method, uri, &twice, b"").await.expect_problem(400, "bad-request");
    }
    let stale = [good[0], ("zlock-fencing-token", "1")];
    node.call(Method::POST, "/v1/fence/x", &stale, b"").await.expect_problem(403, "fenced");
}

/// ACL of a directory, percent-encoded for a query: all clients may use locks in it, and only bob
/// may read them.
const HIDDEN: &str = "world:anyone:cd,digest:bob:ttt4KD2l%2FLR0Mpj5c6jU0hrwVdE%3D:cdrwa";
const BOB: &str = "Basic Ym9iOng=";

#[tokio::test]
async fn the_path_in_the_header_of_a_question_is_decoded() {
    let node = Node::start().await;
    let session = node.session().await;
    let held = node.in_session(&session, Method::POST, "/v1/locks/gr%C3%B6%C3%9Fe").await.expect(200);
    let token = number(&held, "fencing_token").to_string();
    for (lock, status) in [("/gr%C3%B6%C3%9Fe", 200), ("/gr%C3%B6", 403), ("gr%C3%B6%C3%9Fe", 400), ("/%ff", 400)] {
        let asked = [("zlock-lock", lock), ("zlock-fencing-token", &*token)];
        let answer = node.call(Method::GET, "/v1/fence/x", &asked, b"").await;
        assert_eq!(answer.status, status, "{lock}: {answer:?}");
    }
}

/// Only the headers that the proxy adds belong to the fence check. The body and all other headers
/// belong to the request of the proxy's client.
#[tokio::test]
async fn nothing_of_the_other_request_is_taken_for_a_part_of_the_question() {
    let node = Node::start().await;
    let session = node.session().await;
    node.post(&format!("/v1/znodes/d?acl={HIDDEN}"), "").await.expect(201);
    let open = number(&node.acquire(&session, "/team/x").await.expect(200), "fencing_token").to_string();
    let hidden = number(&node.acquire(&session, "/d/l").await.expect(200), "fencing_token").to_string();
    let long = vec![b'x'; 100_000];
    for (kind, body) in [
        ("text/plain", &b"paid"[..]),
        ("application/json", br#"{"path":"/mine","fencing_token":1,"paid":true}"#),
        ("application/json", b"{"),
        ("application/octet-stream", &long),
    ] {
        for method in [Method::GET, Method::POST, Method::PUT] {
            let others = [
                ("zlock-lock", "/team/x"),
                ("zlock-fencing-token", &*open),
                ("content-type", kind),
                ("authorization", "Basic !"),
                ("zlock-session-key", "no session"),
                ("idempotency-key", ""),
                ("if-lock", "x"),
                ("if-match", "\"a\""),
                ("range", "bytes=0-"),
                ("zlock-min-zxid", "x"),
            ];
            node.call(method, "/v1/fence/invoices/7?wait=x", &others, body).await.expect(200);
        }
    }
    // The client's request comes from a web page: the service behind the proxy decides whether the
    // page may send it.
    for page in [&[("origin", "https://shop.example")][..], &[("sec-fetch-site", "cross-site")], &[("origin", "null")]]
    {
        let asked = [page, &[("zlock-lock", "/team/x"), ("zlock-fencing-token", &*open)]].concat();
        node.call(Method::POST, "/v1/fence/invoices/7", &asked, b"").await.expect(200);
        // Without the headers that only a proxy sets, the request is refused, and no browser shows
        // the refusal to the page.
        let refused = node.call(Method::OPTIONS, "/v1/fence/invoices/7", page, b"").await;
        let refused = refused.expect_problem(400, "bad-request");
        assert!(!refused.headers.keys().any(|name| name.as_str().starts_with("access-control-")));
        let uri = format!("/v1/fence?path=/team/x&fencing_token={open}");
        node.call(Method::GET, &uri, page, b"").await.expect_problem(403, "foreign-origin");
    }
    let copied = [("if-none-match", "\"abc\""), ("if-lock", "x"), ("idempotency-key", ""), ("range", "bytes=0-1")];
    let uri = format!("/v1/fence?path=/team/x&fencing_token={open}");
    node.call(Method::GET, &uri, &copied, b"").await.expect(204);
    // Two tokens count as none, because one is from the proxy's client.
    let twice = [("zlock-lock", "/team/x"), ("zlock-fencing-token", &*open), ("zlock-fencing-token", "1")];
    node.call(Method::GET, "/v1/fence/x", &twice, b"").await.expect_problem(403, "fenced");
    let ask = async |headers: &[(&str, &str)]| {
        let own = [("zlock-lock", "/d/l"), ("zlock-fencing-token", &*hidden)];
        node.call(Method::PUT, "/v1/fence/x", &[&own, headers].concat(), b"").await
    };
    ask(&[]).await.expect_problem(403, "no-auth");
    ask(&[("authorization", BOB)]).await.expect_problem(403, "no-auth");
    ask(&[("zlock-authorization", BOB)]).await.expect(200);
    ask(&[("zlock-authorization", BOB), ("authorization", "Bearer x")]).await.expect(200);
    let bad = ask(&[("zlock-authorization", "Basic !")]).await.expect_problem(400, "bad-request");
    assert_eq!(bad.body["detail"], "zlock-authorization: Basic is followed by base64");
    ask(&[("zlock-authorization", BOB), ("zlock-authorization", BOB)]).await.expect_problem(400, "bad-request");
    // nginx sends a request of its own, with the proxy's credentials only.
    let uri = format!("/v1/fence?path=/d/l&fencing_token={hidden}");
    node.get(&uri).await.expect_problem(403, "no-auth");
    node.call(Method::GET, &uri, &[("authorization", BOB)], b"").await.expect(204);
    node.call(Method::GET, &uri, &[("zlock-authorization", BOB)], b"").await.expect_problem(403, "no-auth");
}

#[tokio::test]
async fn a_node_that_cannot_tell_says_so() {
    let config = RestConfig { read_timeout_ms: 100, ..RestConfig::default() };
    let node = Node::start_unready(config, |config| {
        let other = replica::Member { id: 2, peer_addr: "127.0.0.1:9".into(), http_addr: "127.0.0.1:9".into() };
        config.members.push(other);
    });
    let node = node.await;
    let asked =
        tokio::time::timeout(Duration::from_secs(20), node.get("/v1/fence?path=/l&fencing_token=1")).await.unwrap();
    asked.expect_problem(503, "unavailable");
}
