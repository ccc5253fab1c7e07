//! One node with all its parts. [`crate::Replica`] is the handle on it; its background tasks hold
//! it too.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::metrics::{RaftMetrics, RaftServerMetrics};
use openraft::storage::RaftLogStorage;
use openraft::type_config::alias::WatchReceiverOf;
use openraft::{ServerState, SnapshotPolicy};
use storage::memory::MemoryParts;
use storage::{DiskGuard, Fatal, LogWrites, NodeMeta, SnapshotStore, Storage, StorageConfig, TypeConfig};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use znode::{State, Zxid};

use crate::follower::bootstrap::{self, VoteGate};
use crate::follower::campaign::{self, LeaderWatch};
use crate::follower::session_heartbeats::{self, Heartbeat};
use crate::leader::entry_clock::EntryClock;
use crate::leader::leadership::{self, Sessions};
use crate::operate::disk_watch::{self, DiskWatch};
use crate::operate::seldom::Seldom;
use crate::operate::{housekeeping, story};
use crate::raft::decoded::Decoded;
use crate::raft::found::Found;
use crate::raft::network::Peers;
use crate::raft::server;
use crate::raft::state_machine::{Identified, StateMachine, blocking};
use crate::raft::transport::{Identity, Listener};
use crate::read::reads::{self, IndexWaiter};
use crate::read::view::{View, ViewLimits};
use crate::simulation::{Machine, world};
use crate::stop::Stop;
use crate::write::budget::Budget;
use crate::write::closings::Closings;
use crate::{Config, Failure, StartError};

pub(crate) type Raft = openraft::Raft<TypeConfig, StateMachine>;

/// Bytes that a start on a full disk can give up.
const BALLAST_BYTES: u64 = 16 << 20;
/// How long a leader that shuts down waits for its successor.
const HAND_OVER_MAX: Duration = Duration::from_millis(1_000);

pub(crate) struct Node {
    pub(crate) config: Config,
    pub(crate) identity: Identity,
    pub(crate) raft: Raft,
    pub(crate) peers: Peers,
    pub(crate) view: Arc<View>,
    pub(crate) gate: VoteGate,
    pub(crate) entry_clock: EntryClock,
    pub(crate) snapshots: SnapshotStore,
    pub(crate) meta: NodeMeta,
    /// What the leader knows of sessions.
    pub(crate) sessions: Mutex<Sessions>,
    /// Proposals of this node on their way, and their bytes. One that nobody waits for any more is
    /// on its way until Raft lets go of it.
    pub(crate) proposals: Arc<Budget>,
    /// Proposals of peers.
    pub(crate) peer_proposals: Arc<Budget>,
    /// Large sessions that are being closed.
    pub(crate) closings: Closings,
    pub(crate) reads: AtomicUsize,
    pub(crate) heartbeats: mpsc::Sender<Heartbeat>,
    pub(crate) indexes: mpsc::Sender<IndexWaiter>,
    pub(crate) disk_low: AtomicBool,
    /// Whether the system did not say how much space is free.
    pub(crate) space_unknown: AtomicBool,
    /// How long the log has waited for the disk.
    pub(crate) disk_watch: DiskWatch,
    /// In this term this node has asked another to take over, and may be the last to hear that it
    /// did; 0: in none.
    pub(crate) hands_over: AtomicU64,
    pub(crate) leader_watch: LeaderWatch,
    server_metrics: WatchReceiverOf<TypeConfig, RaftServerMetrics<TypeConfig>>,
    pub(crate) raft_metrics: WatchReceiverOf<TypeConfig, RaftMetrics<TypeConfig>>,
    /// What must be applied again after a restart before this node knows what it knew.
    pub(crate) recover_to: Zxid,
    pub(crate) unsaved_bytes: Arc<AtomicU64>,
    /// Entries of the leader that are read and not applied.
    pub(crate) decoded: Arc<Decoded>,
    /// What was refused at the peer port.
    pub(crate) refused: Seldom,
    /// Snapshots that were not installed.
    pub(crate) uninstalled: Seldom,
    /// Held while a leader is asked about its log.
    pub(crate) account_turn: Semaphore,
    stop: Stop,
    failure: watch::Sender<Option<Failure>>,
    tasks: Mutex<JoinSet<()>>,
    disk: Mutex<Option<Disk>>,
    /// Closed once Raft has let go of the state machine.
    state_machine_gone: Mutex<Option<mpsc::Receiver<()>>>,
}

/// What a node starts with.
struct Opened<L> {
    log: L,
    log_writes: LogWrites,
    snapshots: SnapshotStore,
    meta: NodeMeta,
    disk: Disk,
}

/// What is left to look after once the parts of the storage are with their users.
struct Disk {
    fatal: Fatal,
    guard: Option<DiskGuard>,
    /// Keeps the directory's lock.
    storage: Option<Storage>,
}

impl From<&crate::Member> for storage::Member {
    fn from(member: &crate::Member) -> Self {
        let (peer_addr, http_addr) = (member.peer_addr.clone(), member.http_addr.clone());
        storage::Member { peer_addr, http_addr, extra: BTreeMap::new() }
    }
}

impl Node {
    pub(crate) async fn start(config: Config, listener: TcpListener) -> Result<Arc<Node>, StartError> {
        config.check()?;
        let listener = Listener::Tcp(tokio_listener(listener)?);
        let storage = open_storage(&config).await?;
        let (log, snapshots, meta) = (storage.log.clone(), storage.snapshots.clone(), storage.meta.clone());
        let log_writes = log.writes().clone();
        let disk = Disk { fatal: storage.fatal().clone(), guard: Some(storage.disk.clone()), storage: Some(storage) };
        Node::run(config, listener, Opened { log, log_writes, snapshots, meta, disk }).await
    }

    /// See [`Replica::start_simulated`](crate::Replica::start_simulated).
    pub(crate) async fn start_simulated<L>(config: Config, machine: Machine<L>) -> Result<Arc<Node>, StartError>
    where
        L: RaftLogStorage<TypeConfig>,
    {
        config.check()?;
        let MemoryParts { snapshots, meta, fatal } = machine.disk;
        let disk = Disk { fatal, guard: None, storage: None };
        let opened = Opened { log: machine.log, log_writes: machine.log_writes, snapshots, meta, disk };
        Node::run(config, Listener::Simulated(machine.listener), opened).await
    }

    async fn run<L>(config: Config, listener: Listener, mut storage: Opened<L>) -> Result<Arc<Node>, StartError>
    where
        L: RaftLogStorage<TypeConfig>,
    {
        let identity = Identity::of(&config, &storage.meta);
        let stop = Stop::default();
        let peers = Peers::new(&identity, &config.members, config.silence(), &stop);
        // Every node begins with the same state, whatever its own limits are; the leader proposes
        // its own.
        let view = Arc::new(View::new(State::default(), ViewLimits::of(&config)));
        let unsaved_bytes = Arc::new(AtomicU64::new(0));
        let decoded = Arc::<Decoded>::default();
        let (alive, state_machine_gone) = mpsc::channel(1);
        let state_machine = StateMachine::new(
            Arc::clone(&view),
            storage.snapshots.clone(),
            Identified { cluster: Arc::clone(&identity.cluster), meta: storage.meta.clone() },
            Arc::clone(&unsaved_bytes),
            Arc::clone(&decoded),
            alive,
        );
        let found = Found::read(&mut storage.log, &storage.meta, &storage.snapshots, &identity.cluster).await?;
        story::start(&config, &found);
        view.counters.again_up_to(found.last_log);
        let raft = Raft::new(config.node_id, raft_config(&config)?.into(), peers.clone(), storage.log, state_machine)
            .await
            .map_err(|error| StartError::Raft(error.to_string()))?;
        peers.purged.told_by(raft.metrics());
        let (heartbeats, heartbeats_queue) = mpsc::channel(config.reads_max);
        let (indexes, indexes_queue) = mpsc::channel(config.reads_max);
        let node = Arc::new(Node {
            identity,
            server_metrics: raft.server_metrics(),
            raft_metrics: raft.metrics(),
            raft,
            peers,
            view,
            gate: VoteGate::new(found.joined, Instant::now() + Duration::from_millis(bound_ms(&config, &found))),
            entry_clock: EntryClock::default(),
            snapshots: storage.snapshots,
            meta: storage.meta,
            sessions: Mutex::new(Sessions::default()),
            proposals: Arc::default(),
            peer_proposals: Arc::default(),
            closings: Closings::new(config.limits.entry_cost_max),
            reads: AtomicUsize::new(0),
            heartbeats,
            indexes,
            disk_low: AtomicBool::new(false),
            space_unknown: AtomicBool::new(false),
            disk_watch: DiskWatch::new(storage.log_writes, &config),
            hands_over: AtomicU64::new(0),
            leader_watch: LeaderWatch::default(),
            recover_to: found.committed,
            unsaved_bytes,
            decoded,
            refused: Seldom::default(),
            uninstalled: Seldom::default(),
            account_turn: Semaphore::new(1),
            stop,
            failure: watch::Sender::new(None),
            tasks: Mutex::new(JoinSet::new()),
            disk: Mutex::new(Some(storage.disk)),
            state_machine_gone: Mutex::new(Some(state_machine_gone)),
            config,
        });
        node.begin(listener, heartbeats_queue, indexes_queue);
        Ok(node)
    }

    /// Starts everything that runs as long as the node does.
    fn begin(
        self: &Arc<Self>,
        listener: Listener,
        heartbeats_queue: mpsc::Receiver<Heartbeat>,
        indexes_queue: mpsc::Receiver<IndexWaiter>,
    ) {
        self.begin_housekeeping();
        self.spawn(server::serve(Arc::clone(self), listener));
        self.spawn(bootstrap::form(Arc::clone(self)));
        self.spawn(campaign::stand(Arc::clone(self)));
        self.spawn(disk_watch::watch(Arc::clone(self)));
        self.spawn(leadership::lead(Arc::clone(self)));
        self.spawn(session_heartbeats::forward(Arc::clone(self), heartbeats_queue));
        self.spawn(reads::forward(Arc::clone(self), indexes_queue));
        self.spawn(housekeeping::keep_house(Arc::clone(self)));
        self.spawn(watch_failure(Arc::clone(self)));
        // A simulation has no operator.
        if world().is_none() {
            self.spawn(story::tell(Arc::clone(self)));
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.lock().expect("nothing panics under this guard").spawn(task);
    }

    /// See [`crate::Replica::shutdown`].
    pub(crate) async fn shutdown(&self) {
        if !self.is_stopped() {
            self.hand_over().await;
        }
        self.stop.stop();
        self.view.stop();
        let mut tasks = std::mem::take(&mut *self.tasks.lock().expect("nothing panics under this guard"));
        while tasks.join_next().await.is_some() {}
        if let Err(error) = self.raft.shutdown().await {
            tracing::warn!(%error, "raft did not end well");
        }
        let gone = self.state_machine_gone.lock().expect("nothing panics under this guard").take();
        if let Some(mut gone) = gone {
            gone.recv().await;
        }
        let disk = self.disk.lock().expect("nothing panics under this guard").take();
        let closing = disk.as_ref().and_then(|disk| disk.storage.as_ref()).map(Storage::closing);
        // Closing may wait for the disk.
        let close = move || {
            drop(disk);
            Ok(())
        };
        let _ = blocking(close).await;
        // Raft lets go of its log some time after its state machine.
        if let Some(closing) = closing {
            closing.closed().await;
        }
    }

    /// A leader asks the member that is furthest to take over, so that nobody waits for an
    /// election.
    async fn hand_over(&self) {
        let metrics = self.metrics();
        let Some(term) = self.leader_term(&metrics) else {
            return;
        };
        let replication = metrics.replication.iter().flatten();
        let best = replication.filter(|(id, _)| **id != self.config.node_id).max_by_key(|(_, matched)| **matched);
        let Some((successor, _)) = best else {
            return;
        };
        if !self.hand_over_to(*successor, term).await {
            return;
        }
        let mut changes = self.server_metrics.clone();
        let _ = timeout(HAND_OVER_MAX, async {
            while changes.borrow_watched().vote.leader_id.term == term && changes.changed().await.is_ok() {}
        })
        .await;
    }

    /// Asks a member to take over from this leader of `term`. True when Raft has taken it on.
    pub(crate) async fn hand_over_to(&self, successor: u64, term: u64) -> bool {
        // Before the successor can lead: from then on it gives sessions their time.
        self.hands_over.store(term, Ordering::Release);
        self.raft.trigger().transfer_leader(successor).await.is_ok()
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_stopped()
    }

    pub(crate) fn stopped(&self) -> Stop {
        self.stop.clone()
    }

    /// Why nothing can be asked of this node any more.
    pub(crate) fn end(&self) -> Option<String> {
        if self.is_stopped() {
            return Some("the node is shutting down".into());
        }
        self.failure.borrow().as_ref().map(|reason| format!("the node has failed: {reason}"))
    }

    /// How long a peer that owes an answer may say nothing.
    pub(crate) fn silence(&self) -> Duration {
        self.config.silence()
    }

    pub(crate) fn zxid(&self, index: u64) -> Zxid {
        self.identity.cluster.zxid(index)
    }

    /// Raft's view of itself. A copy: the original blocks Raft while it is looked at.
    pub(crate) fn metrics(&self) -> RaftMetrics<TypeConfig> {
        self.raft_metrics.borrow_watched().clone()
    }

    /// The term in which this node leads.
    pub(crate) fn leader_term(&self, metrics: &RaftMetrics<TypeConfig>) -> Option<u64> {
        let leads = metrics.state == ServerState::Leader && metrics.vote.committed;
        (leads && metrics.vote.leader_id.voted_for == self.config.node_id).then_some(metrics.current_term)
    }

    /// Who leads, as far as this node knows.
    pub(crate) fn leader(&self) -> Option<u64> {
        let (leader, term) = {
            let metrics = self.server_metrics.borrow_watched();
            (metrics.current_leader, metrics.vote.leader_id.term)
        };
        self.disk_watch.leader_above(term).or(leader)
    }

    /// The term of the vote that is on this node's disk.
    pub(crate) fn voted_term(&self) -> u64 {
        self.server_metrics.borrow_watched().vote.leader_id.term
    }

    /// Tells of elections and changes of role.
    pub(crate) fn role_changes(&self) -> WatchReceiverOf<TypeConfig, RaftServerMetrics<TypeConfig>> {
        self.server_metrics.clone()
    }

    /// The term in which this node leads, and whether a quorum followed it just now, so that no
    /// other can have been elected meanwhile. Copies nothing, for those who ask often.
    pub(crate) fn reign(&self) -> Option<(u64, bool)> {
        let term = {
            let metrics = self.server_metrics.borrow_watched();
            let vote = &metrics.vote;
            let leads = metrics.state == ServerState::Leader && vote.committed;
            (leads && vote.leader_id.voted_for == self.config.node_id).then_some(vote.leader_id.term)?
        };
        let recent = Duration::from_millis(self.config.sure_ms());
        let since = self.peers.followed_since(term);
        let followed = self.config.members.len() == 1 || since.is_some_and(|since| since.elapsed() < recent);
        Some((term, followed))
    }

    /// Whether the cluster is founded, as far as this node has applied.
    pub(crate) fn is_founded(&self) -> bool {
        let applied = self.view.applied();
        self.identity.cluster.founding().is_some_and(|founding| applied.0 > founding.zxid_base)
    }

    pub(crate) fn has_recovered(&self) -> bool {
        self.gate.joined() && self.is_founded() && self.view.applied() >= self.recover_to
    }

    /// The reason why the node cannot go on, once there is one.
    pub(crate) fn failure(&self) -> watch::Receiver<Option<Failure>> {
        self.failure.subscribe()
    }

    /// Stops serving for good. The first reason stays.
    pub(crate) fn fail(&self, failure: Failure) {
        let first = self.failure.send_if_modified(|reason| {
            let first = reason.is_none();
            if first {
                *reason = Some(failure);
            }
            first
        });
        if first {
            self.view.stop();
        }
    }

    /// What looks after free space; nothing in a simulation, and once the node is stopped.
    pub(crate) fn disk_guard(&self) -> Option<DiskGuard> {
        let disk = self.disk.lock().expect("nothing panics under this guard");
        disk.as_ref().and_then(|disk| disk.guard.clone())
    }
}

fn tokio_listener(listener: TcpListener) -> Result<tokio::net::TcpListener, StartError> {
    let addr = listener.local_addr().map_or_else(|_| "?".into(), |addr| addr.to_string());
    let convert = || {
        listener.set_nonblocking(true)?;
        tokio::net::TcpListener::from_std(listener)
    };
    convert().map_err(|source| StartError::Listen { addr, source })
}

async fn open_storage(config: &Config) -> Result<Storage, StartError> {
    let storage_config = StorageConfig {
        data_dir: config.data_dir.clone(),
        cluster_id: config.cluster_id.clone(),
        node_id: config.node_id,
        free_disk_min_bytes: config.free_disk_min_bytes,
        ballast_bytes: BALLAST_BYTES.min(config.free_disk_min_bytes),
        has_peers: config.members.len() > 1,
    };
    let opened = blocking(move || Ok(Storage::open(storage_config))).await;
    let opened = opened.map_err(|error| StartError::Storage(error.to_string()))?;
    opened.map_err(|error| StartError::Storage(error.to_string()))
}

/// For how long a node that may have followed a leader elects nobody.
fn bound_ms(config: &Config, found: &Found) -> u64 {
    if found.vote.is_some() && config.members.len() > 1 { config.lease_ms() } else { 0 }
}

fn raft_config(config: &Config) -> Result<openraft::Config, StartError> {
    let raft_config = openraft::Config {
        cluster_name: config.cluster_id.clone(),
        heartbeat_interval: config.heartbeat_ms,
        election_timeout_min: config.pause_ms(),
        election_timeout_max: config.lease_ms(),
        install_snapshot_timeout: config.peer_timeout_ms,
        max_payload_entries: 1_024,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(config.snapshot_log_entries),
        max_in_snapshot_log_to_keep: config.log_entries_kept,
        // A follower whose next entry is still in the log gets entries; only one that is further
        // behind a snapshot.
        replication_lag_threshold: config.snapshot_log_entries + config.log_entries_kept + 1_024,
        enable_pre_vote: Some(true),
        // Nobody stands before `elections` says so.
        enable_elect: false,
        // A restarted leader would lead on without asking whether it still may.
        enable_leader_restore: Some(false),
        // A wiped member may come back: it has no vote before it has caught up, so nothing that was
        // acknowledged is lost by it.
        allow_log_reversion: Some(true),
        backoff: "20ms 40ms 80ms ...400ms".into(),
        ..openraft::Config::default()
    };
    raft_config.validate().map_err(|error| StartError::Config(error.to_string()))
}

/// Notices when storage or Raft cannot go on.
async fn watch_failure(node: Arc<Node>) {
    let fatal = node.disk.lock().expect("nothing panics under this guard").as_ref().map(|disk| disk.fatal.clone());
    let Some(fatal) = fatal else { return };
    let stopped = node.stopped();
    let mut metrics = node.raft.metrics();
    let raft_ended = async {
        loop {
            if let Err(error) = &metrics.borrow_watched().running_state {
                return error.to_string();
            }
            if metrics.changed().await.is_err() {
                return "raft has ended".into();
            }
        }
    };
    let reason = tokio::select! {
        biased;
        () = stopped.wait() => return,
        reason = fatal.failed() => reason.to_string(),
        reason = raft_ended => reason,
    };
    node.fail(Failure::Broken(reason));
}
