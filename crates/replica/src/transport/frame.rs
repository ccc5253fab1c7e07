//! Length-prefixed frames over one TCP connection: a `u32` length, little-endian, then one record of `storage::codec`.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bincode::{Decode, Encode};
use bytes::{Buf, Bytes, BytesMut};
use socket2::{SockRef, TcpKeepalive};
use storage::codec;
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;

/// A frame that claims more is refused before anything is allocated for it.
pub(crate) const FRAME_BYTES_MAX: usize = 32 << 20;

/// How much is read from the socket at once.
const READ_BYTES: usize = 64 << 10;

/// How long a connection is idle before the kernel asks whether the peer is still there, and between two such questions.
const KEEPALIVE: Duration = Duration::from_secs(5);

const PREFIX_BYTES: usize = size_of::<u32>();

/// What [`Framed::exchange`] came to.
#[derive(Debug)]
pub(crate) enum Exchange<T> {
    /// The peer sent a message.
    Message(T),
    /// Everything queued has been sent.
    Flushed,
    /// The peer has closed the connection.
    Closed,
}

/// One connection with its buffers. Every method may be cancelled and called again: nothing is lost in between.
pub(crate) struct Framed {
    stream: TcpStream,
    input: BytesMut,
    output: BytesMut,
}

impl Framed {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Framed> {
        stream.set_nodelay(true)?;
        // A peer whose machine is gone never closes its connections.
        SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE))?;
        Ok(Framed { stream, input: BytesMut::new(), output: BytesMut::new() })
    }

    /// Puts a message behind what is to be sent. Sends nothing yet.
    pub(crate) fn queue<T: Encode>(&mut self, message: &T) -> io::Result<()> {
        self.queue_record(&codec::encode(message))
    }

    /// Like [`Framed::queue`], for a record that is encoded already.
    pub(crate) fn queue_record(&mut self, record: &[u8]) -> io::Result<()> {
        if record.len() > FRAME_BYTES_MAX {
            return Err(io::Error::other(format!("a frame of {} bytes is too long to send", record.len())));
        }
        let length = u32::try_from(record.len()).expect("bounded just above");
        self.output.extend_from_slice(&length.to_le_bytes());
        self.output.extend_from_slice(record);
        Ok(())
    }

    /// How many bytes wait to be sent.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.output.len()
    }

    /// Sends what is queued.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.output.is_empty() {
            let sent = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.output))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.output.advance(sent);
        }
        Poll::Ready(Ok(()))
    }

    /// The next record; `None` when the peer has closed the connection between two frames.
    pub(crate) fn poll_record(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        loop {
            if let Some(record) = self.take_record()? {
                return Poll::Ready(Ok(Some(record)));
            }
            ready!(self.stream.poll_read_ready(cx))?;
            self.input.reserve(READ_BYTES);
            match self.stream.try_read_buf(&mut self.input) {
                Ok(0) if self.input.is_empty() => return Poll::Ready(Ok(None)),
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => {}
                // Readiness was a false alarm; asking again registers for the next one.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// A whole record from what has been read, if there is one.
    fn take_record(&mut self) -> io::Result<Option<Bytes>> {
        let Some(prefix) = self.input.first_chunk::<PREFIX_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*prefix) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(io::Error::other(format!("the peer sent a frame of {length} bytes, more than it may")));
        }
        if self.input.len() < PREFIX_BYTES + length {
            return Ok(None);
        }
        self.input.advance(PREFIX_BYTES);
        Ok(Some(self.input.split_to(length).freeze()))
    }

    /// Waits until everything queued is sent.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// Waits for the next message; `None` when the peer has closed the connection.
    pub(crate) async fn next<T: Decode<()>>(&mut self) -> io::Result<Option<T>> {
        match poll_fn(|cx| self.poll_record(cx)).await? {
            Some(record) => Ok(Some(codec::decode(&record)?)),
            None => Ok(None),
        }
    }

    /// Sends what is queued and waits for a message, whichever comes to an end first.
    pub(crate) async fn exchange<T: Decode<()>>(&mut self) -> io::Result<Exchange<T>> {
        let record = poll_fn(|cx| {
            if !self.output.is_empty() && self.poll_flush(cx)?.is_ready() {
                return Poll::Ready(Ok(Exchange::Flushed));
            }
            self.poll_record(cx).map_ok(|record| record.map_or(Exchange::Closed, Exchange::Message))
        });
        Ok(match record.await? {
            Exchange::Message(record) => Exchange::Message(codec::decode(&record)?),
            Exchange::Flushed => Exchange::Flushed,
            Exchange::Closed => Exchange::Closed,
        })
    }

    /// Sends one message and waits until it is on its way.
    pub(crate) async fn send<T: Encode>(&mut self, message: &T) -> io::Result<()> {
        self.queue(message)?;
        self.flush().await
    }
}
