//! Frames over one TCP connection: a `u32` length, a `u32` CRC-32 of what follows, both
//! little-endian, and one record of `storage::codec`.
//!
//! The checksum is needed because TCP's checksum lets one damaged packet in 65,000 through, and a
//! damaged entry would make the states of two nodes differ for good. It does not protect against
//! forgery.
//!
//! Incoming data is bounded: by the length that the other end may announce, by the time that a
//! frame may take once it has begun, and, on the called side, by the bytes of all callers'
//! incomplete frames (`callers`). Buffers grow with what has come, not with what was announced.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use accept::MutualTls;
use bincode::{Decode, Encode};
use bytes::{Buf, Bytes, BytesMut};
use storage::codec;
use tokio::time::{Instant, Sleep, sleep_until};

use super::callers::CallerPlace;
use super::messages::FRAME_BYTES_MAX;
use super::refusal::VERSIONS;
use super::rules::{PeerMessage, Rules};
use super::stream::{EndOfTrust, READ_BYTES, Stream};

/// Longest frame in bytes until the handshake is over. A hello and a welcome are far shorter.
const GREETING_BYTES_MAX: usize = 4 << 10;

/// Bytes of a frame's length and checksum.
const PREFIX_BYTES: usize = 2 * size_of::<u32>();
/// Number of bytes that extends a frame's time limit, which begins at `peer_timeout`, by one
/// millisecond: 128 KB a second.
const FRAME_BYTES_PER_MS: usize = 128;
/// Smallest size in bytes of an incomplete frame that counts for the limit on the incomplete frames
/// of all connections together.
const COUNTED_BYTES_MIN: usize = 64 << 10;

/// The outcome of [`FramedStream::exchange`].
#[derive(Debug)]
pub(crate) enum Exchange<T> {
    /// The peer sent a message.
    Message(T),
    /// All queued messages have been sent.
    Flushed,
    /// The peer has closed the connection.
    Closed,
}

/// One connection with its buffers. Every method may be cancelled and called again without a loss
/// of data.
pub(crate) struct FramedStream {
    stream: Stream,
    input: BytesMut,
    output: BytesMut,
    /// True if all messages in `output` may wait until a more urgent message is queued.
    idle: bool,
    /// True if the stream may still buffer bytes that were taken out of `output`.
    unflushed: bool,
    /// Conditions on frames from the other end; `None` until the handshake is over.
    terms: Option<Terms>,
    /// Incarnation (random number) of the data directory at the other end; 0 before it is known.
    incarnation: u64,
    peer_timeout: Duration,
    /// Time that this end has spent waiting for the remaining bytes of the incomplete frame.
    waited: Duration,
    /// Time since which this end waits for the remaining bytes of the incomplete frame. `None`
    /// while this end does something else: bytes may then have reached the socket in time.
    waits_since: Option<Instant>,
    /// True if `terms.place` counts the bytes in `input` for the limit on the incomplete frames of
    /// all connections.
    counted: bool,
    /// Size in bytes of the last record that was read.
    record_bytes: usize,
    timer: Option<Pin<Box<Sleep>>>,
}

/// Conditions on which this end accepts frames from the other end, after the handshake.
pub(crate) struct Terms {
    /// The version of the messages on this connection.
    pub(crate) version: u16,
    /// Longest frame in bytes that the other end may send.
    pub(crate) frame_bytes_max: usize,
    /// Checks of what the other end's messages say; a message that fails one is refused.
    pub(crate) rules: Rules,
    /// Entry in the table of callers, which counts incomplete frames and notes when the other end
    /// was heard; `None` at the end that opened the connection.
    pub(crate) place: Option<CallerPlace>,
}

impl FramedStream {
    /// Makes a connection for the handshake: until [`FramedStream::set_terms`] is called, the peer
    /// may only send a hello or a welcome. An incomplete frame may take `peer_timeout`, in addition
    /// to the time for its bytes.
    pub(crate) fn new(stream: impl Into<Stream>, peer_timeout: Duration) -> io::Result<FramedStream> {
        let stream = stream.into();
        stream.set_up()?;
        Ok(FramedStream {
            stream,
            input: BytesMut::new(),
            output: BytesMut::new(),
            idle: false,
            unflushed: false,
            terms: None,
            incarnation: 0,
            peer_timeout,
            waited: Duration::ZERO,
            waits_since: None,
            counted: false,
            record_bytes: 0,
            timer: None,
        })
    }

    /// Sets the incarnation of the other end's data directory.
    pub(crate) fn meet(&mut self, incarnation: u64) {
        self.incarnation = incarnation;
    }

    /// Incarnation of the other end's data directory; 0 before it is known.
    pub(crate) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Sets the conditions on frames from the other end, after the handshake.
    pub(crate) fn set_terms(&mut self, terms: Terms) {
        self.terms = Some(terms);
    }

    /// Version of the messages on which both ends have agreed.
    pub(crate) fn version(&self) -> u16 {
        self.terms.as_ref().map_or(VERSIONS.0, |terms| terms.version)
    }

    /// Queues a message, without sending it yet.
    pub(crate) fn queue<T: Encode>(&mut self, message: &T) -> io::Result<()> {
        self.queue_record(&codec::encode(message))
    }

    /// Queues a message that need not be sent at once: [`FramedStream::exchange`] sends it with the
    /// next urgent message, or after [`FramedStream::hurry`]. Returns true if the queue was empty.
    pub(crate) fn queue_idly<T: Encode>(&mut self, message: &T) -> io::Result<bool> {
        let first = self.output.is_empty();
        let idle = first || self.idle;
        self.queue(message)?;
        self.idle = idle;
        Ok(first)
    }

    /// Lets [`FramedStream::exchange`] send all queued messages, also those that could wait.
    pub(crate) fn hurry(&mut self) {
        self.idle = false;
    }

    /// Tells whether there are queued messages and all of them wait for an urgent one.
    pub(crate) fn is_idle(&self) -> bool {
        self.idle && !self.output.is_empty()
    }

    /// Queues an encoded record.
    pub(crate) fn queue_record(&mut self, record: &[u8]) -> io::Result<()> {
        if record.len() > FRAME_BYTES_MAX {
            return Err(io::Error::other(format!("a frame of {} bytes is too long to send", record.len())));
        }
        let length = u32::try_from(record.len()).expect("bounded just above");
        self.idle = false;
        self.output.extend_from_slice(&length.to_le_bytes());
        self.output.extend_from_slice(&codec::checksum(record).to_le_bytes());
        self.output.extend_from_slice(record);
        Ok(())
    }

    /// Number of bytes that wait to be sent; at least 1 while the stream buffers bytes.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.output.len().max(usize::from(self.unflushed))
    }

    /// URIs among the names of the other end's certificate; `None` without TLS.
    pub(crate) fn certificate_uris(&self) -> Option<Vec<String>> {
        self.stream.certificate_uris()
    }

    /// Returns a future that ends when the certificate of the other end is not accepted any more;
    /// `None` without TLS.
    pub(crate) fn end_of_trust(&self, tls: &MutualTls) -> Option<EndOfTrust> {
        self.stream.end_of_trust(tls)
    }

    /// Size in bytes of the message that was read last.
    pub(crate) fn record_bytes(&self) -> usize {
        self.record_bytes
    }

    /// Sends all queued messages.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.output.is_empty() {
            let sent = ready!(self.stream.poll_write(cx, &self.output))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.output.advance(sent);
            self.unflushed = true;
        }
        if self.unflushed {
            ready!(self.stream.poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Returns the next record; `None` when the peer has closed the connection between two frames.
    pub(crate) fn poll_record(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        loop {
            if let Some(record) = self.take_record()? {
                return Poll::Ready(Ok(Some(record)));
            }
            let room = if self.terms.is_some() { READ_BYTES } else { GREETING_BYTES_MAX };
            match self.stream.poll_read(cx, &mut self.input, room)? {
                Poll::Ready(0) if self.input.is_empty() => return Poll::Ready(Ok(None)),
                Poll::Ready(0) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                Poll::Ready(_) => self.count()?,
                Poll::Pending => return self.poll_overdue(cx).map(Err),
            }
        }
    }

    /// Takes the next record out of the bytes that were read; `None` if it is not complete yet.
    fn take_record(&mut self) -> io::Result<Option<Bytes>> {
        let Some([length, checksum]) = self.prefix() else {
            return Ok(None);
        };
        let length = length as usize;
        if length > self.frame_bytes_max() {
            return Err(malformed(format!("a frame of {length} bytes, more than there may be")));
        }
        if self.input.len() < PREFIX_BYTES + length {
            return Ok(None);
        }
        self.input.advance(PREFIX_BYTES);
        let record = self.input.split_to(length).freeze();
        self.pause();
        self.waited = Duration::ZERO;
        self.record_bytes = length;
        self.count()?;
        if codec::checksum(&record) != checksum {
            return Err(malformed("a frame whose checksum does not match".into()));
        }
        Ok(Some(record))
    }

    /// Length and checksum at the beginning of the next frame; `None` if they are not complete yet.
    fn prefix(&self) -> Option<[u32; 2]> {
        let prefix = self.input.first_chunk::<PREFIX_BYTES>()?;
        let (length, checksum) = prefix.split_first_chunk::<4>()?;
        Some([u32::from_le_bytes(*length), u32::from_le_bytes(*checksum.first_chunk()?)])
    }

    fn frame_bytes_max(&self) -> usize {
        self.terms.as_ref().map_or(GREETING_BYTES_MAX, |terms| terms.frame_bytes_max)
    }

    /// Counts the bytes of a long incomplete frame for the limit over all connections. Stops
    /// counting them when the frame is complete.
    fn count(&mut self) -> io::Result<()> {
        let bytes = self.input.len();
        if bytes < COUNTED_BYTES_MIN && !self.counted {
            return Ok(());
        }
        let place = self.terms.as_ref().and_then(|terms| terms.place.as_ref());
        self.counted = bytes >= COUNTED_BYTES_MIN;
        place.map_or(Ok(()), |place| place.keep(if self.counted { bytes } else { 0 }))
    }

    /// Stops the timeout of an incomplete frame until this end reads again, because this end does
    /// something else meanwhile.
    pub(crate) fn pause(&mut self) {
        self.waited += self.waits_since.take().map_or(Duration::ZERO, |since| since.elapsed());
    }

    /// Becomes ready when this end has waited for an incomplete frame for longer than the frame's
    /// length allows.
    fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if self.input.is_empty() {
            return Poll::Pending;
        }
        let length = self.prefix().map_or(0, |[length, _]| length as usize);
        let since = *self.waits_since.get_or_insert_with(Instant::now);
        let deadline = since + frame_time(self.peer_timeout, length).saturating_sub(self.waited);
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if timer.deadline() != deadline {
            timer.as_mut().reset(deadline);
        }
        timer.as_mut().poll(cx).map(|()| io::Error::new(io::ErrorKind::TimedOut, "a frame has begun and does not end"))
    }

    /// Decodes a message, and refuses a message that breaks a rule.
    pub(crate) fn read<T: PeerMessage>(&self, record: &[u8]) -> io::Result<T> {
        let Some(terms) = &self.terms else {
            return Err(malformed("a message before a hello".into()));
        };
        let message: T = codec::decode(record)?;
        message.check(&terms.rules).map_err(|broken| malformed(format!("a message that breaks a rule: {broken}")))?;
        if let Some(place) = &terms.place {
            place.heard();
        }
        Ok(message)
    }

    /// Waits until all queued messages are sent.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// Waits for the next message; `None` when the peer has closed the connection.
    pub(crate) async fn next<T: PeerMessage>(&mut self) -> io::Result<Option<T>> {
        match self.record().await? {
            Some(record) => Ok(Some(self.read(&record)?)),
            None => Ok(None),
        }
    }

    async fn record(&mut self) -> io::Result<Option<Bytes>> {
        let reading = PeerWait(self);
        poll_fn(|cx| reading.0.poll_record(cx)).await
    }

    /// Waits for a hello or a welcome; `None` when the peer has closed the connection.
    pub(crate) async fn greeting<T: Decode<()>>(&mut self) -> io::Result<Option<T>> {
        match self.record().await? {
            Some(record) => Ok(Some(codec::decode_short(&record)?)),
            None => Ok(None),
        }
    }

    /// Sends the queued messages, and waits for a message of the peer. Returns as soon as all are
    /// sent, or a message has come.
    pub(crate) async fn exchange<T: PeerMessage>(&mut self) -> io::Result<Exchange<T>> {
        let reading = PeerWait(self);
        let exchanged = poll_fn(|cx| {
            let framed = &mut *reading.0;
            let sends = !framed.output.is_empty() && !framed.idle || framed.unflushed;
            if sends && framed.poll_flush(cx)?.is_ready() {
                return Poll::Ready(Ok(Exchange::Flushed));
            }
            framed.poll_record(cx).map_ok(|record| record.map_or(Exchange::Closed, Exchange::Message))
        });
        let exchanged = exchanged.await;
        drop(reading);
        Ok(match exchanged? {
            Exchange::Message(record) => Exchange::Message(self.read(&record)?),
            Exchange::Flushed => Exchange::Flushed,
            Exchange::Closed => Exchange::Closed,
        })
    }

    /// Sends a message, and waits until the socket has taken it.
    pub(crate) async fn send<T: Encode>(&mut self, message: &T) -> io::Result<()> {
        self.queue(message)?;
        self.flush().await
    }
}

/// Guard for a time in which this end waits for its peer. Its drop stops the timeout of an
/// incomplete frame.
struct PeerWait<'f>(&'f mut FramedStream);

impl Drop for PeerWait<'_> {
    fn drop(&mut self) {
        self.0.pause();
    }
}

/// Longest time that a frame of `length` bytes may take, from its first byte to its last.
fn frame_time(peer_timeout: Duration, length: usize) -> Duration {
    peer_timeout + Duration::from_millis((length / FRAME_BYTES_PER_MS) as u64)
}

/// Makes an error for data that no correct peer sends.
pub(crate) fn malformed(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::super::connect::Identity;
    use super::*;

    async fn pair() -> (TcpStream, FramedStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (raw, accepted) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        (raw.unwrap(), met(accepted.unwrap().0))
    }

    /// Makes a connection for which the handshake is over.
    fn met(stream: impl Into<Stream>) -> FramedStream {
        let mut framed = FramedStream::new(stream, Duration::from_secs(30)).unwrap();
        let rules = Identity::new("c", 1, &[1, 2]).rules(2);
        framed.set_terms(Terms { version: VERSIONS.1, frame_bytes_max: FRAME_BYTES_MAX, rules, place: None });
        framed
    }

    fn bytes_of(record: &[u8]) -> Vec<u8> {
        let mut bytes = (record.len() as u32).to_le_bytes().to_vec();
        bytes.extend_from_slice(&codec::checksum(record).to_le_bytes());
        bytes.extend_from_slice(record);
        bytes
    }

    #[tokio::test]
    async fn frames_arrive_whole_however_they_are_cut() {
        let (mut raw, mut framed) = pair().await;
        let record = codec::encode(&(7u64, vec![1u8; 100_000]));
        let bytes = bytes_of(&record).repeat(2);
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

    /// Checks which error a reader gets after a peer sent these bytes and closed the connection.
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
        check(vec![0xff; 8], "more than there may be").await;
        check(vec![3, 0], "unexpected end of file").await;
        check(bytes_of(&[1, 5, 5])[..9].to_vec(), "unexpected end of file").await;
        check(bytes_of(&[99]), "version 99").await;
        check(bytes_of(&[1, 5, 5]), "behind the end").await;
        check(bytes_of(&[]), "empty").await;
        let mut flipped = bytes_of(&[1, 5]);
        flipped[9] ^= 1;
        check(flipped, "checksum").await;
    }

    #[test]
    fn a_frame_has_the_peers_silence_and_time_for_its_length() {
        let peer_timeout = Duration::from_secs(1);
        let check = |length: usize, ms: u64| assert_eq!(frame_time(peer_timeout, length), Duration::from_millis(ms));
        check(0, 1_000);
        check(127, 1_000);
        check(1 << 20, 1_000 + 8_192);
        check(FRAME_BYTES_MAX, 1_000 + 17 * 8_192);
    }

    /// This end does not read for a while, because it has no room for more input, or because its
    /// disk is slow. Bytes that reached the socket in that time count as in time.
    #[tokio::test]
    async fn time_in_which_this_end_does_not_read_is_not_the_peers() {
        let (mut raw, mut framed) = pair().await;
        framed.peer_timeout = Duration::from_secs(1);
        let bytes = bytes_of(&codec::encode(&7u64));
        let (begun, rest) = bytes.split_at(5);
        raw.write_all(begun).await.unwrap();
        let mut looks = 0;
        while framed.input.is_empty() || looks < 3 {
            // This end reads once, and does something else for a while.
            assert!(framed.next::<u64>().now_or_never().is_none());
            assert_eq!(framed.waits_since, None, "its clock goes on");
            assert!(framed.exchange::<u64>().now_or_never().is_none());
            assert_eq!(framed.waits_since, None, "its clock goes on");
            looks += 1;
            tokio::task::yield_now().await;
        }
        raw.write_all(rest).await.unwrap();
        assert_eq!(framed.next::<u64>().await.unwrap(), Some(7));
        assert_eq!(framed.waited, Duration::ZERO);
        // The waiting times add up, whatever this end did between them.
        raw.write_all(begun).await.unwrap();
        framed.waits_since = Some(Instant::now());
        framed.pause();
        framed.waited += Duration::from_secs(1);
        let overdue = framed.next::<u64>().await.unwrap_err();
        assert_eq!(overdue.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn what_may_wait_goes_with_the_next_message() {
        let (raw, mut framed) = pair().await;
        let mut peer = met(raw);
        assert!(framed.queue_idly(&1u64).unwrap());
        assert!(!framed.queue_idly(&2u64).unwrap());
        // The messages that may wait are not sent yet: an incoming one is seen first.
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
        // A message that may wait is sent at once behind one that may not.
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
