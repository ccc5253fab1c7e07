//! The cluster under test: `zlock serve` processes on this machine, or a cluster that runs already
//! and is not broken.

mod alarms;
pub mod cgroup;
mod clock;
pub mod disk;
mod namespaces;
mod network;
mod process;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;
use zlock_client::api::Cluster as View;

pub use clock::Clock;
pub(crate) use namespaces::{LOSS_PERCENT, available as namespaces_available};
pub use network::{Network, NetworkKind, Place};
pub use process::{Breakage, Ended, Node, Which};

use crate::answer::Effect;
use crate::http::{Call, Http};

/// The name of every cluster that is started.
pub(crate) const CLUSTER_ID: &str = "jepsen";

/// Longest time until every node of a cluster is ready.
const READY_MAX: Duration = Duration::from_secs(60);

/// Number of ends of one node in a recovery beyond which the node will not recover.
const ENDS_IN_RECOVERY_MAX: usize = 3;

/// Znode that is written to see whether a node writes.
const PROBE: &str = "/jepsen-probe";

/// Plan of a cluster that the harness starts.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of nodes.
    pub nodes: u64,
    /// The program `zlock`.
    pub program: PathBuf,
    /// Another program `zlock`, for upgrades.
    pub next: Option<PathBuf>,
    /// Directory for configurations, data and logs.
    pub dir: PathBuf,
    /// `libfaketime`, when wall clocks are to jump.
    pub faketime: Option<PathBuf>,
    /// Directory of each node's data on a small disk; `None` for the default place.
    pub data_dirs: Vec<Option<PathBuf>>,
    /// More keys for the nodes' configuration: `key = value` lines.
    pub settings: String,
    /// Means by which links are broken.
    pub network: NetworkKind,
}

/// Nodes and the links between them.
pub struct Cluster {
    /// `host:port` of every node's HTTP door, in the order of ids from 1.
    pub endpoints: Vec<String>,
    /// `host:port` of every node's ZooKeeper door; none for a cluster that was there before.
    pub zookeeper: Vec<String>,
    /// The processes; none for a cluster that was there before.
    pub nodes: Vec<Node>,
    /// True once the cluster's level was raised beyond what the first program knows.
    pub raised: bool,
    /// The links between the nodes; none for a cluster that was there before.
    pub network: Option<Network>,
    /// The nodes' disks, where faults need them. They drop after the nodes, whose processes must
    /// end first.
    pub disks: disk::Disks,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // A process that waits for its disk cannot die before the disk answers.
        for node in &mut self.nodes {
            node.condemn();
        }
        self.disks.let_go();
    }
}

impl Cluster {
    /// Starts nodes and waits until all are ready.
    ///
    /// # Errors
    /// When the program cannot be started or the nodes do not become ready.
    pub async fn start(plan: &Plan, disks: disk::Disks) -> io::Result<Cluster> {
        let (network, places) = Network::make(plan.network, plan.nodes).await?;
        let member = |(i, place): (usize, &Place)| {
            let Place { peer, http, .. } = place;
            format!("    {{ id = {}, peer_addr = \"{peer}\", http_addr = \"{http}\" }},\n", i + 1)
        };
        let members: Vec<String> = places.iter().enumerate().map(member).collect();
        let endpoints = places.iter().map(|place| place.http.clone()).collect();
        let zookeeper = places.iter().map(|place| place.zookeeper.clone()).collect();
        let network = Some(network);
        let mut cluster = Cluster { endpoints, zookeeper, nodes: Vec::new(), raised: false, network, disks };
        for (i, place) in places.iter().enumerate() {
            cluster.nodes.push(Node::prepare(plan, i as u64 + 1, place, &members.concat())?);
            cluster.restart(i as u64 + 1)?;
        }
        cluster.recover().await?;
        for node in &mut cluster.nodes {
            node.check_clock()?;
        }
        match cluster.ends().first() {
            Some(end) => Err(io::Error::other(format!("a node ended while it was started: {end:?}"))),
            None => Ok(cluster),
        }
    }

    /// Returns a cluster that runs already.
    pub fn of(endpoints: Vec<String>) -> Cluster {
        let (zookeeper, nodes, disks) = (Vec::new(), Vec::new(), disk::Disks::default());
        Cluster { endpoints, zookeeper, nodes, raised: false, network: None, disks }
    }

    /// Starts a node unless it runs. A node that refused to start on damaged data of a broken disk
    /// gets an empty one, as its message says. That is safe, because only one disk breaks at a
    /// time, and the next only after recovery.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn restart(&mut self, id: u64) -> io::Result<()> {
        let node = &mut self.nodes[(id - 1) as usize];
        if node.runs() {
            return Ok(());
        }
        if node.ends().last().is_some_and(|end| end.refused_damage) {
            node.wipe()?;
        }
        node.start()
    }

    /// A node, from 1.
    pub fn node(&mut self, id: u64) -> &mut Node {
        &mut self.nodes[(id - 1) as usize]
    }

    /// Kills a node with SIGKILL, and returns when the process is gone. Its disk answers again.
    pub fn kill(&mut self, id: u64) {
        let node = &mut self.nodes[(id - 1) as usize];
        node.condemn();
        self.disks.let_go_of(&node.data_dir);
        node.kill();
    }

    /// Stops a node with SIGTERM, and waits for the end. Its disk answers again.
    pub async fn stop(&mut self, id: u64) {
        let node = &mut self.nodes[(id - 1) as usize];
        self.disks.mend_one(&node.data_dir);
        node.stop().await;
    }

    /// The reason for which a node is not ready: its own words, or that it does not answer. `None`
    /// when it is ready.
    pub async fn not_ready(&self, id: u64) -> Option<String> {
        let answer = Http::new(&self.endpoints).send(id, Call::get("/readyz")).await;
        (!answer.is_ok())
            .then(|| format!("{} {}", answer.error.unwrap_or_default(), String::from_utf8_lossy(&answer.body)))
    }

    /// Makes every fsync of a node slow or hang.
    ///
    /// # Errors
    /// When its disk cannot do that.
    pub fn impair_disk(&mut self, id: u64, how: impl FnOnce(&power_disk::Disk)) -> Result<(), String> {
        let data_dir = &self.nodes[(id - 1) as usize].data_dir;
        self.disks.impair(data_dir, how).map_err(|error| format!("disk of node {id}: {error}"))
    }

    /// Number of fsyncs of these nodes that have been kept waiting, since the beginning.
    ///
    /// # Errors
    /// When their disks cannot say.
    pub fn delayed_fsyncs(&mut self, ids: &[u64]) -> Result<u64, String> {
        let mut sum = 0;
        for id in ids {
            let data_dir = &self.nodes[(id - 1) as usize].data_dir;
            sum += self.disks.delayed(data_dir).map_err(|error| format!("disk of node {id}: {error}"))?;
        }
        Ok(sum)
    }

    /// Tells whether the fsyncs of a node have been sound for longer than `time`.
    pub fn disk_rested(&self, id: u64, time: Duration) -> bool {
        self.disks.rested(&self.nodes[(id - 1) as usize].data_dir, time)
    }

    /// Bytes between nodes that have come late, because a link had held them.
    pub fn late_bytes(&self) -> u64 {
        self.network.as_ref().map_or(0, Network::late_bytes)
    }

    /// Takes the power of a node that was killed.
    ///
    /// # Errors
    /// As [`disk::Disks::lose_power`].
    pub fn lose_power(&mut self, id: u64, seed: u64) -> io::Result<power_disk::Cut> {
        self.disks.lose_power(&self.nodes[(id - 1) as usize].data_dir, seed)
    }

    /// Starts every node again that has ended because of its disk or its memory.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn restart_excused(&mut self) -> io::Result<()> {
        for id in 1..=self.nodes.len() as u64 {
            let node = &mut self.nodes[(id - 1) as usize];
            if !node.runs() && node.ends().last().is_some_and(|end| end.is_excused()) {
                self.restart(id)?;
            }
        }
        Ok(())
    }

    /// Starts every node that does not run, whatever the reason, and waits until all are ready and
    /// those that have lived through a broken disk have either proven that they go on or ended.
    ///
    /// # Errors
    /// When a node cannot be started, ends again and again, or a minute was not enough; names the
    /// nodes and why.
    pub async fn recover(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + READY_MAX;
        let ends_before: Vec<usize> = self.nodes.iter().map(|node| node.ends().len()).collect();
        let mut http = Http::new(&self.endpoints);
        loop {
            for id in 1..=self.nodes.len() as u64 {
                self.restart(id)?;
            }
            for (node, before) in self.nodes.iter().zip(&ends_before) {
                if let Some(end) = node.ends().last().filter(|_| node.ends().len() > before + ENDS_IN_RECOVERY_MAX) {
                    return Err(io::Error::other(format!("node {} ends again and again: {end:?}", node.id)));
                }
            }
            let late = self.late(&mut http).await;
            if late.is_empty() && self.nodes.iter_mut().all(Node::runs) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let message = format!("after {} s: {}; see their logs", READY_MAX.as_secs(), late.join(", "));
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Returns the reasons for which nodes have not recovered.
    async fn late(&self, http: &mut Http) -> Vec<String> {
        let mut late = Vec::new();
        for id in 1..=self.endpoints.len() as u64 {
            let answer = http.send(id, Call::get("/readyz")).await;
            if !answer.is_ok() {
                late.push(format!("node {id} is not ready: {}", answer.error.unwrap_or_default()));
            }
        }
        let unproven: Vec<u64> =
            self.nodes.iter().filter(|node| node.must_prove_itself()).map(|node| node.id).collect();
        if !late.is_empty() || unproven.is_empty() {
            return late;
        }
        // A ready node may not have written yet, and its next fsync may be the one that fails. If
        // an fsync fails even later, the next recovery starts the node again.
        let Some(zxid) = probe(http).await else { return vec!["a write was not acknowledged".to_owned()] };
        for id in unproven {
            let view: Option<View> = http.send(id, Call::get("/v1/cluster")).await.read(Effect::Read);
            if view.is_none_or(|view| view.applied_zxid < zxid) {
                late.push(format!("node {id} has not written since its disk was mended"));
            }
        }
        late
    }

    /// The leader, as most nodes that answer see it.
    pub async fn leader(&self) -> Option<u64> {
        let all: Vec<u64> = (1..=self.endpoints.len() as u64).collect();
        self.leader_seen_by(&all).await
    }

    /// The leader, as most of these nodes see it.
    pub async fn leader_seen_by(&self, nodes: &[u64]) -> Option<u64> {
        let mut votes = std::collections::BTreeMap::<u64, usize>::new();
        for view in views(&self.endpoints, nodes).await.into_iter().flatten() {
            if let Some(leader) = view.leader {
                *votes.entry(leader).or_default() += if view.role == "leader" { 1 } else { 2 };
            }
        }
        votes.into_iter().max_by_key(|(_, votes)| *votes).map(|(leader, _)| leader)
    }

    /// Ends of nodes that the harness did not ask for, since the beginning.
    pub fn ends(&mut self) -> Vec<Ended> {
        self.nodes.iter_mut().for_each(|node| _ = node.runs());
        self.nodes.iter().flat_map(|node| node.ends().to_vec()).collect()
    }
}

/// Writes to a znode that no workload uses, at any node. Returns the write's zxid; `None` if no
/// node acknowledged it.
async fn probe(http: &mut Http) -> Option<u64> {
    let target = format!("/v1/znodes{PROBE}");
    for node in 1..=http.node_count() {
        // The znode may be there; the write behind the create tells.
        let _ = http.send(node, Call::post(target.clone())).await;
        let answer = http.send(node, Call::put(target.clone())).await;
        if answer.is_ok() {
            return answer.zxid;
        }
    }
    None
}

/// The views that these nodes have of the cluster; `None` for a node that does not answer.
async fn views(endpoints: &[String], nodes: &[u64]) -> Vec<Option<View>> {
    let mut http = Http::new(endpoints);
    let mut views = Vec::new();
    for id in nodes {
        views.push(http.send(*id, Call::get("/v1/cluster")).await.read(Effect::Read));
    }
    views
}

/// Returns the program `zlock` of the same build as this one.
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
