//! Thread for TLS handshakes.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::oneshot;

use crate::turns::{Group, Seat, Turns};

/// Thread for TLS handshakes, whose signatures take milliseconds with some keys. Each handshake is
/// a task in the queue of its address. So a flood of handshakes delays neither the tasks of the
/// runtime nor the handshakes of other addresses. The caller must limit the number of handshakes.
#[derive(Debug)]
pub(crate) struct HandshakeThread {
    turns: Turns,
    /// Number of handshakes of exempt addresses so far.
    exempt: AtomicU64,
}

impl HandshakeThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// An error when no thread can be started.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub(crate) fn start() -> io::Result<HandshakeThread> {
        Ok(HandshakeThread { turns: Turns::start_thread("handshakes")?, exempt: AtomicU64::new(0) })
    }

    /// Performs a handshake on this thread. `source` is the address of the other end, or `None` for
    /// an exempt address, each of whose handshakes has its own queue. The handshake ends if this
    /// future is dropped.
    ///
    /// # Errors
    /// The error of the handshake.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        source: Option<IpAddr>,
        handshake: impl Future<Output = io::Result<T>> + Send + 'static,
    ) -> io::Result<T> {
        let (mut done, result) = oneshot::channel();
        let task = async move {
            tokio::select! {
                biased;
                () = done.closed() => {}
                // The receiver may have been dropped meanwhile.
                result = handshake => drop(done.send(result)),
            }
        };
        let own = || Group::Connection(self.exempt.fetch_add(1, Ordering::Relaxed));
        self.turns.spawn(&Seat::new(source.map_or_else(own, Group::Address)), task);
        result.await.unwrap_or_else(|_| Err(io::Error::other("the thread of handshakes has ended")))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_handshake_runs_on_this_thread_and_ends_with_its_future() {
        let thread = HandshakeThread::start().unwrap();
        for source in [None, Some(Ipv4Addr::LOCALHOST.into())] {
            let name = async { Ok(std::thread::current().name().map(str::to_owned)) };
            assert_eq!(thread.run(source, name).await.unwrap().as_deref(), Some("handshakes"));
        }
        let (held, dropped) = oneshot::channel::<()>();
        let stalled = async move {
            let _held = held;
            std::future::pending::<io::Result<()>>().await
        };
        assert!(timeout(Duration::from_millis(10), thread.run(None, stalled)).await.is_err());
        assert!(dropped.await.is_err(), "the handshake ends");
    }
}
