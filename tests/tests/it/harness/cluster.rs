//! A cluster of nodes, each of them a process.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitStatus;
use std::time::Instant;

use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use testkit::http::SOON;
use testkit::{LinkRule, Links, Ports};

use super::node::Node;
use super::{Call, Client, until};

/// Cluster name (`node.cluster_id`) of all test clusters.
pub(crate) const CLUSTER_ID: &str = "test";

/// Index of the first ZooKeeper port in the claimed block of ports. The block begins with two ports
/// for each node, for HTTP and for peers.
const ZOOKEEPER_PORTS: u16 = 10;

/// Number of lines of each node's log that a failed test prints.
const LINES_SHOWN: usize = 30;

/// Options of a test cluster.
#[derive(Clone, Copy)]
pub(crate) struct Options {
    /// Number of nodes that found the cluster.
    pub(crate) nodes: u64,
    /// Number of further nodes that are configured to join the cluster. The test starts them.
    pub(crate) joining: u64,
    /// Further lines of every node's configuration.
    pub(crate) settings: &'static str,
    /// Whether the traffic between nodes goes through proxies, so that the test can cut nodes off.
    pub(crate) proxied: bool,
    /// Whether nodes serve ZooKeeper clients, besides HTTP clients.
    pub(crate) zookeeper: bool,
    /// Limit of a node's open files; `None` for the limit of this process.
    pub(crate) open_files_max: Option<u64>,
    /// Whether the test can make the disk of a node hang.
    pub(crate) disk_may_hang: bool,
    /// Whether a node sends messages for systemd to the socket beside its configuration, with the
    /// extension `notify`.
    pub(crate) notifies: bool,
    /// Whether the nodes' allocator returns freed memory to the system at once, for tests that
    /// measure memory.
    pub(crate) memory_is_measured: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            nodes: 3,
            joining: 0,
            settings: "",
            proxied: false,
            zookeeper: false,
            open_files_max: None,
            disk_may_hang: false,
            notifies: false,
            memory_is_measured: false,
        }
    }
}

/// A test cluster. Dropping it kills all node processes; its files stay if the test failed.
pub(crate) struct Cluster {
    nodes: Vec<Node>,
    links: Option<Links>,
    pids: BTreeMap<u64, u32>,
    dir: Option<TempDir>,
    _ports: Ports,
}

impl Cluster {
    /// Starts a cluster of three nodes, and waits until they are ready.
    pub(crate) async fn start() -> Cluster {
        Cluster::start_with(Options::default()).await
    }

    /// Starts the founders of a cluster, and waits until they are ready.
    pub(crate) async fn start_with(options: Options) -> Cluster {
        let mut cluster = Cluster::prepare(options).await;
        for id in cluster.ids().into_iter().filter(|id| *id <= options.nodes) {
            cluster.restart(id);
        }
        cluster.all_ready().await;
        cluster
    }

    /// Prepares the files and ports of a cluster, and starts no node.
    pub(crate) async fn prepare(options: Options) -> Cluster {
        testkit::reset_ignored_signals().unwrap();
        let dir = tempfile::Builder::new().prefix("zlock-test-").tempdir().unwrap();
        let ports = Ports::claim(16).unwrap();
        let ids = || (1..=options.nodes + options.joining).zip(0..);
        let mut peers: Vec<String> = ids().map(|(_, n)| ports.addr(2 * n + 1)).collect();
        let mut links = None;
        if options.proxied {
            let proxies = links.insert(Links::start(CLUSTER_ID, &peers).await.unwrap());
            peers = ids().map(|(id, _)| proxies.addr(id).to_owned()).collect();
        }
        let member = |((id, n), peer_addr): ((u64, u16), String)| {
            let http_addr = ports.addr(2 * n);
            format!("  {{ id = {id}, peer_addr = \"{peer_addr}\", http_addr = \"{http_addr}\" }},\n")
        };
        let members: Vec<String> = ids().zip(peers).map(member).collect();
        let (founders, joining) = members.split_at(options.nodes as usize);
        let node = |(id, n): (u64, u16)| {
            let node = Node {
                id,
                http_addr: ports.addr(2 * n),
                zookeeper_addr: ports.addr(ZOOKEEPER_PORTS + n),
                config: dir.path().join(format!("node{id}.toml")),
                data_dir: dir.path().join(format!("data{id}")),
                log: dir.path().join(format!("node{id}.log")),
                open_files_max: options.open_files_max,
                disk_hangs: options.disk_may_hang.then(|| dir.path().join(format!("hangs{id}"))),
                notifies: options.notifies,
                memory_is_measured: options.memory_is_measured,
                process: None,
            };
            // A node that joins knows the founders and itself.
            let own = id.checked_sub(options.nodes + 1).map_or("", |at| &joining[at as usize]);
            let (members, join) = (founders.concat() + own, !own.is_empty());
            let mut text = format!(
                "node.id = {id}\nnode.cluster_id = \"{CLUSTER_ID}\"\npeers.listen = \"{}\"\nnode.data_dir = {:?}\ndisk.free_bytes_min = \"1MiB\"\nnode.members = [\n{members}]\nnode.joining = {join}\n{}\n",
                ports.addr(2 * n + 1),
                node.data_dir,
                options.settings,
            );
            if options.zookeeper {
                let _ = writeln!(text, "zookeeper.listen = \"{}\"", node.zookeeper_addr);
            }
            std::fs::write(&node.config, text).unwrap();
            node
        };
        let nodes = ids().map(node).collect();
        Cluster { nodes, links, pids: BTreeMap::new(), dir: Some(dir), _ports: ports }
    }

    /// Ids of all nodes.
    pub(crate) fn ids(&self) -> Vec<u64> {
        self.nodes.iter().map(|node| node.id).collect()
    }

    /// HTTP addresses of all nodes.
    pub(crate) fn endpoints(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.http_addr.clone()).collect()
    }

    /// Returns an HTTP client of one node.
    pub(crate) fn client(&self, id: u64) -> Client {
        Client::new(&self.node(id).http_addr)
    }

    /// HTTP address of a node.
    pub(crate) fn endpoint(&self, id: u64) -> &str {
        &self.node(id).http_addr
    }

    /// Address of a node for ZooKeeper clients.
    pub(crate) fn zookeeper_endpoint(&self, id: u64) -> &str {
        &self.node(id).zookeeper_addr
    }

    /// Path of a node's configuration file.
    pub(crate) fn config(&self, id: u64) -> &std::path::Path {
        &self.node(id).config
    }

    /// Starts the process of a node that does not run.
    pub(crate) fn restart(&mut self, id: u64) {
        let pid = self.node_mut(id).start();
        self.pids.insert(id, pid);
    }

    /// Kills a node by SIGKILL.
    pub(crate) fn kill(&mut self, id: u64) {
        self.node_mut(id).kill();
    }

    /// Exit status of a node's process; `None` while it runs.
    pub(crate) fn ended(&mut self, id: u64) -> Option<ExitStatus> {
        self.node_mut(id).ended()
    }

    /// Process id of a running node.
    pub(crate) fn pid(&self, id: u64) -> Pid {
        Pid::from_raw(i32::try_from(self.pids[&id]).unwrap()).unwrap()
    }

    /// Text of a node's log file.
    pub(crate) fn log(&self, id: u64) -> String {
        std::fs::read_to_string(&self.node(id).log).unwrap()
    }

    /// Stops a node by SIGTERM. Returns the exit code.
    pub(crate) async fn stop(&mut self, id: u64) -> Option<i32> {
        self.node(id).process().signal(Signal::TERM).unwrap();
        let what = format!("node {id} has stopped");
        let status = until(&what, async || self.node_mut(id).ended()).await;
        self.kill(id);
        status.code()
    }

    /// Pauses a node by SIGSTOP: the process neither runs nor ends, and its sockets stay open.
    pub(crate) fn pause(&self, id: u64) {
        self.node(id).process().pause().unwrap();
    }

    /// Resumes a node by SIGCONT.
    pub(crate) fn resume(&self, id: u64) {
        self.node(id).process().resume().unwrap();
    }

    /// Makes the syncs of a node's disk hang for good.
    pub(crate) fn hang_disk(&self, id: u64) {
        std::fs::write(self.node(id).disk_hangs.as_ref().expect("its disk may hang"), "").unwrap();
    }

    /// The data directory of a node that does not run.
    pub(crate) fn data_dir(&self, id: u64) -> &std::path::Path {
        assert!(self.node(id).process.is_none(), "node {id} runs");
        &self.node(id).data_dir
    }

    /// Removes the data of a node that does not run.
    pub(crate) fn wipe(&self, id: u64) {
        assert!(self.node(id).process.is_none(), "node {id} runs");
        std::fs::remove_dir_all(&self.node(id).data_dir).unwrap();
    }

    /// Cuts a node off from its peers in both directions. Clients still reach the node.
    pub(crate) fn isolate(&self, id: u64) {
        let ends = self.nodes.iter().flat_map(|other| [(id, other.id), (other.id, id)]);
        self.links().set(ends.map(|link| (link, LinkRule::CUT)).collect());
    }

    /// Reconnects all nodes that were cut off.
    pub(crate) fn heal(&self) {
        self.links().set(BTreeMap::new());
    }

    fn links(&self) -> &Links {
        self.links.as_ref().expect("the peers talk through proxies")
    }

    /// Waits until every running node says that it is ready.
    pub(crate) async fn all_ready(&mut self) {
        let began = Instant::now();
        for n in 0..self.nodes.len() {
            let node = &mut self.nodes[n];
            if node.process.is_none() {
                continue;
            }
            let mut client = Client::new(&node.http_addr);
            let what = format!("node {} is ready", node.id);
            until(&what, async || {
                node.assert_runs();
                client.is_ready().await.then_some(())
            })
            .await;
        }
        eprintln!("all nodes ready after {} ms", began.elapsed().as_millis());
    }

    /// A node's view of itself and the cluster; `None` if the node does not answer.
    pub(crate) async fn status(&self, id: u64) -> Option<zlock_client::api::Cluster> {
        self.client(id).cluster(SOON).await
    }

    /// The leader and the term that a node knows.
    pub(crate) async fn tenure(&self, id: u64) -> (Option<u64>, u64) {
        let status = until("the node answers", async || self.status(id).await).await;
        (status.leader, status.term)
    }

    /// Starts a node that is no member yet, and waits until it listens.
    pub(crate) async fn start_joining(&mut self, id: u64) {
        self.restart(id);
        until(&format!("node {id} answers"), async || self.status(id).await).await;
    }

    /// Waits until the given nodes agree on one of them as the leader. Returns its id.
    pub(crate) async fn leader_among(&self, ids: &[u64]) -> u64 {
        until("a leader is agreed on", async || {
            let mut leaders = Vec::new();
            for id in ids {
                leaders.push(self.status(*id).await?.leader?);
            }
            let first = leaders[0];
            (leaders.iter().all(|leader| *leader == first) && ids.contains(&first)).then_some(first)
        })
        .await
    }

    /// Waits until all nodes agree on a leader. Returns its id.
    pub(crate) async fn leader(&self) -> u64 {
        self.leader_among(&self.ids()).await
    }

    /// Waits until the node `id` has applied all entries that the node `with` has applied by now.
    pub(crate) async fn catches_up(&self, id: u64, with: u64) {
        let goal = until("the other node answers", async || self.status(with).await).await.applied_zxid;
        let what = format!("node {id} has applied {goal}");
        until(&what, async || self.status(id).await.filter(|status| status.applied_zxid >= goal)).await;
    }

    /// Waits until a node has purged the beginning of its log, which happens some time after a
    /// snapshot.
    pub(crate) async fn log_is_purged(&self, id: u64) {
        until("the beginning of the log is purged", async || {
            let answer = self.client(id).send(Call::get("/metrics")).await.ok()?;
            let metrics = String::from_utf8_lossy(&answer.body);
            let zxid = metrics.lines().find_map(|line| line.strip_prefix("zlock_log_purged_zxid "))?;
            (zxid != "0").then_some(())
        })
        .await;
    }

    fn node(&self, id: u64) -> &Node {
        self.nodes.iter().find(|node| node.id == id).expect("the id is a node's")
    }

    fn node_mut(&mut self, id: u64) -> &mut Node {
        self.nodes.iter_mut().find(|node| node.id == id).expect("the id is a node's")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.nodes.iter_mut().for_each(Node::kill);
        if std::thread::panicking()
            && let Some(dir) = self.dir.take()
        {
            for node in &self.nodes {
                let lines = testkit::last_lines(&node.log, LINES_SHOWN).join("\n");
                eprintln!("node {} logged last:\n{lines}", node.id);
            }
            eprintln!("logs and data of the nodes stay in {}", dir.keep().display());
        }
    }
}
