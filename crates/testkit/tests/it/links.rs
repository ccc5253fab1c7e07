//! Tests of the TCP proxies between nodes: a cut drops bytes in one direction and breaks the
//! connection when it ends; a delay loses no bytes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use testkit::{LinkRule, Links, Proxy, Rule};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// First frame from node 1 to node 2.
const HELLO: &[u8] = b"\x0a\x00\x00\x00\x01\x01\x04test\x01\x02\x00";

/// Returns the two ends of a connection from node 1 to node 2.
async fn connected(links: &Links, listener: &TcpListener) -> (TcpStream, TcpStream) {
    let mut inside = TcpStream::connect(links.addr(2)).await.unwrap();
    inside.write_all(HELLO).await.unwrap();
    let (mut outside, _) = listener.accept().await.unwrap();
    let mut hello = [0; HELLO.len()];
    outside.read_exact(&mut hello).await.unwrap();
    assert_eq!(hello, HELLO);
    (inside, outside)
}

async fn links() -> (Links, TcpListener) {
    let unused = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let peers = [&unused, &listener].map(|listener| listener.local_addr().unwrap().to_string());
    let links = Links::start("test", &peers).await.unwrap();
    (links, listener)
}

async fn passes(from: &mut TcpStream, to: &mut TcpStream, byte: u8) {
    from.write_all(&[byte]).await.unwrap();
    assert_eq!(to.read_u8().await.unwrap(), byte);
}

#[tokio::test]
async fn a_one_way_cut_swallows_that_way_only_and_breaks_when_it_heals() {
    let (links, listener) = links().await;
    let (mut inside, mut outside) = connected(&links, &listener).await;
    passes(&mut inside, &mut outside, 1).await;
    links.set(BTreeMap::from([((1, 2), LinkRule::CUT)]));
    // Bytes in the other direction still pass. Once they did, all tasks have seen the rule.
    passes(&mut outside, &mut inside, 2).await;
    inside.write_all(&[3]).await.unwrap();
    passes(&mut outside, &mut inside, 4).await;
    links.set(BTreeMap::new());
    assert_eq!(outside.read(&mut [0]).await.unwrap(), 0, "what was swallowed must not come late");
    let (mut inside, mut outside) = connected(&links, &listener).await;
    passes(&mut inside, &mut outside, 5).await;
}

#[tokio::test]
async fn a_slow_link_is_late_and_in_order() {
    let (links, listener) = links().await;
    let (mut inside, mut outside) = connected(&links, &listener).await;
    passes(&mut inside, &mut outside, 1).await;
    let delay = Duration::from_millis(60);
    links.set(BTreeMap::from([((1, 2), LinkRule { delay, jitter: delay, ..LinkRule::default() })]));
    let began = Instant::now();
    for byte in 2..12 {
        inside.write_all(&[byte]).await.unwrap();
    }
    let mut got = [0; 10];
    outside.read_exact(&mut got).await.unwrap();
    assert_eq!(got, [2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    assert!(began.elapsed() >= delay, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_link_that_holds_delivers_everything_at_once_when_it_is_let_go() {
    let (links, listener) = links().await;
    let (mut inside, mut outside) = connected(&links, &listener).await;
    passes(&mut inside, &mut outside, 1).await;
    links.set(BTreeMap::from([((2, 1), LinkRule::HOLD)]));
    // Bytes in the other direction still pass. Once they did, all tasks have seen the rule.
    passes(&mut inside, &mut outside, 2).await;
    for byte in 3..8 {
        outside.write_all(&[byte]).await.unwrap();
        passes(&mut inside, &mut outside, byte).await;
    }
    let nothing = inside.try_read(&mut [0]).unwrap_err();
    assert_eq!((nothing.kind(), links.late_bytes()), (std::io::ErrorKind::WouldBlock, 0));
    links.set(BTreeMap::new());
    let mut got = [0; 5];
    inside.read_exact(&mut got).await.unwrap();
    assert_eq!(got, [3, 4, 5, 6, 7]);
    // Bytes that are sent now are not held back.
    passes(&mut outside, &mut inside, 8).await;
    passes(&mut inside, &mut outside, 9).await;
    assert_eq!(links.late_bytes(), 5);
}

#[tokio::test]
async fn what_was_held_for_an_end_that_has_closed_does_not_count() {
    let (links, listener) = links().await;
    let (mut inside, mut outside) = connected(&links, &listener).await;
    passes(&mut inside, &mut outside, 1).await;
    links.set(BTreeMap::from([((2, 1), LinkRule::HOLD)]));
    outside.write_all(&[2]).await.unwrap();
    drop(inside);
    while outside.read(&mut [0]).await.is_ok_and(|length| length > 0) {}
    links.set(BTreeMap::new());
    let (mut inside, mut outside) = connected(&links, &listener).await;
    passes(&mut outside, &mut inside, 3).await;
    assert_eq!(links.late_bytes(), 0);
}

#[tokio::test]
async fn a_caller_that_does_not_say_who_it_is_is_turned_away() {
    let (links, _listener) = links().await;
    let mut inside = TcpStream::connect(links.addr(2)).await.unwrap();
    inside.write_all(&[b'x'; 300]).await.unwrap();
    let turned_away = inside.read(&mut [0]).await;
    assert!(!turned_away.is_ok_and(|length| length > 0));
}

#[tokio::test]
async fn what_was_sent_before_the_end_of_a_connection_arrives() {
    let (links, listener) = links().await;
    links.set(BTreeMap::from([((2, 1), LinkRule { delay: Duration::from_millis(5), ..LinkRule::default() })]));
    for _ in 0..20 {
        let (mut inside, mut outside) = connected(&links, &listener).await;
        outside.write_all(b"done").await.unwrap();
        drop(outside);
        let mut answer = Vec::new();
        inside.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, b"done");
    }
}

#[tokio::test]
async fn a_proxy_that_loses_answers_passes_requests_on_and_breaks_at_the_first_byte_of_an_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::start(&listener.local_addr().unwrap().to_string()).await;
    let mut client = TcpStream::connect(proxy.addr()).await.unwrap();
    let (mut node, _) = listener.accept().await.unwrap();
    passes(&mut client, &mut node, 1).await;
    passes(&mut node, &mut client, 2).await;
    proxy.set(Rule::LoseAnswers);
    passes(&mut client, &mut node, 3).await;
    node.write_all(&[4]).await.unwrap();
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0, "the answer is lost");
}
