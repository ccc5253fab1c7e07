//! Requests that a browser sends for a foreign page, over real sockets and directly to the router.

use axum::http::Method;
use rest::RestConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::node::{Node, PATIENCE, text};

const EVIL: (&str, &str) = ("origin", "https://evil.example");
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

/// Without the check of `Origin`, any web page open on the machine could send these requests to
/// `zlock dev`. Each is refused, and writes nothing.
#[tokio::test]
async fn a_page_of_elsewhere_neither_writes_nor_reads() {
    let node = Node::start().await;
    let session = node.session().await;
    let held = node.acquire(&session, "/l").await.expect(200);
    let before = node.replica.state().last_zxid();
    let ticket = format!("/v1/tickets{}", text(&held, "ticket"));
    let requests = [
        (Method::POST, "/v1/sessions"),
        (Method::POST, "/v1/locks/l"),
        (Method::POST, "/v1/revocations/l?deadline=0"),
        (Method::POST, "/v1/znodes/a"),
        (Method::PUT, "/v1/znodes/l"),
        (Method::DELETE, "/v1/znodes/l"),
        (Method::POST, "/v1/txn"),
        (Method::GET, "/v1/znodes/l?children"),
        (Method::GET, "/v1/cluster"),
        (Method::OPTIONS, "/v1/sessions"),
        (Method::GET, &ticket),
    ];
    for (method, uri) in requests {
        for page in [&[EVIL][..], &[EVIL, FORM], &[("origin", "null")], &[("sec-fetch-site", "cross-site")]] {
            let headers = [page, &[("zlock-session-key", &session)]].concat();
            let refused = node.call(method.clone(), uri, &headers, b"").await.expect_problem(403, "foreign-origin");
            assert_eq!(refused.body["outcome"], "refused");
            let allows = |name: &axum::http::HeaderName| name.as_str().starts_with("access-control-");
            assert!(!refused.headers.keys().any(allows), "{uri}: {:?}", refused.headers);
        }
    }
    assert_eq!(node.replica.state().last_zxid(), before, "nothing was written");
}

#[tokio::test]
async fn programs_ask_as_they_always_did() {
    let node = Node::start().await;
    let body = br#"{"timeout":"30s"}"#;
    node.call(Method::POST, "/v1/sessions", &[FORM], body).await.expect(201);
    node.call(Method::POST, "/v1/sessions", &[], body).await.expect(201);
    let answer = node.call(Method::POST, "/v1/znodes/a", &[FORM], b"what curl -d sends").await.expect(201);
    assert_eq!(answer.header("cross-origin-resource-policy"), "same-origin");
    assert_eq!(answer.header("x-content-type-options"), "nosniff");
}

#[tokio::test]
async fn an_origin_that_is_listed_may_ask() {
    let http_origins = vec!["https://ui.example".to_owned()];
    let node = Node::start_with(RestConfig { http_origins, ..RestConfig::default() }, |_| {}).await;
    let page = [("origin", "https://ui.example"), ("sec-fetch-site", "same-origin"), ("host", "ui.example")];
    node.call(Method::POST, "/v1/sessions", &page, b"").await.expect(201);
    node.call(Method::POST, "/v1/sessions", &[EVIL, page[2]], b"").await.expect_problem(403, "foreign-origin");
}

/// DNS rebinding: the page's host name resolves to this node, so the browser considers the node as
/// the page's origin.
#[tokio::test]
async fn a_listener_on_loopback_is_not_reached_by_a_foreign_name() {
    let node = Node::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let config = RestConfig { http_hosts: vec!["node1".to_owned()], ..RestConfig::default() };
    tokio::spawn(rest::serve(listener, node.replica.clone(), config, std::future::pending()));
    let ask = async |head: String| {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(format!("{head}connection: close\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        timeout(PATIENCE, stream.read_to_string(&mut answer)).await.expect("an answer in time").unwrap();
        answer
    };
    let port = addr.port();
    for (host, status) in [
        (format!("evil.example:{port}"), "421"),
        ("evil.example".to_owned(), "421"),
        (format!("10.1.2.3:{port}"), "421"),
        (format!("localhost:{port}"), "200"),
        (format!("127.0.0.1:{port}"), "200"),
        (format!("[::1]:{port}"), "200"),
        (format!("node1:{port}"), "200"),
    ] {
        let answer = ask(format!("GET /v1/cluster HTTP/1.1\r\nhost: {host}\r\n")).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{host}: {answer}");
        assert_eq!(answer.contains("urn:zlock:problem:foreign-host"), status == "421", "{host}: {answer}");
    }
    let rebound =
        format!("POST /v1/sessions HTTP/1.1\r\nhost: evil.example:{port}\r\norigin: http://evil.example:{port}\r\n");
    assert!(ask(rebound).await.starts_with("HTTP/1.1 421 "));
    let own = format!("POST /v1/sessions HTTP/1.1\r\nhost: localhost:{port}\r\norigin: http://localhost:{port}\r\n");
    assert!(ask(own).await.starts_with("HTTP/1.1 201 "));
    assert!(ask("GET /livez HTTP/1.1\r\n".to_owned()).await.starts_with("HTTP/1.1 400 "), "HTTP/1.1 has a Host");
}
