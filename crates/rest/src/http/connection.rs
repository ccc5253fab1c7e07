//! A connection: hyper serves it while requests come, and an idle connection costs little more than
//! its socket.
//!
//! While hyper has a connection, it keeps two buffers of 8 KiB, its state machine and space for a
//! request's future. Thousands of clients keep a connection that only sends a heartbeat every few
//! seconds. So a connection that was idle for [`PARK_AFTER`] is parked: taken back from hyper,
//! until the first byte of the next request comes.
//!
//! The timeouts for heads and for idle connections are checked here, by one timer for each
//! connection instead of one for each request. The timeout of a head counts from its first byte; a
//! new connection has the same time for its first request. A parked connection may be closed to
//! admit a new one.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use hyper::body::{Body as _, Incoming as RequestBody};
use hyper::rt::Write as _;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};
use tower::ServiceExt;
use tracing::debug;

use crate::RestConfig;
use crate::http::delivery::{Delivering, Delivery, Stage};
use crate::http::peer::Peer;

/// Idle time after which a connection is parked: taken back from hyper to free hyper's buffers.
/// Parking may be late by one [`TICK`].
const PARK_AFTER: Duration = Duration::from_millis(250);
/// Unit of the timers, which all fire at multiples of it, so that one wakeup serves many
/// connections.
const TICK: Duration = Duration::from_millis(250);

/// The socket of a connection, with or without TLS.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Socket for T {}

type Io<T> = Delivering<TokioIo<T>>;

/// State that all connections share.
pub(crate) struct Connections {
    router: Router,
    http: http1::Builder,
    head_timeout: Duration,
    idle_timeout: Duration,
    stall: Duration,
    stopping: CancellationToken,
    /// Moment from which [`TICK`]s are counted.
    started: Instant,
}

/// Events that wake a connection, besides its socket.
struct Wakers<'a, 'b> {
    alarm: Pin<&'a mut Sleep>,
    stopped: Pin<&'a mut WaitForCancellationFuture<'b>>,
}

/// Reason to take a connection back from hyper.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LetGo {
    Parking,
    Stopping,
}

/// Next step for a connection that waits for a request.
enum Due {
    Later(Instant),
    Park,
    Close,
}

impl Connections {
    pub(crate) fn new(router: Router, config: &RestConfig, stopping: CancellationToken) -> Connections {
        let head = config.uri_bytes_max.saturating_add(config.header_bytes_max);
        let mut http = http1::Builder::new();
        // This server itself answers 414 and 431. hyper ends heads beyond the bounds set here with
        // a bare status.
        http.header_read_timeout(None)
            .max_headers(config.headers_max.saturating_mul(4).max(100))
            .max_buf_size(head.saturating_mul(4).max(64 << 10));
        Connections {
            router,
            http,
            head_timeout: Duration::from_millis(config.header_read_timeout_ms),
            idle_timeout: Duration::from_millis(config.idle_timeout_ms),
            stall: Duration::from_millis(config.write_timeout_ms),
            stopping,
            started: Instant::now(),
        }
    }

    /// Serves a connection until it ends. A complete request marks the connection as busy, so that
    /// it is not closed to admit a new connection.
    pub(crate) async fn serve<T: Socket>(&self, stream: T, guest: Option<Peer>) {
        let delivery = Delivery::default();
        let mut io = Delivering::new(TokioIo::new(stream), delivery.clone(), self.stall);
        let mut alarm = std::pin::pin!(tokio::time::sleep_until(self.started));
        let mut stopped = std::pin::pin!(self.stopping.cancelled());
        let mut wakers = Wakers { alarm: alarm.as_mut(), stopped: stopped.as_mut() };
        loop {
            // The box is dropped before the connection is parked, which frees hyper's memory.
            let busy = Box::pin(self.busy(io, &delivery, guest.as_ref(), &mut wakers));
            io = match busy.await {
                Ok(Some(parked)) => parked,
                Ok(None) => return,
                Err(error) => return debug!(%error, "a connection ended"),
            };
            if let Some(peer) = &guest {
                peer.rests();
            }
            let parked = self.parked(&mut io, &delivery, &mut wakers).await;
            if !guest.as_ref().is_none_or(Peer::resumes) {
                return;
            }
            match parked {
                Ok(true) => {}
                Ok(false) => return end(io).await,
                Err(error) => return debug!(%error, "an idle connection ended"),
            }
        }
    }

    /// Serves requests. Returns the connection when it was idle for [`PARK_AFTER`], and `None` when
    /// it has ended.
    async fn busy<T: Socket>(
        &self,
        io: Io<T>,
        delivery: &Delivery,
        guest: Option<&Peer>,
        wakers: &mut Wakers<'_, '_>,
    ) -> hyper::Result<Option<Io<T>>> {
        let service = service_fn(|mut request: hyper::Request<RequestBody>| {
            delivery.working();
            request.extensions_mut().insert(delivery.clone());
            if let Some(peer) = guest {
                // A request with a body makes the connection busy only when the body is complete.
                if request.body().is_end_stream() {
                    peer.heard();
                }
                request.extensions_mut().insert(peer.clone());
            }
            let answer = self.router.clone().oneshot(request);
            Box::pin(async move {
                let answer = answer.await;
                delivery.answered();
                answer
            })
        });
        let mut connection = self.http.serve_connection(io, service);
        wakers.alarm.as_mut().reset(self.tick_after(Instant::now() + PARK_AFTER.min(self.head_timeout)));
        let mut let_go = None;
        let served = poll_fn(|cx| {
            loop {
                if let Poll::Ready(served) = connection.poll_without_shutdown(cx) {
                    return Poll::Ready(Some(served));
                }
                let stops = let_go != Some(LetGo::Stopping) && wakers.stopped.as_mut().poll(cx).is_ready();
                if stops && !is_fresh(delivery) {
                    let_go = Some(LetGo::Stopping);
                } else {
                    match self.poll_due(delivery, let_go, wakers, cx) {
                        Poll::Ready(Due::Park) => let_go = Some(LetGo::Parking),
                        Poll::Ready(_) => return Poll::Ready(None),
                        Poll::Pending => return Poll::Pending,
                    }
                }
                // A connection without a request ends at once. If a request has just come, hyper
                // serves it, and ends the connection then.
                Pin::new(&mut connection).graceful_shutdown();
            }
        });
        match served.await {
            None => return Ok(None),
            Some(served) => served?,
        }
        let parts = connection.into_parts();
        let mut io = parts.io;
        if let_go == Some(LetGo::Parking) && delivery.is_waiting() {
            io.read_ahead(parts.read_buf);
            return Ok(Some(io));
        }
        end(io).await;
        Ok(None)
    }

    /// Waits for the first byte of a request on a parked connection. False when the connection must
    /// end instead: closed by the client, timed out, or at shutdown.
    async fn parked<T: Socket>(
        &self,
        io: &mut Io<T>,
        delivery: &Delivery,
        wakers: &mut Wakers<'_, '_>,
    ) -> std::io::Result<bool> {
        let stage @ Stage::Waiting { .. } = delivery.stage() else { return Ok(true) };
        wakers.alarm.as_mut().reset(self.tick_after(self.closes_at(stage)));
        poll_fn(|cx| {
            if let Poll::Ready(read) = io.poll_ahead::<1>(cx) {
                return Poll::Ready(read);
            }
            let over = wakers.stopped.as_mut().poll(cx).is_ready() || wakers.alarm.as_mut().poll(cx).is_ready();
            if over { Poll::Ready(Ok(false)) } else { Poll::Pending }
        })
        .await
    }

    /// Resolves when a connection without a request must be parked or closed. `let_go` is set if
    /// hyper has already been told to end the connection.
    fn poll_due(
        &self,
        delivery: &Delivery,
        let_go: Option<LetGo>,
        wakers: &mut Wakers<'_, '_>,
        cx: &mut Context<'_>,
    ) -> Poll<Due> {
        // An alarm that fires while a request is worked on is ignored.
        while let stage @ Stage::Waiting { .. } = delivery.stage() {
            if wakers.alarm.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            match self.due(stage, let_go) {
                Due::Later(at) => wakers.alarm.as_mut().reset(self.tick_after(at)),
                due => return Poll::Ready(due),
            }
        }
        Poll::Pending
    }

    fn due(&self, stage: Stage, let_go: Option<LetGo>) -> Due {
        let now = Instant::now();
        let Stage::Waiting { since, begun, .. } = stage else { return Due::Later(now + PARK_AFTER) };
        let (park, close) = (since + PARK_AFTER, self.closes_at(stage));
        if close <= now {
            Due::Close
        } else if begun.is_some() || let_go.is_some() || close <= park {
            Due::Later(close)
        } else if park <= now {
            Due::Park
        } else {
            Due::Later(park)
        }
    }

    /// Returns the moment at which a connection without a complete request head times out.
    fn closes_at(&self, stage: Stage) -> Instant {
        match stage {
            Stage::Waiting { begun: Some(begun), .. } => begun + self.head_timeout,
            Stage::Waiting { since, first: true, .. } => since + self.head_timeout,
            Stage::Waiting { since, .. } => since + self.idle_timeout,
            Stage::Working | Stage::Answered => Instant::now() + self.head_timeout,
        }
    }

    /// Returns the first tick at or after a moment.
    fn tick_after(&self, at: Instant) -> Instant {
        let ticks = at.saturating_duration_since(self.started).as_nanos().div_ceil(TICK.as_nanos());
        self.started + TICK.saturating_mul(u32::try_from(ticks).unwrap_or(u32::MAX))
    }
}

/// Tells whether the client has just connected, and has sent nothing yet. Its first request is
/// probably on its way, and is answered even at shutdown.
fn is_fresh(delivery: &Delivery) -> bool {
    matches!(delivery.stage(), Stage::Waiting { since, begun: None, first: true } if since.elapsed() < PARK_AFTER)
}

/// Shuts the connection down: flushes, and ends TLS if the client takes part.
async fn end<T: Socket>(mut io: Io<T>) {
    if let Err(error) = poll_fn(|cx| Pin::new(&mut io).poll_shutdown(cx)).await {
        debug!(%error, "a connection was not ended in order");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
    use tokio::sync::Notify;
    use tokio::task::JoinHandle;

    use super::*;

    const REQUEST: &str = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    const WHILE: Duration = Duration::from_secs(5);

    /// A socket that records the buffer size of the last read. A parked connection reads one byte
    /// at a time.
    struct RecordingSocket {
        stream: DuplexStream,
        bytes: Arc<AtomicUsize>,
    }

    impl AsyncRead for RecordingSocket {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<std::io::Result<()>> {
            self.bytes.store(buffer.remaining(), Ordering::Relaxed);
            Pin::new(&mut self.stream).poll_read(cx, buffer)
        }
    }

    impl AsyncWrite for RecordingSocket {
        fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
            Pin::new(&mut self.stream).poll_write(cx, bytes)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Pin::new(&mut self.stream).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Pin::new(&mut self.stream).poll_shutdown(cx)
        }
    }

    /// Advances the test's clock, and lets all tasks run before and after.
    async fn pass(time: Duration) {
        let rest = async || {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        };
        rest().await;
        tokio::time::advance(time).await;
        rest().await;
    }

    /// The client's end of a connection.
    struct Client {
        stream: DuplexStream,
        asked: Arc<AtomicUsize>,
        stopping: CancellationToken,
        /// Lets the test's handler of `/slow` answer.
        finish: Arc<Notify>,
        served: JoinHandle<()>,
    }

    impl Client {
        fn connect() -> Client {
            let finish = Arc::new(Notify::new());
            let finished = finish.clone();
            let slow = async move || {
                finished.notified().await;
                "slow"
            };
            let router = Router::new().route("/", get(|| async { "done" })).route("/slow", get(slow));
            let stopping = CancellationToken::new();
            let connections = Connections::new(router, &RestConfig::default(), stopping.clone());
            let (stream, theirs) = duplex(1 << 16);
            let asked = Arc::new(AtomicUsize::new(0));
            let socket = RecordingSocket { stream: theirs, bytes: asked.clone() };
            let served = tokio::spawn(async move { connections.serve(socket, None).await });
            Client { stream, asked, stopping, finish, served }
        }

        async fn send(&mut self, text: &str) {
            self.stream.write_all(text.as_bytes()).await.unwrap();
        }

        async fn answer(&mut self, body: &str) {
            let mut bytes = Vec::new();
            while !bytes.ends_with(format!("\r\n\r\n{body}").as_bytes()) {
                bytes.push(self.stream.read_u8().await.unwrap());
            }
            assert!(bytes.starts_with(b"HTTP/1.1 200 OK\r\n") && !bytes.windows(5).any(|five| five == b"close"));
        }

        async fn parked_after(&self, time: Duration) -> bool {
            pass(time).await;
            self.asked.load(Ordering::Relaxed) == 1
        }

        /// Waits until the server closes the connection, and returns that moment.
        async fn closed(mut self) -> Instant {
            assert_eq!(self.stream.read(&mut [0]).await.unwrap(), 0);
            self.served.await.unwrap();
            Instant::now()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_is_parked_and_serves_on() {
        let mut client = Client::connect();
        for _ in 0..3 {
            assert!(client.parked_after(PARK_AFTER + TICK).await);
            client.send(REQUEST).await;
            client.answer("done").await;
            assert!(!client.parked_after(PARK_AFTER / 2).await);
            // Two requests and half of a third come at once: the half must survive parking.
            client.send(&format!("{REQUEST}{REQUEST}{}", &REQUEST[..20])).await;
            client.answer("done").await;
            client.answer("done").await;
            assert!(client.parked_after(PARK_AFTER + TICK).await);
            client.send(&REQUEST[20..24]).await;
            client.send(&REQUEST[24..]).await;
            client.answer("done").await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_worked_on_or_half_there_is_not_idle() {
        let mut client = Client::connect();
        client.send(&REQUEST.replace(" / ", " /slow ")).await;
        assert!(!client.parked_after(WHILE).await);
        client.finish.notify_one();
        client.answer("slow").await;
        assert!(client.parked_after(PARK_AFTER + TICK).await);
        client.send(&REQUEST[..20]).await;
        assert!(!client.parked_after(WHILE).await);
        client.send(&REQUEST[20..]).await;
        client.answer("done").await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_has_its_own_time_and_a_head_its_own_from_its_first_byte() {
        let config = RestConfig::default();
        let [head, idle] = [config.header_read_timeout_ms, config.idle_timeout_ms].map(Duration::from_millis);
        // The client sends nothing, half a head at once, or half a head after the connection was
        // parked.
        let half = &REQUEST[..20];
        for (at_once, later, expected) in [("", "", idle), (half, "", head), ("", half, WHILE + head)] {
            let mut client = Client::connect();
            client.send(REQUEST).await;
            client.answer("done").await;
            let answered = Instant::now();
            client.send(at_once).await;
            pass(WHILE).await;
            client.send(later).await;
            let closed = client.closed().await - answered;
            assert!(closed >= expected && closed <= expected + 2 * TICK, "{closed:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_has_the_time_of_a_head_for_its_first_request() {
        let head = Duration::from_millis(RestConfig::default().header_read_timeout_ms);
        let begun = Instant::now();
        let closed = Client::connect().closed().await - begun;
        assert!(closed >= head && closed <= head + 2 * TICK, "{closed:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_with_its_client_or_with_the_door() {
        for idle in [Duration::ZERO, PARK_AFTER + TICK] {
            let stopped = Client::connect();
            assert_eq!(stopped.parked_after(idle).await, !idle.is_zero());
            stopped.stopping.cancel();
            stopped.closed().await;
            let mut gone = Client::connect();
            gone.parked_after(idle).await;
            gone.stream.shutdown().await.unwrap();
            gone.closed().await;
        }
        // This client had connected, and sends its first request after the shutdown began.
        let mut late = Client::connect();
        pass(PARK_AFTER / 2).await;
        late.stopping.cancel();
        pass(PARK_AFTER / 4).await;
        late.send(REQUEST).await;
        let mut answer = String::new();
        late.stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("\r\n\r\ndone"), "{answer}");
        let mut working = Client::connect();
        working.send(&REQUEST.replace(" / ", " /slow ")).await;
        assert!(!working.parked_after(WHILE).await);
        working.stopping.cancel();
        pass(WHILE).await;
        working.finish.notify_one();
        let mut answer = String::new();
        working.stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("\r\n\r\nslow"), "{answer}");
    }
}
