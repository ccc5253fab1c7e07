//! Byte stream of a connection between two nodes: TCP with or without TLS, or a simulated
//! connection.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use accept::{MutualAcceptor, MutualTls};
use bytes::BytesMut;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::addresses::Addresses;
use crate::local::host::Host;
use crate::simulation::Duplex;

/// Idle time of a connection before the kernel probes the peer, and the time between two probes.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// Largest number of bytes that are read from a socket at once, after the handshake.
pub(crate) const READ_BYTES: usize = 64 << 10;
/// Largest number of bytes that are read at once from a connection with TLS or a simulated one.
const COPIED_READ_BYTES: usize = 16 << 10;
/// Pause between two looks at the first bytes of a connection with less than three bytes so far.
const FIRST_BYTES_PAUSE: Duration = Duration::from_millis(5);

/// Future that ends when the certificate of a connection's other end is not accepted any more.
pub(crate) type EndOfTrust = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

/// One connection to a peer.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Tls(Box<accept::Stream>),
    Simulated(Box<dyn Duplex>),
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Self {
        Stream::Tcp(stream)
    }
}

impl Stream {
    /// Opens a connection to the current one of a peer's addresses.
    pub(crate) async fn connect(host: &Host, to: &Addresses, until: Instant) -> io::Result<Stream> {
        match host {
            Host::Machine => to.connect(until).await.map(Stream::Tcp),
            Host::Simulated(world) => timeout_at(until, world.connect(&to.current())).await?.map(Stream::Simulated),
        }
    }

    /// URIs among the names of the other end's certificate; `None` without TLS.
    pub(crate) fn certificate_uris(&self) -> Option<Vec<String>> {
        if let Stream::Tls(stream) = self { Some(stream.uris()) } else { None }
    }

    /// Returns a future that ends when the certificate of the other end is not accepted any more;
    /// `None` without TLS.
    pub(crate) fn end_of_trust(&self, tls: &MutualTls) -> Option<EndOfTrust> {
        if let Stream::Tls(stream) = self { Some(Box::pin(tls.end_of_trust(stream))) } else { None }
    }

    /// Does the TLS handshake of a connection that this node has opened. A simulated connection has
    /// no TLS.
    pub(crate) async fn dial_tls(self, tls: &MutualTls) -> io::Result<Stream> {
        match self {
            Stream::Tcp(stream) => Ok(Stream::Tls(Box::new(tls.connect(stream).await?))),
            other => Ok(other),
        }
    }

    /// Does the TLS handshake of a connection that another node has opened from `addr`, if that
    /// node begins with a TLS handshake. Without `tls`, this beginning is an error.
    pub(crate) async fn accept_tls(self, tls: Option<&MutualAcceptor>, addr: Option<IpAddr>) -> io::Result<Stream> {
        let stream = match self {
            Stream::Tcp(stream) if begins_tls(&stream).await? => stream,
            other => return Ok(other),
        };
        match tls {
            Some(tls) => {
                let addr = addr.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
                Ok(Stream::Tls(Box::new(tls.accept(stream, addr).await?)))
            }
            None => {
                let why = "the caller speaks TLS, and peers.tls is off on this node";
                Err(io::Error::new(io::ErrorKind::InvalidData, why))
            }
        }
    }

    /// Sets the options of a TCP socket: no delay of small packets, and keepalive probes.
    pub(crate) fn set_up(&self) -> io::Result<()> {
        let stream = match self {
            Stream::Tcp(stream) => stream,
            Stream::Tls(stream) => stream.socket(),
            Stream::Simulated(_) => return Ok(()),
        };
        stream.set_nodelay(true)?;
        // A peer whose machine is gone never closes its connections.
        SockRef::from(stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE))
    }

    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Simulated(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    /// Sends the bytes that the stream itself buffers. Only a stream with TLS buffers any.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Stream::Tls(stream) = self { Pin::new(stream).poll_flush(cx) } else { Poll::Ready(Ok(())) }
    }

    /// Reads about `room` bytes at most and appends them to `into`. Returns their number; 0 means
    /// that the other end has closed the connection.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut BytesMut,
        room: usize,
    ) -> Poll<io::Result<usize>> {
        match self {
            Stream::Tcp(stream) => {
                // Waits first, so that no room is made for data that has not come.
                ready!(stream.poll_read_ready(cx))?;
                into.reserve(room);
                // Not `try_read_buf`: after a read that does not fill the room, `read_buf` knows
                // that the socket is empty, which saves one more read.
                pin!(stream.read_buf(into)).poll(cx)
            }
            Stream::Tls(stream) => poll_copy(stream, cx, into),
            Stream::Simulated(stream) => poll_copy(stream, cx, into),
        }
    }
}

/// Reads from `stream` and appends the bytes to `into`. Returns their number.
fn poll_copy(stream: impl AsyncRead + Unpin, cx: &mut Context<'_>, into: &mut BytesMut) -> Poll<io::Result<usize>> {
    let mut bytes = [0; COPIED_READ_BYTES];
    let mut read = ReadBuf::new(&mut bytes);
    ready!(pin!(stream).poll_read(cx, &mut read))?;
    into.extend_from_slice(read.filled());
    Poll::Ready(Ok(read.filled().len()))
}

/// Tells whether the other end begins with a TLS handshake. A peer's hello begins with its length.
/// Read as a length, the first bytes of a TLS handshake are above 64 KiB, and a hello has at most
/// 4 KiB.
async fn begins_tls(stream: &TcpStream) -> io::Result<bool> {
    let mut bytes = [0; 3];
    loop {
        let seen = stream.peek(&mut bytes).await?;
        match bytes[..seen] {
            [22] | [22, 3] => tokio::time::sleep(FIRST_BYTES_PAUSE).await,
            ref first => return Ok(matches!(first, [22, 3, minor] if *minor > 0)),
        }
    }
}

/// Listener for connections of peers.
pub(crate) enum Listener {
    Tcp {
        listener: TcpListener,
        /// TLS handshakes of callers; `None` if TLS is off.
        tls: Option<Arc<MutualAcceptor>>,
    },
    Simulated(mpsc::Receiver<Box<dyn Duplex>>),
}

impl Listener {
    /// TLS handshakes of callers; `None` if TLS is off.
    pub(crate) fn tls(&self) -> Option<Arc<MutualAcceptor>> {
        if let Listener::Tcp { tls, .. } = self { tls.clone() } else { None }
    }

    /// Accepts a connection. Returns it with the address of the other end, which is `None` in a
    /// simulation. The socket itself tells the address only until the other end resets the
    /// connection.
    pub(crate) async fn accept(&mut self) -> io::Result<(Stream, Option<IpAddr>)> {
        match self {
            Listener::Tcp { listener, .. } => {
                let (stream, addr) = listener.accept().await?;
                Ok((Stream::Tcp(stream), Some(addr.ip())))
            }
            Listener::Simulated(listener) => match listener.recv().await {
                Some(stream) => Ok((Stream::Simulated(stream), None)),
                // The simulation accepts no connection any more.
                None => std::future::pending().await,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_that_is_reset_at_once_has_an_address() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let caller = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        // The drop resets the connection before it is accepted.
        SockRef::from(&caller).set_linger(Some(Duration::ZERO)).unwrap();
        drop(caller);
        let (_stream, addr) = Listener::Tcp { listener, tls: None }.accept().await.unwrap();
        assert_eq!(addr, Some("127.0.0.1".parse().unwrap()));
    }
}
