//! Invalid and random bytes from clients.

use std::time::Duration;

use fastrand::Rng;
use jute::{ConnectRequest, Record, Request, RequestHeader, framed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use wire::WireConfig;

use crate::client::{create, set};
use crate::node::{Node, PATIENCE};

async fn closes(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("the server does not close");
}

#[tokio::test]
async fn no_first_bytes_hurt() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let connect = framed(|out| ConnectRequest { timeout_ms: 9_000, ..ConnectRequest::default() }.write(out));
    for seed in 0..200 {
        let mut rng = Rng::with_seed(seed);
        let mut stream = TcpStream::connect(node.addr).await.unwrap();
        let mut bytes: Vec<u8> = match rng.u8(0..5) {
            0 => b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
            1 => [0x7f, 0xff, 0xff, 0xff].to_vec(),
            2 => connect[..rng.usize(..connect.len())].to_vec(),
            3 => [0, 0, 4, 0].to_vec(),
            _ => Vec::new(),
        };
        bytes.extend((0..rng.usize(..100)).map(|_| rng.u8(..)));
        let _ = stream.write_all(&bytes).await;
        let _ = stream.shutdown().await;
        closes(&mut stream).await;
        assert!(client.exists("/", false).await.is_ok(), "seed {seed}");
    }
}

#[tokio::test]
async fn no_bytes_behind_a_handshake_hurt() {
    let node = Node::start().await;
    let mut client = node.client().await;
    for seed in 0..200 {
        let mut rng = Rng::with_seed(seed);
        let mut stranger = node.client().await;
        for _ in 0..rng.usize(1..20) {
            let op = rng.i32(-12..30) + if rng.bool() { 0 } else { 90 };
            let body: Vec<u8> =
                (0..rng.usize(..60)).map(|_| if rng.bool() { 0 } else { rng.u8(..) & rng.u8(..) }).collect();
            let frame = framed(|out| {
                rng.i32(..).write(out);
                op.write(out);
                out.extend(body);
            });
            // The server may have disconnected the client by now.
            let _ = stranger.stream.write_all(&frame).await;
        }
        let _ = stranger.stream.shutdown().await;
        closes(&mut stranger.stream).await;
        assert!(client.exists("/", false).await.is_ok(), "seed {seed}");
    }
}

/// Makes a valid packet, and then changes or cuts it in up to two places. Its length field may
/// become wrong, too.
fn changed_packet(rng: &mut Rng) -> Vec<u8> {
    let good =
        [create("/a/b", 3), set("/a", "data"), create("/a", 0), Request::Multi(Vec::new()), Request::CloseSession];
    let request = &good[rng.usize(..good.len())];
    let mut packet = framed(|out| {
        RequestHeader { xid: rng.i32(..), op: request.op() }.write(out);
        request.write(out);
    });
    for _ in 0..rng.usize(0..3) {
        let at = rng.usize(4..packet.len());
        match rng.u8(0..3) {
            0 => packet[at] = rng.u8(..),
            1 => packet[at..].fill(0xff),
            // The packet is shorter than its length says, so the server takes the beginning of the
            // next packet for its end.
            _ => packet.truncate(at + 1),
        }
    }
    if rng.u8(0..10) == 0 {
        let lengths = [-1, i32::MIN, i32::MAX, 0xf_ffff, 0x10_0000, 0];
        packet[..4].copy_from_slice(&lengths[rng.usize(..lengths.len())].to_be_bytes());
    }
    packet
}

#[tokio::test]
async fn no_changed_packets_in_pieces_hurt() {
    let node = Node::start_with(WireConfig { words: "*".into(), ..WireConfig::default() }, |_| {}).await;
    let mut client = node.client().await;
    for seed in 0..60 {
        let mut rng = Rng::with_seed(seed);
        let mut stranger = node.client().await;
        let stream: Vec<u8> = (0..rng.usize(1..30)).flat_map(|_| changed_packet(&mut rng)).collect();
        let mut rest = &stream[..];
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(rng.usize(1..=rest.len().min(200)));
            rest = behind;
            // The server may have disconnected the client by now.
            if stranger.stream.write_all(piece).await.is_err() {
                break;
            }
            if rng.u8(0..8) == 0 {
                assert!(client.exists("/", false).await.is_ok(), "seed {seed}");
            }
        }
        let _ = stranger.stream.shutdown().await;
        closes(&mut stranger.stream).await;
        assert!(client.exists("/", false).await.is_ok(), "seed {seed}");
    }
    // The incomplete packets of disconnected clients are no longer counted.
    timeout(PATIENCE, async {
        while !crate::words::ask(&node, "mntr").await.contains("zk_incomplete_packets_bytes\t0\n") {}
    })
    .await
    .expect("halves of packets are kept");
}

#[tokio::test]
async fn who_does_not_say_what_he_wants_is_not_waited_for() {
    let config = WireConfig { handshake_timeout_ms: 100, ..WireConfig::default() };
    let node = Node::start_with(config, |_| {}).await;
    let mut silent = TcpStream::connect(node.addr).await.unwrap();
    let mut half = TcpStream::connect(node.addr).await.unwrap();
    half.write_all(&[0, 0, 0, 45, 0]).await.unwrap();
    // A client that sends a byte now and then is disconnected all the same.
    let mut slow = TcpStream::connect(node.addr).await.unwrap();
    let dripping = async {
        let mut byte = [0];
        loop {
            if slow.write_all(&[0]).await.is_err() {
                return;
            }
            if let Ok(Ok(0) | Err(_)) = timeout(Duration::from_millis(10), slow.read(&mut byte)).await {
                return;
            }
        }
    };
    timeout(PATIENCE, dripping).await.expect("it is waited for");
    closes(&mut silent).await;
    closes(&mut half).await;
}
