//! Many connections from one address, or connections that send nothing, while other clients must be
//! admitted.

use std::net::SocketAddr;

use jute::{ConnectRequest, framed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use wire::WireConfig;

use crate::client::{Client, greet};
use crate::node::{Node, PATIENCE};

const ASKED: ConnectRequest = ConnectRequest {
    protocol_version: 0,
    last_zxid_seen: 0,
    timeout_ms: 9_000,
    session_id: 0,
    password: jute::Buffer(None),
    read_only: None,
};

/// Connects from the address 127.0.0.`last`, so that the server sees another client address. Every
/// address of 127.0.0.0/8 is on this machine.
async fn connect_from(last: u8, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, last], 0).into()).unwrap();
    socket.connect(to).await.unwrap()
}

/// Opens a session from the address 127.0.0.`last`. `None` when the server closed the connection
/// instead.
async fn open_from(last: u8, to: SocketAddr) -> Option<TcpStream> {
    let mut stream = connect_from(last, to).await;
    let _ = stream.write_all(&framed(|out| jute::Record::write(&ASKED, out))).await;
    let mut first = [0; 4];
    let read = timeout(PATIENCE, stream.read_exact(&mut first)).await.expect("the server says nothing");
    read.is_ok().then_some(stream)
}

/// Connections that send no request must not keep other clients out.
#[tokio::test]
async fn connections_that_say_nothing_do_not_shut_the_door() {
    let config = WireConfig { connections_max: 4, connections_per_address_max: 4, ..WireConfig::default() };
    let node = Node::start_with(config, |_| {}).await;
    let mut known = node.client().await;
    let first = open_from(2, node.addr).await;
    let mut silent = Vec::new();
    for number in 10..60 {
        let mut stream = connect_from(number, node.addr).await;
        // An incomplete packet counts as no request.
        let _ = stream.write_all(if number % 2 == 0 { b"" } else { b"\0\0\0\x2d\0\0" }).await;
        silent.push(stream);
    }
    // Room is made for another client of an address that has a connection already.
    assert!(first.is_some() && open_from(2, node.addr).await.is_some());
    known.create("/a", 0).await.unwrap();
}

#[tokio::test]
async fn connections_of_one_address_leave_room_for_others() {
    let exempt = "127.0.0.3".parse().unwrap();
    let config = WireConfig { connections_max: 8, connections_per_address_max: 2, exempt, ..WireConfig::default() };
    let node = Node::start_with(config, |_| {}).await;
    let kept = [open_from(2, node.addr).await, open_from(2, node.addr).await];
    assert!(kept.iter().all(Option::is_some));
    assert!(open_from(2, node.addr).await.is_none());
    let others = [open_from(1, node.addr).await, open_from(1, node.addr).await];
    assert!(others.iter().all(Option::is_some));
    let behind_a_proxy = [open_from(3, node.addr).await, open_from(3, node.addr).await, open_from(3, node.addr).await];
    assert!(behind_a_proxy.iter().all(Option::is_some));
}

#[tokio::test]
async fn sessions_of_one_address_have_a_bound_and_a_rate() {
    let node = Node::start_with(WireConfig::default(), |config| config.limits.sessions_per_address_max = 2).await;
    let kept = [open_from(2, node.addr).await, open_from(2, node.addr).await];
    assert!(kept.iter().all(Option::is_some));
    assert!(open_from(2, node.addr).await.is_none());
    Client::of(greet(node.addr, &ASKED).await).close().await;

    let node = Node::start_with(WireConfig { session_rate_max: 1, ..WireConfig::default() }, |_| {}).await;
    let mut opened = Vec::new();
    for _ in 0..30 {
        opened.push(open_from(2, node.addr).await.is_some());
    }
    assert!(opened[..10].iter().all(|opened| *opened) && opened.contains(&false), "{opened:?}");
    assert!(open_from(1, node.addr).await.is_some());
}
