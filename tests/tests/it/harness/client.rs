//! An HTTP client that sends a request once and says whether an answer came. It never retries: a retry would hide what
//! the tests are about.

use std::fmt::Display;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{HeaderMap, Request};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};
use zlock_client::api::{Problem, SessionOpened, headers};

use super::until::until;

/// Longer than any wait that the tests ask for.
const ANSWER_WITHIN: Duration = Duration::from_secs(100);

/// No answer came: the request may have been carried out or not.
#[derive(Debug)]
pub(crate) struct NoAnswer(String);

impl Display for NoAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    method: &'static str,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
    within: Duration,
}

impl Call {
    /// GET.
    pub(crate) fn get(path: impl Into<String>) -> Call {
        Call::new("GET", path.into())
    }

    /// POST with no body.
    pub(crate) fn post(path: impl Into<String>) -> Call {
        Call::new("POST", path.into())
    }

    /// PUT with no body.
    pub(crate) fn put(path: impl Into<String>) -> Call {
        Call::new("PUT", path.into())
    }

    /// DELETE.
    pub(crate) fn delete(path: impl Into<String>) -> Call {
        Call::new("DELETE", path.into())
    }

    fn new(method: &'static str, path: String) -> Call {
        Call { method, path, headers: Vec::new(), body: Bytes::new(), within: ANSWER_WITHIN }
    }

    /// In this session.
    pub(crate) fn session(self, session: &Session) -> Call {
        self.header(headers::SESSION, session.key.clone())
    }

    /// With a fresh idempotency key: a clone of the call is a retry of it.
    pub(crate) fn once(self) -> Call {
        self.header(headers::IDEMPOTENCY_KEY, uuid::Uuid::new_v4().to_string())
    }

    /// With a header.
    pub(crate) fn header(mut self, name: &'static str, value: String) -> Call {
        self.headers.push((name, value));
        self
    }

    /// With a body.
    pub(crate) fn body(mut self, body: impl Into<Bytes>) -> Call {
        self.body = body.into();
        self
    }

    /// Without an answer after this long it counts as lost.
    pub(crate) fn within(mut self, within: Duration) -> Call {
        self.within = within;
        self
    }
}

/// What a node answered.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    /// The body, which must be of this type and the status one of success.
    #[track_caller]
    pub(crate) fn json<T: DeserializeOwned>(&self) -> T {
        assert!((200..300).contains(&self.status), "{}: {}", self.status, self.text());
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The problem, which the body must be.
    #[track_caller]
    pub(crate) fn problem(&self) -> Problem {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}: {}", self.status, self.text()))
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A client of one address, with one connection that is made when it is needed.
pub(crate) struct Client {
    endpoint: String,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl Client {
    /// Connects at the first call.
    pub(crate) fn new(endpoint: &str) -> Client {
        Client { endpoint: endpoint.to_owned(), connection: None }
    }

    /// Sends a request once.
    pub(crate) async fn send(&mut self, call: Call) -> Result<Answer, NoAnswer> {
        // Taken out, so that a call that fails or is dropped half-way leaves no connection in an unknown state.
        let connection = self.connection.take().filter(|connection| !connection.is_closed());
        let name = format!("{} {}{}", call.method, self.endpoint, call.path);
        match timeout(call.within, self.exchange(connection, call)).await {
            Ok(Ok((answer, connection))) => {
                self.connection = Some(connection);
                Ok(answer)
            }
            Ok(Err(error)) => Err(NoAnswer(format!("{name}: {error}"))),
            Err(_) => Err(NoAnswer(format!("{name}: no answer in time"))),
        }
    }

    /// Creates a znode, whatever elections come between: a busy machine may cost the best leader its place. It must
    /// not be there yet.
    pub(crate) async fn create(&mut self, path: &str, data: impl Into<Bytes>) {
        let (call, mut unknown) = (Call::post(path).body(data), false);
        until("the znode is created", async || match self.send(call.clone()).await.expect("the node answers") {
            answer if answer.status == 201 || (answer.status == 409 && unknown) => Some(()),
            answer if matches!(answer.status, 503 | 504) => {
                unknown |= answer.status == 504;
                None
            }
            answer => panic!("{answer:?}"),
        })
        .await;
    }

    async fn exchange(
        &self,
        connection: Option<SendRequest<Full<Bytes>>>,
        call: Call,
    ) -> Result<(Answer, SendRequest<Full<Bytes>>), Box<dyn std::error::Error + Send + Sync>> {
        let mut connection = match connection {
            Some(connection) => connection,
            None => {
                let stream = TcpStream::connect(&self.endpoint).await?;
                stream.set_nodelay(true)?;
                let (connection, driver) = handshake(TokioIo::new(stream)).await?;
                tokio::spawn(driver);
                connection
            }
        };
        let mut request = Request::builder().method(call.method).uri(call.path).header("host", &self.endpoint);
        for (name, value) in call.headers {
            request = request.header(name, value);
        }
        connection.ready().await?;
        let response = connection.send_request(request.body(Full::new(call.body))?).await?;
        let (head, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok((Answer { status: head.status.as_u16(), headers: head.headers, body }, connection))
    }

    /// Opens a session.
    pub(crate) async fn open_session(&mut self, timeout_ms: u64) -> Session {
        let body = format!("{{\"timeout_ms\":{timeout_ms},\"label\":\"test\"}}");
        let call = Call::post("/v1/sessions").header("content-type", "application/json".into()).body(body);
        let opened: SessionOpened = self.send(call).await.expect("the node answers").json();
        Session { id: opened.id, key: opened.session, timeout_ms: u64::from(opened.timeout_ms) }
    }
}

/// An open session.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) id: u64,
    pub(crate) key: String,
    pub(crate) timeout_ms: u64,
}

impl Session {
    /// Sends keep-alives to the endpoints in turn until the answer of this call is dropped. An endpoint that does not
    /// answer soon is passed over.
    pub(crate) fn keep_alive(&self, endpoints: Vec<String>) -> KeptAlive {
        let session = self.clone();
        KeptAlive(tokio::spawn(async move {
            let mut ticks = interval(Duration::from_millis(session.timeout_ms / 8));
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut clients: Vec<_> = endpoints.iter().map(|endpoint| Client::new(endpoint)).collect();
            for turn in 0.. {
                ticks.tick().await;
                let count = clients.len();
                let call = Call::post(format!("/v1/sessions/{}/keepalive", session.id)).session(&session);
                let call = call.within(Duration::from_millis(session.timeout_ms / 4));
                let _ = clients[turn % count].send(call).await;
            }
        }))
    }
}

/// Keep-alives, until it is dropped.
pub(crate) struct KeptAlive(JoinHandle<()>);

impl Drop for KeptAlive {
    fn drop(&mut self) {
        self.0.abort();
    }
}
