//! Client of gRPC with the part of HTTP/2 that calls need on a connection without errors. etcd's
//! own clients send the same messages, but take more processor time.
//!
//! Request headers are encoded as Go's HTTP/2 client does: the first call puts repeated headers
//! into HPACK's dynamic table, and later calls refer to them. Headers of answers are skipped,
//! because a call has succeeded if its answer has a message.

use super::link::Link;
use crate::error::Error;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const FRAME_HEAD: usize = 9;
/// Number of received bytes after which the flow-control window is refilled. The window is about
/// twice as large.
const RECEIVED_MAX: u32 = 1 << 30;

/// A connection with any number of calls on it.
pub(crate) struct Grpc {
    link: Link,
    authority: String,
    next_stream: u32,
    streams: Vec<Stream>,
    received: u32,
}

/// A call under way, and the bytes of its answer so far.
struct Stream {
    id: u32,
    bytes: Vec<u8>,
    ended: bool,
}

/// Id of a call that stays open.
#[derive(Clone, Copy)]
pub(crate) struct StreamId(u32);

impl Grpc {
    pub(crate) async fn open(addr: &str) -> Result<Grpc, Error> {
        let mut link = Link::open(addr).await?;
        link.out.extend_from_slice(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        // The windows are as large as allowed, because no reader here is slow.
        frame(&mut link.out, SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
        frame(&mut link.out, WINDOW_UPDATE, 0, 0, &(0x7fff_ffff_u32 - 65_535).to_be_bytes());
        Ok(Grpc { link, authority: addr.to_owned(), next_stream: 1, streams: Vec::new(), received: 0 })
    }

    /// Sends one request and waits for its answer.
    pub(crate) async fn unary(&mut self, path: &str, message: &[u8]) -> Result<Vec<u8>, Error> {
        let stream = self.start(path);
        self.append(stream, message, END_STREAM);
        self.link.flush().await?;
        let answer = self.next(stream).await;
        self.streams.retain(|other| other.id != stream.0);
        answer.map_err(|error| Error::Answer(format!("{path}: {error}")))
    }

    /// Begins a call. Its headers are sent together with its first message.
    pub(crate) fn start(&mut self, path: &str) -> StreamId {
        let id = self.next_stream;
        self.next_stream += 2;
        // HPACK's static table has :method POST, :scheme http and the name of :path.
        let mut block = vec![0x83, 0x86, 0x04];
        text(&mut block, path);
        if id == 1 {
            for (name, value) in [(&[0x41_u8][..], self.authority.as_str()), (&[0x5f], "application/grpc")] {
                block.extend_from_slice(name);
                text(&mut block, value);
            }
            block.push(0x40);
            text(&mut block, "te");
            text(&mut block, "trailers");
        } else {
            block.extend([0xc0, 0xbf, 0xbe]);
        }
        frame(&mut self.link.out, HEADERS, END_HEADERS, id, &block);
        self.streams.push(Stream { id, bytes: Vec::new(), ended: false });
        StreamId(id)
    }

    /// Sends a message of a call that stays open.
    pub(crate) async fn send(&mut self, stream: StreamId, message: &[u8]) -> Result<(), Error> {
        self.append(stream, message, 0);
        self.link.flush().await
    }

    fn append(&mut self, stream: StreamId, message: &[u8], flags: u8) {
        let length = u32::try_from(message.len()).expect("messages of the workloads are short");
        let mut data = vec![0];
        data.extend(length.to_be_bytes());
        data.extend_from_slice(message);
        frame(&mut self.link.out, DATA, flags, stream.0, &data);
    }

    /// Returns the next message of a call. Messages of other calls are kept meanwhile.
    pub(crate) async fn next(&mut self, stream: StreamId) -> Result<Vec<u8>, Error> {
        loop {
            let position = self.streams.iter().position(|other| other.id == stream.0);
            let Some(found) = position.map(|position| &mut self.streams[position]) else {
                return Err(Error::Answer("the call is not under way".into()));
            };
            if let Some(message) = found.take_message() {
                return Ok(message);
            }
            if found.ended {
                return Err(Error::Answer("the call ended without an answer".into()));
            }
            self.take_frame().await?;
        }
    }

    async fn take_frame(&mut self) -> Result<(), Error> {
        self.link.need(FRAME_HEAD).await?;
        let head: [u8; FRAME_HEAD] = self.link.bytes()[..FRAME_HEAD].try_into().expect("they are there");
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let (kind, flags) = (head[3], head[4]);
        let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff;
        let end = FRAME_HEAD + length as usize;
        self.link.need(end).await?;
        let stream = self.streams.iter_mut().find(|stream| stream.id == id);
        let payload = &self.link.bytes()[FRAME_HEAD..end];
        let mut reply = None;
        match (kind, stream) {
            (DATA | HEADERS, Some(stream)) => {
                if kind == DATA {
                    stream.bytes.extend_from_slice(payload);
                }
                stream.ended |= flags & END_STREAM != 0;
            }
            (RST_STREAM, Some(stream)) => stream.ended = true,
            (SETTINGS, _) if flags & ACK == 0 => reply = Some((SETTINGS, Vec::new())),
            (PING, _) if flags & ACK == 0 => reply = Some((PING, payload.to_vec())),
            (GOAWAY, _) => return Err(Error::answer("goaway", payload)),
            _ => {}
        }
        self.link.consume(end);
        if kind == DATA {
            self.received += length;
        }
        if let Some((kind, payload)) = reply {
            frame(&mut self.link.out, kind, ACK, 0, &payload);
            self.link.flush().await?;
        }
        if self.received > RECEIVED_MAX {
            frame(&mut self.link.out, WINDOW_UPDATE, 0, 0, &self.received.to_be_bytes());
            self.received = 0;
            self.link.flush().await?;
        }
        Ok(())
    }
}

impl Stream {
    /// Takes the first gRPC message out of the received bytes: a flag byte, a length of four bytes,
    /// then the message itself. Returns `None` while the message is incomplete.
    fn take_message(&mut self) -> Option<Vec<u8>> {
        let length = self.bytes.get(1..5)?.try_into().map(u32::from_be_bytes).ok()? as usize;
        let message = self.bytes.get(5..5 + length)?.to_vec();
        self.bytes.drain(..5 + length);
        Some(message)
    }
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).expect("frames of the workloads are short").to_be_bytes();
    out.extend_from_slice(&length[1..]);
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Appends a text as a string literal of HPACK (RFC 7541), without Huffman coding.
fn text(block: &mut Vec<u8>, text: &str) {
    block.push(u8::try_from(text.len()).ok().filter(|length| *length < 127).expect("header values are short"));
    block.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_cut_out_of_frames_however_they_come() {
        let mut stream = Stream { id: 1, bytes: vec![0, 0, 0, 0, 2, b'a'], ended: false };
        assert_eq!(stream.take_message(), None);
        stream.bytes.extend(b"b\0\0\0\0\0");
        assert_eq!(stream.take_message(), Some(b"ab".to_vec()));
        assert_eq!(stream.take_message(), Some(Vec::new()));
        assert_eq!(stream.take_message(), None);
    }

    #[test]
    fn a_frame_has_a_head_of_nine_bytes() {
        let mut out = Vec::new();
        frame(&mut out, PING, ACK, 3, b"12345678");
        assert_eq!(out, [&[0, 0, 8, 6, 1, 0, 0, 0, 3][..], b"12345678"].concat());
    }
}
