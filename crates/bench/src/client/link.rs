//! A TCP connection and two buffers. The clients of all protocols are built on it, so that sending
//! and receiving cost the same for each system.
//!
//! Measured requests do not use the clients of the crate `testkit`, which send through hyper or
//! through a task that owns the connection. Here a request costs one write and one read, so that
//! the figures show the server's speed and not the client's.

use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::error::Error;

/// A connection. Requests are gathered in `out` and leave in one write.
pub(crate) struct Link {
    stream: TcpStream,
    /// Bytes that the next [`Link::flush`] sends.
    pub(crate) out: Vec<u8>,
    received: Vec<u8>,
    taken: usize,
}

impl Link {
    /// Connects to `addr`, a `host:port`.
    pub(crate) async fn open(addr: &str) -> Result<Link, Error> {
        Link::over(TcpStream::connect(addr).await?)
    }

    /// Connects from `source`, an address of this machine, because servers limit the connections of
    /// each address.
    pub(crate) async fn open_from(source: IpAddr, addr: &str) -> Result<Link, Error> {
        Link::over(connect_from(source, addr).await?)
    }

    fn over(stream: TcpStream) -> Result<Link, Error> {
        // One small request waits for one small answer: Nagle would only add delay.
        stream.set_nodelay(true)?;
        Ok(Link { stream, out: Vec::with_capacity(1024), received: Vec::with_capacity(4096), taken: 0 })
    }

    /// Sends the bytes in `out`.
    pub(crate) async fn flush(&mut self) -> Result<(), Error> {
        self.stream.write_all(&self.out).await?;
        self.out.clear();
        Ok(())
    }

    /// Waits until the server ends the connection. Bytes that still come are dropped.
    pub(crate) async fn ended(&self) {
        while self.stream.readable().await.is_ok() {
            match self.stream.try_read(&mut [0; 64]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(1..) => {}
                _ => return,
            }
        }
    }

    /// Fails when the other end has reset the connection.
    pub(crate) fn is_open(&self) -> Result<(), Error> {
        match self.stream.take_error()? {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    /// Bytes that were received and not consumed.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.received[self.taken..]
    }

    /// Marks the next `count` bytes as read.
    pub(crate) fn consume(&mut self, count: usize) {
        self.taken += count;
        if self.taken == self.received.len() {
            self.received.clear();
            self.taken = 0;
        }
    }

    /// Receives more bytes. Fails at the end of the connection.
    pub(crate) async fn fill(&mut self) -> Result<(), Error> {
        if self.taken > 0 {
            self.received.drain(..self.taken);
            self.taken = 0;
        }
        match self.stream.read_buf(&mut self.received).await? {
            0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            _ => Ok(()),
        }
    }

    /// Receives until at least `count` unconsumed bytes are buffered.
    pub(crate) async fn need(&mut self, count: usize) -> Result<(), Error> {
        while self.bytes().len() < count {
            self.fill().await?;
        }
        Ok(())
    }
}

/// Opens a TCP connection from an address of this machine.
pub(crate) async fn connect_from(source: IpAddr, addr: &str) -> Result<TcpStream, Error> {
    let to: SocketAddr = addr.parse().map_err(|_| Error::Answer(format!("{addr} is no address")))?;
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(source, 0))?;
    Ok(socket.connect(to).await?)
}
