//! Links between nodes: one TCP proxy in front of every node's peer port. The same proxy can stand
//! between clients and a node.
//!
//! The first frame of a connection has the cluster's name, followed by the ids of both ends. So
//! every directed link has a rule of its own for each direction of the bytes. A cut link swallows
//! bytes and keeps connections open, like a cable that was pulled; when it heals, the connections
//! break. A link that holds keeps bytes and delivers them when it is let go.

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
    /// Whether bytes vanish.
    pub cut: bool,
    /// Whether bytes wait until the rule ends, and then arrive all at once.
    pub hold: bool,
    /// Time by which bytes arrive later.
    pub delay: Duration,
    /// Largest additional random delay.
    pub jitter: Duration,
    /// Rate of reads that break the connection at random, as loss does with TCP: one in this many;
    /// 0 for never.
    pub break_one_in: u32,
}

/// Time within which a caller must send its first frame.
const HELLO_MAX: Duration = Duration::from_secs(2);

impl LinkRule {
    /// Rule under which bytes vanish.
    pub const CUT: LinkRule = LinkRule { cut: true, ..LinkRule::PASS };
    /// Rule under which bytes wait.
    pub const HOLD: LinkRule = LinkRule { hold: true, ..LinkRule::PASS };
    /// Rule under which bytes pass.
    pub const PASS: LinkRule =
        LinkRule { cut: false, hold: false, delay: Duration::ZERO, jitter: Duration::ZERO, break_one_in: 0 };

    /// Combines two rules. Of each field the stronger value counts.
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

/// Proxies in front of all nodes. The drop ends every connection.
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
    /// Starts a proxy for each of these peer addresses of the members of the cluster `cluster_id`.
    ///
    /// # Errors
    /// When a port cannot be bound.
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

    /// The address at which peers reach a node. Nodes count from 1.
    pub fn addr(&self, node: u64) -> &str {
        &self.addrs[(node - 1) as usize]
    }

    /// Sets the rules of all directed links; links that are not named pass everything.
    pub fn set(&self, rules: BTreeMap<(u64, u64), LinkRule>) {
        self.rules.send_replace(rules);
    }

    /// Number of bytes that were held and then delivered to a receiver that had not closed the
    /// connection.
    pub fn late_bytes(&self) -> u64 {
        self.late_bytes.load(Ordering::Relaxed)
    }
}

/// Rule for the bytes between clients and a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Bytes pass.
    Pass,
    /// Bytes vanish both ways, and connections stay open. They break when the rule ends.
    Cut,
    /// Requests pass; the first byte of an answer breaks the connection.
    LoseAnswers,
}

/// A proxy between clients and one node.
pub struct Proxy(Links);

impl Proxy {
    /// Starts a proxy on a port of its own.
    ///
    /// # Panics
    /// When no port can be bound.
    pub async fn start(target: &str) -> Proxy {
        Proxy(Links::start_for(None, &[target.to_owned()]).await.expect("a port is free"))
    }

    /// The address of the proxy.
    pub fn addr(&self) -> &str {
        self.0.addr(1)
    }

    /// Changes the rule, also for open connections.
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
    /// `None` for clients, whose connections do not begin with ids.
    cluster_id: Option<&'static str>,
    rules: watch::Receiver<Rules>,
    late_bytes: Arc<AtomicU64>,
}

impl Entrance {
    async fn run(self, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => _ = tokio::spawn(self.clone().carry(stream)),
                // Most likely the process is out of descriptors, and some will be freed.
                Err(_) => sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Carries one connection both ways until one side closes it or a rule breaks it.
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

/// Bytes on their way.
struct Carried {
    due: Instant,
    /// Whether a rule has held the bytes.
    held: bool,
    bytes: Vec<u8>,
}

impl Way<'_> {
    /// Carries bytes. Delayed ones wait in a queue, so that a delay costs no throughput. Bytes that
    /// were sent before the sender closed the connection arrive, as with TCP.
    async fn pump(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut rules: watch::Receiver<Rules>) {
        let mut queue: VecDeque<Carried> = VecDeque::new();
        let mut buffer = vec![0; 64 << 10];
        let mut closed = false;
        while !closed || !queue.is_empty() {
            let rule = rules.borrow_and_update().get(&self.link).copied().unwrap_or_default();
            if rule.cut {
                // Bytes sent meanwhile are lost, so the connection cannot be used afterwards.
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

/// Reads the id of the caller without taking bytes off the stream. Returns `None` when the stream
/// closes or has no such frame.
async fn caller(stream: &TcpStream, cluster_id: &str, to: u64) -> Option<u64> {
    let mut start = [0; 256];
    loop {
        let length = stream.peek(&mut start).await.ok().filter(|length| *length > 0)?;
        if let Some(caller) = caller_in(&start[..length], cluster_id, to) {
            return Some(caller);
        }
        if length == start.len() {
            return None;
        }
        // The rest of the frame is on its way.
        sleep(Duration::from_millis(2)).await;
    }
}

/// Returns the caller in the first frame: the cluster's name is followed by one byte each for the
/// ids of the caller and the called node.
fn caller_in(frame: &[u8], cluster_id: &str, to: u64) -> Option<u64> {
    let name = cluster_id.as_bytes();
    let at = frame.windows(name.len()).position(|window| window == name)? + name.len();
    let (from, called) = (u64::from(*frame.get(at)?), u64::from(*frame.get(at + 1)?));
    (called == to && from != to).then_some(from)
}
