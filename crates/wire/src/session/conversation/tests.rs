//! Tests of connections when the bound on the bytes of all unread answers is reached.

use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Waker};

use jute::{Acl, CreateRequest, DataStat, MultiOp, Names, PathWatch, SetDataRequest, SetWatches2, Stat, xid};
use replica::{Config, Consistency, Member, Replica};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use znode::{Credential, Op, Reply, ZPath};

use super::*;
use crate::WireConfig;
use crate::client::outbox::Outbox;
use crate::client::{Arrival, Client};
use crate::request::watches::Comeback;
use crate::session::door::Door;
use crate::watch::audience::WatchKind;
use crate::watch::watch_table::TOGETHER;

/// Longest time for a step of a test.
const PATIENCE: Duration = Duration::from_secs(30);

/// A node with the shared state of the server for ZooKeeper clients, and without a listener.
struct Node {
    door: Arc<Door>,
    stopping: CancellationToken,
    _dir: TempDir,
}

/// The client's end of a connection.
struct Peer {
    client: Arc<Client>,
    stream: TcpStream,
    frames: Frames,
    task: JoinHandle<()>,
}

async fn start(wire: WireConfig) -> Node {
    let (dir, stopping) = (tempfile::tempdir().unwrap(), CancellationToken::new());
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let peer_addr = listener.local_addr().unwrap().to_string();
    let mut config = Config {
        node_id: 1,
        members: vec![Member { id: 1, peer_addr, http_addr: "127.0.0.1:1".into() }],
        data_dir: dir.path().join("data"),
        free_disk_min_bytes: 0,
        ..Config::default()
    };
    config.limits.ops_max = 1_000;
    let limits = config.limits.clone();
    let replica = Replica::start_on(config, listener).await.unwrap();
    let door = Arc::new(Door::new(replica, wire, [None; 2], stopping.clone()).unwrap());
    let node = Node { door, stopping, _dir: dir };
    until(async || {
        let read = node.door.replica.read(Consistency::Linearizable, Instant::now() + PATIENCE).await;
        read.is_ok_and(|state| *state.limits() == limits)
    })
    .await;
    node
}

async fn until(wanted: impl AsyncFn() -> bool) {
    let waiting = async {
        while !wanted().await {
            yield_now().await;
        }
    };
    timeout(PATIENCE, waiting).await.expect("it does not become as wanted");
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stopping.cancel();
    }
}

impl Node {
    /// Opens a client with a session, whose answers count for the address `source`.
    async fn connect(&self, source: Option<IpAddr>) -> Peer {
        let door = Arc::clone(&self.door);
        let secret_hash = [7; 16];
        let open = Op::OpenSession {
            secret_hash,
            timeout_ms: 30_000,
            label: String::new(),
            address: None,
            client: znode::ClientInfo::default(),
        };
        let opened = door.replica.propose(replica_request(open), door.propose_deadline()).await.unwrap();
        let Ok(Reply::SessionOpened { session, .. }) = opened.reply else { panic!("an open was not answered as one") };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, addr) = listener.accept().await.unwrap();
        let credential = Credential { session, secret_hash };
        let timeout = Duration::from_secs(30);
        let arrival = Arrival { number: door.next_number(), addr, credential, connection: 0, timeout };
        let closed = self.stopping.child_token();
        let outbox = Outbox::new(door.config.unread_bytes_max, door.unread.account(source), closed.clone());
        let client = Arc::new(Client::new(arrival, outbox, closed));
        door.hub.join(&client);
        let frames = Frames::new(door.config.packet_bytes_max);
        let connection = Connection::new(door, Arc::clone(&client));
        let task = tokio::spawn(async move {
            let (reading, writing) = accept::Stream::from(accepted).into_split();
            connection.serve(reading, writing, frames).await;
        });
        Peer { client, stream, frames: Frames::new(1 << 24), task }
    }

    /// Returns the number of clients served so far in the queue of an address (`None`: the queue of
    /// the bound on all connections). The result is `None` while no client waits in that queue.
    fn served(&self, source: Option<IpAddr>) -> Option<u64> {
        self.door.unread.queues().get(&source).copied()
    }
}

fn replica_request(op: Op) -> znode::Request {
    znode::Request::new(op)
}

impl Peer {
    /// Sends requests in one write. Their xids are counted from `xid` on.
    async fn send(&mut self, xid: i32, requests: &[Request]) {
        let frames: Vec<u8> = (xid..).zip(requests).flat_map(|(xid, request)| frame(xid, request)).collect();
        self.stream.write_all(&frames).await.unwrap();
    }

    /// Reads the next answer. Returns its xid and its body.
    async fn answer(&mut self) -> (i32, Vec<u8>) {
        let (xid, error, body) = self.packet().await;
        assert_eq!(error, 0, "of {xid}");
        (xid, body)
    }

    /// Reads the next answer or event. Returns its xid, its error and its body.
    async fn packet(&mut self) -> (i32, i32, Vec<u8>) {
        let mut buffer = [0; 8192];
        loop {
            if let Some(packet) = self.frames.next_packet().unwrap() {
                let mut input = Input::new(packet);
                let ReplyHeader { xid, error, .. } = input.read().unwrap();
                return (xid, error, packet[packet.len() - input.remaining()..].to_vec());
            }
            let read = timeout(PATIENCE, self.stream.read(&mut buffer)).await.expect("there is no answer").unwrap();
            assert_ne!(read, 0, "the connection is closed");
            self.frames.push(&buffer[..read]);
        }
    }

    async fn ask<T: Record>(&mut self, xid: i32, request: Request) -> T {
        self.send(xid, &[request]).await;
        self.told(xid).await
    }

    /// Reads the next answer, which must have this xid. Returns its body.
    async fn told<T: Record>(&mut self, xid: i32) -> T {
        let (answered, body) = self.answer().await;
        assert_eq!(answered, xid);
        T::from_bytes(&body).unwrap()
    }
}

fn frame(xid: i32, request: &Request) -> Vec<u8> {
    let xid = if *request == Request::Ping { xid::PING } else { xid };
    framed(|out| {
        RequestHeader { xid, op: request.op() }.write(out);
        request.write(out);
    })
}

fn create(path: String) -> CreateRequest {
    let acl = vec![Acl { perms: 31, scheme: "world".into(), id: "anyone".into() }];
    CreateRequest { path, data: b"x".as_slice().into(), acl, flags: 0 }
}

fn create_one(path: &str) -> Request {
    Request::Create(op::CREATE, create(path.into()))
}

/// Makes a multi that creates children of `/list` with names of 255 bytes.
fn create_many(numbers: std::ops::Range<usize>) -> Request {
    Request::Multi(numbers.map(|n| MultiOp::Create(op::CREATE, create(format!("/list/{n:0255}")))).collect())
}

fn set(path: &str, bytes: usize) -> Request {
    Request::SetData(SetDataRequest { path: path.into(), data: vec![b'y'; bytes].into(), version: -1 })
}

fn which(path: &str) -> PathWatch {
    PathWatch { path: path.into(), watch: false }
}

/// The server drops a connection's task when it closes the connection to admit a connection of
/// another address.
#[tokio::test]
async fn a_connection_whose_task_is_dropped_leaves_no_watch_behind() {
    let node = start(WireConfig::default()).await;
    let peer = node.connect(None).await;
    let hub = &node.door.hub;
    for number in 0..3 * TOGETHER {
        let path = ZPath::parse(&format!("/{number}")).unwrap();
        hub.look(&peer.client, |look| look.set(WatchKind::Data, &path)).unwrap();
    }
    yield_now().await;
    peer.task.abort();
    until(async || hub.watches() == 0 && hub.clients().is_empty()).await;
}

/// A client gives a connection up while its session is attached to it, and opens another one. The
/// handshake of the first one ends last.
#[tokio::test]
async fn a_late_handshake_closes_no_connection_that_has_the_session() {
    let node = start(WireConfig::default()).await;
    let opened = node.connect(None).await.client;
    let (door, credential) = (&node.door, opened.arrival.credential);
    let client = async |connection: u64| {
        let attach = Op::AttachSession { connection, timeout_ms: 30_000 };
        let attach = znode::Request { credential: Some(credential), ..replica_request(attach) };
        door.replica.propose(attach, door.propose_deadline()).await.unwrap().reply.unwrap();
        let arrival = Arrival { number: door.next_number(), connection, ..opened.arrival };
        let closed = node.stopping.child_token();
        let outbox = Outbox::new(1 << 20, door.unread.account(None), closed.clone());
        Arc::new(Client::new(arrival, outbox, closed))
    };
    let (late, newest) = (client(1).await, client(2).await);
    door.hub.join(&newest);
    assert!(opened.is_closed());
    door.hub.join(&late);
    assert_eq!((late.is_closed(), newest.is_closed()), (true, false));
    let next = client(3).await;
    door.hub.join(&next);
    assert_eq!((newest.is_closed(), next.is_closed()), (true, false));
}

/// A packet of 1 MB has 250,000 empty paths or 1,000 long ones. Decoding and setting them in one
/// step would delay other clients.
#[tokio::test]
async fn a_long_set_watches_yields_after_each_step() {
    let node = start(WireConfig::default()).await;
    let client = Client::alone(node.door.next_number());
    node.door.hub.join(&client);
    let connection = Connection::new(Arc::clone(&node.door), client);
    let arrival = super::Arrival { at: Instant::now(), op: op::SET_WATCHES2 };
    let long = |number| format!("/{number:0999}");
    for (exist, steps_min) in [(vec![String::new(); 250_000], 250_000 / TOGETHER), ((0..1_000).map(long).collect(), 50)]
    {
        let body = SetWatches2 { exist, ..SetWatches2::default() }.to_bytes();
        for cut in [0, 1] {
            let comeback = Comeback::new(arrival.op, &body[..body.len() - cut]).unwrap();
            let mut coming = pin!(connection.bring_back(7, arrival, comeback));
            let (mut steps, mut context) = (1, Context::from_waker(Waker::noop()));
            while coming.as_mut().poll(&mut context).is_pending() {
                steps += 1;
            }
            assert!(steps >= steps_min, "{steps}");
            let answer = connection.client.outbox.next().await.unwrap();
            let error = ReplyHeader::from_bytes(&answer[4..]).unwrap().error;
            assert_eq!(error, if cut == 0 { error::OK } else { error::MARSHALLING });
        }
    }
    assert_eq!(node.door.hub.watches(), 1_000);
}

/// No background task sends the hub's events in this test, so each event must be put into the
/// outbox before the client's next answer.
#[tokio::test]
async fn a_client_of_a_crowd_hears_of_a_change_before_an_answer_that_shows_it() {
    let node = start(WireConfig::default()).await;
    let hub = &node.door.hub;
    for _ in 0..100 {
        let other = Client::alone(node.door.next_number());
        hub.join(&other);
        hub.look(&other, |look| look.set(WatchKind::Data, &ZPath::parse("/a").unwrap())).unwrap();
    }
    let (mut client, mut other) = (node.connect(None).await, node.connect(None).await);
    let exists = |path: &str| Request::Exists(PathWatch { path: path.into(), watch: true });
    client.send(1, &[exists("/a"), create_one("/a"), exists("/a")]).await;
    let mut xids = Vec::new();
    while xids.last() != Some(&3) {
        xids.push(client.packet().await.0);
    }
    assert_eq!(xids, [1, xid::EVENT, 2, 3]);
    other.ask::<Stat>(1, set("/a", 1)).await;
    client.send(4, &[Request::GetData(which("/a"))]).await;
    assert_eq!([client.packet().await.0, client.packet().await.0], [xid::EVENT, 4]);
}

#[tokio::test]
async fn a_long_read_with_a_given_state_stands_in_the_line_once() {
    let (max, source) = (2 << 20, Some(IpAddr::from([192, 0, 2, 1])));
    let node = start(WireConfig { answers_bytes_max: max, ..WireConfig::default() }).await;
    let mut peer = node.connect(source).await;
    peer.ask::<jute::PathOnly>(1, create_one("/list")).await;
    for numbers in [0..475, 475..950] {
        peer.send(2, &[create_many(numbers)]).await;
        assert_eq!(peer.answer().await.0, 2);
    }
    let account = node.door.unread.account(source);
    // With `first` alone there is memory for the read's first reservation, and not for its answer.
    // With `first` and `second` there is memory for neither.
    let (first, second) = (account.place(300_000).await, account.place(max / 4 - 300_000).await);
    // No write is proposed until all three requests have arrived.
    let writes = node.door.writes.acquire_many(node.door.config.writes_max as u32).await.unwrap();
    peer.send(3, &[create_many(950..1_078), Request::GetChildren(which("/list")), set("/list", 1)]).await;
    until(async || peer.client.counts.look().outstanding == 3).await;
    drop(writes);
    assert_eq!(peer.answer().await.0, 3);
    let list = znode::ZPath::parse("/list").unwrap();
    until(async || node.door.replica.state().node(&list).is_some_and(|list| list.stat().version == 1)).await;
    until(async || node.served(source).is_some()).await;
    let before = node.served(source).unwrap();
    drop(second);
    // The read got its first reservation, and waits for memory for its answer.
    until(async || node.served(source) == Some(before + 1)).await;
    drop(first);
    assert_eq!(peer.told::<Names>(4).await.names.len(), 1_078);
    assert_eq!(peer.told::<Stat>(5).await.version, 1);
    until(async || node.door.unread.look().0 == 0).await;
    assert!(account.has_room());
}

#[tokio::test]
async fn pings_behind_a_write_that_a_waiting_read_holds_back_are_answered() {
    let config = WireConfig { outstanding_bytes_max: 60_000, ..WireConfig::default() };
    let node = start(config).await;
    let mut peer = node.connect(None).await;
    peer.ask::<jute::PathOnly>(1, create_one("/a")).await;
    let full = node.door.unread.account(None).place(node.door.config.answers_bytes_max).await;
    let read = || Request::GetData(which("/a"));
    peer.send(2, &[read(), set("/a", 30_000), Request::Exists(which("/a")), Request::Ping]).await;
    assert_eq!(peer.answer().await.0, xid::PING);
    // A ping that arrives in two parts is answered, too.
    let ping = frame(0, &Request::Ping);
    peer.stream.write_all(&ping[..7]).await.unwrap();
    until(async || node.door.incomplete_packets.bytes() == 7).await;
    peer.stream.write_all(&ping[7..]).await.unwrap();
    assert_eq!(peer.answer().await.0, xid::PING);
    until(async || node.door.incomplete_packets.bytes() == 0).await;
    // The second write exceeds the bound on unanswered requests of a connection.
    peer.send(5, &[set("/a", 40_000), read(), set("/a", 40_000), read(), Request::Ping]).await;
    drop(full);
    let mut answers = Vec::new();
    while answers.len() < 8 {
        answers.push(peer.answer().await);
    }
    let pong = answers.iter().position(|(xid, _)| *xid == xid::PING).unwrap();
    answers.remove(pong);
    assert_eq!(answers.iter().map(|(xid, _)| *xid).collect::<Vec<_>>(), [2, 3, 4, 5, 6, 7, 8]);
    let lengths = [0, 4, 6].map(|at: usize| DataStat::from_bytes(&answers[at].1).unwrap().data.0.unwrap().len());
    assert_eq!(lengths, [1, 40_000, 40_000]);
    assert_eq!(Stat::from_bytes(&answers[2].1).unwrap().version, 1);
}

#[tokio::test]
async fn an_answer_takes_the_place_that_its_client_has_waited_for() {
    const TURN: usize = 100_000;
    let max = 64 * TURN;
    let node = start(WireConfig { answers_bytes_max: max, ..WireConfig::default() }).await;
    let mut peer = node.connect(None).await;
    peer.ask::<jute::PathOnly>(1, create_one("/a")).await;
    peer.ask::<Stat>(2, set("/a", TURN)).await;
    let account = node.door.unread.account(None);
    let (most, rest) = (account.place(max - TURN).await, account.place(TURN).await);
    peer.send(3, &[Request::GetData(which("/a"))]).await;
    until(async || node.served(None).is_some()).await;
    // This client is next in the queue. It would get memory if the first client's reservation were
    // freed before the first client's answer is made.
    let mut behind = account.queue_up(TURN);
    node.door.unread.reset_peak();
    drop(rest);
    assert_eq!(peer.told::<DataStat>(3).await.data.0.unwrap().len(), TURN);
    let behind = timeout(PATIENCE, behind.place()).await.expect("it is given back when the client has the answer");
    let (now, peak) = node.door.unread.look();
    assert!(peak <= max, "{peak} of {max}");
    drop((behind, most));
    assert_eq!((now, node.door.unread.look().0), (max, 0));
}
