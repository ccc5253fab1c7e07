//! The cluster under test: real `zlock serve` processes on this machine, or an own cluster that is only talked to.

pub mod disk;
mod links;
mod namespaces;
mod network;
mod process;

use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use protocol::Cluster as View;
use tokio::time::Instant;

pub use links::{LinkRule, Links};
pub use network::{Network, NetworkKind, Place};
pub use process::Node;

use crate::http::{Call, Http};

/// The name of every cluster that is started.
const CLUSTER_ID: &str = "jepsen";

/// How long a cluster may take until every node is ready.
const READY_MAX: Duration = Duration::from_secs(60);

/// How the nodes of an own cluster are made.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many nodes.
    pub nodes: u64,
    /// The program `zlock`.
    pub program: PathBuf,
    /// Where configurations, data and logs go.
    pub dir: PathBuf,
    /// `libfaketime`, when wall clocks are to jump.
    pub faketime: Option<PathBuf>,
    /// A directory for each node's data elsewhere: small disks.
    pub data_dirs: Vec<Option<PathBuf>>,
    /// More keys for the nodes' configuration: `key = value` lines.
    pub settings: String,
    /// How links are broken.
    pub network: NetworkKind,
}

/// Nodes and the links between them.
pub struct Cluster {
    /// `host:port` of every node's HTTP door, in the order of ids from 1.
    pub endpoints: Vec<String>,
    /// The processes; none for a cluster that was there before.
    pub nodes: Vec<Node>,
    /// The links between the nodes; none for a cluster that was there before.
    pub network: Option<Network>,
}

impl Cluster {
    /// Starts nodes and waits until all are ready.
    ///
    /// # Errors
    /// When the program cannot be started or the nodes do not become ready.
    pub async fn start(plan: &Plan) -> io::Result<Cluster> {
        let (network, places) = Network::make(plan.network, plan.nodes).await?;
        let member = |(i, place): (usize, &Place)| {
            let Place { peer, http, .. } = place;
            format!("    {{ id = {}, peer_addr = \"{peer}\", http_addr = \"{http}\" }},\n", i + 1)
        };
        let members: Vec<String> = places.iter().enumerate().map(member).collect();
        let endpoints = places.iter().map(|place| place.http.clone()).collect();
        let mut cluster = Cluster { endpoints, nodes: Vec::new(), network: Some(network) };
        for (i, place) in places.iter().enumerate() {
            cluster.nodes.push(Node::prepare(plan, i as u64 + 1, place, &members.concat())?);
            cluster.restart(i as u64 + 1)?;
        }
        cluster.wait_until_ready().await?;
        Ok(cluster)
    }

    /// A cluster that runs already.
    pub fn of(endpoints: Vec<String>) -> Cluster {
        Cluster { endpoints, nodes: Vec::new(), network: None }
    }

    /// Starts a node again that was killed.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn restart(&mut self, id: u64) -> io::Result<()> {
        let node = &mut self.nodes[(id - 1) as usize];
        if !node.runs() {
            node.start()?;
        }
        Ok(())
    }

    /// Waits until every node answers that it is ready.
    ///
    /// # Errors
    /// When a minute was not enough; names the nodes that are not.
    pub async fn wait_until_ready(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + READY_MAX;
        let mut http = Http::new(&self.endpoints);
        loop {
            let mut late = Vec::new();
            for id in 1..=self.endpoints.len() as u64 {
                if !http.send(id, Call::get("/readyz")).await.is_ok() {
                    late.push(id);
                }
            }
            if late.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                let message = format!("nodes {late:?} are not ready after {} s; see their logs", READY_MAX.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Who leads, as most nodes that answer see it.
    pub async fn leader(&self) -> Option<u64> {
        let mut votes = std::collections::BTreeMap::<u64, usize>::new();
        for view in views(&self.endpoints).await.into_iter().flatten() {
            if let Some(leader) = view.leader {
                *votes.entry(leader).or_default() += if view.role == "leader" { 1 } else { 2 };
            }
        }
        votes.into_iter().max_by_key(|(_, votes)| *votes).map(|(leader, _)| leader)
    }

    /// Nodes that ended by themselves, with how.
    pub fn ended(&mut self) -> Vec<(u64, String)> {
        let ended = self.nodes.iter_mut().filter_map(|node| Some((node.id, node.ended()?)));
        ended.collect()
    }
}

/// What every node says of itself; `None` for one that does not answer.
pub async fn views(endpoints: &[String]) -> Vec<Option<View>> {
    let mut http = Http::new(endpoints);
    let mut views = Vec::new();
    for id in 1..=endpoints.len() as u64 {
        let mut answer = http.send(id, Call::get("/v1/cluster")).await;
        views.push(answer.read(crate::answer::Effect::Read));
    }
    views
}

/// Ports that are free just now.
fn free_ports(count: usize) -> io::Result<Vec<u16>> {
    let listeners = (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<io::Result<Vec<_>>>()?;
    listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

/// The program `zlock` of the same build as this one.
///
/// # Errors
/// When it is not there.
pub fn program_beside() -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let beside = own.with_file_name("zlock");
    let above = own.parent().and_then(Path::parent).map(|dir| dir.join("zlock"));
    if let Some(found) = [Some(beside.clone()), above].into_iter().flatten().find(|path| path.is_file()) {
        return Ok(found);
    }
    let message = format!("{} is missing: run `cargo build --release -p zlock`, or name --zlock", beside.display());
    Err(io::Error::new(io::ErrorKind::NotFound, message))
}
