//! Accepted connection before its TLS handshake and its first request.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use crate::acceptor::Acceptor;
use crate::stream::Stream;

/// Largest number of written and unsent bytes of one connection that the kernel buffers.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT_BYTES_MAX: u32 = 128 << 10;

/// An accepted connection before its TLS handshake and its first request.
/// [`crate::Listeners::accept`] returns it after its PROXY header, if any, was read.
#[derive(Debug)]
pub struct Incoming {
    stream: TcpStream,
    /// The client's address, which the PROXY header of a balancer may have told.
    addr: SocketAddr,
    acceptor: Option<Acceptor>,
    on_loopback: bool,
}

impl Incoming {
    pub(crate) fn new(
        (stream, addr): (TcpStream, SocketAddr),
        acceptor: Option<Acceptor>,
        on_loopback: bool,
    ) -> Incoming {
        Incoming { stream, addr, acceptor, on_loopback }
    }

    /// Tells whether the listener is on a loopback address and the client is not behind a balancer,
    /// so that the client is on this machine.
    pub fn is_on_loopback(&self) -> bool {
        self.on_loopback
    }

    /// Socket of the connection, from which the PROXY header is read.
    pub(crate) fn stream_mut(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Notes the client's address, which a balancer has told. Then [`Incoming::is_on_loopback`] is
    /// false.
    pub(crate) fn comes_from(&mut self, client: SocketAddr) {
        (self.addr, self.on_loopback) = (client, false);
    }

    /// Tells whether the connection uses TLS.
    pub fn is_secure(&self) -> bool {
        self.acceptor.is_some()
    }

    /// Sets socket options. Written bytes are sent without delay (`TCP_NODELAY`). Keepalive detects
    /// a dead client within half a minute, even without writes. On Linux, the kernel buffers few
    /// bytes for a slow client. All other bytes stay in the process, which limits their number.
    ///
    /// # Errors
    /// An error when the kernel refuses an option.
    pub fn set_options(&self) -> io::Result<()> {
        self.stream.set_nodelay(true)?;
        let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(15)).with_interval(Duration::from_secs(5));
        let socket = SockRef::from(&self.stream);
        // Without this option, the kernel buffers up to 4 MiB for each connection.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
        socket.set_tcp_keepalive(&keepalive.with_retries(3))
    }

    /// Returns the socket of a connection without TLS; `None` for one with TLS.
    pub fn into_plain(self) -> Option<TcpStream> {
        if self.acceptor.is_some() { None } else { Some(self.stream) }
    }

    /// Performs the TLS handshake, if the listener uses TLS, and returns the connection.
    ///
    /// # Errors
    /// An error when the handshake fails, or takes too long.
    pub async fn open(self) -> io::Result<Stream> {
        match self.acceptor {
            None => Ok(self.stream.into()),
            // Boxed, because the state of a handshake is large and would be part of the caller's
            // future.
            Some(acceptor) => Box::pin(acceptor.accept(self.stream, self.addr)).await,
        }
    }
}
