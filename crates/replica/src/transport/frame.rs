//! Length-prefixed frames over one TCP connection: a `u32` length, little-endian, then one record of `storage::codec`.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};

use bincode::{Decode, Encode};
use bytes::{Buf, Bytes, BytesMut};
use storage::codec;

use super::stream::Stream;

/// A frame that claims more is refused before anything is allocated for it.
pub(crate) const FRAME_BYTES_MAX: usize = 32 << 20;

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
    stream: Stream,
    input: BytesMut,
    output: BytesMut,
    /// All that is in `output` may wait for something to go with.
    idle: bool,
}

impl Framed {
    pub(crate) fn new(stream: impl Into<Stream>) -> io::Result<Framed> {
        let stream = stream.into();
        stream.set_up()?;
        Ok(Framed { stream, input: BytesMut::new(), output: BytesMut::new(), idle: false })
    }

    /// Puts a message behind what is to be sent. Sends nothing yet.
    pub(crate) fn queue<T: Encode>(&mut self, message: &T) -> io::Result<()> {
        self.queue_record(&codec::encode(message))
    }

    /// Like [`Framed::queue`], for what need not go by itself: [`Framed::exchange`] sends it with the next message, or when
    /// [`Framed::hurry`] says so. Whether it is the first that waits.
    pub(crate) fn queue_idly<T: Encode>(&mut self, message: &T) -> io::Result<bool> {
        let first = self.output.is_empty();
        let idle = first || self.idle;
        self.queue(message)?;
        self.idle = idle;
        Ok(first)
    }

    /// Nothing that is queued may wait any longer.
    pub(crate) fn hurry(&mut self) {
        self.idle = false;
    }

    /// Whether all that is queued waits for something to go with.
    pub(crate) fn is_idle(&self) -> bool {
        self.idle && !self.output.is_empty()
    }

    /// Like [`Framed::queue`], for a record that is encoded already.
    pub(crate) fn queue_record(&mut self, record: &[u8]) -> io::Result<()> {
        if record.len() > FRAME_BYTES_MAX {
            return Err(io::Error::other(format!("a frame of {} bytes is too long to send", record.len())));
        }
        let length = u32::try_from(record.len()).expect("bounded just above");
        self.idle = false;
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
            let sent = ready!(self.stream.poll_write(cx, &self.output))?;
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
            match ready!(self.stream.poll_read(cx, &mut self.input))? {
                0 if self.input.is_empty() => return Poll::Ready(Ok(None)),
                0 => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                _ => {}
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
            if !self.output.is_empty() && !self.idle && self.poll_flush(cx)?.is_ready() {
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

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    async fn pair() -> (TcpStream, Framed) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (raw, accepted) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        (raw.unwrap(), Framed::new(accepted.unwrap().0).unwrap())
    }

    #[tokio::test]
    async fn frames_arrive_whole_however_they_are_cut() {
        let (mut raw, mut framed) = pair().await;
        let record = codec::encode(&(7u64, vec![1u8; 100_000]));
        let mut bytes = (record.len() as u32).to_le_bytes().to_vec();
        bytes.extend_from_slice(&record);
        bytes.extend_from_slice(&bytes.clone());
        let sending = async {
            for piece in bytes.chunks(33_333) {
                raw.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
            drop(raw);
        };
        let receiving = async {
            for _ in 0..2 {
                let (number, data) = framed.next::<(u64, Vec<u8>)>().await.unwrap().unwrap();
                assert_eq!((number, data.len()), (7, 100_000));
            }
            assert!(framed.next::<u64>().await.unwrap().is_none());
        };
        tokio::join!(sending, receiving);
    }

    /// What is read after a peer sent these bytes and closed.
    #[track_caller]
    fn check(bytes: Vec<u8>, refused: &str) -> impl Future<Output = ()> {
        let refused = refused.to_string();
        async move {
            let (mut raw, mut framed) = pair().await;
            raw.write_all(&bytes).await.unwrap();
            drop(raw);
            let error = framed.next::<u64>().await.unwrap_err();
            assert!(error.to_string().contains(&refused), "{bytes:?}: {error}");
        }
    }

    #[tokio::test]
    async fn what_is_no_frame_is_refused() {
        check(vec![0xff; 8], "more than it may").await;
        check(vec![3, 0], "unexpected end of file").await;
        check(vec![3, 0, 0, 0, 1], "unexpected end of file").await;
        check(vec![1, 0, 0, 0, 99], "version 99").await;
        check(vec![3, 0, 0, 0, 1, 5, 5], "behind the end").await;
        check(vec![0, 0, 0, 0], "empty").await;
    }

    #[tokio::test]
    async fn what_may_wait_goes_with_the_next_message() {
        let (raw, mut framed) = pair().await;
        let mut peer = Framed::new(raw).unwrap();
        assert!(framed.queue_idly(&1u64).unwrap());
        assert!(!framed.queue_idly(&2u64).unwrap());
        // Nothing is sent: what comes in is seen first.
        peer.send(&9u64).await.unwrap();
        assert!(matches!(framed.exchange::<u64>().await.unwrap(), Exchange::Message(9)));
        assert!(framed.is_idle());
        framed.queue(&3u64).unwrap();
        assert!(matches!(framed.exchange::<u64>().await.unwrap(), Exchange::Flushed));
        for expected in 1..=3u64 {
            assert_eq!(peer.next::<u64>().await.unwrap(), Some(expected));
        }
        assert!(framed.queue_idly(&4u64).unwrap());
        framed.hurry();
        assert!(matches!(framed.exchange::<u64>().await.unwrap(), Exchange::Flushed));
        // Behind what is in a hurry nothing waits.
        framed.queue(&5u64).unwrap();
        framed.queue_idly(&6u64).unwrap();
        assert!(matches!(framed.exchange::<u64>().await.unwrap(), Exchange::Flushed));
    }

    #[tokio::test]
    async fn a_frame_that_is_too_long_is_not_sent() {
        let (_raw, mut framed) = pair().await;
        assert!(framed.queue(&vec![0u8; FRAME_BYTES_MAX]).is_err());
        assert_eq!(framed.queued_bytes(), 0);
    }
}
