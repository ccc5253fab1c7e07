//! A connection that has just come, before anything of it was read.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use crate::acceptor::Acceptor;
use crate::stream::Stream;

/// Bytes that the system may keep of what is written and was not sent yet.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT_BYTES_MAX: u32 = 128 << 10;

/// A connection that has just come. Nothing was read of it.
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

    /// Tells whether its listener is for this machine only.
    pub fn is_on_loopback(&self) -> bool {
        self.on_loopback
    }

    /// The socket.
    pub(crate) fn stream_mut(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Notes that the client is elsewhere, wherever the listener is.
    pub(crate) fn comes_from_elsewhere(&mut self) {
        self.on_loopback = false;
    }

    /// Tells whether a handshake comes first.
    pub fn is_secure(&self) -> bool {
        self.acceptor.is_some()
    }

    /// Sets the options of the socket: what is written leaves at once, a dead client is noticed
    /// within half a minute also while nothing is written to it, and what a client does not take
    /// stays where it is counted.
    ///
    /// # Errors
    /// When the system refuses one of them.
    pub fn set_options(&self) -> io::Result<()> {
        self.stream.set_nodelay(true)?;
        let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(15)).with_interval(Duration::from_secs(5));
        let socket = SockRef::from(&self.stream);
        // Else it is up to 4 MiB for each connection, in the system's memory.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
        socket.set_tcp_keepalive(&keepalive.with_retries(3))
    }

    /// The socket itself, unless a handshake has to come first.
    pub fn into_plain(self) -> Option<TcpStream> {
        if self.acceptor.is_some() { None } else { Some(self.stream) }
    }

    /// The connection, after its handshake.
    ///
    /// # Errors
    /// When the handshake fails, or takes too long.
    pub async fn open(self) -> io::Result<Stream> {
        match self.acceptor {
            None => Ok(self.stream.into()),
            // In a box: what a handshake needs is large, and not to be kept in the place of a
            // caller that waits for it.
            Some(acceptor) => Box::pin(acceptor.accept(self.stream)).await,
        }
    }
}
