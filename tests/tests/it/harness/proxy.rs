//! A TCP proxy that can cut what goes through it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

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

/// Processes by the node that they are.
type Pids = Arc<Mutex<BTreeMap<u64, u32>>>;

/// A proxy in front of one address, until it is dropped.
pub(crate) struct Proxy {
    addr: String,
    rule: watch::Sender<Rule>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Listens on a port of its own. With `pids` it finds out which node connects.
    pub(crate) async fn start(target: &str, pids: Option<Pids>) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        let (rule, rules) = watch::channel(Rule::Pass);
        let target = target.to_owned();
        let task = tokio::spawn(async move {
            while let Ok((stream, from)) = listener.accept().await {
                let source = Source { from, pids: pids.clone(), node: None };
                tokio::spawn(forward(stream, target.clone(), source, rules.clone()));
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

/// Who made a connection. Found out when a rule asks for it, since it takes a while.
struct Source {
    from: SocketAddr,
    pids: Option<Pids>,
    node: Option<u64>,
}

impl Source {
    async fn is_cut_by(&mut self, rule: Rule) -> bool {
        match rule {
            Rule::Cut => true,
            Rule::CutFrom(node) => {
                if let Some(pids) = self.pids.take() {
                    let from = self.from;
                    self.node = tokio::task::spawn_blocking(move || node_behind(from, &pids)).await.unwrap();
                }
                self.node == Some(node)
            }
            Rule::Pass | Rule::LoseAnswers => false,
        }
    }
}

/// Carries one connection until either side closes it or a rule breaks it.
async fn forward(mut inside: TcpStream, target: String, mut source: Source, mut rules: watch::Receiver<Rule>) {
    let mut outside = None;
    let (mut requests, mut answers) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        let rule = *rules.borrow_and_update();
        if source.is_cut_by(rule).await {
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

/// Which node's process owns the other end of a connection on this machine.
fn node_behind(from: SocketAddr, pids: &Pids) -> Option<u64> {
    let local = format!("0100007F:{:04X}", from.port());
    let table = std::fs::read_to_string("/proc/net/tcp").ok()?;
    let mut rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = rows.find(|row| row.get(1) == Some(&local.as_str()))?;
    let socket = format!("socket:[{}]", row.get(9)?);
    let owns = |pid: &u32| {
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files
            .map(|file| std::fs::read_link(file.path()))
            .any(|link| link.is_ok_and(|link| link.as_os_str() == &*socket))
    };
    let pids = pids.lock().unwrap();
    pids.iter().find(|(_, pid)| owns(pid)).map(|(id, _)| *id)
}
