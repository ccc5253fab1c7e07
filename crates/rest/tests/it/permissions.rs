//! Check of each route against an ACL: what it discloses to a client without permission. The routes
//! come from the OpenAPI document. A route without a row here must refuse to answer about a path
//! that the client may not read, and a route without parameters must leave out what is hidden.

use axum::http::Method;
use rest::RestConfig;

use crate::node::{Answer, Node, number, text};

const BOB: (&str, &str) = ("authorization", "Basic Ym9iOng=");
const EVE: (&str, &str) = ("authorization", "Basic ZXZlOng=");
const SUPER: (&str, &str) = ("authorization", "Basic c3VwZXI6dGVzdA==");
/// ACL with one entry for the user bob with the password `x`, percent-encoded for a query.
const BOBS_ACL: &str = "digest:bob:ttt4KD2l%2FLR0Mpj5c6jU0hrwVdE%3D:cdrwa";
/// Beginning of the idempotency keys. It is also in [`SECRETS`]: the texts in names, labels and
/// data that only bob may read.
const KEY: &str = "5ec2e700-0000-4000-8000-00000000000";
const SECRETS: [&str; 3] = ["5ec2e700", "hidden", "secret"];

/// Answers of a route to two clients that the ACL gives no permission: a reader without a session,
/// and the owner, which is the session of the ticket.
#[derive(Clone, Copy, PartialEq)]
enum Disclosure {
    /// The reader gets 403; the owner sees its own ticket.
    OwnOnly,
    /// The reader and the owner get 403.
    Refused,
    /// The reader and the owner get 200, without any of the [`SECRETS`].
    WithoutSecrets,
    /// The reader and the owner get 200, and only the owner sees the names of its znodes.
    OwnNames,
}

/// A node with a directory that only bob may use. The locks in it belong to a session whose
/// requests prove no identity.
struct Vault {
    node: Node,
    session: String,
    ticket: String,
    token: u64,
    multi: String,
    since: u64,
}

impl Vault {
    async fn build() -> Vault {
        let super_digest = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=".to_owned();
        let node = Node::start_with(RestConfig { super_digest, ..RestConfig::default() }, |_| {}).await;
        let since = node.get("/v1/znodes").await.expect(200).zxid();
        // The client's host is among the secrets, because only readers of its data may know the
        // client.
        let named = r#"{"timeout":"30s","client":{"host":"secret"}}"#;
        let session = text(&node.post("/v1/sessions", named).await.expect(201), "session_key").to_owned();
        let mut vault = Vault { node, session, ticket: String::new(), token: 0, multi: String::new(), since };
        vault.post(&format!("/v1/znodes/vault?acl={BOBS_ACL}"), b"", 0).await;
        vault.post(&format!("/v1/znodes/vault/hidden?acl={BOBS_ACL}"), b"secret", 0).await;
        for (uri, body) in [
            ("/v1/simple-locks/vault/hidden-simple?owner=secret", &b""[..]),
            ("/v1/groups/vault/hidden-group?member=hidden-member", b"secret"),
            ("/v1/locks/vault/hidden-past?label=secret", b""),
            ("/v1/elections/vault/election?label=secret", b""),
        ] {
            vault.post(uri, body, if uri.starts_with("/v1/elections") { 4 } else { 1 }).await;
        }
        let past = vault.ended_ticket().await;
        vault.node.release(&vault.session, &past).await.expect(200);
        let held = vault.post("/v1/locks/vault/lock?label=secret", b"", 2).await;
        (vault.ticket, vault.token) = (text(&held, "ticket").into(), number(&held, "fencing_token"));
        let both = br#"{"locks":[{"path":"/vault/hidden-one"},{"path":"/vault/hidden-two"}],"label":"secret"}"#;
        vault.multi = text(&vault.post("/v1/multilocks", both, 3).await, "ticket").into();
        for at in ["zookeeper", "zookeeper/quota", "zookeeper/quota/vault"] {
            vault.post(&format!("/v1/znodes/{at}"), b"", 0).await;
        }
        vault.post("/v1/znodes/zookeeper/quota/vault/zookeeper_limits", b"count=-1,bytes=-1;secret=1", 0).await;
        vault
    }

    /// Sends a POST with bob's password, in the session. `key` is the last digit of the idempotency
    /// key; 0 stands for no key.
    async fn post(&self, uri: &str, body: &[u8], key: u8) -> Answer {
        let key = format!("{KEY}{key}");
        let mut headers = vec![BOB, ("zlock-session-key", &*self.session), ("content-type", "application/json")];
        if !key.ends_with('0')
            && !uri.starts_with("/v1/znodes")
            && !uri.contains("?owner=")
            && !uri.contains("?member=")
        {
            headers.push(("idempotency-key", &key));
        }
        let answer = self.call(Method::POST, uri, &headers, body).await;
        assert!(matches!(answer.status, 200 | 201), "{uri}: {} {}", answer.status, answer.body);
        answer
    }

    async fn ended_ticket(&self) -> String {
        let queue = self.call(Method::GET, "/v1/locks/vault/hidden-past", &[BOB], b"").await.expect(200);
        queue.body["holders"][0]["ticket"].as_str().unwrap().to_owned()
    }

    async fn call(&self, method: Method, uri: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        self.node.call(method, uri, headers, body).await
    }

    /// Returns the URLs with which the test asks a route, and the expected disclosure of each.
    /// `None` for a write, which the state machine permits or refuses, and for routes that are
    /// tested elsewhere.
    fn questions(&self, method: &str, route: &str) -> Option<Vec<(String, Disclosure)>> {
        use Disclosure::{OwnNames, OwnOnly, Refused, WithoutSecrets};
        let (id, _) = self.session.split_once('.').unwrap();
        let (ticket, token, multi, since) = (&self.ticket, self.token, &self.multi, self.since);
        let one = |uri: &str, disclosure| vec![(uri.to_owned(), disclosure)];
        let at = |route: &str, rest: &[(&str, Disclosure)]| {
            rest.iter().map(|(rest, disclosure)| (format!("{route}{rest}"), *disclosure)).collect::<Vec<_>>()
        };
        // Operators' routes are tested in `src/routes/tests.rs`.
        if method != "get" || route == "/openapi.json" || route.starts_with("/v1/admin/") {
            return None;
        }
        Some(match route {
            "/v1/sessions/{session}" => vec![
                (format!("/v1/sessions/{id}"), OwnNames),
                // A cursor discloses a name, too.
                (format!("/v1/sessions/{id}?page_size=1"), OwnNames),
            ],
            "/v1/znodes/{path}" => {
                let disclosure = at(
                    "/v1/znodes/vault",
                    &[
                        ("", Refused),
                        ("?children", Refused),
                        ("?children=stat", Refused),
                        ("?acl", Refused),
                        ("/hidden", Refused),
                        ("/hidden-simple", Refused),
                    ],
                );
                let quota = at("/v1/znodes/zookeeper/quota/vault", &[("", Refused), ("/zookeeper_limits", Refused)]);
                let watched =
                    [("", "subtree"), ("/vault", "subtree"), ("/vault", "children"), ("/vault/hidden", "exists")];
                let watched =
                    watched.map(|(at, kind)| (format!("/v1/znodes{at}?watch={kind}&since={since}"), WithoutSecrets));
                let ticket = (format!("/v1/znodes{ticket}"), Refused);
                disclosure.into_iter().chain(quota).chain(watched).chain([ticket]).collect()
            }
            "/v1/history/{path}" => at("/v1/history/vault", &[("/lock", Refused), ("/hidden-past", Refused)]),
            "/v1/locks" => {
                at(route, &[("", WithoutSecrets), ("?page_size=1", WithoutSecrets), ("?prefix=/vault", WithoutSecrets)])
            }
            "/v1/fence" => one(&format!("/v1/fence?path=/vault/lock&fencing_token={token}"), OwnOnly),
            "/v1/tickets/{ticket}" => one(&format!("/v1/tickets{ticket}"), OwnOnly),
            "/v1/multilocks/{ticket}" => one(&format!("/v1/multilocks{multi}"), OwnOnly),
            "/v1/elections/{path}" => one("/v1/elections/vault/election", Refused),
            "/v1/simple-locks/{path}" => one("/v1/simple-locks/vault/hidden-simple", Refused),
            "/v1/groups/{path}" => one("/v1/groups/vault/hidden-group", Refused),
            _ if route.ends_with("/{path}") => one(&route.replace("{path}", "vault/lock"), Refused),
            _ => {
                assert!(!route.contains('{'), "{method} {route} has no row: what does it tell whom?");
                one(route, WithoutSecrets)
            }
        })
    }

    async fn check(&self, uri: &str, disclosure: Disclosure) {
        let own = [("zlock-session-key", &*self.session)];
        let who: [(&str, &[(&str, &str)]); 5] =
            [("owner", &own), ("bob", &[BOB]), ("eve", &[EVE]), ("nobody", &[]), ("super", &[SUPER])];
        for (who, headers) in who {
            let answer = self.call(Method::GET, uri, headers, b"").await;
            let (reader, owner) = (matches!(who, "bob" | "super"), who == "owner");
            let may = reader
                || matches!(disclosure, Disclosure::WithoutSecrets | Disclosure::OwnNames)
                || owner && disclosure == Disclosure::OwnOnly;
            let status = if uri.starts_with("/v1/fence") { 204 } else { 200 };
            assert_eq!(answer.status, if may { status } else { 403 }, "{who} {uri}: {}", answer.body);
            let hears = reader || owner && matches!(disclosure, Disclosure::OwnOnly | Disclosure::OwnNames);
            // A refusal may name the path of the request, and no other secret.
            let asked = uri.split('?').next().unwrap();
            let heard = format!("{}{:?}", String::from_utf8_lossy(&answer.bytes), answer.headers);
            let heard = if asked.contains("/vault") {
                heard.replace(asked.split_at(asked.find("/vault").unwrap()).1, "")
            } else {
                heard
            };
            let known: Vec<&&str> = SECRETS.iter().filter(|secret| heard.contains(**secret)).collect();
            assert!(hears || known.is_empty(), "{who} {uri} learns {known:?}: {heard}");
        }
    }
}

#[tokio::test]
async fn every_route_tells_only_what_its_reader_may_read() {
    let vault = Vault::build().await;
    let document = rest::openapi_document();
    let mut asked = 0;
    for (route, methods) in document["paths"].as_object().unwrap() {
        for method in
            methods.as_object().unwrap().keys().filter(|key| ["get", "post", "put", "delete"].contains(&&***key))
        {
            for (uri, disclosure) in vault.questions(method, route).into_iter().flatten() {
                vault.check(&uri, disclosure).await;
                asked += 1;
            }
        }
    }
    assert!(asked > 25, "only {asked} questions");
}

/// The history of a lock outlives the lock's znode, and only clients that could read that znode may
/// read the history.
#[tokio::test]
async fn the_past_of_a_lock_whose_directory_has_gone_is_not_for_everybody() {
    let vault = Vault::build().await;
    vault.call(Method::DELETE, "/v1/znodes/vault/hidden-past", &[BOB], b"").await.expect(200);
    let past = "/v1/history/vault/hidden-past";
    vault.check(past, Disclosure::Refused).await;
    let ticket = vault.call(Method::GET, past, &[BOB], b"").await.expect(200);
    let uri = format!("/v1/tickets{}", ticket.body["history"][0]["ticket"].as_str().unwrap());
    let gone = vault.call(Method::GET, &uri, &[EVE], b"").await.expect_problem(410, "ticket-gone");
    assert_eq!(gone.body.get("ended"), None);
    let gone = vault.call(Method::GET, &uri, &[BOB], b"").await.expect_problem(410, "ticket-gone");
    assert_eq!(gone.body["ended"]["how"], "released");
}

/// Znodes that HTTP requests create take the ACL of their directory, so that other clients cannot
/// delete, forge or set them.
#[tokio::test]
async fn nobody_breaks_a_lock_in_a_directory_that_is_anothers() {
    let vault = Vault::build().await;
    let ticket = &vault.ticket;
    let json = ("content-type", "application/json");
    for (method, uri, body) in [
        (Method::POST, "/v1/revocations/vault/lock?deadline=0".to_owned(), ""),
        (Method::POST, format!("/v1/revocations{ticket}"), ""),
        (Method::PUT, format!("/v1/znodes{ticket}"), "forged"),
        (Method::PUT, format!("/v1/znodes{ticket}"), "__REVOKE__"),
        (Method::PUT, format!("/v1/znodes{ticket}?acl"), r#"[{"perms":"cdrwa","scheme":"world","id":"anyone"}]"#),
        (Method::DELETE, format!("/v1/znodes{ticket}"), ""),
        (Method::DELETE, "/v1/znodes/vault/hidden-simple".to_owned(), ""),
        (Method::PUT, "/v1/znodes/vault/hidden-simple".to_owned(), "forged"),
        (Method::PUT, "/v1/settings/vault/lock".to_owned(), r#"{"waiters_max":0}"#),
        (Method::DELETE, "/v1/settings/vault/lock".to_owned(), ""),
        (Method::POST, "/v1/znodes/zookeeper/quota/vault/zookeeper_stats".to_owned(), ""),
        (Method::PUT, "/v1/znodes/zookeeper/quota/vault/zookeeper_limits".to_owned(), "count=0"),
        (Method::POST, "/v1/znodes/zookeeper/config".to_owned(), "server.1=evil:1:1:participant"),
    ] {
        let refused = vault.call(method.clone(), &uri, &[EVE, json], body.as_bytes()).await;
        assert_eq!((refused.status, refused.problem()), (403, "no-auth"), "{method} {uri}: {}", refused.body);
    }
    let eves = vault.node.session().await;
    for uri in ["/v1/locks/vault/lock", "/v1/elections/vault/election", "/v1/simple-locks/vault/hidden-simple/x"] {
        vault.node.in_session(&eves, Method::POST, uri).await.expect_problem(403, "no-auth");
    }
    // `If-Lock` about an unreadable lock reveals only to the lock's holder that the lock is held.
    let guard = format!("/vault/lock;{}", vault.token);
    let guarded = |session: String| {
        let (vault, guard) = (&vault, &guard);
        async move {
            let headers = [("zlock-session-key", &*session), ("if-lock", &**guard)];
            vault.call(Method::POST, "/v1/znodes/x?mode=persistent-sequential", &headers, b"").await
        }
    };
    guarded(eves).await.expect_problem(412, "lock-not-held");
    guarded(vault.session.clone()).await.expect(201);
    // The session needs no permission to give its own locks back.
    let mine = |method: Method, uri: String| {
        let vault = &vault;
        async move { vault.node.in_session(&vault.session, method, &uri).await }
    };
    let json_acl = br#"[{"perms":"r","scheme":"digest","id":"bob:ttt4KD2l/LR0Mpj5c6jU0hrwVdE="}]"#;
    vault.call(Method::PUT, "/v1/znodes/vault?acl", &[BOB, json], json_acl).await.expect(200);
    mine(Method::PUT, format!("/v1/znodes{ticket}")).await.expect(200);
    mine(Method::PUT, "/v1/elections/vault/election".into()).await.expect(200);
    for uri in [
        format!("/v1/tickets{ticket}"),
        format!("/v1/tickets{}", vault.multi),
        "/v1/simple-locks/vault/hidden-simple?owner=secret".into(),
        "/v1/groups/vault/hidden-group?member=hidden-member".into(),
        "/v1/elections/vault/election".into(),
    ] {
        mine(Method::DELETE, uri).await.expect(200);
    }
}

/// A client that may enter a queue but not read it learns no other ticket of the queue.
#[tokio::test]
async fn a_waiter_that_may_not_read_the_lock_is_not_told_who_is_before_it() {
    let node = Node::start().await;
    node.post("/v1/znodes/l?acl=world:anyone:c", "").await.expect(201);
    let (first, second) = (node.session().await, node.session().await);
    let held = node.acquire(&first, "/l").await.expect(200);
    let waiting = node.acquire(&second, "/l?keep=true").await.expect(202);
    assert_eq!((text(&waiting, "state"), text(&waiting, "predecessor")), ("waiting", ""));
    assert!(!waiting.body.to_string().contains(text(&held, "ticket")));
    node.release(&first, text(&held, "ticket")).await.expect(200);
    let ticket = format!("/v1/tickets{}?wait=10s", text(&waiting, "ticket"));
    node.in_session(&second, Method::GET, &ticket).await.expect(200);
}

#[tokio::test]
async fn who_may_not_read_a_semaphore_is_not_told_its_permits() {
    let node = Node::start().await;
    node.post("/v1/znodes/s?acl=world:anyone:c", "").await.expect(201);
    let session = node.session().await;
    node.acquire(&session, "/s?mode=semaphore&permits_max=37").await.expect(200);
    let refused = node.acquire(&session, "/s?mode=semaphore&permits_max=4").await;
    let refused = refused.expect_problem(409, "permits-max-differs");
    assert!(!text(&refused, "detail").contains("37"), "{}", refused.body);
}

/// The Rust client relies on these answers to learn that it has lost a lock which it may not read.
#[tokio::test]
async fn a_holder_that_may_not_read_its_lock_is_told_of_its_loss() {
    let node = Node::start().await;
    node.post("/v1/znodes/l?acl=world:anyone:cd", "").await.expect(201);
    let holder = node.session().await;
    let held = node.acquire(&holder, "/l/queued").await.expect(200);
    let simple = node.in_session(&holder, Method::POST, "/v1/simple-locks/l/simple?owner=me").await.expect(200);
    let ticket = format!("/v1/tickets{}?until=revoked&wait=20s", text(&held, "ticket"));
    let fence = format!("/v1/fence?path=/l/simple&fencing_token={}", number(&simple, "fencing_token"));
    let ask = async |uri: &str| node.in_session(&holder, Method::GET, uri).await;
    node.get(&ticket).await.expect_problem(403, "no-auth");
    ask("/v1/simple-locks/l/simple").await.expect_problem(403, "no-auth");
    ask(&fence).await.expect(204);
    let watches = node.replica.status().watches;
    let (told, ()) = tokio::join!(ask(&ticket), async {
        node.until_watches(watches + 1).await;
        for path in [text(&held, "ticket"), "/l/simple"] {
            node.in_session(&holder, Method::DELETE, &format!("/v1/znodes{path}")).await.expect(200);
        }
    });
    told.expect_problem(410, "ticket-gone");
    ask(&ticket).await.expect_problem(410, "ticket-gone");
    ask(&fence).await.expect_problem(403, "fenced");
    let next = node.session().await;
    node.in_session(&next, Method::POST, "/v1/simple-locks/l/simple?owner=me").await.expect(200);
    ask(&fence).await.expect_problem(403, "no-auth");
}

/// The answer of a wait depends on the ACL at its end, which another client may have set meanwhile.
#[tokio::test]
async fn who_loses_read_during_a_wait_is_told_nothing_of_the_lock() {
    let node = Node::start().await;
    let (first, second) = (node.session().await, node.session().await);
    let close = async |lock: &str| {
        node.put(&format!("/v1/znodes{lock}?acl"), r#"[{"perms":"cdwa","scheme":"world","id":"anyone"}]"#)
            .await
            .expect(200);
    };
    let held = async |lock: &str, session: &str| node.acquire(session, lock).await.expect(200);
    let waiting = async |lock: &str| node.acquire(&second, &format!("{lock}?keep=true")).await.expect(202);
    // While a request waits for its ticket, the ACL takes its read permission. Then the lock is
    // granted, or the ticket is asked back, or the ticket ends.
    for (lock, until) in [("/granted", "held"), ("/asked", "revoked"), ("/gone", "held")] {
        let (before, ticket) = (held(lock, &first).await, waiting(lock).await);
        let watches = node.replica.status().watches;
        let uri = format!("/v1/tickets{}?until={until}&wait=20s", text(&ticket, "ticket"));
        let then = async {
            node.until_watches(watches + 1).await;
            close(lock).await;
            match lock {
                "/granted" => drop(node.release(&first, text(&before, "ticket")).await.expect(200)),
                "/gone" => drop(node.release(&second, text(&ticket, "ticket")).await.expect(200)),
                _ => drop(node.post(&format!("/v1/revocations{}", text(&ticket, "ticket")), "").await.expect(200)),
            }
        };
        let (answer, ()) = tokio::join!(node.get(&uri), then);
        if lock == "/gone" {
            assert_eq!(answer.expect_problem(410, "ticket-gone").body.get("ended"), None);
        } else {
            answer.expect_problem(403, "no-auth");
        }
    }
    let multi = async |session: &str| {
        let body = br#"{"locks":[{"path":"/one"},{"path":"/two"}]}"#;
        node.call(Method::POST, "/v1/multilocks?keep=true", &[("zlock-session-key", session)], body).await
    };
    let (before, ticket) = (multi(&first).await.expect(200), multi(&second).await.expect(202));
    let watches = node.replica.status().watches;
    let uri = format!("/v1/multilocks{}?wait=20s", text(&ticket, "ticket"));
    let then = async {
        node.until_watches(watches + 1).await;
        close("/two").await;
        node.release(&first, text(&before, "ticket")).await.expect(200);
    };
    let (answer, ()) = tokio::join!(node.get(&uri), then);
    answer.expect_problem(403, "no-auth");
}

/// Ten thousand locks of other clients precede the one that the request may see. The request
/// reaches that lock page by page, and learns of no other lock, not even by a cursor.
#[tokio::test]
async fn who_may_read_few_locks_comes_to_all_of_them_through_those_of_others() {
    let node = Node::start().await;
    node.post("/v1/znodes/m?acl=world:anyone:cd", "").await.expect(201);
    const HIDDEN: usize = 10_050;
    for batch in (0..HIDDEN).collect::<Vec<_>>().chunks(60) {
        // A persistent znode whose name fits a lock recipe is a contender.
        let ops =
            batch.iter().flat_map(|lock| ["", "/x-lock-0000000000"].map(|name| format!("/m/hidden-{lock:06}{name}")));
        let ops: Vec<_> = ops.map(|path| serde_json::json!({"op": "create", "path": path})).collect();
        node.post("/v1/txn", &serde_json::json!({ "ops": ops }).to_string()).await.expect(200);
    }
    let session = node.session().await;
    for lock in ["/a", "/z"] {
        node.acquire(&session, lock).await.expect(200);
    }
    for limit in [1, 1_000] {
        let (mut found, mut uri, mut pages) = (Vec::new(), format!("/v1/locks?page_size={limit}"), 0);
        loop {
            let page = node.get(&uri).await.expect(200);
            assert!(!String::from_utf8_lossy(&page.bytes).contains("hidden"), "{}", page.body);
            found.extend(
                page.body["locks"].as_array().unwrap().iter().map(|lock| lock["path"].as_str().unwrap().to_owned()),
            );
            pages += 1;
            let Some(next) = page.body["cursor"].as_str() else { break };
            assert!(next == "/a" || next.starts_with('~'), "{next}");
            uri = format!("/v1/locks?page_size={limit}&after={next}");
        }
        assert_eq!(found, ["/a", "/z"], "in {pages} pages");
        assert!(pages >= 2);
    }
    node.get("/v1/locks?after=~AAAA").await.expect_problem(400, "bad-request");
}
