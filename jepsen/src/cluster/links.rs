//! The links between nodes: one user-space TCP proxy in front of every node's peer port.
//!
//! Which node connects is found by the process that owns the other end of the socket, so every directed link has a rule of
//! its own: from the node that opened the connection to the one that it goes to, for each direction of the bytes. A
//! cut link swallows bytes and keeps connections open, as a cable that was pulled does; when it heals, they break.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

/// What happens to bytes that one node sends to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkRule {
    /// They vanish.
    pub cut: bool,
    /// They arrive so much later.
    pub delay: Duration,
    /// And up to this much later again, at random.
    pub jitter: Duration,
    /// One of so many reads breaks the connection: TCP's form of loss. 0 is never.
    pub break_one_in: u32,
}

/// How often the table of sockets is looked through. It changes while it is read, so that one look may miss a row.
const LOOKS: u32 = 20;

impl LinkRule {
    /// Both rules at once.
    pub fn and(self, other: LinkRule) -> LinkRule {
        LinkRule {
            cut: self.cut || other.cut,
            delay: self.delay.max(other.delay),
            jitter: self.jitter.max(other.jitter),
            break_one_in: self.break_one_in.max(other.break_one_in),
        }
    }
}

type Rules = BTreeMap<(u64, u64), LinkRule>;

/// Proxies in front of all nodes. Dropping them ends every connection.
pub struct Links {
    addrs: Vec<String>,
    rules: watch::Sender<Rules>,
    pids: Arc<Mutex<BTreeMap<u64, u32>>>,
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
    /// Starts a proxy for each of these peer addresses.
    ///
    /// # Errors
    /// When a port cannot be had.
    pub async fn start(peers: &[String]) -> io::Result<Links> {
        let (rules, watched) = watch::channel(Rules::new());
        let pids = Arc::new(Mutex::new(BTreeMap::new()));
        let mut links = Links { addrs: Vec::new(), rules, pids: pids.clone(), tasks: Vec::new() };
        for (i, peer) in peers.iter().enumerate() {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            links.addrs.push(listener.local_addr()?.to_string());
            let door = Door { to: i as u64 + 1, target: peer.clone(), pids: pids.clone(), rules: watched.clone() };
            links.tasks.push(tokio::spawn(door.run(listener)));
        }
        Ok(links)
    }

    /// Where peers reach a node, from 1.
    pub fn addr(&self, node: u64) -> &str {
        &self.addrs[(node - 1) as usize]
    }

    /// Tells which process a node is.
    pub fn set_pid(&self, node: u64, pid: u32) {
        self.pids.lock().unwrap_or_else(PoisonError::into_inner).insert(node, pid);
    }

    /// Gives every directed link its rule; links that are not named pass everything.
    pub fn set(&self, rules: BTreeMap<(u64, u64), LinkRule>) {
        self.rules.send_replace(rules);
    }
}

/// One proxy.
#[derive(Clone)]
struct Door {
    to: u64,
    target: String,
    pids: Arc<Mutex<BTreeMap<u64, u32>>>,
    rules: watch::Receiver<Rules>,
}

impl Door {
    async fn run(self, listener: TcpListener) {
        loop {
            let Ok((stream, from)) = listener.accept().await else { continue };
            tokio::spawn(self.clone().carry(stream, from));
        }
    }

    /// Carries one connection both ways until either side closes it or a rule breaks it.
    async fn carry(self, inside: TcpStream, from: SocketAddr) {
        let pids = self.pids.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let look = move || (0..LOOKS).find_map(|_| node_behind(from, &pids));
        let Ok(Some(source)) = tokio::task::spawn_blocking(look).await else { return };
        let Ok(outside) = TcpStream::connect(&self.target).await else { return };
        if inside.set_nodelay(true).is_err() || outside.set_nodelay(true).is_err() {
            return;
        }
        let (inside_read, inside_write) = inside.into_split();
        let (outside_read, outside_write) = outside.into_split();
        tokio::select! {
            () = pump(inside_read, outside_write, (source, self.to), self.rules.clone()) => {}
            () = pump(outside_read, inside_write, (self.to, source), self.rules) => {}
        }
    }
}

/// Carries bytes one way. Delayed ones wait in a queue, so that delay costs no throughput.
async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, link: (u64, u64), mut rules: watch::Receiver<Rules>) {
    let mut queue: std::collections::VecDeque<(Instant, Vec<u8>)> = std::collections::VecDeque::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let rule = rules.borrow_and_update().get(&link).copied().unwrap_or_default();
        if rule.cut {
            // What is sent meanwhile is lost, so the connection is of no use afterwards.
            let _ = rules.wait_for(|rules| !rules.get(&link).is_some_and(|rule| rule.cut)).await;
            return;
        }
        let due = queue.front().map(|(due, _)| *due);
        tokio::select! {
            changed = rules.changed() => if changed.is_err() { return },
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                let Some((_, bytes)) = queue.pop_front() else { continue };
                if to.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            read = from.read(&mut buffer), if queue.len() < 256 => {
                let Ok(length @ 1..) = read else { return };
                if rule.break_one_in > 0 && fastrand::u32(..rule.break_one_in) == 0 {
                    return;
                }
                let after = queue.back().map_or_else(Instant::now, |(due, _)| *due);
                let due = Instant::now() + rule.delay + rule.jitter.mul_f64(fastrand::f64());
                queue.push_back((due.max(after), buffer[..length].to_vec()));
            }
        }
    }
}

/// Which node's process owns the other end of a connection on this machine.
fn node_behind(from: SocketAddr, pids: &BTreeMap<u64, u32>) -> Option<u64> {
    let local = format!("0100007F:{:04X}", from.port());
    let table = std::fs::read_to_string("/proc/net/tcp").ok()?;
    // An older connection from the same port may still be in TIME_WAIT; it belongs to nobody, inode 0.
    let inode = table.lines().find_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let inode = columns.get(9).filter(|inode| **inode != "0")?;
        (columns.get(1) == Some(&local.as_str())).then(|| (*inode).to_owned())
    })?;
    let socket = format!("socket:[{inode}]");
    let owns = |pid: u32| {
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files.filter_map(|file| std::fs::read_link(file.path()).ok()).any(|link| link.as_os_str() == socket.as_str())
    };
    pids.iter().find(|(_, pid)| **pid != 0 && owns(**pid)).map(|(node, _)| *node)
}
