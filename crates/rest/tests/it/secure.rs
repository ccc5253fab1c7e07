//! TLS, and the identities that requests prove.

use accept::{Acceptor, AcceptorConfig, Clients, Listeners, Networks};
use axum::http::Method;
use rest::RestConfig;
use serde_json::json;
use testkit::{Authority, Files, TlsClient};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::node::{Node, PATIENCE, text};

/// Headers of Basic authentication for the user `super` with the password `test`, and for `bob`
/// with the passwords `x` and `y`.
const SUPER: (&str, &str) = ("authorization", "Basic c3VwZXI6dGVzdA==");
const BOB: (&str, &str) = ("authorization", "Basic Ym9iOng=");
const NOT_BOB: (&str, &str) = ("authorization", "Basic Ym9iOnk=");
/// ACL id of bob with the password `x`, as ZooKeeper's `DigestAuthenticationProvider bob:x` prints
/// it.
const BOBS_DIGEST: &str = "digest:bob:ttt4KD2l/LR0Mpj5c6jU0hrwVdE=";

#[tokio::test]
async fn a_digest_is_proven_by_basic_authentication() {
    let super_digest = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=".to_owned();
    let node = Node::start_with(RestConfig { super_digest, ..RestConfig::default() }, |_| {}).await;
    let acl = BOBS_DIGEST.replace('=', "%3D").replace('/', "%2F");
    node.post(&format!("/v1/znodes/a?acl={acl}:cdrwa"), "1").await.expect(201);
    let call = |method: Method, uri: &'static str, who: Option<(&'static str, &'static str)>, body: &'static [u8]| {
        let headers: Vec<_> = who.into_iter().collect();
        let node = &node;
        async move { node.call(method, uri, &headers, body).await }
    };
    for stranger in [None, Some(NOT_BOB)] {
        call(Method::GET, "/v1/znodes/a", stranger, b"").await.expect_problem(403, "no-auth");
        call(Method::PUT, "/v1/znodes/a", stranger, b"2").await.expect_problem(403, "no-auth");
        call(Method::POST, "/v1/znodes/a/b", stranger, b"").await.expect_problem(403, "no-auth");
    }
    for known in [BOB, SUPER] {
        call(Method::GET, "/v1/znodes/a", Some(known), b"").await.expect(200);
        call(Method::PUT, "/v1/znodes/a", Some(known), b"2").await.expect(200);
        call(Method::POST, "/v1/znodes/a/b", Some(known), b"").await.expect(201);
        call(Method::DELETE, "/v1/znodes/a/b", Some(known), b"").await.expect(200);
        call(Method::GET, "/v1/znodes/a?acl", Some(known), b"").await.expect(200);
    }
    let txn = br#"{"ops": [{"op": "set", "path": "/a", "data": "3"}]}"#;
    call(Method::POST, "/v1/txn", None, txn).await.expect_problem(403, "no-auth");
    call(Method::POST, "/v1/txn", Some(BOB), txn).await.expect(200);
    call(Method::GET, "/v1/znodes/a", Some(("authorization", "Basic !")), b"").await.expect_problem(400, "bad-request");

    // The ACL also covers a lock below the znode. Requests with the same key are one request.
    let session = node.session().await;
    let key = ("idempotency-key", "67e55044-10b1-426f-9247-bb680e5fe0c8");
    node.acquire(&session, "/a/lock").await.expect_problem(403, "no-auth");
    let headers = [("zlock-session-key", &*session), key, BOB];
    let held = node.call(Method::POST, "/v1/locks/a/lock", &headers, b"").await.expect(200);
    let again = node.call(Method::POST, "/v1/locks/a/lock", &headers, b"").await.expect(200);
    assert!(held.body["fencing_token"].as_u64() > Some(0));
    assert_eq!(held.body["fencing_token"], again.body["fencing_token"]);
}

/// Locks, elections and groups consist of znodes. A request sees no more of them than it may read
/// of the znodes.
#[tokio::test]
async fn views_show_only_what_the_request_may_read() {
    let node = Node::start().await;
    let session = node.session().await;
    let acl = BOBS_DIGEST.replace('=', "%3D").replace('/', "%2F");
    let create = |uri: &'static str| {
        let (node, session, uri) = (&node, &session, format!("{uri}acl={acl}:cdrwa"));
        async move { node.call(Method::POST, &uri, &[("zlock-session-key", session), BOB], b"secret").await.expect(201) }
    };
    // One of bob's znodes has a contender in it, and another is in a directory that all may list.
    create("/v1/znodes/bobs?").await;
    create("/v1/znodes/bobs/lock-0000000001?").await;
    node.post("/v1/znodes/open", "").await.expect(201);
    create("/v1/znodes/open/lock-?mode=ephemeral-sequential&").await;
    let ticket = "/v1/tickets/bobs/lock-0000000001";
    let look = |uri: &'static str, who: (&'static str, &'static str)| {
        let node = &node;
        async move { node.call(Method::GET, uri, &[who], b"").await }
    };
    for uri in
        ["/v1/simple-locks/bobs", "/v1/groups/bobs", "/v1/elections/bobs", "/v1/locks/bobs", "/v1/history/bobs", ticket]
    {
        look(uri, NOT_BOB).await.expect_problem(403, "no-auth");
        look(uri, BOB).await.expect(200);
    }
    let holder =
        |who| async move { look("/v1/simple-locks/bobs", who).await.expect(200).body["holder"]["owner"].clone() };
    assert_eq!(holder(BOB).await, "secret");
    for (who, shown) in [(NOT_BOB, false), (BOB, true)] {
        let group = look("/v1/groups/open", who).await.expect(200);
        assert_eq!(group.body["members"][0]["data"] == "secret", shown, "{}", group.body);
        assert_eq!(group.body["count"], 1);
        let election = look("/v1/elections/open", who).await.expect(200);
        assert_eq!(election.body["leader"]["data"] == "secret", shown, "{}", election.body);
        let queue = look("/v1/locks/open", who).await.expect(200);
        assert_eq!(queue.body["holders"][0]["label"] == "secret", shown, "{}", queue.body);
        let list = look("/v1/locks", who).await.expect(200);
        let locks = list.body["locks"].as_array().unwrap();
        assert_eq!(locks.iter().any(|lock| lock["path"] == "/bobs"), shown, "{locks:?}");
        let open = locks.iter().find(|lock| lock["path"] == "/open").unwrap();
        assert_eq!(open["first"]["label"] == "secret", shown, "{open}");
    }
    // The ticket's owner sends its session key.
    node.in_session(&session, Method::GET, ticket).await.expect_problem(403, "no-auth");
    let own = node.acquire(&session, "/mine").await.expect(200);
    node.put("/v1/znodes/mine?acl", r#"[{"perms":"cdwa","scheme":"world","id":"anyone"}]"#).await.expect(200);
    let own = format!("/v1/tickets{}", text(&own, "ticket"));
    node.in_session(&session, Method::GET, &own).await.expect(200);
    node.get(&own).await.expect_problem(403, "no-auth");
    // A session must prove itself by its secret, because sessions' numbers are no secret.
    let forged = format!("{}.{}", session.split_once('.').unwrap().0, "0".repeat(32));
    node.in_session(&forged, Method::GET, &own).await.expect_problem(403, "no-auth");
    node.release(&session, own.strip_prefix("/v1/tickets").unwrap()).await.expect(200);
    let gone = node.get(&own).await.expect_problem(410, "ticket-gone");
    assert_eq!(gone.body.get("ended"), None);

    // A multi-lock is shown to clients that may read all its locks.
    let body = json!({"locks": [{"path": "/open2"}, {"path": "/shut"}]}).to_string();
    let headers = [("zlock-session-key", &*session), ("content-type", "application/json")];
    let both = node.call(Method::POST, "/v1/multilocks", &headers, body.as_bytes()).await.expect(200);
    let both = format!("/v1/multilocks{}", text(&both, "ticket"));
    node.get(&both).await.expect(200);
    node.put("/v1/znodes/shut?acl", r#"[{"perms":"cdwa","scheme":"world","id":"anyone"}]"#).await.expect(200);
    node.get(&both).await.expect_problem(403, "no-auth");
    node.in_session(&session, Method::GET, &both).await.expect(200);
}

#[tokio::test]
async fn an_acl_means_what_it_means_at_the_zookeeper_door() {
    let node = Node::start().await;
    for bad in ["world:bob:r", "digest:bob:r", "x:y:r", "super::cdrwa", "ip:host:r", "x509:bob:r", "auth::cdrwa"] {
        node.post(&format!("/v1/znodes/a?acl={bad}"), "").await.expect_problem(400, "invalid-acl");
        let (who, perms) = bad.rsplit_once(':').unwrap();
        let (scheme, id) = who.split_once(':').unwrap();
        let acl = json!([{"perms": perms, "scheme": scheme, "id": id}]);
        node.put("/v1/znodes?acl", &acl.to_string()).await.expect_problem(400, "invalid-acl");
        let txn = json!({"ops": [{"op": "create", "path": "/a", "acl": acl}]});
        node.post("/v1/txn", &txn.to_string()).await.expect_problem(400, "invalid-acl");
    }
    // The scheme `auth` stands for the identity of the client.
    node.call(Method::POST, "/v1/znodes/a?acl=auth::cdwa,world:anyone:r", &[BOB], b"").await.expect(201);
    let shown = node.call(Method::GET, "/v1/znodes/a?acl", &[BOB], b"").await.expect(200);
    assert_eq!(shown.body["acl"][0]["id"], BOBS_DIGEST.strip_prefix("digest:").unwrap());
    // A reader that may not set the ACL sees no digest.
    let shown = node.get("/v1/znodes/a?acl").await.expect(200);
    assert_eq!(shown.body["acl"][0]["id"], "bob:x");
    // An entry without a permission stays as it is.
    let own = r#"[{"perms":"","scheme":"world","id":"anyone"},{"perms":"ra","scheme":"auth","id":""}]"#;
    node.call(Method::POST, "/v1/znodes/b?acl=world:anyone:,auth::ra", &[BOB], b"").await.expect(201);
    node.call(Method::PUT, "/v1/znodes/b?acl", &[BOB], own.as_bytes()).await.expect(200);
    let shown = node.call(Method::GET, "/v1/znodes/b?acl", &[BOB], b"").await.expect(200);
    assert_eq!((&shown.body["acl"][0]["perms"], &shown.body["acl"][1]["perms"]), (&json!(""), &json!("ra")));
    node.get("/v1/znodes/b").await.expect_problem(403, "no-auth");
}

#[tokio::test]
async fn who_has_proven_to_be_a_reader_hears_of_what_others_do_not() {
    let node = Node::start().await;
    let since = node.get("/v1/znodes").await.expect(200).zxid();
    let acl = BOBS_DIGEST.replace('=', "%3D").replace('/', "%2F");
    node.post(&format!("/v1/znodes/a?acl={acl}:cdrwa"), "1").await.expect(201);
    node.post("/v1/znodes/open", "").await.expect(201);
    let watch = format!("/v1/znodes?watch=subtree&since={since}");
    for (who, hears) in [(BOB, true), (NOT_BOB, false)] {
        let told = node.call(Method::GET, &watch, &[who], b"").await.expect(200);
        let events = told.body["events"].as_array().unwrap();
        assert_eq!(events.iter().any(|event| event["path"] == "/a"), hears, "{events:?}");
    }
}

/// A server with TLS, and the authority that issues its clients' certificates.
struct SecureDoor {
    node: Node,
    addr: std::net::SocketAddr,
    authority: Authority,
    files: Files,
}

impl SecureDoor {
    async fn open(clients: Clients) -> SecureDoor {
        let node = Node::start().await;
        let (authority, files) = (Authority::new("test authority"), Files::create());
        let (certificate, key) = files.put("server", &authority.server("localhost"));
        let clients = Some((files.put_certificate("ca", &authority.pem()), clients));
        let config = AcceptorConfig {
            certificate,
            key,
            clients,
            client_crl: None,
            handshakes_max: 8,
            exempt: Networks::default(),
            handshake_timeout_ms: 10_000,
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let listeners =
            Listeners { secure: Some((listener, Acceptor::load(&config).unwrap())), ..Listeners::default() };
        let operators = vec!["CN=bob,O=zlock".to_owned()];
        let config = RestConfig { connections_max: 1, operators, ..RestConfig::default() };
        tokio::spawn(rest::serve(listeners, node.replica.clone(), config, std::future::pending()));
        SecureDoor { node, addr, authority, files }
    }

    /// Sends a request with a certificate for `name`, or without a certificate. Returns the answer;
    /// an error if the server refuses the connection.
    async fn ask(&self, name: Option<&str>, request: &str) -> std::io::Result<String> {
        let own = name.map(|name| self.files.put("client", &self.authority.client(name, 30)));
        let connector = TlsClient::new(&self.files.path("ca.pem"), own);
        let asked = async {
            // The server admits one connection, and may not have noticed the end of the last one.
            loop {
                let stream = TcpStream::connect(self.addr).await?;
                let Ok(mut stream) = connector.connect("localhost", stream).await else { continue };
                // A GET has no body.
                let body = if request.starts_with("GET ") { "\r\n" } else { "content-length: 1\r\n\r\n1" };
                let head = format!("{request} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{body}");
                stream.write_all(head.as_bytes()).await?;
                stream.flush().await?;
                let mut answer = String::new();
                stream.read_to_string(&mut answer).await?;
                return Ok(answer);
            }
        };
        timeout(PATIENCE, asked).await.expect("an answer in time")
    }
}

#[tokio::test]
async fn a_certificates_subject_is_an_identity() {
    let door = SecureDoor::open(Clients::MayHaveCertificates).await;
    let acl = json!([{"perms": "cdrwa", "scheme": "x509", "id": "CN=bob,O=zlock"}]);
    door.node.post("/v1/znodes/p", "").await.expect(201);
    door.node.put("/v1/znodes/p?acl", &acl.to_string()).await.expect(200);
    for (name, status) in [(Some("bob"), "200 OK"), (Some("eve"), "403 Forbidden"), (None, "403 Forbidden")] {
        for request in ["GET /v1/znodes/p", "PUT /v1/znodes/p"] {
            let answer = door.ask(name, request).await.unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{name:?} {request}: {answer}");
        }
    }
}

#[tokio::test]
async fn a_certificates_subject_may_be_an_operators() {
    let door = SecureDoor::open(Clients::MayHaveCertificates).await;
    for (name, status) in [(Some("bob"), "200 OK"), (Some("eve"), "401 Unauthorized"), (None, "401 Unauthorized")] {
        let answer = door.ask(name, "GET /v1/admin/drain").await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{name:?}: {answer}");
    }
}

#[tokio::test]
async fn plain_text_and_strangers_are_sent_away_from_an_address_with_tls() {
    let door = SecureDoor::open(Clients::MustHaveCertificates).await;
    let mut stream = TcpStream::connect(door.addr).await.unwrap();
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut heard = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut heard)).await.expect("the server closes");
    assert!(!heard.starts_with(b"HTTP"));
    assert!(door.ask(Some("bob"), "GET /livez").await.unwrap().starts_with("HTTP/1.1 200"));
    assert!(door.ask(None, "GET /livez").await.is_err(), "a certificate must be shown");
}
