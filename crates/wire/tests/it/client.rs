//! A ZooKeeper client for tests that implements only the protocol.

use std::collections::VecDeque;
use std::net::SocketAddr;

use jute::{
    Acl, AuthRequest, Buffer, ConnectRequest, ConnectResponse, CreateRequest, DataStat, Frames, Input, PathOnly,
    PathVersion, PathWatch, Record, ReplyHeader, Request, RequestHeader, SetDataRequest, Stat, WatcherEvent, framed,
    op, xid,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::node::PATIENCE;

/// A client's end of a connection with a session.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    frames: Frames,
    pub(crate) session: i64,
    pub(crate) password: Buffer,
    pub(crate) timeout_ms: i32,
    next_xid: i32,
    /// Events that came while the client waited for an answer: the type and the path of each.
    pub(crate) events: VecDeque<(i32, String)>,
    pub(crate) last_zxid: i64,
}

/// An answer or event from the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) xid: i32,
    pub(crate) zxid: i64,
    pub(crate) error: i32,
    pub(crate) body: Vec<u8>,
}

/// Result of a handshake. The response is `None` if the server closed the connection without an
/// answer.
pub(crate) type Greeting = (TcpStream, Frames, Option<ConnectResponse>);

pub(crate) async fn greet(addr: SocketAddr, request: &ConnectRequest) -> Greeting {
    greet_over(TcpStream::connect(addr).await.unwrap(), request).await
}

async fn greet_over(mut stream: TcpStream, request: &ConnectRequest) -> Greeting {
    stream.write_all(&framed(|out| request.write(out))).await.unwrap();
    let mut frames = Frames::new(1 << 24);
    let packet = packet(&mut stream, &mut frames).await;
    (stream, frames, packet.map(|packet| ConnectResponse::from_bytes(&packet).unwrap()))
}

/// Reads the next packet; `None` when the server has closed the connection.
async fn packet(stream: &mut TcpStream, frames: &mut Frames) -> Option<Vec<u8>> {
    let mut buffer = [0; 8192];
    loop {
        if let Some(packet) = frames.next_packet().unwrap() {
            return Some(packet.to_vec());
        }
        match timeout(PATIENCE, stream.read(&mut buffer)).await.expect("the server says nothing") {
            Ok(0) | Err(_) => return None,
            Ok(read) => frames.push(&buffer[..read]),
        }
    }
}

impl Client {
    pub(crate) async fn open(addr: SocketAddr, timeout_ms: i32) -> Client {
        let asked = ConnectRequest { timeout_ms, read_only: Some(false), ..ConnectRequest::default() };
        Client::of(greet(addr, &asked).await)
    }

    /// Opens a session from `source`, another loopback address of this machine, so that the server
    /// sees another client address.
    pub(crate) async fn open_from(source: [u8; 4], addr: SocketAddr, timeout_ms: i32) -> Client {
        let asked = ConnectRequest { timeout_ms, read_only: Some(false), ..ConnectRequest::default() };
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((source, 0).into()).unwrap();
        Client::of(greet_over(socket.connect(addr).await.unwrap(), &asked).await)
    }

    /// Resumes the session of `other` on a new connection.
    pub(crate) async fn resume(addr: SocketAddr, other: &Client) -> Client {
        Client::of(greet(addr, &other.resumption()).await)
    }

    pub(crate) fn resumption(&self) -> ConnectRequest {
        ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: self.last_zxid,
            timeout_ms: self.timeout_ms,
            session_id: self.session,
            password: self.password.clone(),
            read_only: Some(false),
        }
    }

    pub(crate) fn of((stream, frames, answer): Greeting) -> Client {
        let answer = answer.expect("an answer");
        assert_ne!(answer.timeout_ms, 0, "the session is gone");
        Client {
            stream,
            frames,
            session: answer.session_id,
            password: answer.password,
            timeout_ms: answer.timeout_ms,
            next_xid: 0,
            events: VecDeque::new(),
            last_zxid: 0,
        }
    }

    /// Sends a request, and does not wait for the answer. Returns the request's xid.
    pub(crate) async fn send(&mut self, request: &Request) -> i32 {
        self.next_xid += 1;
        let xid = match request {
            Request::Ping => xid::PING,
            Request::Auth(_) => xid::AUTH,
            Request::SetWatches(_) | Request::SetWatches2(_) => xid::SET_WATCHES,
            _ => self.next_xid,
        };
        let mut body = Vec::new();
        request.write(&mut body);
        self.send_raw(xid, request.op(), &body).await;
        xid
    }

    pub(crate) async fn send_raw(&mut self, xid: i32, op: i32, body: &[u8]) {
        self.stream.write_all(&frame(xid, op, body)).await.unwrap();
    }

    /// Sends requests in one write, so that they arrive together. Returns the xid of the last
    /// request.
    pub(crate) async fn send_together(&mut self, requests: &[Request]) -> i32 {
        let mut frames = Vec::new();
        for request in requests {
            self.next_xid += 1;
            let mut body = Vec::new();
            request.write(&mut body);
            frames.extend(frame(self.next_xid, request.op(), &body));
        }
        self.stream.write_all(&frames).await.unwrap();
        self.next_xid
    }

    /// Reads the next event or answer; `None` when the server has closed the connection.
    pub(crate) async fn packet(&mut self) -> Option<Packet> {
        let bytes = packet(&mut self.stream, &mut self.frames).await?;
        let mut input = Input::new(&bytes);
        let ReplyHeader { xid, zxid, error } = input.read().unwrap();
        let body = bytes[bytes.len() - input.remaining()..].to_vec();
        // The zxid of an event is that of its change, and may be lower.
        if zxid > 0 && xid != xid::EVENT {
            assert!(zxid >= self.last_zxid, "zxids go back: {zxid} after {}", self.last_zxid);
            self.last_zxid = zxid;
        }
        Some(Packet { xid, zxid, error, body })
    }

    /// Reads the next answer. Events before it are put into `events`.
    pub(crate) async fn answer(&mut self) -> Packet {
        loop {
            let packet = self.packet().await.expect("the server has closed the connection");
            if packet.xid != xid::EVENT {
                return packet;
            }
            self.events.push_back(event(&packet));
        }
    }

    /// Returns the next event: the first one in `events`, or else the next packet.
    pub(crate) async fn event(&mut self) -> (i32, String) {
        if let Some(event) = self.events.pop_front() {
            return event;
        }
        let packet = self.packet().await.expect("the server has closed the connection");
        assert_eq!(packet.xid, xid::EVENT, "{packet:?}");
        event(&packet)
    }

    /// Sends a request, and reads the answer's body or error.
    pub(crate) async fn call(&mut self, request: Request) -> Result<Vec<u8>, i32> {
        let xid = self.send(&request).await;
        let answer = self.answer().await;
        assert_eq!(answer.xid, xid, "for {request:?}");
        if answer.error == 0 {
            return Ok(answer.body);
        }
        assert!(answer.body.is_empty(), "an error has no body: {answer:?}");
        Err(answer.error)
    }

    /// Sends a request, and parses the body of its answer; an error code if the answer has one.
    pub(crate) async fn ask<T: Record>(&mut self, request: Request) -> Result<T, i32> {
        self.call(request).await.map(|body| T::from_bytes(&body).unwrap())
    }

    pub(crate) async fn create(&mut self, path: &str, flags: i32) -> Result<String, i32> {
        self.ask::<PathOnly>(create(path, flags)).await.map(|created| created.path)
    }

    pub(crate) async fn set(&mut self, path: &str, data: &str) -> Result<Stat, i32> {
        self.ask(set(path, data)).await
    }

    pub(crate) async fn get(&mut self, path: &str, watch: bool) -> Result<DataStat, i32> {
        self.ask(Request::GetData(PathWatch { path: path.into(), watch })).await
    }

    pub(crate) async fn exists(&mut self, path: &str, watch: bool) -> Result<Stat, i32> {
        self.ask(Request::Exists(PathWatch { path: path.into(), watch })).await
    }

    pub(crate) async fn children(&mut self, path: &str, watch: bool) -> Result<Vec<String>, i32> {
        let names = self.ask::<jute::Names>(Request::GetChildren(PathWatch { path: path.into(), watch })).await;
        names.map(|names| names.names)
    }

    pub(crate) async fn delete(&mut self, path: &str) -> Result<Vec<u8>, i32> {
        self.call(Request::Delete(PathVersion { path: path.into(), version: -1 })).await
    }

    /// Proves fifty identities whose user names end with `name`.
    pub(crate) async fn prove_fifty_names(&mut self, name: &str) {
        for number in 0..50 {
            let auth = format!("{number}{name}:password").as_bytes().into();
            self.call(Request::Auth(AuthRequest { kind: 0, scheme: "digest".into(), auth })).await.unwrap();
        }
    }

    /// Closes the session, and waits for the end of the connection.
    pub(crate) async fn close(mut self) {
        self.call(Request::CloseSession).await.unwrap();
        assert_eq!(self.packet().await, None);
    }

    /// Checks that no event comes before the answer to a ping. The node answers a ping only after
    /// the leader has replied to it.
    pub(crate) async fn nothing_more(&mut self) {
        self.send(&Request::Ping).await;
        let answer = self.answer().await;
        assert_eq!((answer.xid, answer.error), (xid::PING, 0));
        assert_eq!(self.events, []);
    }
}

fn event(packet: &Packet) -> (i32, String) {
    let event = WatcherEvent::from_bytes(&packet.body).unwrap();
    assert_eq!((packet.error, event.state), (0, jute::event::SYNC_CONNECTED));
    (event.kind, event.path)
}

fn frame(xid: i32, op: i32, body: &[u8]) -> Vec<u8> {
    framed(|out| {
        RequestHeader { xid, op }.write(out);
        out.extend_from_slice(body);
    })
}

pub(crate) fn open_acl() -> Vec<Acl> {
    vec![Acl { perms: 31, scheme: "world".into(), id: "anyone".into() }]
}

pub(crate) fn create(path: &str, flags: i32) -> Request {
    let data = Buffer::from(b"x".as_slice());
    Request::Create(op::CREATE, CreateRequest { path: path.into(), data, acl: open_acl(), flags })
}

pub(crate) fn set(path: &str, data: &str) -> Request {
    Request::SetData(SetDataRequest { path: path.into(), data: data.as_bytes().into(), version: -1 })
}
