//! The links between nodes: one user-space TCP proxy in front of every node's peer port.
//!
//! Which node connects stands in the first frame: behind the cluster's name come the ids of both ends. So every directed link
//! has a rule of its own, for each direction of the bytes. A cut link swallows bytes and keeps connections open, as a
//! cable that was pulled does; when it heals, they break.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::CLUSTER_ID;

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

/// A caller that has not said who it is after this time is turned away.
const HELLO_MAX: Duration = Duration::from_secs(2);

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
        let mut links = Links { addrs: Vec::new(), rules, tasks: Vec::new() };
        for (i, peer) in peers.iter().enumerate() {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            links.addrs.push(listener.local_addr()?.to_string());
            let door = Door { to: i as u64 + 1, target: peer.clone(), rules: watched.clone() };
            links.tasks.push(tokio::spawn(door.run(listener)));
        }
        Ok(links)
    }

    /// Where peers reach a node, from 1.
    pub fn addr(&self, node: u64) -> &str {
        &self.addrs[(node - 1) as usize]
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
    rules: watch::Receiver<Rules>,
}

impl Door {
    async fn run(self, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => _ = tokio::spawn(self.clone().carry(stream)),
                // Out of descriptors, most likely: some will be given back.
                Err(_) => sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Carries one connection both ways until either side closes it or a rule breaks it.
    async fn carry(self, inside: TcpStream) {
        let Ok(Some(source)) = timeout(HELLO_MAX, caller(&inside, self.to)).await else { return };
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

/// Carries bytes one way. Delayed ones wait in a queue, so that delay costs no throughput. What was sent before the sender closed
/// the connection arrives, as it does with TCP.
async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, link: (u64, u64), mut rules: watch::Receiver<Rules>) {
    let mut queue: std::collections::VecDeque<(Instant, Vec<u8>)> = std::collections::VecDeque::new();
    let mut buffer = vec![0; 64 << 10];
    let mut closed = false;
    while !closed || !queue.is_empty() {
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
            read = from.read(&mut buffer), if !closed && queue.len() < 256 => {
                let Ok(length) = read else { return };
                if rule.break_one_in > 0 && fastrand::u32(..rule.break_one_in) == 0 {
                    return;
                }
                closed = length == 0;
                let after = queue.back().map_or_else(Instant::now, |(due, _)| *due);
                let due = Instant::now() + rule.delay + rule.jitter.mul_f64(fastrand::f64());
                queue.push_back((due.max(after), buffer[..length].to_vec()));
            }
        }
    }
}

/// Who connects, read without taking anything off the stream. `None` when it closes or talks nonsense.
async fn caller(stream: &TcpStream, to: u64) -> Option<u64> {
    let mut start = [0; 256];
    loop {
        let length = stream.peek(&mut start).await.ok().filter(|length| *length > 0)?;
        if let Some(caller) = caller_in(&start[..length], to) {
            return Some(caller);
        }
        if length == start.len() {
            return None;
        }
        // The rest of the frame is on its way.
        sleep(Duration::from_millis(2)).await;
    }
}

/// The caller in the first frame: the cluster's name, then one byte each for the ids of the caller and of the one it calls.
fn caller_in(frame: &[u8], to: u64) -> Option<u64> {
    let name = CLUSTER_ID.as_bytes();
    let at = frame.windows(name.len()).position(|window| window == name)? + name.len();
    let (from, called) = (u64::from(*frame.get(at)?), u64::from(*frame.get(at + 1)?));
    (called == to && from != to).then_some(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_sent_before_the_end_of_a_connection_arrives() {
        let node = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peers = ["127.0.0.1:1".to_owned(), node.local_addr().unwrap().to_string()];
        let links = Links::start(&peers).await.unwrap();
        links.set(BTreeMap::from([((2, 1), LinkRule { delay: Duration::from_millis(5), ..LinkRule::default() })]));
        for _ in 0..20 {
            let mut caller = TcpStream::connect(links.addr(2)).await.unwrap();
            let mut hello = CLUSTER_ID.as_bytes().to_vec();
            hello.extend_from_slice(&[1, 2]);
            caller.write_all(&hello).await.unwrap();
            let (mut called, _) = node.accept().await.unwrap();
            called.read_exact(&mut hello).await.unwrap();
            called.write_all(b"done").await.unwrap();
            drop(called);
            let mut answer = Vec::new();
            caller.read_to_end(&mut answer).await.unwrap();
            assert_eq!(answer, b"done");
        }
    }
}
