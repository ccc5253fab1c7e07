//! `/v1/fence`: what a proxy asks before it lets a request pass.

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
    let ask = async |token: &str| node.get(&format!("/v1/fence?lock=/team/x&token={token}")).await;
    let passes = ask(&old.to_string()).await.expect(204);
    assert!(passes.bytes.is_empty() && passes.zxid() >= held.zxid());
    node.call(Method::HEAD, &format!("/v1/fence?lock=/team/x&token={old}"), &[], b"").await.expect(204);
    ask(&(old + 1).to_string()).await.expect_problem(403, "lock-not-held");
    node.get(&format!("/v1/fence?lock=/team/y&token={old}")).await.expect_problem(403, "lock-not-held");

    node.release(&first, text(&held, "ticket")).await.expect(200);
    let next = node.acquire(&second, "/team/x").await.expect(200);
    let stale = ask(&old.to_string()).await.expect_problem(403, "lock-not-held");
    assert_eq!(text(&stale, "detail"), format!("the lock is not held with token {old}"));
    ask(&number(&next, "fencing_token").to_string()).await.expect(204);
}

/// The client of the proxy made it up, or did not send it: no fault of the proxy, which would answer 500 for a 400.
#[tokio::test]
async fn what_is_no_token_is_refused_as_one_that_holds_nothing() {
    let node = Node::start().await;
    for token in
        ["&token=", "", "&token=x", "&token=-1", "&token=%2B1", "&token=1%20", "&token=99999999999999999999999"]
    {
        node.get(&format!("/v1/fence?lock=/l{token}")).await.expect_problem(403, "lock-not-held");
    }
    for query in ["", "?token=1", "?lock=l&token=1", "?lock=/l&token=1&token=2", "?lock=/l&lock=/m", "?lock=/l&x=1"] {
        node.get(&format!("/v1/fence{query}")).await.expect_problem(400, "bad-request");
    }
}

/// Envoy asks with the method and behind the path of the request that it is about, and takes nothing but 200.
#[tokio::test]
async fn a_proxy_may_ask_behind_the_path_of_another_request() {
    let node = Node::start().await;
    let session = node.session().await;
    let token = number(&node.acquire(&session, "/team/x").await.expect(200), "fencing_token").to_string();
    let good = [("zlock-lock", "/team/x"), ("zlock-token", &*token)];
    for (method, uri) in [
        (Method::GET, "/v1/fence/"),
        (Method::PUT, "/v1/fence/files/a%2Fb?token=1&token=2&lock=/l"),
        (Method::PATCH, "/v1/fence//x"),
    ] {
        assert!(node.call(method.clone(), uri, &good, b"").await.expect(200).bytes.is_empty());
        node.call(method.clone(), uri, &good[..1], b"").await.expect_problem(403, "lock-not-held");
        node.call(method.clone(), uri, &good[1..], b"").await.expect_problem(400, "bad-request");
        let twice = [good[0], good[1], ("zlock-lock", "/mine")];
        node.call(method, uri, &twice, b"").await.expect_problem(400, "bad-request");
    }
    let stale = [good[0], ("zlock-token", "1")];
    node.call(Method::POST, "/v1/fence/x", &stale, b"").await.expect_problem(403, "lock-not-held");
}

#[tokio::test]
async fn a_node_that_cannot_tell_says_so() {
    let config = RestConfig { read_timeout_ms: 100, ..RestConfig::default() };
    let node = Node::start_unready(config, |config| {
        let other = replica::Member { id: 2, peer_addr: "127.0.0.1:9".into(), http_addr: "127.0.0.1:9".into() };
        config.members.push(other);
    });
    let node = node.await;
    let asked = tokio::time::timeout(Duration::from_secs(20), node.get("/v1/fence?lock=/l&token=1")).await.unwrap();
    asked.expect_problem(503, "unavailable");
}
