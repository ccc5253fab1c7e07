//! Memory of a node that clients can take by connections, requests and answers, measured for each
//! row of the table in docs/operating.md ("How much memory a node needs"). `memory_bound` tests the
//! memory of the replicated state.

mod connections;

use futures_util::stream::{self, StreamExt as _};
use jute::{
    Acl, AddWatchRequest, CreateRequest, MultiOp, PathWatch, Request, SetDataRequest, SetWatches, create_flags, op,
    watcher,
};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use self::connections::{ask, connect, open, packet, request, send};
use crate::harness::{Call, Cluster, Options, Pace, until};
use crate::memory_bound::{bytes_below, resident};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Number of clusters that run at the same time.
const AT_ONCE: usize = 2;
/// Number of consecutive measurements, 20 ms apart, that must be nearly equal before memory counts
/// as steady.
const STEADY_LOOKS: usize = 20;
/// Kinds of memory that the test measures by default. The environment variable `ZLOCK_MEMORY_ROWS`
/// selects other kinds, or `all`.
const SHORT: &str = "LongPolls,Bodies,LongAnswers,ShortWatches,PartsOfPackets";
/// Bytes of data of a large znode.
const LARGE: usize = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    LongPolls,
    LongHeads,
    Bodies,
    RawData,
    LongAnswers,
    LongWatches,
    ShortWatches,
    ZooKeeperAnswers,
    ZooKeeperEvents,
    PartsOfPackets,
    ZooKeeperRequests,
    IdleConnections,
    IdleSessions,
    LogEntries,
    KeptEvents,
}

/// Row of the table of memory in docs/operating.md: a kind of memory, the settings that bound it,
/// and the bytes that the table allows.
struct Row {
    kind: Kind,
    settings: &'static str,
    bytes: u64,
}

/// Settings that exempt the test's clients from the bounds on the clients of one address.
macro_rules! exempt {
    ($settings:literal) => {
        concat!("node.exempt_addresses = \"127.0.0.0/8\"\n", $settings)
    };
}

const ROWS: [Row; 15] = [
    Row { kind: Kind::LongPolls, settings: exempt!("http.waits_max = 2000"), bytes: 2_000 * 24 * KIB },
    Row { kind: Kind::LongHeads, settings: exempt!("http.waits_max = 2000"), bytes: 2_000 * 24 * KIB },
    Row {
        kind: Kind::Bodies,
        settings: exempt!("http.bodies_bytes_max = \"64MiB\"\nhttp.body_read_timeout = \"5m\""),
        bytes: 64 * MIB,
    },
    Row {
        kind: Kind::RawData,
        settings: exempt!("http.bodies_bytes_max = \"128MiB\"\nhttp.write_timeout = \"5m\""),
        bytes: 64 * MIB,
    },
    Row {
        kind: Kind::LongAnswers,
        settings: exempt!("http.bodies_bytes_max = \"128MiB\"\nhttp.write_timeout = \"5m\""),
        bytes: 64 * MIB,
    },
    Row {
        kind: Kind::LongWatches,
        settings: exempt!("zookeeper.watches_bytes_max = \"64MiB\"\nzookeeper.connection_watches_max = 1000000"),
        bytes: 64 * MIB,
    },
    Row {
        kind: Kind::ShortWatches,
        settings: exempt!("zookeeper.watches_bytes_max = \"64MiB\"\nzookeeper.connection_watches_max = 1000000"),
        bytes: 64 * MIB,
    },
    Row {
        kind: Kind::ZooKeeperAnswers,
        settings: exempt!("zookeeper.answers_bytes_max = \"64MiB\"\nzookeeper.write_timeout = \"5m\""),
        bytes: 64 * MIB,
    },
    Row {
        kind: Kind::ZooKeeperEvents,
        settings: exempt!("zookeeper.answers_bytes_max = \"32MiB\"\nzookeeper.write_timeout = \"5m\""),
        bytes: 64 * MIB,
    },
    Row {
        kind: Kind::PartsOfPackets,
        settings: exempt!("zookeeper.incomplete_packets_bytes_max = \"64MiB\""),
        bytes: 64 * MIB,
    },
    Row {
        kind: Kind::ZooKeeperRequests,
        settings: exempt!(
            "disk.stall_max = \"5m\"\nzookeeper.proposal_timeout = \"5m\"\nzookeeper.requests_bytes_max = \"32MiB\""
        ),
        // A write is in memory twice: as a request of its client, and as a write of the leader.
        bytes: 2 * 32 * MIB,
    },
    Row { kind: Kind::IdleConnections, settings: exempt!(""), bytes: 3_000 * 8 * KIB },
    Row { kind: Kind::IdleSessions, settings: exempt!(""), bytes: 3_000 * 16 * KIB },
    // The part of the log that is being written takes its 64 MiB only at times.
    Row { kind: Kind::LogEntries, settings: exempt!(""), bytes: (64 + 64 / 2) * MIB },
    Row { kind: Kind::KeptEvents, settings: exempt!("node.kept_events_bytes_max = \"32MiB\""), bytes: 32 * MIB },
];

fn creation(path: &str, data: Vec<u8>) -> Request {
    let acl = vec![Acl { perms: 31, scheme: "world".into(), id: "anyone".into() }];
    let flags = create_flags::PERSISTENT;
    Request::Create(op::CREATE, CreateRequest { path: path.into(), data: data.into(), acl, flags })
}

fn setting(path: &str, data: Vec<u8>) -> Request {
    Request::SetData(change(path, data))
}

fn change(path: &str, data: Vec<u8>) -> SetDataRequest {
    SetDataRequest { path: path.into(), data: data.into(), version: -1 }
}

impl Kind {
    /// Fills this kind of memory of a node up to its bound, and tries to exceed the bound. Returns
    /// the connections that keep the memory full.
    async fn fill(self, cluster: &Cluster) -> Vec<TcpStream> {
        let (http, zookeeper) = (cluster.endpoint(1), cluster.zookeeper_endpoint(1));
        match self {
            Kind::LongPolls => long_polls(cluster, "").await,
            Kind::LongHeads => long_polls(cluster, &format!("\r\nx-filler: {}", "x".repeat(15_000))).await,
            Kind::Bodies => {
                let head = "POST /v1/txn HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                    content-length: 4194304\r\n\r\n";
                let mut bytes = head.as_bytes().to_vec();
                bytes.resize(bytes.len() + (4 << 20) - 1, b'x');
                for_each(24, async |number| {
                    let mut stream = connect(number, http).await;
                    // Bodies that find no room are answered before they are complete.
                    let _ = stream.write_all(&bytes).await;
                    stream
                })
                .await
            }
            Kind::RawData => unread(cluster, 100, "\r\naccept: application/octet-stream").await,
            Kind::LongAnswers => unread(cluster, 100, "").await,
            Kind::LongWatches => watches(zookeeper, 50_000, &"/long".repeat(200)).await,
            Kind::ShortWatches => watches(zookeeper, 250_000, "/short").await,
            Kind::ZooKeeperAnswers => {
                let mut writer = open(0, zookeeper).await;
                assert_eq!(ask(&mut writer, &creation("/large", vec![b'x'; LARGE])).await, 0);
                let get = request(&Request::GetData(PathWatch { path: "/large".into(), watch: false }));
                for_each(32, async |number| {
                    let mut stream = open(number, zookeeper).await;
                    stream.write_all(&get.repeat(4)).await.unwrap();
                    stream
                })
                .await
            }
            Kind::ZooKeeperEvents => events(zookeeper).await,
            Kind::PartsOfPackets => {
                let part = &request(&setting("/large", vec![b'x'; LARGE]))[..LARGE];
                for_each(96, async |number| {
                    let mut stream = open(number, zookeeper).await;
                    stream.write_all(part).await.unwrap();
                    stream
                })
                .await
            }
            Kind::ZooKeeperRequests => held_writes(cluster).await,
            Kind::IdleConnections => {
                for_each(3_000, async |number| {
                    let mut stream = connect(number, http).await;
                    send(&mut stream, "GET /livez", b"").await;
                    stream
                })
                .await
            }
            Kind::IdleSessions => for_each(3_000, async |number| open(number, zookeeper).await).await,
            Kind::LogEntries => writes(zookeeper, 200, |_| setting("/", vec![b'x'; LARGE])).await,
            Kind::KeptEvents => {
                let change = |path: &str| MultiOp::SetData(change(path, Vec::new()));
                writes(zookeeper, 600, |path| Request::Multi(vec![change(path); 100])).await
            }
        }
    }
}

/// Creates a znode with a path of 753 bytes, and returns the path.
async fn create_deep(writer: &mut TcpStream) -> String {
    let path = format!("/{}/{}/{}", "a".repeat(250), "b".repeat(250), "c".repeat(250));
    for (at, _) in path.match_indices('/').skip(1).chain([(path.len(), "")]) {
        assert_eq!(ask(writer, &creation(&path[..at], Vec::new())).await, 0);
    }
    path
}

/// Sends a write `count` times, each after the answer to the one before. `write` makes it from the
/// path of a znode.
async fn writes(zookeeper: &str, count: usize, write: impl Fn(&str) -> Request) -> Vec<TcpStream> {
    let mut writer = open(0, zookeeper).await;
    let write = write(&create_deep(&mut writer).await);
    for _ in 0..count {
        assert_eq!(ask(&mut writer, &write).await, 0);
    }
    vec![writer]
}

/// Makes 100 ZooKeeper clients watch a znode and leave the events of 1,200 changes unread.
async fn events(zookeeper: &str) -> Vec<TcpStream> {
    let mut writer = open(0, zookeeper).await;
    let path = create_deep(&mut writer).await;
    let watch = Request::AddWatch(AddWatchRequest { path: path.clone(), mode: watcher::MODE_PERSISTENT_RECURSIVE });
    let watching = for_each(100, async |number| {
        let mut stream = open(number, zookeeper).await;
        assert_eq!(ask(&mut stream, &watch).await, 0);
        stream
    })
    .await;
    for _ in 0..1_200 {
        assert_eq!(ask(&mut writer, &setting(&path, Vec::new())).await, 0);
    }
    watching
}

/// Leaves writes over ZooKeeper's protocol waiting for a disk that hangs.
async fn held_writes(cluster: &Cluster) -> Vec<TcpStream> {
    let write = request(&setting("/", vec![b'x'; LARGE / 2]));
    let streams = for_each(24, async |number| open(number, cluster.zookeeper_endpoint(1)).await).await;
    cluster.hang_disk(1);
    for mut stream in streams {
        let writes = write.repeat(12);
        // The node takes only a part of the writes.
        tokio::spawn(async move { stream.write_all(&writes).await });
    }
    Vec::new()
}

async fn for_each(count: usize, make: impl AsyncFn(usize) -> TcpStream) -> Vec<TcpStream> {
    let mut all = Vec::new();
    for number in 0..count {
        all.push(make(number).await);
    }
    all
}

async fn long_polls(cluster: &Cluster, header: &str) -> Vec<TcpStream> {
    let poll = format!("GET /v1/znodes?watch=children&wait=5m HTTP/1.1\r\nhost: localhost{header}\r\n\r\n");
    let all = for_each(2_500, async |number| {
        let mut stream = connect(number, cluster.endpoint(1)).await;
        stream.write_all(poll.as_bytes()).await.unwrap();
        stream
    })
    .await;
    let mut operator = cluster.client(1);
    until("all wait", async || {
        let metrics = operator.send(Call::get("/metrics")).await.ok()?;
        String::from_utf8_lossy(&metrics.body).contains("zlock_waits 2000").then_some(())
    })
    .await;
    all
}

/// Writes 1 MB into one znode again and again. Each time a new connection requests the data and
/// does not read the answer.
async fn unread(cluster: &Cluster, count: usize, header: &str) -> Vec<TcpStream> {
    let mut writer = cluster.client(1);
    let mut all = Vec::new();
    for number in 0..count {
        let data = vec![b'a' + u8::try_from(number % 26).unwrap(); LARGE];
        let call = if number == 0 { Call::post("/v1/znodes/large") } else { Call::put("/v1/znodes/large") };
        assert!((200..300).contains(&writer.send(call.body(data)).await.unwrap().status));
        let mut stream = connect(number, cluster.endpoint(1)).await;
        let get = format!("GET /v1/znodes/large HTTP/1.1\r\nhost: localhost{header}\r\n\r\n");
        stream.write_all(get.as_bytes()).await.unwrap();
        // The answer has begun, so the node has made it.
        stream.readable().await.unwrap();
        all.push(stream);
    }
    all
}

/// Sets `count` watches in all, on paths that begin with `begin`, over four connections. Two more
/// connections, which try to set a quarter of `count` each, are refused.
async fn watches(addr: &str, count: usize, begin: &str) -> Vec<TcpStream> {
    const BATCH: usize = 500;
    let mut full = Vec::new();
    for number in 0..6 {
        let mut stream = open(number, addr).await;
        for batch in (0..count / 4).step_by(BATCH) {
            let exist = (batch..batch + BATCH).map(|watch| format!("{begin}-{number}-{watch:07}")).collect();
            let set = request(&Request::SetWatches(SetWatches { exist, ..SetWatches::default() }));
            if stream.write_all(&set).await.is_err() || packet(&mut stream).await.is_err() {
                assert!(number >= 4, "there is room");
                break;
            }
        }
        full.push(stream);
    }
    full
}

/// Waits until the resident memory of a process is steady, and returns it in bytes.
async fn steady(pid: Pid) -> u64 {
    let (mut pace, mut last, mut looks) = (Pace::new("memory is steady"), 0_u64, 0);
    while looks < STEADY_LOOKS {
        pace.next().await;
        let now = resident(pid);
        looks = if now.abs_diff(last) < MIB / 4 { looks + 1 } else { 0 };
        last = if looks == 0 { now } else { last };
    }
    last
}

/// Bytes of memory that a node takes when the row's kind of memory is filled to its bound. Except
/// in their own row, the newest log entries, which the log keeps in memory, are subtracted.
async fn taken(row: &Row) -> u64 {
    let options = Options {
        nodes: 1,
        settings: row.settings,
        zookeeper: true,
        disk_may_hang: row.kind == Kind::ZooKeeperRequests,
        memory_is_measured: true,
        ..Options::default()
    };
    let mut cluster = Cluster::start_with(options).await;
    let before = steady(cluster.pid(1)).await;
    let full = row.kind.fill(&cluster).await;
    let after = steady(cluster.pid(1)).await;
    drop(full);
    // raft-log keeps the newest entries in memory, at most as many bytes as it has on the disk.
    cluster.kill(1);
    let is_of_log = row.kind == Kind::LogEntries;
    let log = if is_of_log { 0 } else { bytes_below(&cluster.data_dir(1).join("log")) };
    (after - before).saturating_sub(log)
}

#[tokio::test]
async fn each_kind_of_thing_that_clients_fill_takes_what_the_table_says() {
    let files = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files }).unwrap();
    let asked = std::env::var("ZLOCK_MEMORY_ROWS").unwrap_or_else(|_| SHORT.into());
    let is_asked = |row: &&Row| asked == "all" || asked.split(',').any(|kind| kind == format!("{:?}", row.kind));
    let rows = stream::iter(ROWS.iter().filter(is_asked));
    let measured: Vec<_> = rows.map(async |row| (row, taken(row).await)).buffered(AT_ONCE).collect().await;
    for (row, taken) in &measured {
        println!("{:?}: {} of {} KiB", row.kind, taken >> 10, row.bytes >> 10);
    }
    for (row, taken) in measured {
        assert!((row.bytes / 2..=row.bytes * 2).contains(&taken), "{:?}: {taken}", row.kind);
    }
}
