//! Bytes from strangers.

use std::time::Duration;

use fastrand::Rng;
use jute::{ConnectRequest, Record, framed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use wire::WireConfig;

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
            // It may have been shown the door by now.
            let _ = stranger.stream.write_all(&frame).await;
        }
        let _ = stranger.stream.shutdown().await;
        closes(&mut stranger.stream).await;
        assert!(client.exists("/", false).await.is_ok(), "seed {seed}");
    }
}

#[tokio::test]
async fn who_does_not_say_what_he_wants_is_not_waited_for() {
    let config = WireConfig { handshake_timeout_ms: 100, ..WireConfig::default() };
    let node = Node::start_with(config, |_| {}).await;
    let mut silent = TcpStream::connect(node.addr).await.unwrap();
    let mut half = TcpStream::connect(node.addr).await.unwrap();
    half.write_all(&[0, 0, 0, 45, 0]).await.unwrap();
    // One byte now and then does not help.
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
