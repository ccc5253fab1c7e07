//! Connections to one endpoint.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{HeaderMap, Request};
use hyper_util::rt::TokioIo;
use protocol::headers;
use tls::{Connector, Stream};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

use crate::call::Call;
use crate::clock::Moment;

/// A node closes idle connections after 30 s; one that has rested this long is not used again.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// Idle connections that are kept per endpoint; more are closed.
const IDLE_COUNT_MAX: usize = 16;
/// The longest answer that is read: pages and data are far below it.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// One endpoint's address and idle connections.
#[derive(Debug)]
pub(crate) struct Pool {
    addr: String,
    /// For nodes that speak TLS.
    connector: Option<Connector>,
    idle: Mutex<Vec<Connection>>,
}

#[derive(Debug)]
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: AbortHandle,
    rests_since: Moment,
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Closes the socket at once: the node sees that nobody waits any more.
        self.driver.abort();
    }
}

/// How one try ended.
#[derive(Debug)]
pub(crate) enum Ending {
    /// The node answered.
    Answered(Reply),
    /// The request did not leave.
    NotSent(String),
    /// It can never leave: it is no request.
    Unsendable(String),
    /// It may have arrived.
    Lost(String),
}

/// An answer as it came.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) sent: Moment,
}

impl Reply {
    /// A header that is a number.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.headers.get(name)?.to_str().ok()?.parse().ok()
    }

    pub(crate) fn zxid(&self) -> u64 {
        self.number(headers::ZXID).unwrap_or(0)
    }
}

impl Pool {
    pub(crate) fn new(addr: String, connector: Option<Connector>) -> Pool {
        Pool { addr, connector, idle: Mutex::new(Vec::new()) }
    }

    pub(crate) fn addr(&self) -> &str {
        &self.addr
    }

    /// Sends a call once. Dropping the future closes its connection.
    pub(crate) async fn exchange(&self, call: &Call, timeout: Duration, connect_timeout: Duration) -> Ending {
        let request = match self.request(call) {
            Ok(request) => request,
            Err(why) => return Ending::Unsendable(why),
        };
        let within = connect_timeout.min(timeout);
        let mut connection = match tokio::time::timeout(within, self.connection()).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(why)) => return Ending::NotSent(format!("{}: {why}", self.addr)),
            Err(_) => return Ending::NotSent(format!("{}: no connection within {} ms", self.addr, within.as_millis())),
        };
        let sent = Moment::now();
        match tokio::time::timeout(timeout, connection.carry(request, sent)).await {
            Ok(Ending::Answered(reply)) => {
                self.keep(connection);
                Ending::Answered(reply)
            }
            Ok(Ending::NotSent(why)) => Ending::NotSent(format!("{}: {why}", self.addr)),
            Ok(ending @ Ending::Unsendable(_)) => ending,
            Ok(Ending::Lost(why)) => Ending::Lost(format!("{}: {why}", self.addr)),
            Err(_) => Ending::Lost(format!("{}: no answer within {} ms", self.addr, timeout.as_millis())),
        }
    }

    fn request(&self, call: &Call) -> Result<Request<Full<Bytes>>, String> {
        let mut request = Request::new(Full::new(call.body.clone()));
        *request.method_mut() = call.method.clone();
        *request.uri_mut() = call.target.parse().map_err(|error| format!("the URL: {error}"))?;
        *request.headers_mut() = call.headers.clone();
        let host = self.addr.parse().expect("the builder checked that the address is ASCII");
        request.headers_mut().insert(hyper::header::HOST, host);
        Ok(request)
    }

    async fn connection(&self) -> Result<Connection, String> {
        loop {
            let kept = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(kept) = kept else { break };
            if kept.sender.is_ready() && !kept.rests_since.after(IDLE_MAX).is_past() {
                return Ok(kept);
            }
        }
        let stream = TcpStream::connect(&self.addr).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let stream = match &self.connector {
            None => Stream::from(stream),
            Some(connector) => {
                let host = self.addr.rsplit_once(':').map_or(&*self.addr, |(host, _)| host);
                connector.connect(host, stream).await.map_err(|error| error.to_string())?
            }
        };
        let (sender, driver) = handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        let driver = tokio::spawn(driver).abort_handle();
        Ok(Connection { sender, driver, rests_since: Moment::now() })
    }

    fn keep(&self, mut connection: Connection) {
        connection.rests_since = Moment::now();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_COUNT_MAX {
            idle.push(connection);
        }
    }
}

impl Connection {
    async fn carry(&mut self, request: Request<Full<Bytes>>, sent: Moment) -> Ending {
        if let Err(error) = self.sender.ready().await {
            return Ending::NotSent(error.to_string());
        }
        let response = match self.sender.try_send_request(request).await {
            Ok(response) => response,
            Err(mut error) => {
                // hyper gives the request back when it has not begun to write it.
                let unsent = error.take_message().is_some();
                let reason = error.error().to_string();
                return if unsent { Ending::NotSent(reason) } else { Ending::Lost(reason) };
            }
        };
        let (head, body) = response.into_parts();
        match Limited::new(body, ANSWER_BYTES_MAX).collect().await {
            Ok(body) => Ending::Answered(Reply {
                status: head.status.as_u16(),
                headers: head.headers,
                body: body.to_bytes(),
                sent,
            }),
            Err(error) => Ending::Lost(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Target;

    #[tokio::test]
    async fn what_is_too_long_for_a_url_is_not_sent() {
        let long = Target::route("/v1/locks/l").with("label", "x".repeat(1 << 16));
        let (pool, patience) = (Pool::new("127.0.0.1:1".into(), None), Duration::from_secs(30));
        let ending = pool.exchange(&Call::get(long.finish()), patience, patience).await;
        assert!(matches!(ending, Ending::Unsendable(_)), "{ending:?}");
    }
}
