//! HTTP client for one node.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{HeaderMap, Method, Request};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout, timeout_at};
use zlock_client::api::{Cluster, Problem, headers};

/// Time within which a ready node answers `/readyz`.
pub const SOON: Duration = Duration::from_secs(2);

/// Failure of a request without an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// The connection failed, so nothing was sent.
    #[error("not sent: {0}")]
    NotSent(String),
    /// The connection broke after the request was sent, at least in part.
    #[error("broken: {0}")]
    Broken(String),
    /// The request was sent, and no answer came in time.
    #[error("no answer in time")]
    TimedOut,
}

/// One HTTP request. Sending a clone is a retry, with the idempotency key of the original.
#[derive(Clone, Debug)]
pub struct Call {
    method: Method,
    target: String,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
    within: Option<Duration>,
    wait: Duration,
    only_looks: bool,
}

impl Call {
    fn new(method: Method, target: impl Into<String>) -> Call {
        let only_looks = method == Method::GET;
        let (headers, body) = (Vec::new(), Bytes::new());
        Call { method, target: target.into(), headers, body, within: None, wait: Duration::ZERO, only_looks }
    }

    /// Returns a GET, which has no effect.
    pub fn get(target: impl Into<String>) -> Call {
        Call::new(Method::GET, target)
    }

    /// Returns a POST with no body.
    pub fn post(target: impl Into<String>) -> Call {
        Call::new(Method::POST, target)
    }

    /// Returns a PUT with no body.
    pub fn put(target: impl Into<String>) -> Call {
        Call::new(Method::PUT, target)
    }

    /// Returns a DELETE.
    pub fn delete(target: impl Into<String>) -> Call {
        Call::new(Method::DELETE, target)
    }

    /// Adds a parameter, `name=value`.
    pub fn query(mut self, parameter: &str) -> Call {
        self.target.push(if self.target.contains('?') { '&' } else { '?' });
        self.target.push_str(parameter);
        self
    }

    /// Adds a header.
    pub fn header(mut self, name: &'static str, value: impl ToString) -> Call {
        self.headers.push((name, value.to_string()));
        self
    }

    /// Adds the session with this key to the request.
    pub fn session(self, key: impl AsRef<str>) -> Call {
        self.header(headers::SESSION_KEY, key.as_ref())
    }

    /// Adds a new random idempotency key.
    pub fn once(self) -> Call {
        self.header(headers::IDEMPOTENCY_KEY, uuid::Uuid::new_v4())
    }

    /// Sets the body.
    pub fn body(mut self, body: impl Into<Bytes>) -> Call {
        self.body = body.into();
        self
    }

    /// Sets the body as JSON.
    pub fn json(self, value: &impl serde::Serialize) -> Call {
        let body = serde_json::to_vec(value).expect("the protocol's types are JSON");
        self.header("content-type", "application/json").body(body)
    }

    /// Sets the time limit for the answer, in place of the client's [`Patience::answer`].
    pub fn within(mut self, within: Duration) -> Call {
        self.within = Some(within);
        self
    }

    /// Adds `wait` to the time limit, for a request that asks the node to wait so long.
    pub fn waiting(mut self, wait: Duration) -> Call {
        self.wait = wait;
        self
    }

    /// Marks a request of any method as one without an effect that a test must track.
    pub fn harmless(mut self) -> Call {
        self.only_looks = true;
        self
    }

    /// Tells whether the request has no effect that a test must track: a GET, or a request marked
    /// by [`Call::harmless`].
    pub fn only_looks(&self) -> bool {
        self.only_looks
    }
}

/// Answer of a node.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// All headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

impl Answer {
    /// Parses the body as a `T`. Panics for another body or an unsuccessful status.
    #[track_caller]
    pub fn json<T: DeserializeOwned>(&self) -> T {
        assert!((200..300).contains(&self.status), "{}: {}", self.status, self.text());
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// Parses the body as a [`Problem`], the description of an error. Panics for another body.
    #[track_caller]
    pub fn problem(&self) -> Problem {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}: {}", self.status, self.text()))
    }

    /// The zxid in the answer's header; `None` without that header.
    pub fn zxid(&self) -> Option<u64> {
        self.headers.get(headers::ZXID)?.to_str().ok()?.parse().ok()
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Time limits of a client.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Longest time for opening a connection.
    pub connect: Duration,
    /// Longest time for one request, including its connection, unless the call sets another limit.
    pub answer: Duration,
    /// Idle time after which a connection is not used again.
    pub idle: Duration,
}

impl Default for Patience {
    /// Returns limits that are longer than any wait in a test.
    fn default() -> Patience {
        let long = Duration::from_secs(100);
        Patience { connect: long, answer: long, idle: Duration::MAX }
    }
}

struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: AbortHandle,
    used: Instant,
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The abort closes the socket at once, so that the node notices the end of the client.
        self.driver.abort();
    }
}

/// HTTP client for one address, with one connection that is opened when needed.
pub struct Client {
    endpoint: String,
    patience: Patience,
    kept: Option<Connection>,
}

impl Client {
    /// Returns a client of this `host:port`. It connects at the first call.
    pub fn new(endpoint: &str) -> Client {
        Client::with_patience(endpoint, Patience::default())
    }

    /// Returns a client of this `host:port` with the given time limits.
    pub fn with_patience(endpoint: &str, patience: Patience) -> Client {
        Client { endpoint: endpoint.to_owned(), patience, kept: None }
    }

    /// Sends a request once and returns the answer, whatever its status.
    ///
    /// # Errors
    /// A [`NoAnswer`] when no complete answer arrived.
    pub async fn send(&mut self, call: Call) -> Result<Answer, NoAnswer> {
        let deadline = Instant::now() + call.within.unwrap_or(self.patience.answer) + call.wait;
        // The connection is put back only after the answer, because after a failed or dropped call
        // its state is unknown.
        let mut connection = self.connect(deadline).await.map_err(NoAnswer::NotSent)?;
        let request = self.request(call);
        let exchange = async {
            let (head, body) = connection.sender.send_request(request).await?.into_parts();
            let body = body.collect().await?.to_bytes();
            Ok::<_, hyper::Error>(Answer { status: head.status.as_u16(), headers: head.headers, body })
        };
        let answer = match timeout_at(deadline, exchange).await {
            Ok(answer) => answer.map_err(|error| NoAnswer::Broken(error.to_string()))?,
            Err(_) => return Err(NoAnswer::TimedOut),
        };
        connection.used = Instant::now();
        self.kept = Some(connection);
        Ok(answer)
    }

    /// Sends a request and closes the connection after the time `after`, without returning an
    /// answer.
    ///
    /// # Errors
    /// [`NoAnswer::NotSent`] when the connection failed.
    pub async fn send_and_hang_up(&mut self, call: Call, after: Duration) -> Result<(), NoAnswer> {
        let deadline = Instant::now() + self.patience.connect;
        let mut connection = self.connect(deadline).await.map_err(NoAnswer::NotSent)?;
        let _ = timeout(after, connection.sender.send_request(self.request(call))).await;
        Ok(())
    }

    /// Tells whether the node answers `/readyz` with 200 within [`SOON`].
    pub async fn is_ready(&mut self) -> bool {
        self.send(Call::get("/readyz").within(SOON)).await.is_ok_and(|answer| answer.status == 200)
    }

    /// Returns the state of the cluster as this node reports it; `None` without a successful answer
    /// in the time `within`.
    pub async fn cluster(&mut self, within: Duration) -> Option<Cluster> {
        let answer = self.send(Call::get("/v1/cluster").within(within)).await.ok()?;
        (answer.status == 200).then(|| answer.json())
    }

    async fn connect(&mut self, deadline: Instant) -> Result<Connection, String> {
        let kept = self.kept.take().filter(|kept| kept.used.elapsed() < self.patience.idle);
        if let Some(mut kept) = kept
            && let Ok(Ok(())) = timeout_at(deadline, kept.sender.ready()).await
        {
            return Ok(kept);
        }
        let deadline = deadline.min(Instant::now() + self.patience.connect);
        let stream = match timeout_at(deadline, TcpStream::connect(&self.endpoint)).await {
            Ok(stream) => stream.map_err(|error| error.kind().to_string())?,
            Err(_) => return Err("connect timed out".into()),
        };
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let (sender, driver) = handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        let driver = tokio::spawn(driver).abort_handle();
        Ok(Connection { sender, driver, used: Instant::now() })
    }

    fn request(&self, call: Call) -> Request<Full<Bytes>> {
        let mut request = Request::builder().method(call.method).uri(call.target).header("host", &self.endpoint);
        for (name, value) in call.headers {
            request = request.header(name, value);
        }
        request.body(Full::new(call.body)).expect("tests make valid targets and headers")
    }
}
