//! Delivery of answers: a granted lock counts as delivered when the answer was flushed to the
//! client's socket.
//!
//! If the client misses the answer, its lock stays held until the session ends. So the [`Waiter`]
//! of a granted lock stays armed until the answer was flushed, and a connection that ends earlier
//! drops the waiter armed, which releases the lock.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use accept::Mutex;
use axum::http::Extensions;
use bytes::{Buf, Bytes, BytesMut};
use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use tokio::time::{Instant, Sleep};

use crate::http::waiter::Waiter;

/// Largest number of bytes in one read while the connection hides the client's end of stream from
/// hyper (see [`Progress`]).
const HELD_AHEAD: usize = 256;

/// Progress of one connection: the stage of its request, and a [`Waiter`] for each answer with a
/// granted lock that is being written. There are several waiters only if requests are pipelined.
#[derive(Clone, Default)]
pub(crate) struct Delivery {
    progress: Arc<Mutex<Progress>>,
}

struct Progress {
    stage: Stage,
    waiters: Vec<Waiter>,
    /// True while the client's end of stream is hidden from hyper, which would drop the request. It
    /// is hidden for requests that do not wait, so that they are answered even to a client that has
    /// closed its sending side.
    holds_end: bool,
    /// Waker of hyper's pending read. It is woken when the end of stream is no longer hidden.
    reader: Option<Waker>,
}

/// Stage of a connection's request.
#[derive(Clone, Copy)]
pub(crate) enum Stage {
    /// No request is open: the last answer was flushed, or no request has come yet.
    Waiting {
        since: Instant,
        /// Moment at which the first byte of the next request came.
        begun: Option<Instant>,
        /// True until the first answer was flushed.
        first: bool,
    },
    /// The head of a request was read.
    Working,
    /// The answer is made, and not flushed yet.
    Answered,
}

impl Default for Progress {
    fn default() -> Progress {
        let stage = Stage::Waiting { since: Instant::now(), begun: None, first: true };
        Progress { stage, waiters: Vec::new(), holds_end: false, reader: None }
    }
}

impl Delivery {
    /// Returns the [`Delivery`] of the request's connection. `None` without a connection, as in
    /// tests: every answer then counts as delivered.
    pub(crate) fn of(extensions: &Extensions) -> Option<&Delivery> {
        extensions.get()
    }

    pub(crate) fn stage(&self) -> Stage {
        self.progress.lock().stage
    }

    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.stage(), Stage::Waiting { .. })
    }

    pub(crate) fn working(&self) {
        let mut progress = self.progress.lock();
        (progress.stage, progress.holds_end) = (Stage::Working, true);
    }

    pub(crate) fn answered(&self) {
        self.progress.lock().stage = Stage::Answered;
    }

    /// Stops hiding the client's end of stream from hyper, which then drops the request when the
    /// client closes its sending side.
    pub(crate) fn release_end(&self) {
        let mut progress = self.progress.lock();
        progress.holds_end = false;
        let reader = progress.reader.take();
        drop(progress);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    fn holds_end(&self) -> bool {
        self.progress.lock().holds_end
    }

    /// Registers the waker of a read that has met the client's end of stream. Returns whether this
    /// end is hidden from hyper; otherwise the waker is not registered.
    fn end_waits(&self, reader: &Waker) -> bool {
        let mut progress = self.progress.lock();
        if progress.holds_end {
            progress.reader = Some(reader.clone());
        }
        progress.holds_end
    }

    fn push(&self, waiter: Waiter) {
        self.progress.lock().waiters.push(waiter);
    }

    fn begun(&self) {
        if let Stage::Waiting { begun, .. } = &mut self.progress.lock().stage {
            begun.get_or_insert_with(Instant::now);
        }
    }

    /// Notes that all written answers were flushed, and so delivered. Disarms the waiters of these
    /// answers, so that the client keeps the granted locks.
    fn arrived(&self) {
        let mut progress = self.progress.lock();
        let is_answered = matches!(progress.stage, Stage::Answered);
        if is_answered {
            progress.stage = Stage::Waiting { since: Instant::now(), begun: None, first: false };
        }
        let waiters = std::mem::take(&mut progress.waiters);
        drop(progress);
        if is_answered {
            self.release_end();
        }
        for mut waiter in waiters {
            waiter.disarm();
        }
    }
}

/// Keeps the waiter of a granted lock armed until the lock's answer was flushed.
pub(crate) fn deliver(extensions: &Extensions, mut waiter: Waiter) {
    match Delivery::of(extensions) {
        Some(delivery) => delivery.push(waiter),
        None => waiter.disarm(),
    }
}

/// A connection that tells [`Delivery`] of flushed answers, and fails when the client reads no byte
/// for too long.
pub(crate) struct Delivering<T> {
    io: T,
    delivery: Delivery,
    stall: Duration,
    /// Timer that runs while the socket accepts no bytes.
    stalled: Option<Pin<Box<Sleep>>>,
    /// Bytes that were read from the socket, and are returned by the next read.
    ahead: Bytes,
}

impl<T> Delivering<T> {
    pub(crate) fn new(io: T, delivery: Delivery, stall: Duration) -> Delivering<T> {
        Delivering { io, delivery, stall, stalled: None, ahead: Bytes::new() }
    }

    /// Puts back bytes that hyper has read and not used, for the next read. `ahead` must be empty.
    pub(crate) fn read_ahead(&mut self, unused: Bytes) {
        // An empty `Bytes` can still hold its buffer.
        self.ahead = if unused.is_empty() { Bytes::new() } else { unused };
    }

    /// Passes on the result of polling the socket. A socket that stays pending for longer than the
    /// field `stall` becomes an error.
    fn watch<R>(&mut self, poll: Poll<std::io::Result<R>>, cx: &mut Context<'_>) -> Poll<std::io::Result<R>> {
        if poll.is_ready() {
            self.stalled = None;
            return poll;
        }
        let until = Instant::now() + self.stall;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "the client takes nothing of its answer")))
    }
}

impl<T: Read + Unpin> Delivering<T> {
    /// Reads up to `LENGTH` bytes into `ahead`. False at the client's end of stream.
    pub(crate) fn poll_ahead<const LENGTH: usize>(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<bool>> {
        let mut bytes = [0; LENGTH];
        let mut buffer = ReadBuf::new(&mut bytes);
        ready!(Pin::new(&mut self.io).poll_read(cx, buffer.unfilled()))?;
        let read = buffer.filled();
        if read.is_empty() {
            return Poll::Ready(Ok(false));
        }
        self.ahead = BytesMut::from_iter(self.ahead.iter().chain(read)).freeze();
        self.delivery.begun();
        Poll::Ready(Ok(true))
    }
}

impl<T: Read + Unpin> Read for Delivering<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.ahead.has_remaining() {
            let length = self.ahead.len().min(buffer.remaining());
            buffer.put_slice(&self.ahead.split_to(length));
            return Poll::Ready(Ok(()));
        }
        // hyper also reads while a request is worked on, and would drop the request at the client's
        // end of stream.
        if self.delivery.holds_end() {
            if ready!(self.poll_ahead::<HELD_AHEAD>(cx))? {
                let length = self.ahead.len().min(buffer.remaining());
                buffer.put_slice(&self.ahead.split_to(length));
                // Further bytes of a body that have come are read, too.
                if self.ahead.is_empty() {
                    let _ = Pin::new(&mut self.io).poll_read(cx, buffer);
                }
                return Poll::Ready(Ok(()));
            }
            // The socket reports the end of stream again at the next read.
            if self.delivery.end_waits(cx.waker()) {
                return Poll::Pending;
            }
        }
        ready!(Pin::new(&mut self.io).poll_read(cx, buffer))?;
        self.delivery.begun();
        Poll::Ready(Ok(()))
    }
}

impl<T: Write + Unpin> Write for Delivering<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        let poll = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.watch(poll, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let poll = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.watch(poll, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    // hyper flushes only when its own buffer is empty, so the answers have gone to the kernel.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let poll = Pin::new(&mut self.io).poll_flush(cx);
        let poll = self.watch(poll, cx);
        if let Poll::Ready(Ok(())) = poll {
            self.delivery.arrived();
        }
        poll
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let poll = Pin::new(&mut self.io).poll_shutdown(cx);
        self.watch(poll, cx)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use replica::{Config, Consistency, Member, Replica, Step, WatchKey};
    use tokio_util::sync::CancellationToken;
    use tower::ServiceExt;
    use znode::lock::queue;
    use znode::{Op, Request, ZPath};

    use super::*;
    use crate::RestConfig;
    use crate::request::door::Door;
    use crate::routes::routes;

    /// A client that has sent one request and refuses all bytes of the answer.
    struct SilentClient(Option<String>);

    impl Read for SilentClient {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            mut buffer: ReadBufCursor<'_>,
        ) -> Poll<std::io::Result<()>> {
            match self.0.take() {
                Some(request) => {
                    buffer.put_slice(request.as_bytes());
                    Poll::Ready(Ok(()))
                }
                // The client sends nothing more and has not closed: only a write shows that it is
                // gone.
                None => Poll::Pending,
            }
        }
    }

    impl Write for SilentClient {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<std::io::Result<usize>> {
            Poll::Ready(Err(std::io::ErrorKind::BrokenPipe.into()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    async fn start(dir: &std::path::Path) -> Replica {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer_addr = listener.local_addr().unwrap().to_string();
        let members = vec![Member { id: 1, peer_addr, http_addr: String::new() }];
        let config = Config { members, data_dir: dir.join("data"), free_disk_min_bytes: 0, ..Config::default() };
        let replica = Replica::start_on(config, listener).await.unwrap();
        while replica.read(Consistency::Linearizable, soon()).await.is_err() {
            tokio::task::yield_now().await;
        }
        replica
    }

    #[tokio::test]
    async fn a_grant_that_cannot_be_delivered_is_withdrawn() {
        let dir = tempfile::tempdir().unwrap();
        let replica = start(dir.path()).await;
        let key = zlock_client::api::SessionKey { id: 0, secret: [7; 16] };
        let secret_hash = crate::request::caller::secret_hash(&key);
        let op = Op::OpenSession {
            secret_hash,
            timeout_ms: 60_000,
            label: String::new(),
            address: None,
            client: znode::ClientInfo::default(),
        };
        let id = replica.propose(Request::new(op), soon()).await.unwrap().zxid.0;
        let key = zlock_client::api::SessionKey { id, ..key };
        let request = format!("POST /v1/locks/l HTTP/1.1\r\nhost: x\r\nzlock-session-key: {key}\r\n\r\n");

        let router = routes(Door::new(replica.clone(), RestConfig::default(), CancellationToken::new()));
        let delivery = Delivery::default();
        let io = Delivering::new(SilentClient(Some(request)), delivery.clone(), Duration::from_secs(20));
        let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
            request.extensions_mut().insert(delivery.clone());
            router.clone().oneshot(request)
        });
        let served = http1::Builder::new().serve_connection(io, service).await;
        assert!(served.is_err());

        let lock = ZPath::parse("/l").unwrap();
        let left = replica.wait_for(soon(), |state| match queue(state, &lock, 0, 1) {
            Ok(queue) if queue.contenders == 0 => Step::Ready(()),
            _ => Step::Watch(WatchKey::Children(lock.clone())),
        });
        left.await.expect("it leaves the queue");
    }
}
