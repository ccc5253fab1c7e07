//! A node for tests with its router, and the node's answers.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use axum::{Router, response::Response};
use futures_util::FutureExt;
use http_body_util::BodyExt;
use replica::{Config, Consistency, Member, Replica};
use rest::RestConfig;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::Instant;
use tower::ServiceExt;
use znode::Limits;

/// Longest time for a step of a test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A node with its HTTP router. Dropping the node deletes its data directory.
pub(crate) struct Node {
    pub(crate) replica: Replica,
    pub(crate) router: Router,
    /// Router with the same routes, in which every caller is an operator.
    operators: Router,
    _dir: TempDir,
}

/// An answer with its complete body.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: bytes::Bytes,
    /// The body as JSON; null if it is no JSON.
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn zxid(&self) -> u64 {
        self.header("zlock-zxid").parse().unwrap()
    }

    /// Returns the slug in the problem's type; an empty text if the answer is no problem.
    pub(crate) fn problem(&self) -> &str {
        self.body["type"]
            .as_str()
            .and_then(|uri| uri.strip_prefix(zlock_client::api::PROBLEM_TYPE_BASE))
            .unwrap_or_default()
    }

    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Answer {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.bytes));
        self
    }

    #[track_caller]
    pub(crate) fn expect_problem(self, status: u16, problem: &str) -> Answer {
        assert_eq!((self.status, self.problem()), (status, problem), "{}", String::from_utf8_lossy(&self.bytes));
        self
    }
}

impl Node {
    pub(crate) async fn start() -> Node {
        Node::start_with(RestConfig::default(), |_| {}).await
    }

    pub(crate) async fn start_with(rest: RestConfig, edit: impl FnOnce(&mut Config)) -> Node {
        let mut limits = Limits::default();
        let node = Node::start_unready(rest, |config| {
            edit(config);
            limits = config.limits.clone();
        });
        let node = node.await;
        node.wait_until_it_leads(&limits).await;
        node
    }

    /// Starts a node, without waiting until it is the leader.
    pub(crate) async fn start_unready(rest: RestConfig, edit: impl FnOnce(&mut Config)) -> Node {
        testkit::print_log();
        let dir = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer_addr = listener.local_addr().unwrap();
        let member = Member { id: 1, peer_addr: peer_addr.to_string(), http_addr: "127.0.0.1:2379".into() };
        let mut config = Config {
            members: vec![member],
            data_dir: dir.path().join("data"),
            peer_listen: peer_addr,
            free_disk_min_bytes: 0,
            // The disk of a busy machine may take seconds for a write.
            disk_stall_max_ms: 60_000,
            ..Config::default()
        };
        edit(&mut config);
        let replica = Replica::start_on(config, listener).await.unwrap();
        let router = rest::router(replica.clone(), rest);
        let operators = rest::for_operators(router.clone());
        Node { replica, router, operators, _dir: dir }
    }

    /// Bounds the time of each later proposal of the HTTP API.
    pub(crate) fn limit_proposals_to_ms(&mut self, propose_timeout_ms: u64) {
        self.router = rest::router(self.replica.clone(), RestConfig { propose_timeout_ms, ..RestConfig::default() });
    }

    /// Waits until the node is the leader and has applied `limits`.
    async fn wait_until_it_leads(&self, limits: &Limits) {
        let deadline = Instant::now() + PATIENCE;
        while let Err(error) = self.replica.read(Consistency::Linearizable, deadline).await {
            assert!(Instant::now() < deadline, "{error}");
            tokio::task::yield_now().await;
        }
        while self.replica.state().limits() != limits {
            assert!(Instant::now() < deadline, "the limits do not come");
            tokio::task::yield_now().await;
        }
    }

    pub(crate) async fn call(&self, method: Method, uri: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(Body::from(body.to_vec())).unwrap()).await
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let answer = tokio::time::timeout(PATIENCE, self.router.clone().oneshot(request));
        let answer = read(answer.await.expect("an answer in time").unwrap()).await;
        crate::contract::check(&method, &path, &answer);
        answer
    }

    /// Sends a request as an operator.
    pub(crate) async fn operate(&self, method: Method, uri: &str, body: &str) -> Answer {
        let request = Request::builder().method(method.clone()).uri(uri).body(Body::from(body.to_owned())).unwrap();
        let answer = tokio::time::timeout(PATIENCE, self.operators.clone().oneshot(request));
        let answer = read(answer.await.expect("an answer in time").unwrap()).await;
        crate::contract::check(&method, uri.split('?').next().unwrap(), &answer);
        answer
    }

    /// Sends an operator's GET. Returns the status, and the answer's body unread.
    pub(crate) async fn begin_as_operator(&self, uri: &str) -> (u16, Body) {
        let request = Request::get(uri).body(Body::empty()).unwrap();
        let answer = self.operators.clone().oneshot(request).await.unwrap();
        (answer.status().as_u16(), answer.into_body())
    }

    pub(crate) async fn get(&self, uri: &str) -> Answer {
        self.call(Method::GET, uri, &[], b"").await
    }

    pub(crate) async fn post(&self, uri: &str, body: &str) -> Answer {
        self.call(Method::POST, uri, &[], body.as_bytes()).await
    }

    pub(crate) async fn put(&self, uri: &str, body: &str) -> Answer {
        self.call(Method::PUT, uri, &[], body.as_bytes()).await
    }

    pub(crate) async fn delete(&self, uri: &str) -> Answer {
        self.call(Method::DELETE, uri, &[], b"").await
    }

    /// Opens a session. Returns the value of its `Zlock-Session-Key`.
    pub(crate) async fn session(&self) -> String {
        let opened = self.post("/v1/sessions", r#"{"timeout":"30s"}"#).await.expect(201);
        opened.body["session_key"].as_str().unwrap().to_owned()
    }

    /// Sends a request in a session.
    pub(crate) async fn in_session(&self, session: &str, method: Method, uri: &str) -> Answer {
        self.call(method, uri, &[("zlock-session-key", session)], b"").await
    }

    /// Acquires a lock with a new idempotency key. With different keys, several requests of one
    /// session may wait in one queue.
    pub(crate) async fn acquire(&self, session: &str, lock_and_query: &str) -> Answer {
        static KEYS: AtomicU64 = AtomicU64::new(0);
        let key = format!("00000000-0000-4000-8000-{:012x}", KEYS.fetch_add(1, Ordering::Relaxed));
        let headers = [("zlock-session-key", session), ("idempotency-key", &*key)];
        self.call(Method::POST, &format!("/v1/locks{lock_and_query}"), &headers, b"").await
    }

    /// Acquires a lock without an idempotency key. Such an acquire is refused if the session has a
    /// ticket of the lock from an earlier acquire without a key.
    pub(crate) async fn acquire_keyless(&self, session: &str, lock_and_query: &str) -> Answer {
        self.in_session(session, Method::POST, &format!("/v1/locks{lock_and_query}")).await
    }

    pub(crate) async fn close(&self, session: &str) -> Answer {
        let (id, _) = session.split_once('.').unwrap();
        self.in_session(session, Method::DELETE, &format!("/v1/sessions/{id}")).await
    }

    pub(crate) async fn release(&self, session: &str, ticket: &str) -> Answer {
        self.in_session(session, Method::DELETE, &format!("/v1/tickets{ticket}")).await
    }

    /// Returns the answer to a request that writes, on a node that admits no reads after the write.
    /// The node's setting `reads_max` must be 1: an unfinished read of this function uses up the
    /// limit.
    pub(crate) async fn without_reads_behind_a_write(&self, request: impl Future<Output = Answer>) -> Answer {
        let mut request = std::pin::pin!(request);
        let mut look = std::pin::pin!(self.replica.read(Consistency::Linearizable, Instant::now() + PATIENCE));
        while self.replica.status().proposals == 0 {
            assert!(request.as_mut().now_or_never().is_none(), "it does not write");
            tokio::task::yield_now().await;
        }
        assert!(look.as_mut().now_or_never().is_none(), "there is room");
        request.await
    }

    /// Waits until `count` requests wait for a change.
    pub(crate) async fn until_watches(&self, count: u64) {
        let deadline = Instant::now() + PATIENCE;
        while self.replica.status().watches < count {
            assert!(Instant::now() < deadline, "nobody waits");
            tokio::task::yield_now().await;
        }
    }

    /// Waits until the queue of a lock has `count` contenders.
    pub(crate) async fn until_contenders(&self, lock: &str, count: u64) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let queue = self.get(&format!("/v1/locks{lock}")).await.expect(200);
            if queue.body["contenders"] == count {
                return;
            }
            assert!(Instant::now() < deadline, "{} has {}, not {count}", lock, queue.body["contenders"]);
            // This waits for the next change below the lock, or 100 ms if the change has come
            // already.
            self.get(&format!("/v1/znodes{lock}?watch=children&since={}&wait=100ms", queue.zxid())).await;
        }
    }

    /// Waits until the queue of a lock has `count` contenders, by repeated reads. Unlike
    /// [`Node::until_contenders`], this works if no more requests may wait.
    pub(crate) async fn until_queued(&self, lock: &str, count: u64) {
        let deadline = Instant::now() + PATIENCE;
        while self.get(&format!("/v1/locks{lock}")).await.expect(200).body["contenders"] != count {
            assert!(Instant::now() < deadline, "{lock} never has {count}");
        }
    }
}

/// Returns the text in a field of the body.
pub(crate) fn text<'a>(answer: &'a Answer, field: &str) -> &'a str {
    answer.body[field].as_str().unwrap_or_else(|| panic!("{field} in {}", answer.body))
}

/// Returns the number in a field of the body.
pub(crate) fn number(answer: &Answer, field: &str) -> u64 {
    answer.body[field].as_u64().unwrap_or_else(|| panic!("{field} in {}", answer.body))
}

pub(crate) async fn read(response: Response) -> Answer {
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    assert_ne!(parts.status, StatusCode::INTERNAL_SERVER_ERROR, "{body}");
    Answer { status: parts.status.as_u16(), headers: parts.headers, bytes, body }
}
