//! Requests to every route under `/v1/admin/` as each kind of caller. The routes come from the
//! OpenAPI document, so that a new route is covered, too.

use std::collections::BTreeSet;
use std::net::{IpAddr, TcpListener};

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt as _;
use replica::{Config, Member};
use tower::ServiceExt as _;

use super::*;
use crate::http::peer::{Known, Peer};
use crate::request::operator::for_operators;

/// Values of the header `Authorization` for the user `super` with the password `test`, and for
/// `bob` with `x`.
const SUPER: Option<&str> = Some("Basic c3VwZXI6dGVzdA==");
const BOB: Option<&str> = Some("Basic Ym9iOng=");
const LOOPBACK: [u8; 4] = [127, 0, 0, 1];
const NETWORK: [u8; 4] = [192, 0, 2, 1];

/// A kind of caller: its connection, its credentials, and whether it is an operator.
struct Asker {
    name: &'static str,
    is_operator: bool,
    by_socket: bool,
    /// The connection's address, whether it has TLS, and the certificate's subject; `None` for a
    /// request without a connection.
    peer: Option<([u8; 4], bool, Option<&'static str>)>,
    authorization: Option<&'static str>,
}

const PLAIN_NETWORK: Asker = Asker {
    name: "anonymous from the network",
    is_operator: false,
    by_socket: false,
    peer: Some((NETWORK, false, None)),
    authorization: None,
};

fn askers() -> Vec<Asker> {
    let with_tls = |subject| Some((NETWORK, true, subject));
    let on_machine = Some((LOOPBACK, false, None));
    let of = |name, is_operator, peer, authorization| Asker { name, is_operator, peer, authorization, ..PLAIN_NETWORK };
    vec![
        of("anonymous on the machine", false, on_machine, None),
        of("anonymous with TLS", false, with_tls(None), None),
        of("an ordinary digest on the machine", false, on_machine, BOB),
        of("an ordinary digest with TLS", false, with_tls(None), BOB),
        of("super on the machine", true, on_machine, SUPER),
        of("super from the network", false, Some((NETWORK, false, None)), SUPER),
        of("super with TLS", true, with_tls(None), SUPER),
        of("super of whom nothing is known", false, None, SUPER),
        of("the subject of an operator", true, with_tls(Some("CN=ops,O=Example")), None),
        of("the subject of an operator, and a digest", true, with_tls(Some("CN=ops,O=Example")), BOB),
        of("another subject", false, with_tls(Some("CN=worker,O=Example")), None),
        of("a part of a subject", false, with_tls(Some("CN=ops")), None),
        Asker { name: "the socket", is_operator: true, by_socket: true, peer: on_machine, ..PLAIN_NETWORK },
        PLAIN_NETWORK,
    ]
}

async fn node(dir: &std::path::Path) -> Router {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer_listen = listener.local_addr().unwrap();
    let member = Member { id: 1, peer_addr: peer_listen.to_string(), http_addr: "127.0.0.1:7001".into() };
    let (members, data_dir) = (vec![member], dir.join("data"));
    let config = Config { members, data_dir, peer_listen, free_disk_min_bytes: 0, ..Config::default() };
    let replica = Replica::start_on(config, listener).await.unwrap();
    let rest = RestConfig {
        super_digest: "super:D/InIHSb7yEEbrWz8b9l71RjZJU=".into(),
        operators: vec!["CN=root".into(), "CN=ops,O=Example".into()],
        ..RestConfig::default()
    };
    router(replica, rest)
}

/// Sends a request as `asker`, and returns the status and the body.
async fn ask(router: &Router, method: &str, path: &str, asker: &Asker) -> (u16, String) {
    let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
    if let Some(authorization) = asker.authorization {
        request = request.header("authorization", authorization);
    }
    let mut request = request.body(Body::empty()).unwrap();
    if let Some((addr, is_secure, subject)) = asker.peer {
        let (addr, subject) = (IpAddr::from(addr), subject.map(str::to_owned));
        let known = Known { addr, place: None, is_exempt: false, on_loopback: false, is_secure, subject };
        request.extensions_mut().insert(Peer::new(known));
    }
    let router = if asker.by_socket { for_operators(router.clone()) } else { router.clone() };
    let answer = router.oneshot(request).await.unwrap();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8_lossy(&body).into_owned())
}

#[tokio::test]
async fn what_is_for_operators_is_answered_to_operators_and_to_no_other_caller() {
    let dir = tempfile::tempdir().unwrap();
    let router = node(dir.path()).await;
    let described = openapi_document()["paths"].as_object().unwrap().keys().cloned();
    let mut paths: BTreeSet<String> = described.filter(|path| path.starts_with("/v1/admin")).collect();
    // Callers who are no operators get 401 for a missing route, too.
    paths.extend(["/v1/admin", "/v1/admin/", "/v1/admin/none", "/v1/admin/none/at/all"].map(str::to_owned));
    for path in paths {
        // `1` is valid as a number, a name and a path.
        let path =
            path.split('/').map(|part| if part.starts_with('{') { "1" } else { part }).collect::<Vec<_>>().join("/");
        for method in ["GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"] {
            for asker in askers() {
                let (status, body) = ask(&router, method, &path, &asker).await;
                let what = format!("{method} {path} as {}: {status} {body}", asker.name);
                assert_eq!(status == 401, !asker.is_operator, "{what}");
                // The refusal says how to become an operator.
                let told = body.contains("urn:zlock:problem:operator-only") && body.contains("admin socket");
                let too_open = asker.authorization == SUPER && body.contains("plain HTTP");
                assert!(asker.is_operator || method == "HEAD" || told || too_open, "{what}");
            }
        }
    }
}

#[tokio::test]
async fn a_route_for_all_asks_no_caller_whether_it_is_an_operator() {
    let dir = tempfile::tempdir().unwrap();
    let router = node(dir.path()).await;
    for path in ["/livez", "/v1/cluster", "/v1/administration"] {
        for asker in askers() {
            let (status, body) = ask(&router, "GET", path, &asker).await;
            assert_ne!(status, 401, "{path} as {}: {body}", asker.name);
        }
    }
}
