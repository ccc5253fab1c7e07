//! Several nodes in one process, on ports that the system chose.

// Every test file compiles its own copy and uses a part of it.
#![allow(dead_code)]
// Clippy cannot tell that these are tests.
#![allow(clippy::unwrap_used)]

mod link;

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use link::Links;
use replica::{Config, Consistency, Member, Replica, Role, StartError};
use storage::codec;
use tempfile::TempDir;
use tokio::time::Instant;
use znode::{Create, Credential, Op, Reply, Request, TxnOutcome, ZPath, ZnodeOp};

/// Time in which even a loaded machine completes any step of a test. A test that needs all of it
/// has failed.
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// The cluster's name.
const CLUSTER: &str = "test";

pub(crate) fn soon() -> Instant {
    Instant::now() + LONG
}

pub(crate) fn path(text: &str) -> ZPath {
    ZPath::parse(text).unwrap()
}

/// Several nodes of one cluster. A node is named by its index, from 0; its id is one higher.
pub(crate) struct Ensemble {
    dir: TempDir,
    addrs: Vec<SocketAddr>,
    listeners: Vec<Option<TcpListener>>,
    pub(crate) nodes: Vec<Option<Replica>>,
    pub(crate) change: fn(&mut Config),
    /// Links (proxies that can be frozen) from one node to another; `None` for nodes that connect
    /// directly.
    links: Option<Links>,
}

impl Ensemble {
    /// Makes `size` nodes that are not started yet. `change` adapts each node's configuration.
    pub(crate) fn new(size: usize, change: fn(&mut Config)) -> Ensemble {
        testkit::print_log();
        let listeners: Vec<_> = (0..size).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addrs = listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
        let listeners = listeners.into_iter().map(Some).collect();
        Ensemble { dir: TempDir::new().unwrap(), addrs, listeners, nodes: vec![None; size], change, links: None }
    }

    /// Starts an ensemble as [`Ensemble::started`] does, with a link between any two nodes. Links
    /// can be frozen.
    pub(crate) async fn linked(size: usize, change: fn(&mut Config)) -> Ensemble {
        let mut ensemble = Ensemble::to_be_linked(size, change).await;
        for at in 0..size {
            ensemble.start(at).await;
        }
        ensemble.leader().await;
        ensemble
    }

    /// Cuts a node off from all others by freezing its links (`true`), or connects it again.
    pub(crate) fn isolate(&self, node: usize, isolated: bool) {
        self.links().freeze_all(node, isolated);
    }

    /// Separates two nodes by freezing the links between them.
    pub(crate) fn part(&self, one: usize, other: usize) {
        [(one, other), (other, one)].iter().for_each(|link| self.links().freeze(*link, true));
    }

    /// Holds back the answers of `node` to `asker` (`true`), or passes them on again.
    pub(crate) fn hold_answers(&self, asker: usize, node: usize, held: bool) {
        self.links().freeze_back((asker, node), held);
    }

    /// Makes nodes that are not started yet, with a link between any two nodes. Links can be
    /// frozen.
    pub(crate) async fn to_be_linked(size: usize, change: fn(&mut Config)) -> Ensemble {
        let mut ensemble = Ensemble::new(size, change);
        ensemble.links = Some(Links::to(CLUSTER, &ensemble.addrs).await);
        ensemble
    }

    /// Holds back all messages to a node. Its own messages still reach the other nodes, and it gets
    /// their answers.
    pub(crate) fn deafen(&self, node: usize) {
        self.links().deafen(node);
    }

    fn links(&self) -> &Links {
        self.links.as_ref().expect("the ensemble is linked")
    }

    /// Starts all nodes, and waits for a leader.
    pub(crate) async fn started(size: usize, change: fn(&mut Config)) -> Ensemble {
        let mut ensemble = Ensemble::new(size, change);
        for at in 0..size {
            ensemble.start(at).await;
        }
        ensemble.leader().await;
        ensemble
    }

    pub(crate) fn data_dir(&self, at: usize) -> PathBuf {
        self.dir.path().join(at.to_string())
    }

    /// Incarnation (random number) of a node's data directory.
    pub(crate) fn incarnation(&self, at: usize) -> u64 {
        type Founding = Option<([u8; 16], u64, u32)>;
        type Record = (u32, String, u64, Founding, u64, (bool, bool, bool, u64));
        let record: Record = codec::unseal(&std::fs::read(self.data_dir(at).join("node")).unwrap()).unwrap();
        record.4
    }

    pub(crate) fn addr(&self, at: usize) -> SocketAddr {
        self.addrs[at]
    }

    pub(crate) fn config(&self, at: usize) -> Config {
        let member = |(to, addr): (usize, &SocketAddr)| Member {
            id: to as u64 + 1,
            peer_addr: self.links.as_ref().map_or(*addr, |links| links.addr(to)).to_string(),
            http_addr: format!("127.0.0.1:{}", 8_000 + to),
        };
        let mut config = Config {
            node_id: at as u64 + 1,
            cluster_id: CLUSTER.into(),
            zxid_base: Some(0),
            members: self.addrs.iter().enumerate().map(member).collect(),
            data_dir: self.data_dir(at),
            free_disk_min_bytes: 0,
            tick_ms: 20,
            ..Config::default()
        };
        (self.change)(&mut config);
        config
    }

    pub(crate) async fn start(&mut self, at: usize) {
        let listener = self.listeners[at].take();
        let started = self.try_start(at, listener).await;
        self.nodes[at] = Some(started.unwrap_or_else(|error| panic!("{error}")));
    }

    /// Starts a node that may refuse to start. `None` stands for a new listener at its address.
    pub(crate) async fn try_start(&self, at: usize, mut listener: Option<TcpListener>) -> Result<Replica, StartError> {
        let deadline = soon();
        loop {
            let listener = listener.take().unwrap_or_else(|| TcpListener::bind(self.addrs[at]).unwrap());
            match Replica::start_on(self.config(at), listener).await {
                // The stopped node is still writing a snapshot, and holds the directory's lock.
                Err(error) if error.to_string().contains("in use") && Instant::now() < deadline => {}
                started => return started,
            }
        }
    }

    pub(crate) async fn stop(&mut self, at: usize) {
        self.take(at).shutdown().await;
    }

    /// Removes a node's handle from the ensemble and returns it, so that the test itself can stop
    /// the node.
    pub(crate) fn take(&mut self, at: usize) -> Replica {
        self.nodes[at].take().unwrap()
    }

    /// Deletes a node's data, as a lost disk does.
    pub(crate) fn wipe(&self, at: usize) {
        assert!(self.nodes[at].is_none(), "a running node is not wiped");
        std::fs::remove_dir_all(self.data_dir(at)).unwrap();
    }

    pub(crate) async fn stop_all(&mut self) {
        for node in self.nodes.iter_mut().filter_map(Option::take) {
            node.shutdown().await;
        }
    }

    pub(crate) fn node(&self, at: usize) -> &Replica {
        self.nodes[at].as_ref().unwrap()
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = &Replica> {
        self.nodes.iter().flatten()
    }

    /// Waits for a leader that all running nodes agree on. Returns its index.
    pub(crate) async fn leader(&self) -> usize {
        let mut found = None;
        eventually("all nodes agree on a leader", || {
            let leaders: Vec<_> = self.running().map(|node| node.leader().map(|leader| leader.id)).collect();
            let leader = leaders[0].filter(|leader| leaders.iter().all(|other| *other == Some(*leader)));
            found = leader
                .map(|id| id as usize - 1)
                .filter(|at| self.nodes[*at].as_ref().is_some_and(|node| node.status().role == Role::Leader));
            found.is_some()
        })
        .await;
        found.unwrap()
    }

    /// Waits until one of these nodes is elected and each of them knows that. A node that does not
    /// know it yet would forward a write to the former leader.
    pub(crate) async fn elected_among(&self, nodes: &[usize]) {
        let leads = |id: u64| nodes.contains(&(id as usize - 1));
        let knows = |at: &usize| self.node(*at).leader().is_some_and(|leader| leads(leader.id));
        eventually("they elect one of them", || nodes.iter().all(knows)).await;
    }

    /// Returns the index of a running node that does not lead.
    pub(crate) async fn follower(&self) -> usize {
        let leader = self.leader().await;
        (0..self.nodes.len()).find(|at| *at != leader && self.nodes[*at].is_some()).unwrap()
    }

    /// Waits until all running nodes have applied the same entries, and compares the bytes of their
    /// states.
    pub(crate) async fn assert_equal_states(&self) {
        // One look at each node's state: a leader may write on its own at any time.
        let mut states = Vec::new();
        eventually("all nodes have applied the same", || {
            states = self.running().map(Replica::state).collect();
            states.windows(2).all(|two| two[0].last_zxid() == two[1].last_zxid())
        })
        .await;
        let digests: Vec<_> = states.iter().map(|state| Replica::digest(state)).collect();
        assert!(digests.windows(2).all(|two| two[0] == two[1]));
        states.iter().for_each(|state| state.check_invariants().unwrap());
    }
}

/// Checks a condition again and again until it is true. `what` describes it in the failure's
/// message.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = soon();
    while !condition() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        pause().await;
    }
}

/// Pauses before another try, because a node without a leader fails at once.
pub(crate) async fn pause() {
    tokio::task::yield_now().await;
    tokio::time::timeout(Duration::from_millis(2), std::future::pending::<()>()).await.unwrap_err();
}

pub(crate) fn create(parent: &str, name: &str, data: &[u8]) -> Request {
    Request::new(Op::Znode(ZnodeOp::Create(Create { data: data.into(), ..Create::new(path(parent), name) })))
}

pub(crate) fn set(at: &str, data: &[u8]) -> Request {
    Request::new(Op::Znode(ZnodeOp::SetData { path: path(at), data: data.to_vec(), version: -1 }))
}

/// Proposes a request, and expects it to be applied. Tries again while there is no leader. Also
/// tries again when the outcome is unknown of a set of data, of the opening of a session or of a
/// creation, because a second one does no harm. A creation is done if the next try finds the znode.
pub(crate) async fn write(node: &Replica, request: Request) -> TxnOutcome {
    let deadline = soon();
    let again = match &request.op {
        Op::OpenSession { .. } | Op::Znode(ZnodeOp::SetData { version: -1, .. }) => true,
        Op::Znode(ZnodeOp::Create(create)) => !create.mode.is_sequential(),
        _ => false,
    };
    let mut unknown = false;
    loop {
        match node.propose(request.clone(), deadline).await {
            Ok(applied) => {
                let refusal = applied.reply.as_ref().err().map(|refusal| refusal.error);
                if !unknown || refusal != Some(znode::Error::NodeExists) {
                    applied.reply.as_ref().unwrap();
                }
                return applied;
            }
            Err(replica::Error::Unavailable { .. }) if Instant::now() < deadline => pause().await,
            Err(replica::Error::Unknown { .. }) if again && Instant::now() < deadline => {
                unknown = true;
                pause().await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Reads the data of a znode; `None` if there is no such znode. Tries again while there is no
/// leader.
pub(crate) async fn read_data(node: &Replica, at: &str) -> Option<Vec<u8>> {
    let deadline = soon();
    loop {
        match node.read(Consistency::Linearizable, deadline).await {
            Ok(state) => return state.node(&path(at)).map(|znode| znode.data().to_vec()),
            Err(replica::Error::Unavailable { .. }) if Instant::now() < deadline => pause().await,
            Err(error) => panic!("{error}"),
        }
    }
}

pub(crate) async fn open_session(node: &Replica, timeout_ms: u32) -> Credential {
    let secret_hash = [7; 16];
    let request = Request::new(Op::OpenSession {
        secret_hash,
        timeout_ms,
        label: "test".into(),
        address: None,
        client: znode::ClientInfo::default(),
    });
    match write(node, request).await.reply.unwrap() {
        Reply::SessionOpened { session, .. } => Credential { session, secret_hash },
        other => panic!("{other:?}"),
    }
}
