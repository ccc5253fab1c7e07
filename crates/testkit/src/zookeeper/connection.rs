//! A connection to a node's ZooKeeper server, and its packets.

use std::io;

use jute::{ConnectRequest, ConnectResponse, Frames, Record as _, Request, RequestHeader, framed};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Largest size in bytes of a packet, far above any answer in a test.
const PACKET_MAX: usize = 1 << 24;

/// A connection on which a session was opened or resumed.
pub struct Connection {
    pub(super) stream: TcpStream,
    pub(super) frames: Frames,
}

impl Connection {
    /// Connects and opens a session.
    ///
    /// # Errors
    /// An error when the connection ends before the session is open.
    pub async fn open(addr: &str, timeout_ms: i32) -> io::Result<Connection> {
        let request = ConnectRequest { timeout_ms, password: [0; 16].as_slice().into(), ..ConnectRequest::default() };
        Connection::greet(addr, &request).await.map(|(connection, _)| connection)
    }

    /// Connects and sends the connect request of the ZooKeeper protocol. Returns the node's
    /// response, too.
    ///
    /// # Errors
    /// An error when the connection ends before the response, or the response cannot be parsed.
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
    /// An error when the connection has ended.
    pub async fn send(&mut self, xid: i32, request: &Request) -> io::Result<()> {
        self.stream.write_all(&packet(xid, request)).await
    }

    /// Returns the next packet; `None` when the connection has ended.
    ///
    /// # Errors
    /// An error when the length of a packet is invalid.
    pub async fn packet(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut buffer = [0; 4096];
        loop {
            if let Some(packet) = self.frames.next_packet().map_err(io::Error::other)? {
                return Ok(Some(packet.to_vec()));
            }
            match self.stream.read(&mut buffer).await {
                Ok(read @ 1..) => self.frames.push(&buffer[..read]),
                // A reset counts as the end, too.
                Ok(0) | Err(_) => return Ok(None),
            }
        }
    }
}

/// Returns the packet of a request: length, header and body.
pub fn packet(xid: i32, request: &Request) -> Vec<u8> {
    framed(|out| {
        RequestHeader { xid, op: request.op() }.write(out);
        request.write(out);
    })
}
