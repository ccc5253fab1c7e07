//! An HTTP client that never retries and says whether a request without an answer was sent.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};
use zlock_client::api::headers;

use crate::answer::{Answer, Effect, Ending, judge};

/// A node closes idle connections after some seconds; one that has rested this long is not used again.
const IDLE_MAX: Duration = Duration::from_secs(2);
/// A node on this machine, or near, answers a connection attempt at once.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(1_000);
/// The answer to everything but a long-poll comes within this time, or it is late.
pub const REQUEST_TIMEOUT: Duration = Duration::from_millis(1_500);

/// One request.
#[derive(Clone, Debug)]
pub struct Call {
    method: Method,
    target: String,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
    effect: Effect,
    timeout: Duration,
}

impl Call {
    fn new(method: Method, target: impl Into<String>, effect: Effect) -> Call {
        Call {
            method,
            target: target.into(),
            headers: Vec::new(),
            body: Bytes::new(),
            effect,
            timeout: REQUEST_TIMEOUT,
        }
    }

    /// A GET, which has no effect.
    pub fn get(target: impl Into<String>) -> Call {
        Call::new(Method::GET, target, Effect::Read)
    }

    /// A POST.
    pub fn post(target: impl Into<String>) -> Call {
        Call::new(Method::POST, target, Effect::Write)
    }

    /// A PUT.
    pub fn put(target: impl Into<String>) -> Call {
        Call::new(Method::PUT, target, Effect::Write)
    }

    /// A DELETE.
    pub fn delete(target: impl Into<String>) -> Call {
        Call::new(Method::DELETE, target, Effect::Write)
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

    /// Makes the request in a session.
    pub fn session(self, key: &str) -> Call {
        self.header(headers::SESSION, key)
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

    /// Says that the request has no effect worth knowing, whatever its method.
    pub fn harmless(mut self) -> Call {
        self.effect = Effect::Read;
        self
    }

    /// Waits so much longer for the answer: the request asks the node to wait.
    pub fn waiting(mut self, wait: Duration) -> Call {
        self.timeout = wait + REQUEST_TIMEOUT;
        self
    }
}

struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: AbortHandle,
    used: Instant,
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Closes the socket at once, so that the node sees that nobody waits any more.
        self.driver.abort();
    }
}

/// Connections of one client to all nodes.
pub struct Http {
    endpoints: Vec<String>,
    connections: BTreeMap<u64, Connection>,
}

impl Http {
    /// A client of these nodes, `host:port` each. Nodes are numbered from 1.
    pub fn new(endpoints: &[String]) -> Http {
        Http { endpoints: endpoints.to_vec(), connections: BTreeMap::new() }
    }

    /// How many nodes there are.
    pub fn node_count(&self) -> u64 {
        self.endpoints.len() as u64
    }

    /// Sends a request to a node, once, and judges the answer.
    pub async fn send(&mut self, node: u64, call: Call) -> Answer {
        let deadline = Instant::now() + call.timeout;
        let endpoint = self.endpoints[(node - 1) as usize].clone();
        let mut connection = match self.connect(node, &endpoint).await {
            Ok(connection) => connection,
            Err(why) => return judge(call.effect, Ending::NotSent(why), None, node),
        };
        let effect = call.effect;
        let request = request(&endpoint, call);
        let exchange = async {
            let response = connection.sender.send_request(request).await?;
            let zxid = zxid(&response);
            let status = response.status().as_u16();
            let body = response.into_body().collect().await?.to_bytes();
            Ok::<_, hyper::Error>((status, body, zxid))
        };
        match tokio::time::timeout_at(deadline, exchange).await {
            Ok(Ok((status, body, zxid))) => {
                connection.used = Instant::now();
                self.connections.insert(node, connection);
                judge(effect, Ending::Answered { status, body }, zxid, node)
            }
            Ok(Err(error)) => judge(effect, Ending::Broken(error.to_string()), None, node),
            Err(_) => judge(effect, Ending::TimedOut, None, node),
        }
    }

    /// Sends a request and cuts the connection without waiting for the answer.
    pub async fn send_and_hang_up(&mut self, node: u64, call: Call, after: Duration) -> Answer {
        let endpoint = self.endpoints[(node - 1) as usize].clone();
        let mut connection = match self.connect(node, &endpoint).await {
            Ok(connection) => connection,
            Err(why) => return judge(call.effect, Ending::NotSent(why), None, node),
        };
        let effect = call.effect;
        let _ = timeout(after, connection.sender.send_request(request(&endpoint, call))).await;
        judge(effect, Ending::Broken("hung up".into()), None, node)
    }

    async fn connect(&mut self, node: u64, endpoint: &str) -> Result<Connection, String> {
        let kept = self.connections.remove(&node);
        if let Some(kept) = kept.filter(|kept| kept.used.elapsed() < IDLE_MAX && kept.sender.is_ready()) {
            return Ok(kept);
        }
        let stream = match timeout(CONNECT_TIMEOUT, TcpStream::connect(endpoint)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(error.kind().to_string()),
            Err(_) => return Err("connect timed out".into()),
        };
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let (sender, driver) = handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        let driver = tokio::spawn(driver).abort_handle();
        Ok(Connection { sender, driver, used: Instant::now() })
    }
}

fn request(endpoint: &str, call: Call) -> Request<Full<Bytes>> {
    let mut request = Request::builder().method(call.method).uri(call.target).header("host", endpoint);
    for (name, value) in call.headers {
        request = request.header(name, value);
    }
    request.body(Full::new(call.body)).expect("workloads make valid targets and headers")
}

fn zxid<B>(response: &Response<B>) -> Option<u64> {
    response.headers().get(headers::ZXID)?.to_str().ok()?.parse().ok()
}
