//! Connections of clients that send requests, and read only the answers that they need.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use jute::{ConnectRequest, Input, Record as _, ReplyHeader, Request, RequestHeader, framed};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

/// Timeout of ZooKeeper sessions: longer than a test.
const TIMEOUT_MS: i32 = 120_000;
/// Size of a client's receive buffer. Unread bytes beyond it stay on the node's side.
const RECEIVE_BYTES: u32 = 4 << 10;

/// Connects from one of four loopback addresses, which need no privileges.
pub(super) async fn connect(number: usize, to: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(RECEIVE_BYTES).unwrap();
    let last = u8::try_from(1 + number % 4).unwrap();
    socket.bind(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 1, last)), 0)).unwrap();
    socket.connect(to.parse().unwrap()).await.unwrap()
}

/// Sends a request over HTTP.
pub(super) async fn send(stream: &mut TcpStream, request: &str, body: &[u8]) {
    let head = format!("{request} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
}

/// Connects and opens a session of ZooKeeper's protocol.
pub(super) async fn open(number: usize, to: &str) -> TcpStream {
    let mut stream = connect(number, to).await;
    let request = ConnectRequest { timeout_ms: TIMEOUT_MS, password: [0; 16].as_slice().into(), ..Default::default() };
    stream.write_all(&framed(|out| request.write(out))).await.unwrap();
    packet(&mut stream).await.unwrap();
    stream
}

/// Encodes a request of ZooKeeper's protocol.
pub(super) fn request(request: &Request) -> Vec<u8> {
    framed(|out| {
        RequestHeader { xid: 1, op: request.op() }.write(out);
        request.write(out);
    })
}

/// Sends a request and returns the answer's error code, 0 for success.
pub(super) async fn ask(stream: &mut TcpStream, what: &Request) -> i32 {
    stream.write_all(&request(what)).await.unwrap();
    let packet = packet(stream).await.unwrap();
    Input::new(&packet).read::<ReplyHeader>().unwrap().error
}

/// Reads the next packet.
pub(super) async fn packet(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = stream.read_u32().await?;
    let mut packet = vec![0; length as usize];
    stream.read_exact(&mut packet).await?;
    Ok(packet)
}
