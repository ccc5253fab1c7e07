//! A connection, with TLS or without.

use std::io;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::{TlsStream, client, server};

/// An open connection, with TLS or without. Written bytes may stay in its buffer until a flush.
#[derive(Debug)]
pub struct Stream {
    io: Io,
    subject: Option<String>,
}

#[derive(Debug)]
enum Io {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Read half of a [`Stream`], with TLS or without.
#[derive(Debug)]
pub struct ReadHalf(ReadIo);

#[derive(Debug)]
enum ReadIo {
    Plain(OwnedReadHalf),
    Tls(tokio::io::ReadHalf<TlsStream<TcpStream>>),
}

/// Write half of a [`Stream`], with TLS or without.
#[derive(Debug)]
pub struct WriteHalf(WriteIo);

#[derive(Debug)]
enum WriteIo {
    Plain(Arc<OwnedWriteHalf>),
    Tls(tokio::io::WriteHalf<TlsStream<TcpStream>>),
}

/// Writer to a connection without TLS that bypasses its [`WriteHalf`] and can be used by any task.
/// It writes as many bytes as the socket accepts without waiting. The connection stays open while a
/// clone exists.
#[derive(Clone, Debug)]
pub struct Direct(Arc<OwnedWriteHalf>);

/// Role of the other end in a TLS handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OtherEnd {
    Client,
    Server,
}

impl Stream {
    pub(crate) fn accepted(stream: server::TlsStream<TcpStream>, subject: Option<String>) -> Stream {
        Stream { io: Io::Tls(Box::new(stream.into())), subject }
    }

    pub(crate) fn connected(stream: client::TlsStream<TcpStream>) -> Stream {
        Stream { io: Io::Tls(Box::new(stream.into())), subject: None }
    }

    /// The subject of the client's certificate, as in `CN=worker,O=Example`. `None` without TLS,
    /// without a certificate, or with a certificate that has no usable subject.
    pub fn subject(&self) -> Option<&str> {
        self.subject.as_deref()
    }

    /// URIs among the names of the other end's certificate. Empty if the connection has no TLS, or
    /// the other end has shown no certificate.
    pub fn uris(&self) -> Vec<String> {
        let Io::Tls(stream) = &self.io else { return Vec::new() };
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        shown.map(uris_of).unwrap_or_default()
    }

    /// Role of the other end and the certificates that it has shown, its own first; `None` without
    /// TLS.
    pub(crate) fn shown_certificates(&self) -> Option<(OtherEnd, Vec<CertificateDer<'static>>)> {
        let Io::Tls(stream) = &self.io else { return None };
        let end = if matches!(**stream, TlsStream::Server(_)) { OtherEnd::Client } else { OtherEnd::Server };
        let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
        Some((end, shown.iter().map(|certificate| certificate.clone().into_owned()).collect()))
    }

    /// Socket of the connection.
    pub fn socket(&self) -> &TcpStream {
        match &self.io {
            Io::Plain(stream) => stream,
            Io::Tls(stream) => stream.get_ref().0,
        }
    }

    /// Tells whether the connection is encrypted.
    pub fn is_secure(&self) -> bool {
        matches!(self.io, Io::Tls(_))
    }

    /// Splits the connection into two halves that can be used at the same time.
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        match self.io {
            Io::Plain(stream) => {
                let (reading, writing) = stream.into_split();
                (ReadHalf(ReadIo::Plain(reading)), WriteHalf(WriteIo::Plain(Arc::new(writing))))
            }
            Io::Tls(stream) => {
                let (reading, writing) = tokio::io::split(*stream);
                (ReadHalf(ReadIo::Tls(reading)), WriteHalf(WriteIo::Tls(writing)))
            }
        }
    }
}

/// URIs among the names of a certificate; empty if the certificate is damaged.
pub(crate) fn uris_of(certificate: &CertificateDer<'_>) -> Vec<String> {
    let certificate = webpki::EndEntityCert::try_from(certificate);
    certificate.map(|certificate| certificate.valid_uri_names().map(str::to_owned).collect()).unwrap_or_default()
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Stream {
        Stream { io: Io::Plain(stream), subject: None }
    }
}

impl WriteHalf {
    /// Returns a writer that bypasses this half; `None` with TLS. The bytes of concurrent writes
    /// are mixed, so callers must take turns.
    pub fn direct(&self) -> Option<Direct> {
        match &self.0 {
            WriteIo::Plain(stream) => Some(Direct(Arc::clone(stream))),
            WriteIo::Tls(_) => None,
        }
    }
}

impl Direct {
    /// Writes as many bytes as the socket accepts now, and returns their number.
    ///
    /// # Errors
    /// `WouldBlock` when the socket accepts none; then the [`WriteHalf`] can wait for the socket.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }
}

/// Calls a poll method on the inner stream of either variant.
macro_rules! inside {
    ($io:expr, $variants:ident, $stream:ident => $poll:expr) => {
        match $io {
            $variants::Plain($stream) => $poll,
            $variants::Tls($stream) => $poll,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        inside!(&mut self.io, Io, stream => Pin::new(stream).poll_read(cx, buffer))
    }
}

impl AsyncRead for ReadHalf {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        inside!(&mut self.0, ReadIo, stream => Pin::new(stream).poll_read(cx, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        inside!(&mut self.io, Io, stream => Pin::new(stream).poll_write(cx, bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        inside!(&mut self.io, Io, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        inside!(&mut self.io, Io, stream => Pin::new(stream).poll_shutdown(cx))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        inside!(&mut self.io, Io, stream => Pin::new(stream).poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        inside!(&self.io, Io, stream => stream.is_write_vectored())
    }
}

impl AsyncWrite for WriteHalf {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        let stream = match &mut self.0 {
            WriteIo::Plain(stream) => stream,
            WriteIo::Tls(stream) => return Pin::new(stream).poll_write(cx, buffer),
        };
        loop {
            ready!(AsRef::<TcpStream>::as_ref(&**stream).poll_write_ready(cx))?;
            match stream.try_write(buffer) {
                // The readiness was stale. Polling again registers the task for the next one.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            WriteIo::Plain(_) => Poll::Ready(Ok(())),
            WriteIo::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            WriteIo::Plain(stream) => {
                let stream: &TcpStream = (**stream).as_ref();
                Poll::Ready(SockRef::from(stream).shutdown(Shutdown::Write))
            }
            WriteIo::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
