//! The cluster under test: `zlock serve` processes on this machine, or a cluster that runs already,
//! in which no faults are made.

mod alarms;
pub mod cgroup;
mod clock;
pub mod disk;
mod ended;
mod namespaces;
mod network;
mod plan;
mod process;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;
use zlock_client::api::Cluster as View;

pub use clock::Clock;
pub use ended::Ended;
pub(crate) use namespaces::{LOSS_PERCENT, available as namespaces_available};
pub use network::{Network, NetworkKind, Place};
pub use plan::Plan;
pub use process::{Breakage, Node, SUPER, Which};

use self::plan::TLS_DIR;
use crate::answer::Effect;
use crate::endpoints::Endpoints;
use crate::http::{Call, Http};

/// Cluster id of every cluster that the harness starts.
pub(crate) const CLUSTER_ID: &str = "jepsen";

/// User and password of the operator in every node's configuration.
const OPERATOR: &str = "super:test";

/// Time within which every node of a cluster must become ready.
const READY_MAX: Duration = Duration::from_secs(60);

/// Largest number of times that the process of one node may end by itself during one recovery. If
/// it ends more often, the recovery fails.
const ENDS_IN_RECOVERY_MAX: usize = 3;

/// Znode that the harness writes to make every node write to its disk.
const PROBE: &str = "/jepsen-probe";

/// Nodes and the links between them.
pub struct Cluster {
    /// HTTP addresses of all nodes, and the ids of the present members.
    pub endpoints: Endpoints,
    /// Address (`host:port`) of every node for ZooKeeper's protocol.
    pub zookeeper: Vec<String>,
    /// Processes of the nodes.
    pub nodes: Vec<Node>,
    /// True once the cluster's level (version of the data format) was raised beyond the highest
    /// level that [`Plan::program`] knows.
    pub raised: bool,
    /// Directory for backups.
    pub dir: PathBuf,
    /// Number of backups that were saved in `dir`.
    pub backups: u64,
    /// Links between the nodes.
    pub network: Network,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // All nodes end at the same time.
        self.nodes.iter_mut().for_each(Node::condemn);
    }
}

impl Cluster {
    /// Starts nodes and waits until all are ready.
    ///
    /// # Errors
    /// When the program cannot be started or the nodes do not become ready.
    pub async fn start(plan: &Plan) -> io::Result<Cluster> {
        let (network, places) = Network::make(plan.network, plan.nodes + plan.spares).await?;
        let addrs: Vec<String> = places.iter().map(|place| place.http.clone()).collect();
        let endpoints = Endpoints::from(addrs);
        let zookeeper = places.iter().map(|place| place.zookeeper.clone()).collect();
        let (dir, backups, nodes) = (std::fs::canonicalize(&plan.dir)?, 0, Vec::new());
        let mut cluster = Cluster { endpoints, zookeeper, nodes, raised: false, dir, backups, network };
        for (id, place) in (1..).zip(&places) {
            cluster.nodes.push(Node::prepare(plan, id, place)?);
        }
        if plan.peer_tls {
            cluster.make_certificates().await.map_err(io::Error::other)?;
        }
        cluster.set_members((1..=plan.nodes).collect())?;
        cluster.recover().await?;
        for node in cluster.nodes.iter_mut().filter(|node| node.was_used()) {
            node.check_clock()?;
        }
        match cluster.ends().first() {
            Some(end) => Err(io::Error::other(format!("a node ended while it was started: {end:?}"))),
            None => Ok(cluster),
        }
    }

    /// Returns a cluster that runs already at these HTTP addresses.
    pub fn of(endpoints: Vec<String>) -> Cluster {
        let (zookeeper, nodes, dir, network) = (Vec::new(), Vec::new(), PathBuf::new(), Network::Foreign);
        Cluster { endpoints: endpoints.into(), zookeeper, nodes, raised: false, dir, backups: 0, network }
    }

    /// Returns the number of nodes that started the cluster.
    pub fn founders(&self) -> usize {
        self.nodes.iter().filter(|node| !node.joins).count()
    }

    /// Replaces the list of members, and writes it into the members' configuration files.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn set_members(&mut self, members: Vec<u64>) -> io::Result<()> {
        let list = self.listed(&members);
        for id in &members {
            self.node(*id).configure(&list)?;
        }
        self.endpoints.set_members(members);
        Ok(())
    }

    /// Returns the path of a file in the directory for backups.
    pub fn file(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    /// Returns the members in the form of the option `--members` of `zlock restore prepare`. Before
    /// the start of the nodes, all nodes are members.
    pub fn members_option(&self) -> String {
        let member = |id: u64| {
            let Place { peer, http, .. } = &self.nodes[(id - 1) as usize].place;
            format!("{id}={peer}/{http}")
        };
        self.endpoints.members().into_iter().map(member).collect::<Vec<_>>().join(",")
    }

    /// Makes a certificate for each member. The first call also makes the authority that signs all
    /// certificates.
    ///
    /// # Errors
    /// As [`Cluster::zlock`].
    pub async fn make_certificates(&self) -> Result<(), String> {
        let (out, members) = (self.file(TLS_DIR), self.members_option());
        self.zlock(&["tls", "init", "--out", &out, "--cluster-id", CLUSTER_ID, "--members", &members]).await
    }

    /// Runs a command of `zlock` as the operator.
    ///
    /// # Errors
    /// The stderr of a command that failed.
    pub async fn zlock(&self, args: &[&str]) -> Result<(), String> {
        let mut command = tokio::process::Command::new(&self.nodes[0].program);
        command.args(args).env("ZLOCK_ENDPOINTS", self.endpoints.addrs().join(",")).env("ZLOCK_USER", OPERATOR);
        let output = command.output().await.map_err(|error| format!("{args:?}: {error}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        output.status.success().then_some(()).ok_or_else(|| format!("{args:?}: {said}"))
    }

    /// Starts a new node, which waits until it is added to the members. Returns its id; `None` if
    /// every node was used before.
    ///
    /// # Errors
    /// When the node cannot be started.
    pub fn start_spare(&mut self) -> io::Result<Option<u64>> {
        let Some(id) = self.nodes.iter().find(|node| !node.was_used()).map(|node| node.id) else { return Ok(None) };
        let known: Vec<u64> = self.endpoints.members().into_iter().chain([id]).collect();
        let list = self.listed(&known);
        let node = self.node(id);
        node.configure(&list)?;
        node.set_clock(Clock::RIGHT)?;
        node.start()?;
        Ok(Some(id))
    }

    /// Returns the lines of `node.members` for these nodes.
    fn listed(&self, ids: &[u64]) -> String {
        let line = |id: &u64| {
            let Place { peer, http, .. } = &self.nodes[(*id - 1) as usize].place;
            format!("    {{ id = {id}, peer_addr = \"{peer}\", http_addr = \"{http}\" }},\n")
        };
        ids.iter().map(line).collect()
    }

    /// Starts a node unless it runs. Does nothing in a cluster that the harness did not start. If
    /// its last start failed because a broken disk had damaged its data, the data directory is
    /// emptied first, as the node's log message advises. This is safe, because only one disk breaks
    /// at a time, and the next disk only after recovery.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn restart(&mut self, id: u64) -> io::Result<()> {
        let Some(node) = self.nodes.get_mut((id - 1) as usize) else { return Ok(()) };
        if node.runs() {
            return Ok(());
        }
        if node.ends().last().is_some_and(|end| end.refused_damage) {
            node.wipe()?;
        }
        node.start()
    }

    /// Returns the node with this id, from 1.
    pub fn node(&mut self, id: u64) -> &mut Node {
        &mut self.nodes[(id - 1) as usize]
    }

    /// Returns why a node is not ready: its answer to `/readyz`, or why it has not answered. `None`
    /// when it is ready.
    pub async fn not_ready(&self, id: u64) -> Option<String> {
        let answer = Http::new(&self.endpoints).send(id, Call::get("/readyz")).await;
        (!answer.is_ok())
            .then(|| format!("{} {}", answer.error.unwrap_or_default(), String::from_utf8_lossy(&answer.body)))
    }

    /// Starts again every node that has ended because of a broken disk or a lack of memory.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn restart_excused(&mut self) -> io::Result<()> {
        for id in self.endpoints.members() {
            let Some(node) = self.nodes.get_mut((id - 1) as usize) else { continue };
            if !node.runs() && node.ends().last().is_some_and(|end| end.is_excused()) {
                self.restart(id)?;
            }
        }
        Ok(())
    }

    /// Starts every node that does not run, and waits until all nodes are ready. A node whose disk
    /// was broken and mended while it ran must also write, to prove that it still works; if it ends
    /// instead, it is started again.
    ///
    /// # Errors
    /// When a node cannot be started, ends again and again, or is not ready after a minute. The
    /// message names the nodes and the reasons.
    pub async fn recover(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + READY_MAX;
        let ends_before: Vec<usize> = self.nodes.iter().map(|node| node.ends().len()).collect();
        let mut http = Http::new(&self.endpoints);
        loop {
            let members = self.endpoints.members();
            for id in &members {
                self.restart(*id)?;
            }
            for (node, before) in self.nodes.iter().zip(&ends_before) {
                if let Some(end) = node.ends().last().filter(|_| node.ends().len() > before + ENDS_IN_RECOVERY_MAX) {
                    return Err(io::Error::other(format!("node {} ends again and again: {end:?}", node.id)));
                }
            }
            let late = self.late(&mut http).await;
            let mut own = self.nodes.iter_mut().filter(|node| members.contains(&node.id));
            if late.is_empty() && own.all(Node::runs) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let message = format!("after {} s: {}; see their logs", READY_MAX.as_secs(), late.join(", "));
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Returns a message for each node that has not recovered, with the reason.
    async fn late(&self, http: &mut Http) -> Vec<String> {
        let mut late = Vec::new();
        for id in self.endpoints.members() {
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
        // A ready node may not have written yet since its disk was broken, and its next fsync may
        // fail. If an fsync fails even later, the next recovery starts the node again.
        let Some(zxid) = probe(http).await else { return vec!["a write was not acknowledged".to_owned()] };
        for id in unproven {
            let view: Option<View> = http.send(id, Call::get("/v1/cluster")).await.read(Effect::Read);
            if view.is_none_or(|view| view.applied_zxid < zxid) {
                late.push(format!("node {id} has not written since its disk was mended"));
            }
        }
        late
    }

    /// Returns the leader that most of the answering nodes name, as [`Cluster::leader_seen_by`]
    /// counts them.
    pub async fn leader(&self) -> Option<u64> {
        self.leader_seen_by(&self.endpoints.members()).await
    }

    /// Returns the leader that most of these nodes name. The answer of a follower counts twice,
    /// because a deposed leader may still name itself.
    pub async fn leader_seen_by(&self, nodes: &[u64]) -> Option<u64> {
        let mut votes = std::collections::BTreeMap::<u64, usize>::new();
        let mut http = Http::new(&self.endpoints);
        for id in nodes {
            let view: Option<View> = http.send(*id, Call::get("/v1/cluster")).await.read(Effect::Read);
            if let Some(View { leader: Some(leader), role, .. }) = view {
                *votes.entry(leader).or_default() += if role == "leader" { 1 } else { 2 };
            }
        }
        votes.into_iter().max_by_key(|(_, votes)| *votes).map(|(leader, _)| leader)
    }

    /// Returns the unexpected process ends of all nodes since the start of the cluster: those that
    /// the harness did not cause.
    pub fn ends(&mut self) -> Vec<Ended> {
        self.nodes.iter_mut().for_each(|node| _ = node.runs());
        self.nodes.iter().flat_map(|node| node.ends().to_vec()).collect()
    }
}

/// Writes to a znode that no workload uses, at any node. Returns the write's zxid; `None` if no
/// node acknowledged it.
async fn probe(http: &mut Http) -> Option<u64> {
    let target = format!("/v1/znodes{PROBE}");
    for node in http.members() {
        // The create fails if the znode exists; only the following write counts.
        let _ = http.send(node, Call::post(target.clone())).await;
        let answer = http.send(node, Call::put(target.clone())).await;
        if answer.is_ok() {
            return answer.zxid;
        }
    }
    None
}

/// Returns the program `zlock` in the directory of this program, or in the directory above.
///
/// # Errors
/// When it is in neither directory.
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
