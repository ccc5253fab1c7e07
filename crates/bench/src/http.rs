//! One keep-alive HTTP connection that sends one request at a time and never retries.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use protocol::{OpenSession, SessionOpened, headers};
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;

/// Why a request has no usable answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The node could not be reached.
    #[error("connect to {endpoint}: {source}")]
    Connect { endpoint: String, source: std::io::Error },
    /// The connection broke, or the answer is no HTTP.
    #[error("http: {0}")]
    Http(#[from] hyper::Error),
    /// The answer is not the JSON that the API promises.
    #[error("the answer cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    /// The answer has a status that the workload cannot go on with.
    #[error("{method} {path}: {status}: {body}")]
    Status { method: Method, path: String, status: StatusCode, body: String },
}

/// An open connection to one node.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    endpoint: String,
    session: Option<String>,
}

impl Connection {
    /// Connects to `endpoint`, a `host:port`.
    pub(crate) async fn open(endpoint: &str) -> Result<Connection, Error> {
        let stream = TcpStream::connect(endpoint)
            .await
            .map_err(|source| Error::Connect { endpoint: endpoint.to_owned(), source })?;
        // One small request waits for one small answer: Nagle would only add delay.
        stream.set_nodelay(true).map_err(|source| Error::Connect { endpoint: endpoint.to_owned(), source })?;
        let (sender, driver) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(driver);
        Ok(Connection { sender, endpoint: endpoint.to_owned(), session: None })
    }

    /// Opens a session; every later request on this connection is made in it.
    pub(crate) async fn open_session(&mut self, timeout_ms: u64) -> Result<(), Error> {
        let body = OpenSession { timeout_ms: Some(protocol::Millis(timeout_ms)), label: "bench".into() };
        let answer = self.send(Method::POST, "/v1/sessions", serde_json::to_vec(&body)?.into()).await?;
        self.session = Some(read::<SessionOpened>(&answer)?.session);
        Ok(())
    }

    /// Sends one request and reads the whole answer. Any status but 2xx is an error.
    pub(crate) async fn send(&mut self, method: Method, path: &str, body: Bytes) -> Result<Bytes, Error> {
        let mut request = Request::builder().method(method.clone()).uri(path).header("host", &self.endpoint);
        if path == "/v1/sessions" {
            request = request.header("content-type", "application/json");
        }
        if let Some(session) = &self.session {
            request = request.header(headers::SESSION, session);
        }
        let request = request.body(Full::new(body)).expect("paths of the workloads are valid");
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        if status.is_success() {
            return Ok(body);
        }
        let body = String::from_utf8_lossy(&body).into_owned();
        Err(Error::Status { method, path: path.to_owned(), status, body })
    }
}

/// Reads an answer.
pub(crate) fn read<T: DeserializeOwned>(answer: &Bytes) -> Result<T, Error> {
    Ok(serde_json::from_slice(answer)?)
}
