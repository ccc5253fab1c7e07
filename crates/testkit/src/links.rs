//! Simulated network faults between nodes: one TCP proxy in front of each node's peer port.
//! [`Proxy`] does the same between clients and one node.
//!
//! A proxy reads the ids of both nodes in the first frame of a connection, behind the cluster's
//! name. So each ordered pair of nodes has its own rule for the bytes from the first to the second.
//! A rule can drop bytes and keep connections open, like a pulled cable; the connections break when
//! the rule ends. A rule can also hold bytes back and deliver them when it ends.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Rule for the bytes that one node sends to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkRule {
    /// Whether bytes are dropped. The connection stays open, and breaks when the rule ends.
    pub cut: bool,
    /// Whether bytes are held back until the rule ends, and then delivered all at once.
    pub hold: bool,
    /// Time by which each byte is delayed.
    pub delay: Duration,
    /// Largest additional random delay.
    pub jitter: Duration,
    /// Inverse probability that a read breaks the connection, as packet loss can with TCP: one in
    /// this many reads; 0 for never.
    pub break_one_in: u32,
}

/// Time within which a connecting node must send its first frame.
const HELLO_MAX: Duration = Duration::from_secs(2);

impl LinkRule {
    /// Rule that drops all bytes.
    pub const CUT: LinkRule = LinkRule { cut: true, ..LinkRule::PASS };
    /// Rule that holds all bytes back.
    pub const HOLD: LinkRule = LinkRule { hold: true, ..LinkRule::PASS };
    /// Rule that lets all bytes pass at once.
    pub const PASS: LinkRule =
        LinkRule { cut: false, hold: false, delay: Duration::ZERO, jitter: Duration::ZERO, break_one_in: 0 };

    /// Combines two rules: each field has the larger of the two values.
    pub fn and(self, other: LinkRule) -> LinkRule {
        LinkRule {
            cut: self.cut || other.cut,
            hold: self.hold || other.hold,
            delay: self.delay.max(other.delay),
            jitter: self.jitter.max(other.jitter),
            break_one_in: self.break_one_in.max(other.break_one_in),
        }
    }
}

type Rules = BTreeMap<(u64, u64), LinkRule>;

/// Proxies in front of all nodes. The drop closes every connection.
pub struct Links {
    addrs: Vec<String>,
    rules: watch::Sender<Rules>,
    late_bytes: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Links {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Links {
    /// Starts a proxy for each address in `peers`, the peer addresses of the nodes from node 1 on,
    /// in the cluster `cluster_id`.
    ///
    /// # Errors
    /// An error when a port cannot be bound.
    pub async fn start(cluster_id: &'static str, peers: &[String]) -> io::Result<Links> {
        Links::start_for(Some(cluster_id), peers).await
    }

    async fn start_for(cluster_id: Option<&'static str>, targets: &[String]) -> io::Result<Links> {
        let (rules, watched) = watch::channel(Rules::new());
        let late_bytes = Arc::new(AtomicU64::new(0));
        let mut links = Links { addrs: Vec::new(), rules, late_bytes: late_bytes.clone(), tasks: Vec::new() };
        for (to, target) in (1..).zip(targets) {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            links.addrs.push(listener.local_addr()?.to_string());
            let entrance = Entrance {
                to,
                target: target.clone(),
                cluster_id,
                rules: watched.clone(),
                late_bytes: late_bytes.clone(),
            };
            links.tasks.push(tokio::spawn(entrance.run(listener)));
        }
        Ok(links)
    }

    /// The address of the proxy in front of `node`. Nodes count from 1.
    pub fn addr(&self, node: u64) -> &str {
        &self.addrs[(node - 1) as usize]
    }

    /// Sets the rules, by sending and receiving node. Bytes between nodes without a rule pass.
    pub fn set(&self, rules: BTreeMap<(u64, u64), LinkRule>) {
        self.rules.send_replace(rules);
    }

    /// Number of bytes that were held back and later delivered to a receiver that still had the
    /// connection open.
    pub fn late_bytes(&self) -> u64 {
        self.late_bytes.load(Ordering::Relaxed)
    }
}

/// Rule for the bytes between clients and a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Bytes pass.
    Pass,
    /// All bytes are dropped, and connections stay open. They break when the rule ends.
    Cut,
    /// Requests pass, but the first byte of an answer breaks the connection.
    LoseAnswers,
}

/// A proxy between clients and one node.
pub struct Proxy(Links);

impl Proxy {
    /// Starts a proxy for the address `target`, on a free port.
    ///
    /// # Panics
    /// If no port can be bound.
    pub async fn start(target: &str) -> Proxy {
        Proxy(Links::start_for(None, &[target.to_owned()]).await.expect("a port is free"))
    }

    /// The address of the proxy.
    pub fn addr(&self) -> &str {
        self.0.addr(1)
    }

    /// Sets the rule for new and open connections.
    pub fn set(&self, rule: Rule) {
        let [requests, answers] = match rule {
            Rule::Pass => [LinkRule::PASS; 2],
            Rule::Cut => [LinkRule::CUT; 2],
            Rule::LoseAnswers => [LinkRule::PASS, LinkRule { break_one_in: 1, ..LinkRule::PASS }],
        };
        self.0.set(BTreeMap::from([((CLIENT, 1), requests), ((1, CLIENT), answers)]));
    }
}

/// Id that stands for all clients in place of a node's id.
const CLIENT: u64 = 0;

/// The proxy in front of one node.
#[derive(Clone)]
struct Entrance {
    to: u64,
    target: String,
    /// Cluster name that precedes the nodes' ids in the first frame between nodes; `None` for a
    /// proxy of clients, whose connections carry no ids.
    cluster_id: Option<&'static str>,
    rules: watch::Receiver<Rules>,
    late_bytes: Arc<AtomicU64>,
}

impl Entrance {
    async fn run(self, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => _ = tokio::spawn(self.clone().carry(stream)),
                // Most likely the process has no free file descriptor, so a later try can succeed.
                Err(_) => sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Forwards one connection in both directions, until one side closes it or a rule breaks it.
    async fn carry(self, inside: TcpStream) {
        let source = match self.cluster_id {
            None => CLIENT,
            Some(cluster_id) => match timeout(HELLO_MAX, caller(&inside, cluster_id, self.to)).await {
                Ok(Some(source)) => source,
                _ => return,
            },
        };
        let Ok(outside) = TcpStream::connect(&self.target).await else { return };
        if inside.set_nodelay(true).is_err() || outside.set_nodelay(true).is_err() {
            return;
        }
        let (inside_read, inside_write) = inside.into_split();
        let (outside_read, outside_write) = outside.into_split();
        let (inside_closed, outside_closed) = (AtomicBool::new(false), AtomicBool::new(false));
        let (link, back, late_bytes) = ((source, self.to), (self.to, source), &self.late_bytes);
        let there = Way { link, closed: &inside_closed, gone: &outside_closed, late_bytes };
        let back = Way { link: back, closed: &outside_closed, gone: &inside_closed, late_bytes };
        tokio::select! {
            () = there.pump(inside_read, outside_write, self.rules.clone()) => {}
            () = back.pump(outside_read, inside_write, self.rules) => {}
        }
    }
}

/// One direction of a connection.
struct Way<'a> {
    link: (u64, u64),
    /// Set when the sender has closed the connection.
    closed: &'a AtomicBool,
    /// Set when the receiver has closed the connection.
    gone: &'a AtomicBool,
    late_bytes: &'a AtomicU64,
}

/// Bytes that were read and not yet forwarded.
struct Carried {
    due: Instant,
    /// Whether a rule has held the bytes back.
    held: bool,
    bytes: Vec<u8>,
}

impl Way<'_> {
    /// Forwards bytes in one direction. Delayed bytes wait in a queue, so that a delay costs no
    /// throughput. Bytes that were sent before the sender closed the connection still arrive, as
    /// with TCP.
    async fn pump(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut rules: watch::Receiver<Rules>) {
        let mut queue: VecDeque<Carried> = VecDeque::new();
        let mut buffer = vec![0; 64 << 10];
        let mut closed = false;
        while !closed || !queue.is_empty() {
            let rule = rules.borrow_and_update().get(&self.link).copied().unwrap_or_default();
            if rule.cut {
                // Dropped bytes leave a gap in the stream, so the connection ends with the rule.
                let _ = rules.wait_for(|rules| !rules.get(&self.link).is_some_and(|rule| rule.cut)).await;
                return;
            }
            if rule.hold {
                queue.iter_mut().for_each(|carried| carried.held = true);
            }
            let due = queue.front().map(|carried| carried.due).filter(|_| !rule.hold);
            tokio::select! {
                changed = rules.changed() => if changed.is_err() { return },
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    let Some(carried) = queue.pop_front() else { continue };
                    if to.write_all(&carried.bytes).await.is_err() {
                        return;
                    }
                    if carried.held && !self.gone.load(Ordering::Relaxed) {
                        self.late_bytes.fetch_add(carried.bytes.len() as u64, Ordering::Relaxed);
                    }
                }
                read = from.read(&mut buffer), if !closed && queue.len() < 256 => {
                    let Ok(length) = read else { return };
                    if rule.break_one_in > 0 && fastrand::u32(..rule.break_one_in) == 0 {
                        return;
                    }
                    closed = length == 0;
                    self.closed.store(closed, Ordering::Relaxed);
                    let after = queue.back().map_or_else(Instant::now, |carried| carried.due);
                    let due = Instant::now() + rule.delay + rule.jitter.mul_f64(fastrand::f64());
                    let bytes = buffer[..length].to_vec();
                    queue.push_back(Carried { due: due.max(after), held: rule.hold, bytes });
                }
            }
        }
    }
}

/// Reads the id of the node that connects to node `to`, without consuming bytes of the stream.
/// Returns `None` when the stream ends or does not begin with a frame of the cluster.
pub async fn caller(stream: &TcpStream, cluster_id: &str, to: u64) -> Option<u64> {
    let mut start = [0; 256];
    loop {
        let length = stream.peek(&mut start).await.ok().filter(|length| *length > 0)?;
        if let Some(caller) = caller_in(&start[..length], cluster_id, to) {
            return Some(caller);
        }
        if length == start.len() {
            return None;
        }
        // Waits for the rest of the frame.
        sleep(Duration::from_millis(2)).await;
    }
}

/// Returns the id of the connecting node in the first frame. The cluster's name is followed by two
/// bytes: the ids of the connecting node and of the node `to`. Returns `None` for an incomplete
/// frame or one of another form.
fn caller_in(frame: &[u8], cluster_id: &str, to: u64) -> Option<u64> {
    let name = cluster_id.as_bytes();
    let at = frame.windows(name.len()).position(|window| window == name)? + name.len();
    let (from, called) = (u64::from(*frame.get(at)?), u64::from(*frame.get(at + 1)?));
    (called == to && from != to).then_some(from)
}
