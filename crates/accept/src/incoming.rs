//! Accepted connection of which no byte was read.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use crate::acceptor::Acceptor;
use crate::stream::Stream;

/// Largest number of written and unsent bytes that the system keeps of a connection.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT_BYTES_MAX: u32 = 128 << 10;

/// An accepted connection of which no byte was read.
#[derive(Debug)]
pub struct Incoming {
    stream: TcpStream,
    acceptor: Option<Acceptor>,
    on_loopback: bool,
}

impl Incoming {
    pub(crate) fn new(stream: TcpStream, acceptor: Option<Acceptor>, on_loopback: bool) -> Incoming {
        Incoming { stream, acceptor, on_loopback }
    }

    /// Tells whether its listener is reachable from this machine only.
    pub fn is_on_loopback(&self) -> bool {
        self.on_loopback
    }

    /// The socket.
    pub(crate) fn stream_mut(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Notes that the client is on another machine, even if the listener is on loopback.
    pub(crate) fn comes_from_elsewhere(&mut self) {
        self.on_loopback = false;
    }

    /// Tells whether a TLS handshake comes first.
    pub fn is_secure(&self) -> bool {
        self.acceptor.is_some()
    }

    /// Sets the options of the socket. Written bytes are sent at once. A dead client is noticed
    /// within half a minute, even without writes. The system keeps few unsent bytes, so that the
    /// others stay in the program, which counts them.
    ///
    /// # Errors
    /// When the system refuses an option.
    pub fn set_options(&self) -> io::Result<()> {
        self.stream.set_nodelay(true)?;
        let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(15)).with_interval(Duration::from_secs(5));
        let socket = SockRef::from(&self.stream);
        // Without this option the system keeps up to 4 MiB for each connection.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
        socket.set_tcp_keepalive(&keepalive.with_retries(3))
    }

    /// Returns the socket of a connection without TLS; `None` for one with TLS.
    pub fn into_plain(self) -> Option<TcpStream> {
        if self.acceptor.is_some() { None } else { Some(self.stream) }
    }

    /// Carries out the handshake, if there is one, and returns the connection.
    ///
    /// # Errors
    /// When the handshake fails, or takes too long.
    pub async fn open(self) -> io::Result<Stream> {
        match self.acceptor {
            None => Ok(self.stream.into()),
            // Boxed, because the state of a handshake is large and would be part of the caller's
            // future.
            Some(acceptor) => Box::pin(acceptor.accept(self.stream)).await,
        }
    }
}
