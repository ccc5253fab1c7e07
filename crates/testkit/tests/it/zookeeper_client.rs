//! Tests of the ZooKeeper client with simulated nodes.

use std::time::Duration;

use jute::{
    ConnectRequest, ConnectResponse, Frames, Input, PathOnly, PathWatch, Record, ReplyHeader, Request, RequestHeader,
    framed, op,
};
use testkit::zookeeper::{Failure, Zk};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const TIMEOUT: Duration = Duration::from_secs(30);

/// Server side of one connection.
struct Server {
    stream: TcpStream,
    frames: Frames,
    greeted_with: ConnectRequest,
}

impl Server {
    /// Accepts a connection and answers the connect request with session 7. A timeout of 0 reports
    /// that the session has expired.
    async fn accept(listener: &TcpListener, timeout_ms: i32) -> Server {
        let (stream, _) = listener.accept().await.unwrap();
        let mut server = Server { stream, frames: Frames::new(1 << 20), greeted_with: ConnectRequest::default() };
        server.greeted_with = ConnectRequest::from_bytes(&server.packet().await).unwrap();
        let welcome = ConnectResponse { timeout_ms, session_id: 7, ..ConnectResponse::default() };
        // An error is ignored: the client may have closed this connection.
        let _ = server.stream.write_all(&framed(|out| welcome.write(out))).await;
        server
    }

    async fn packet(&mut self) -> Vec<u8> {
        let mut buffer = [0; 1024];
        loop {
            if let Some(packet) = self.frames.next_packet().unwrap() {
                return packet.to_vec();
            }
            let read = self.stream.read(&mut buffer).await.unwrap();
            assert!(read > 0, "the client has closed");
            self.frames.push(&buffer[..read]);
        }
    }

    /// Returns the next request other than a ping.
    async fn request(&mut self) -> (RequestHeader, Vec<u8>) {
        loop {
            let packet = self.packet().await;
            let mut input = Input::new(&packet);
            let header: RequestHeader = input.read().unwrap();
            if header.op != op::PING {
                return (header, packet[8..].to_vec());
            }
        }
    }

    async fn answer(&mut self, xid: i32, zxid: i64, error: i32) {
        let header = ReplyHeader { xid, zxid, error };
        self.stream.write_all(&framed(|out| header.write(out))).await.unwrap();
    }
}

async fn listener() -> (TcpListener, Vec<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    (listener, vec![addr])
}

fn sync() -> Request {
    Request::Sync(PathOnly { path: "/".into() })
}

async fn opened() -> (TcpListener, Server, Zk) {
    let (listener, doors) = listener().await;
    let (server, zk) = tokio::join!(Server::accept(&listener, 30_000), Zk::open(&doors, 0, TIMEOUT));
    (listener, server, zk.unwrap())
}

#[tokio::test]
async fn answers_in_another_order_are_wrong() {
    let (_listener, mut server, zk) = opened().await;
    let (first, second) = (zk.begin(sync()), zk.begin(sync()));
    server.request().await;
    server.answer(2, 1, 0).await;
    assert!(matches!(first.answer().await, Err(Failure::Wrong(_))));
    assert!(matches!(second.answer().await, Err(Failure::Wrong(_))));
    assert!(matches!(zk.ask(sync()).await, Err(Failure::Wrong(_))), "and so is all that comes later");
}

#[tokio::test]
async fn an_answer_that_goes_back_in_time_is_wrong_on_another_node_too() {
    let (listener, mut server, zk) = opened().await;
    let begun = zk.begin(sync());
    server.request().await;
    server.answer(1, 9, 0).await;
    assert_eq!(begun.answer().await.unwrap().zxid, 9);
    drop(server);
    let mut server = Server::accept(&listener, 30_000).await;
    assert_eq!((server.greeted_with.session_id, server.greeted_with.last_zxid_seen), (7, 9));
    let begun = zk.begin(sync());
    server.request().await;
    server.answer(2, 8, 0).await;
    assert!(matches!(begun.answer().await, Err(Failure::Wrong(_))));
}

#[tokio::test]
async fn what_was_sent_is_not_sent_again_and_watches_come_along() {
    let (listener, mut server, zk) = opened().await;
    let watching = zk.begin(Request::Exists(PathWatch { path: "/a".into(), watch: true }));
    let lost = zk.begin(sync());
    server.request().await;
    server.request().await;
    server.answer(1, 3, jute::error::NO_NODE).await;
    assert_eq!(watching.answer().await.unwrap_err(), Failure::Refused(jute::error::NO_NODE));
    drop(server);
    assert!(matches!(lost.answer().await, Err(Failure::Broken(_))));
    let mut server = Server::accept(&listener, 30_000).await;
    let next = zk.begin(sync());
    let (header, body) = server.request().await;
    let Ok(Request::SetWatches2(set)) = Request::read(header.op, &body) else { panic!("{header:?}") };
    assert_eq!((header.xid, set.relative_zxid, set.exist), (-8, 3, vec!["/a".to_owned()]));
    let (header, _) = server.request().await;
    assert_eq!((header.op, header.xid), (op::SYNC, 3));
    server.answer(-8, 4, 0).await;
    server.answer(3, 4, 0).await;
    assert_eq!(next.answer().await.unwrap().connection, 1);
}

#[tokio::test]
async fn without_a_node_nothing_is_sent_and_a_lost_session_is_over() {
    let (listener, server, zk) = opened().await;
    drop(server);
    while zk.connection() == 0 {
        tokio::task::yield_now().await;
    }
    // Without a node the request waits to be sent, until its caller gives it up.
    assert!(matches!(zk.ask(sync()).await, Err(Failure::NotSent(_))));
    // Answers the client's next connections with the end of the session.
    let expire = async {
        loop {
            Server::accept(&listener, 0).await;
        }
    };
    let told = tokio::select! {
        () = expire => unreachable!("it goes on for ever"),
        told = zk.ask(sync()) => told,
    };
    assert_eq!(told.unwrap_err(), Failure::Expired);
}
