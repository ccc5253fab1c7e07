//! A TCP proxy that can cut what goes through it.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::interval;

/// What happens to bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// They pass.
    Pass,
    /// They vanish, both ways, and connections stay open, as when a cable is cut. They break when the rule ends.
    Cut,
    /// The same for connections that this node makes.
    CutFrom(u64),
    /// Requests pass; when the first byte of an answer comes, the connection breaks.
    LoseAnswers,
}

/// The cluster that the nodes belong to. Its name stands in a member's first frame, and behind it one byte each for the ids of the
/// caller and of the node that it calls.
pub(crate) const CLUSTER_ID: &str = "test";

/// A proxy in front of one address, until it is dropped.
pub(crate) struct Proxy {
    addr: String,
    rule: watch::Sender<Rule>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Listens on a port of its own, for clients.
    pub(crate) async fn start(target: &str) -> Proxy {
        Proxy::start_for(target, None).await
    }

    /// The same in front of the peer port of a node: it finds out which node connects.
    pub(crate) async fn start_for_peers_of(node: u64, target: &str) -> Proxy {
        Proxy::start_for(target, Some(node)).await
    }

    async fn start_for(target: &str, node: Option<u64>) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        let (rule, rules) = watch::channel(Rule::Pass);
        let target = target.to_owned();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(forward(stream, target.clone(), node, rules.clone()));
            }
        });
        Proxy { addr, rule, task }
    }

    /// Where it listens.
    pub(crate) fn addr(&self) -> &str {
        &self.addr
    }

    /// Changes the rule, for open connections too.
    pub(crate) fn set(&self, rule: Rule) {
        self.rule.send_replace(rule);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Carries one connection until either side closes it or a rule breaks it.
async fn forward(mut inside: TcpStream, target: String, node: Option<u64>, mut rules: watch::Receiver<Rule>) {
    let source = match node {
        None => None,
        Some(node) => match caller(&inside, node).await {
            None => return,
            source => source,
        },
    };
    let mut outside = None;
    let (mut requests, mut answers) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        let rule = *rules.borrow_and_update();
        let is_cut = match rule {
            Rule::Cut => true,
            Rule::CutFrom(node) => source == Some(node),
            Rule::Pass | Rule::LoseAnswers => false,
        };
        if is_cut {
            // What was sent meanwhile is lost, so the connection is of no use afterwards.
            let _ = rules.wait_for(|now| *now != rule).await;
            return;
        }
        if outside.is_none() {
            let Ok(stream) = TcpStream::connect(&target).await else { return };
            let _ = (stream.set_nodelay(true), inside.set_nodelay(true));
            outside = Some(stream);
        }
        let outside = outside.as_mut().expect("it was just made");
        let passed = tokio::select! {
            changed = rules.changed() => changed.is_ok(),
            read = inside.read(&mut requests) => pass(read, &requests, outside).await,
            read = outside.read(&mut answers) => {
                *rules.borrow() != Rule::LoseAnswers && pass(read, &answers, &mut inside).await
            }
        };
        if !passed {
            return;
        }
    }
}

async fn pass(read: std::io::Result<usize>, buffer: &[u8], to: &mut TcpStream) -> bool {
    match read {
        Ok(length) if length > 0 => to.write_all(&buffer[..length]).await.is_ok(),
        _ => false,
    }
}

/// The member that connects to `node`, read without taking anything off the stream. `None` when it closes or talks nonsense.
async fn caller(stream: &TcpStream, node: u64) -> Option<u64> {
    let mut start = [0; 256];
    let mut looks = interval(Duration::from_millis(2));
    loop {
        let length = stream.peek(&mut start).await.ok().filter(|length| *length > 0)?;
        let name = CLUSTER_ID.as_bytes();
        let frame = &start[..length];
        let ids = frame.windows(name.len()).position(|window| window == name).map(|at| at + name.len());
        if let Some((from, called)) = ids.and_then(|at| frame.get(at).zip(frame.get(at + 1))) {
            return (u64::from(*called) == node).then_some(u64::from(*from));
        }
        if length == start.len() {
            return None;
        }
        // The rest of the frame is on its way.
        looks.tick().await;
    }
}
