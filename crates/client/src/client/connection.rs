//! Connections to one endpoint.

use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::api::headers;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, HOST, HeaderValue};
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::task::JoinHandle;

use crate::client::call::Call;
use crate::client::clock::Moment;
use crate::client::secure::{Connector, Stream, refusal, words};

/// Longest idle time after which a connection is still reused. A node or a balancer may close an
/// idle connection at any time.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// Number of idle connections that are kept for each endpoint; others are closed.
const IDLE_COUNT_MAX: usize = 16;
/// Largest body of an answer that is read, in bytes. Pages and data are far smaller.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Prefix of an endpoint that is the Unix socket of a node on this machine.
pub(crate) const UNIX: &str = "unix:";

/// TLS settings and identity for connections to nodes.
#[derive(Clone, Default)]
pub(crate) struct Approach {
    /// TLS connector; `None` for connections without TLS.
    pub(crate) connector: Option<Connector>,
    /// Value of `Authorization` in every request; `None` for no credentials.
    pub(crate) authorization: Option<HeaderValue>,
}

/// Address of one endpoint, with idle connections for reuse.
pub(crate) struct Pool {
    pub(crate) addr: String,
    approach: Approach,
    idle: Mutex<Vec<Connection>>,
}

struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: JoinHandle<hyper::Result<()>>,
    rests_since: Moment,
    with_tls: bool,
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The abort closes the socket at once, so that the node notices that no caller waits any
        // more.
        self.driver.abort();
    }
}

/// Result of one try to send a request and get its answer.
#[derive(Debug)]
pub(crate) enum Ending {
    /// The node answered.
    Answered(Reply),
    /// No process listens at the endpoint, its host name is unknown, or TLS was refused. A try that
    /// took too long, or found no route to the node, is `NotSent`.
    Unreachable(String),
    /// The request was certainly not sent.
    NotSent(String),
    /// The request is invalid, and can never be sent.
    Unsendable(String),
    /// The request may have reached the node, and no answer came.
    Lost(String),
}

/// Result of a try whose answer is passed to the caller's function in pieces as it arrives.
#[derive(Debug)]
pub(crate) enum Passed {
    /// The whole answer was passed to the caller: this number of bytes.
    All(u64),
    /// The answer broke off after some of its bytes were passed on.
    Part(String),
    /// No byte was passed on: there was no answer, the answer was an error, or the answer broke off
    /// before its first byte.
    Nothing(Ending),
}

/// Returns the result of a try whose answer broke off after `bytes` bytes.
fn broken_off(bytes: u64, why: String) -> Passed {
    if bytes == 0 { Passed::Nothing(Ending::Lost(why)) } else { Passed::Part(why) }
}

/// A node's answer of any status, with its whole body.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) sent: Moment,
}

impl Reply {
    /// Returns the value of a header as a number; `None` if the header is missing or its value is
    /// no number.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.headers.get(name)?.to_str().ok()?.parse().ok()
    }

    pub(crate) fn zxid(&self) -> u64 {
        self.number(headers::ZXID).unwrap_or(0)
    }
}

impl Pool {
    pub(crate) fn new(addr: String, approach: Approach) -> Pool {
        Pool { addr, approach, idle: Mutex::new(Vec::new()) }
    }

    /// Sends a call once. `timeout` is the time for connecting and receiving the answer together.
    /// Dropping the future closes the connection.
    pub(crate) async fn exchange(&self, call: &Call, timeout: Duration, connect_timeout: Duration) -> Ending {
        let request = match self.request(call) {
            Ok(request) => request,
            Err(why) => return Ending::Unsendable(why),
        };
        let (deadline, within) = (Moment::now().after(timeout), connect_timeout.min(timeout));
        let mut connection = match tokio::time::timeout(within, self.connection(within)).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(ending)) => return ending,
            Err(_) => return Ending::NotSent(format!("no connection within {} ms", within.as_millis())),
        };
        let sent = Moment::now();
        match tokio::time::timeout(deadline.remaining(), connection.carry(request, sent)).await {
            Ok(Ending::Answered(reply)) => {
                self.keep(connection);
                Ending::Answered(reply)
            }
            Ok(ending) => ending,
            Err(_) => Ending::Lost(format!("no answer within {} ms", timeout.as_millis())),
        }
    }

    /// Sends a call once, and passes the bytes of a successful answer to `take` as they come.
    /// `silence` is the longest time for which the node may send no bytes.
    pub(crate) async fn pass_on(
        &self,
        call: &Call,
        connect_timeout: Duration,
        silence: Duration,
        take: &mut impl FnMut(Bytes) -> io::Result<()>,
    ) -> Passed {
        let request = match self.request(call) {
            Ok(request) => request,
            Err(why) => return Passed::Nothing(Ending::Unsendable(why)),
        };
        let mut connection = match tokio::time::timeout(connect_timeout, self.connection(connect_timeout)).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(ending)) => return Passed::Nothing(ending),
            Err(_) => return Passed::Nothing(Ending::NotSent("no connection in time".into())),
        };
        let sent = Moment::now();
        let response = match tokio::time::timeout(silence, connection.begin(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(ending)) => return Passed::Nothing(ending),
            Err(_) => return Passed::Nothing(Ending::Lost(format!("no answer within {} s", silence.as_secs()))),
        };
        if !response.status().is_success() {
            let refusal = tokio::time::timeout(silence, whole(response, sent)).await;
            return Passed::Nothing(refusal.unwrap_or_else(|_| Ending::Lost("the answer did not end in time".into())));
        }
        let (mut body, mut bytes) = (response.into_body(), 0);
        loop {
            let data = match tokio::time::timeout(silence, body.frame()).await {
                Ok(None) => return Passed::All(bytes),
                Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
                Ok(Some(Err(error))) => return broken_off(bytes, format!("it broke off: {}", words(&error))),
                Err(_) => return broken_off(bytes, format!("nothing came for {} s", silence.as_secs())),
            };
            bytes += data.len() as u64;
            if let Err(error) = take(data) {
                return Passed::Part(format!("what came cannot be kept: {error}"));
            }
        }
    }

    fn request(&self, call: &Call) -> Result<Request<Full<Bytes>>, String> {
        let mut request = Request::new(Full::new(call.body.clone()));
        *request.method_mut() = call.method.clone();
        *request.uri_mut() = call.target.parse().map_err(|error| format!("the URL: {error}"))?;
        *request.headers_mut() = call.headers.clone();
        let host = match self.socket_path() {
            // A Unix socket has no host name.
            Some(_) => HeaderValue::from_static("localhost"),
            None => self.addr.parse().expect("the builder checked that the address is ASCII"),
        };
        request.headers_mut().insert(HOST, host);
        if let Some(authorization) = &self.approach.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        Ok(request)
    }

    async fn connection(&self, within: Duration) -> Result<Connection, Ending> {
        loop {
            let kept = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(kept) = kept else { break };
            if kept.sender.is_ready() && !kept.rests_since.after(IDLE_MAX).is_past() {
                return Ok(kept);
            }
        }
        let stream = self.stream(within).await?;
        let with_tls = self.approach.connector.is_some();
        let (sender, driver) = handshake(TokioIo::new(stream)).await.map_err(|error| Ending::NotSent(words(&error)))?;
        Ok(Connection { sender, driver: tokio::spawn(driver), rests_since: Moment::now(), with_tls })
    }

    async fn stream(&self, within: Duration) -> Result<Stream, Ending> {
        if let Some(path) = self.socket_path() {
            return Ok(Box::new(UnixStream::connect(path).await.map_err(|error| unconnected(&error))?));
        }
        let addrs = lookup_host(&self.addr).await.map_err(|error| Ending::Unreachable(error.to_string()))?;
        let stream = connect_any(&addrs.collect::<Vec<_>>(), within).await.map_err(|error| unconnected(&error))?;
        stream.set_nodelay(true).map_err(|error| Ending::NotSent(error.to_string()))?;
        let Some(connector) = &self.approach.connector else { return Ok(Box::new(stream)) };
        let host = self.addr.rsplit_once(':').map_or(&*self.addr, |(host, _)| host);
        connector.connect(host, stream).await.map_err(Ending::Unreachable)
    }

    /// Returns the path of the Unix socket; `None` if the endpoint is `host:port`.
    fn socket_path(&self) -> Option<&str> {
        self.addr.strip_prefix(UNIX)
    }

    fn keep(&self, mut connection: Connection) {
        connection.rests_since = Moment::now();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_COUNT_MAX {
            idle.push(connection);
        }
    }
}

/// Tells whether a connection may have failed because a node or the network was slow or broken. The
/// next try may then succeed.
fn may_pass(error: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkUnreachable, TimedOut};
    matches!(error.kind(), TimedOut | HostUnreachable | NetworkUnreachable)
}

/// Converts the error of a connection that was not made to the result of the try.
fn unconnected(error: &io::Error) -> Ending {
    let ending = if may_pass(error) { Ending::NotSent } else { Ending::Unreachable };
    ending(error.to_string())
}

/// Connects to the first address that answers. Each address gets an equal share of the time, so
/// that an address that drops packets does not use up the time of the others. If no address
/// answers, returns the last error, but an error that may pass before any other.
async fn connect_any(addrs: &[SocketAddr], within: Duration) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for addr in addrs {
        let share = within / u32::try_from(addrs.len()).unwrap_or(u32::MAX);
        let error = match tokio::time::timeout(share, TcpStream::connect(addr)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => error,
            Err(_) => io::Error::new(io::ErrorKind::TimedOut, format!("no connection to {addr} within {share:?}")),
        };
        if may_pass(&error) || !may_pass(&failed) {
            failed = error;
        }
    }
    Err(failed)
}

/// Reads the whole body of an answer.
async fn whole(response: Response<Incoming>, sent: Moment) -> Ending {
    let (head, body) = response.into_parts();
    match Limited::new(body, ANSWER_BYTES_MAX).collect().await {
        Ok(body) => {
            let (status, body) = (head.status.as_u16(), body.to_bytes());
            Ending::Answered(Reply { status, headers: head.headers, body, sent })
        }
        Err(error) => Ending::Lost(words(&*error)),
    }
}

impl Connection {
    async fn carry(&mut self, request: Request<Full<Bytes>>, sent: Moment) -> Ending {
        match self.begin(request).await {
            Ok(response) => whole(response, sent).await,
            Err(ending) => ending,
        }
    }

    /// Sends the request and waits for the head of the answer.
    async fn begin(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Ending> {
        if let Err(error) = self.sender.ready().await {
            // This error only says that the connection has ended. The task that drives the
            // connection returns the cause.
            return Err(match (&mut self.driver).await {
                Ok(Err(why)) => self.failed(&why, Ending::NotSent),
                Ok(Ok(())) | Err(_) => self.failed(&error, Ending::NotSent),
            });
        }
        self.sender.try_send_request(request).await.map_err(|mut error| {
            // hyper returns the request if it has not begun to write it.
            let ending = if error.take_message().is_some() { Ending::NotSent } else { Ending::Lost };
            self.failed(error.error(), ending)
        })
    }

    /// Converts an error of the connection to the result of the try: `Unreachable` if the node has
    /// refused the client's certificate, else the result that `ending` makes of the message.
    fn failed(&self, error: &hyper::Error, ending: fn(String) -> Ending) -> Ending {
        match refusal(error) {
            // A node that refuses the certificate has read no request, so this counts as no
            // connection.
            Some(why) => Ending::Unreachable(why),
            None if error.is_parse() && !self.with_tls => {
                let advice = "the answer is no HTTP; an address with TLS is written https://HOST:PORT";
                ending(format!("{}: {advice}", words(error)))
            }
            // A node that is stopping, or a port for another protocol, closes the connection in
            // this way, too.
            None if error.is_incomplete_message() => {
                let advice = "it closed the connection without an answer; it may be a port for other than HTTP";
                ending(advice.to_owned())
            }
            None => ending(words(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;
    use crate::client::call::Target;

    #[tokio::test]
    async fn what_is_too_long_for_a_url_is_not_sent() {
        let long = Target::route("/v1/locks/l").with("label", "x".repeat(1 << 16));
        let (pool, patience) = (Pool::new("127.0.0.1:1".into(), Approach::default()), Duration::from_secs(30));
        let ending = pool.exchange(&Call::get(long.finish()), patience, patience).await;
        assert!(matches!(ending, Ending::Unsendable(_)), "{ending:?}");
    }

    #[tokio::test]
    async fn a_refusal_that_does_not_end_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let pool = Pool::new(listener.local_addr().unwrap().to_string(), Approach::default());
        let node = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4_096]).await;
            stream.write_all(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 9\r\n\r\n{").await.unwrap();
            // Waits until the client closes the connection, perhaps before it has read the answer.
            stream.read(&mut [0; 1]).await.unwrap_or(0)
        });
        let (call, silence) = (Call::get("/v1/admin/backup".into()), Duration::from_millis(100));
        let passed = pool.pass_on(&call, Duration::from_secs(30), silence, &mut |_| Ok(())).await;
        assert!(matches!(passed, Passed::Nothing(Ending::Lost(_))), "{passed:?}");
        assert_eq!(node.await.unwrap(), 0);
    }

    /// Returns a listener with a full backlog, so that the system drops further connections. Also
    /// returns the connections in the backlog.
    async fn full_listener() -> (TcpListener, Vec<TcpStream>) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let full = socket.listen(1).unwrap();
        let addr = full.local_addr().unwrap();
        let mut queued = Vec::new();
        while let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(addr)).await {
            queued.push(stream);
        }
        (full, queued)
    }

    #[tokio::test]
    async fn an_address_that_drops_packets_leaves_time_for_the_next() {
        let (full, _queued) = full_listener().await;
        let silent = full.local_addr().unwrap();
        let live = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addrs = [silent, live.local_addr().unwrap()];
        let stream = connect_any(&addrs, Duration::from_millis(500)).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), addrs[1]);
        let error = connect_any(&addrs[..1], Duration::from_millis(100)).await.unwrap_err();
        assert!(error.to_string().contains(&format!("no connection to {silent} within 100ms")), "{error}");
    }

    #[tokio::test]
    async fn a_node_that_may_only_be_slow_is_not_called_unreachable() {
        let (full, _queued) = full_listener().await;
        // The system refuses connections to a socket that does not listen.
        let deaf = TcpSocket::new_v4().unwrap();
        deaf.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let dead = deaf.local_addr().unwrap();
        let call = Call::get("/livez".into());
        let exchange = async |addr: SocketAddr, within: Duration| {
            Pool::new(addr.to_string(), Approach::default()).exchange(&call, within, within).await
        };
        let ending = exchange(full.local_addr().unwrap(), Duration::from_millis(100)).await;
        assert!(matches!(ending, Ending::NotSent(_)), "{ending:?}");
        let ending = exchange(dead, Duration::from_secs(30)).await;
        assert!(matches!(ending, Ending::Unreachable(_)), "{ending:?}");
        // A host with both addresses.
        let both = [full.local_addr().unwrap(), dead];
        let error = connect_any(&both, Duration::from_millis(100)).await.unwrap_err();
        assert!(matches!(unconnected(&error), Ending::NotSent(_)), "{error}");
    }

    #[tokio::test]
    async fn a_try_ends_at_its_deadline_though_its_connection_came_late() {
        // The system drops the first packet of the connection, because the queue is full, and
        // accepts its retransmission a second later.
        let (full, queued) = full_listener().await;
        let pool = Pool::new(full.local_addr().unwrap().to_string(), Approach::default());
        let node = tokio::spawn(async move {
            drop(queued);
            let mut streams = Vec::new();
            loop {
                streams.push(full.accept().await.unwrap());
            }
        });
        let (timeout, late) = (Duration::from_millis(1_500), Duration::from_millis(2_300));
        let call = Call::get("/livez".into());
        // After a pause of the whole process both times are over, and the exchange has ended first.
        let ending = tokio::time::timeout(late, pool.exchange(&call, timeout, timeout)).await;
        assert!(matches!(&ending, Ok(Ending::Lost(_))), "{ending:?}");
        node.abort();
    }

    /// Sends one call to a listener that answers every connection with `answer`.
    async fn call_answered_with(answer: &'static [u8]) -> Ending {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let pool = Pool::new(listener.local_addr().unwrap().to_string(), Approach::default());
        let answering = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_buf(&mut Vec::new()).await.unwrap();
            stream.write_all(answer).await.unwrap();
            let _ = stream.read_to_end(&mut Vec::new()).await;
        });
        let patience = Duration::from_secs(30);
        let ending = pool.exchange(&Call::get(Target::route("/livez").finish()), patience, patience).await;
        answering.abort();
        ending
    }

    #[tokio::test]
    async fn a_node_on_this_machine_is_asked_by_its_socket() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admin.sock");
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let asked = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            stream.read_buf(&mut request).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
            String::from_utf8(request).unwrap()
        });
        let (pool, patience) =
            (Pool::new(format!("unix:{}", path.display()), Approach::default()), Duration::from_secs(30));
        let ending = pool.exchange(&Call::get(Target::route("/livez").finish()), patience, patience).await;
        assert!(matches!(&ending, Ending::Answered(reply) if reply.status == 200), "{ending:?}");
        assert!(asked.await.unwrap().contains("host: localhost\r\n"));
    }

    #[tokio::test]
    async fn a_call_without_tls_to_an_address_with_tls_says_how_that_is_written() {
        // The TLS alert with which rustls answers an HTTP request.
        let ending = call_answered_with(b"\x15\x03\x03\x00\x02\x02\x32").await;
        assert!(matches!(&ending, Ending::Lost(why) if why.contains("is written https://HOST:PORT")), "{ending:?}");
    }
}
