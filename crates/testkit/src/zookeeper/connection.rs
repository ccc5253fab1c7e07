//! A connection to the ZooKeeper door, and its packets.

use std::io;

use jute::{ConnectRequest, ConnectResponse, Frames, Record as _, Request, RequestHeader, framed};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Longest packet, far beyond any answer to a test.
const PACKET_MAX: usize = 1 << 24;

/// A connection whose handshake is done.
pub struct Connection {
    pub(super) stream: TcpStream,
    pub(super) frames: Frames,
}

impl Connection {
    /// Connects and opens a session.
    ///
    /// # Errors
    /// When the connection ends before the session is open.
    pub async fn open(addr: &str, timeout_ms: i32) -> io::Result<Connection> {
        let request = ConnectRequest { timeout_ms, password: [0; 16].as_slice().into(), ..ConnectRequest::default() };
        Connection::greet(addr, &request).await.map(|(connection, _)| connection)
    }

    /// Connects and sends the given greeting.
    ///
    /// # Errors
    /// When the connection ends before an answer has come, or the answer cannot be read.
    pub async fn greet(addr: &str, request: &ConnectRequest) -> io::Result<(Connection, ConnectResponse)> {
        let mut stream = TcpStream::connect(addr).await?;
        stream.set_nodelay(true)?;
        stream.write_all(&framed(|out| request.write(out))).await?;
        let mut connection = Connection { stream, frames: Frames::new(PACKET_MAX) };
        let packet = connection.packet().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let response = ConnectResponse::from_bytes(&packet).map_err(io::Error::other)?;
        Ok((connection, response))
    }

    /// Sends a request.
    ///
    /// # Errors
    /// When the connection has ended.
    pub async fn send(&mut self, xid: i32, request: &Request) -> io::Result<()> {
        self.stream.write_all(&packet(xid, request)).await
    }

    /// Returns the next packet; `None` when the connection has ended instead.
    ///
    /// # Errors
    /// When the bytes form no packet.
    pub async fn packet(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut buffer = [0; 4096];
        loop {
            if let Some(packet) = self.frames.next_packet().map_err(io::Error::other)? {
                return Ok(Some(packet.to_vec()));
            }
            match self.stream.read(&mut buffer).await {
                Ok(read @ 1..) => self.frames.push(&buffer[..read]),
                // A reset is an end, too.
                Ok(0) | Err(_) => return Ok(None),
            }
        }
    }
}

/// Returns the bytes of a request.
pub(super) fn packet(xid: i32, request: &Request) -> Vec<u8> {
    framed(|out| {
        RequestHeader { xid, op: request.op() }.write(out);
        request.write(out);
    })
}
