//! One node with all its parts. It lives as long as a [`crate::Replica`] (a handle on it) or the
//! task that watches for failures refers to it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use accept::{Mutex, MutualAcceptor, Seldom};
use openraft::SnapshotPolicy;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::storage::RaftLogStorage;
use storage::{DiskGuard, Fatal, LogWrites, NodeMeta, SnapshotStore, Storage, StorageConfig, TypeConfig};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use znode::{State, Zxid};

use crate::follower::bootstrap::Bootstrap;
use crate::follower::campaign;
use crate::follower::follow_members::follow_members;
use crate::follower::session_heartbeats::{self, SessionHeartbeats};
use crate::leader::leadership::{self, Leadership};
use crate::leader::member_duty::MemberDuty;
use crate::leader::members::Members;
use crate::leader::operators::Operators;
use crate::leader::transfer::Transfer;
use crate::local::disk_space::DiskSpace;
use crate::local::disk_watch::DiskWatch;
use crate::local::entry_clock::EntryClock;
use crate::local::host::Host;
use crate::local::vote_gate::VoteGate;
use crate::operate::comparison::Comparison;
use crate::operate::disk_stall::DiskStall;
use crate::operate::drain_wish::DrainWish;
use crate::operate::housekeeping::Housekeeping;
use crate::operate::serving::Serving;
use crate::operate::status::Status;
use crate::operate::story::{self, Teller};
use crate::operate::upgrade::Upgrade;
use crate::raft::ahead_of_leader::Accounts;
use crate::raft::consensus::{Consensus, Raft};
use crate::raft::decoded_entries::DecodedEntries;
use crate::raft::peers::Peers;
use crate::raft::state_machine::{OwnCluster, StateMachine};
use crate::raft::stored_progress::StoredProgress;
use crate::raft::transport::{Identity, Listener};
use crate::read::{self, Reads};
use crate::server::{self, Server};
use crate::simulation::Machine;
use crate::stop::Stop;
use crate::view::life::Life;
use crate::view::{View, ViewLimits};
use crate::write::closings::Closings;
use crate::write::proposal_queue::{self, ProposalQueue};
use crate::write::propose::Proposer;
use crate::{Config, Failure, StartError};

/// Bytes of the ballast, a file that keeps disk space in reserve: it is deleted when a node starts
/// on a full disk.
const BALLAST_BYTES: u64 = 16 << 20;

pub(crate) struct Node {
    pub(crate) life: Arc<Life>,
    pub(crate) view: Arc<View>,
    pub(crate) consensus: Arc<Consensus>,
    pub(crate) proposer: Arc<Proposer>,
    pub(crate) reads: Arc<Reads>,
    pub(crate) heartbeats: Arc<SessionHeartbeats>,
    pub(crate) status: Arc<Status>,
    pub(crate) operators: Arc<Operators>,
    pub(crate) upgrade: Arc<Upgrade>,
    pub(crate) drain_wish: Arc<DrainWish>,
    tasks: Mutex<JoinSet<()>>,
    disk: Mutex<Option<Disk>>,
    /// Channel that is closed once Raft has dropped the state machine.
    state_machine_gone: Mutex<Option<mpsc::Receiver<()>>>,
}

/// Shared parts from which the tasks of a node are made.
struct Parts {
    config: Arc<Config>,
    life: Arc<Life>,
    space: Arc<DiskSpace>,
    identity: Identity,
    consensus: Arc<Consensus>,
    view: Arc<View>,
    gate: Arc<VoteGate>,
    log_since_snapshot_bytes: Arc<AtomicU64>,
    decoded: Arc<DecodedEntries>,
    entry_clock: Arc<EntryClock>,
    snapshots: SnapshotStore,
    meta: NodeMeta,
    /// Zxid of the last entry that this node knew to be committed when it started.
    recover_to: Zxid,
}

impl Parts {
    fn proposer(&self, queue: ProposalQueue) -> Arc<Proposer> {
        Arc::new(Proposer {
            consensus: Arc::clone(&self.consensus),
            config: Arc::clone(&self.config),
            view: Arc::clone(&self.view),
            life: Arc::clone(&self.life),
            space: Arc::clone(&self.space),
            entry_clock: Arc::clone(&self.entry_clock),
            queue,
            proposals: Arc::default(),
            peer_proposals: Arc::default(),
            closings: Closings::new(self.config.limits.entry_cost_max),
        })
    }

    fn bootstrap(&self, drained: watch::Receiver<bool>) -> Arc<Bootstrap> {
        Arc::new(Bootstrap {
            consensus: Arc::clone(&self.consensus),
            config: Arc::clone(&self.config),
            view: Arc::clone(&self.view),
            gate: Arc::clone(&self.gate),
            meta: self.meta.clone(),
            drained,
        })
    }

    fn status(&self, proposer: &Arc<Proposer>, reads: &Arc<Reads>) -> Arc<Status> {
        Arc::new(Status {
            consensus: Arc::clone(&self.consensus),
            config: Arc::clone(&self.config),
            life: Arc::clone(&self.life),
            proposer: Arc::clone(proposer),
            reads: Arc::clone(reads),
            snapshots: self.snapshots.clone(),
            log_since_snapshot_bytes: Arc::clone(&self.log_since_snapshot_bytes),
        })
    }

    fn operators(&self, proposer: &Arc<Proposer>) -> (Arc<Operators>, MemberDuty) {
        let (consensus, life) = (Arc::clone(&self.consensus), Arc::clone(&self.life));
        let members = Arc::new(Members { consensus: Arc::clone(&consensus), proposer: Arc::clone(proposer) });
        let transfer = Arc::new(Transfer { consensus: Arc::clone(&consensus) });
        let config = Arc::clone(&self.config);
        let duty = MemberDuty { config, members: Arc::clone(&members), transfer: Arc::clone(&transfer) };
        (Arc::new(Operators { consensus, life, members, transfer }), duty)
    }

    fn housekeeping(&self) -> Housekeeping {
        Housekeeping {
            consensus: Arc::clone(&self.consensus),
            identity: self.identity.clone(),
            space: Arc::clone(&self.space),
            log_since_snapshot_bytes: Arc::clone(&self.log_since_snapshot_bytes),
            snapshot_log_bytes: self.config.snapshot_log_bytes,
        }
    }

    /// Makes the node, and starts all tasks that run as long as the node does.
    fn begin(self, listener: Listener, disk: Disk, state_machine_gone: mpsc::Receiver<()>) -> Arc<Node> {
        let (queue, proposals) = ProposalQueue::new();
        let drain_wish = Arc::new(DrainWish::new(Arc::clone(&self.consensus)));
        let (proposer, bootstrap) = (self.proposer(queue), self.bootstrap(drain_wish.wished()));
        let housekeeping = self.housekeeping();
        let leadership = Arc::new(Leadership::new(Arc::clone(&proposer)));
        let (reads, indexes) = Reads::new(&proposer, Arc::clone(&self.gate), self.recover_to);
        let reads = Arc::new(reads);
        let (heartbeats, heartbeats_queue) = SessionHeartbeats::new(&proposer, Arc::clone(&leadership));
        let heartbeats = Arc::new(heartbeats);
        let status = self.status(&proposer, &reads);
        let (operators, member_duty) = self.operators(&proposer);
        let upgrade = Arc::new(Upgrade { consensus: Arc::clone(&self.consensus), proposer: Arc::clone(&proposer) });
        let Parts { config, life, consensus, view, gate, .. } = self;
        let server = Arc::new(Server {
            identity: self.identity,
            consensus: Arc::clone(&consensus),
            life: Arc::clone(&life),
            bootstrap: Arc::clone(&bootstrap),
            proposer: Arc::clone(&proposer),
            reads: Arc::clone(&reads),
            heartbeats: Arc::clone(&heartbeats),
            operators: Arc::clone(&operators),
            upgrade: Arc::clone(&upgrade),
            snapshots: self.snapshots,
            decoded: self.decoded,
            refused: Seldom::default(),
            uninstalled: Seldom::default(),
            accounts: Accounts::new(Arc::clone(&consensus), Arc::clone(&gate)),
        });
        let node = Arc::new(Node {
            life: Arc::clone(&life),
            view: Arc::clone(&view),
            consensus: Arc::clone(&consensus),
            proposer,
            reads,
            heartbeats: Arc::clone(&heartbeats),
            status: Arc::clone(&status),
            operators,
            upgrade,
            drain_wish,
            tasks: Mutex::new(JoinSet::new()),
            disk: Mutex::new(Some(disk)),
            state_machine_gone: Mutex::new(Some(state_machine_gone)),
        });
        housekeeping.widen_horizon();
        node.spawn(server::serve(server, listener));
        node.spawn_until_stop(proposal_queue::forward(consensus.raft.clone(), proposals));
        node.spawn_until_stop(bootstrap.join());
        node.spawn_until_stop(follow_members(Arc::clone(&consensus), Arc::clone(&gate), Arc::clone(&life)));
        node.spawn_until_stop(Comparison { consensus: Arc::clone(&consensus), view: Arc::clone(&view), life }.watch());
        node.spawn_until_stop(campaign::stand(config, Arc::clone(&consensus), gate));
        node.spawn_until_stop(DiskStall { consensus: Arc::clone(&consensus) }.watch());
        node.spawn_until_stop(Serving { consensus: Arc::clone(&consensus), view: Arc::clone(&view) }.watch());
        node.spawn_until_stop(leadership::lead(leadership));
        node.spawn_until_stop(member_duty.fulfil());
        node.spawn_until_stop(session_heartbeats::forward(heartbeats, heartbeats_queue));
        node.spawn_until_stop(read::forward(Arc::clone(&consensus), indexes));
        node.spawn_until_stop(housekeeping.keep_house());
        node.spawn_until_stop(watch_failure(Arc::clone(&node)));
        // A simulation has no operator.
        if !node.consensus.host.is_simulated() {
            node.spawn_until_stop(Arc::clone(&node.drain_wish).keep_away());
            node.spawn_until_stop(story::tell(Teller { consensus, view, status }));
        }
        node
    }
}

/// Storage, clock and network with which a node starts, real or simulated.
struct NodeParts<L> {
    log: L,
    log_writes: LogWrites,
    snapshots: SnapshotStore,
    meta: NodeMeta,
    /// Handle that measures the disk's free space; `None` in a simulation.
    guard: Option<DiskGuard>,
    disk: Disk,
    host: Host,
}

/// Parts of the storage that the node keeps until it stops.
struct Disk {
    fatal: Fatal,
    /// The storage, which holds the lock on the data directory; `None` in a simulation.
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
        let tls = config.peer_tls.as_ref().map(|tls| MutualAcceptor::start(tls.tls.clone())).transpose();
        let tls = tls.map_err(|source| StartError::Listen { addr: config.peer_listen.to_string(), source })?;
        let listener = Listener::Tcp { listener: tokio_listener(listener)?, tls: tls.map(Arc::new) };
        let storage = open_storage(&config).await?;
        let (log, snapshots, meta) = (storage.log.clone(), storage.snapshots.clone(), storage.meta.clone());
        let log_writes = log.writes().clone();
        let guard = Some(storage.disk.clone());
        let disk = Disk { fatal: storage.fatal().clone(), storage: Some(storage) };
        Node::run(config, listener, NodeParts { log, log_writes, snapshots, meta, guard, disk, host: Host::Machine })
            .await
    }

    /// See [`Replica::start_simulated`](crate::Replica::start_simulated).
    pub(crate) async fn start_simulated<L>(config: Config, machine: Machine<L>) -> Result<Arc<Node>, StartError>
    where
        L: RaftLogStorage<TypeConfig>,
    {
        config.check()?;
        let storage::simulation::Parts { snapshots, meta, fatal } = machine.disk;
        let disk = Disk { fatal, storage: None };
        let (log, log_writes) = (machine.log, machine.log_writes);
        let host = Host::Simulated(machine.world);
        let opened = NodeParts { log, log_writes, snapshots, meta, guard: None, disk, host };
        Node::run(config, Listener::Simulated(machine.listener), opened).await
    }

    async fn run<L>(config: Config, listener: Listener, mut storage: NodeParts<L>) -> Result<Arc<Node>, StartError>
    where
        L: RaftLogStorage<TypeConfig>,
    {
        let config = Arc::new(config);
        let host = storage.host;
        let identity = Identity::of(host.clone(), &config, &storage.meta);
        let stop = Stop::default();
        let peers = Peers::new(&identity, &config.members, config.peer_timeout(), &stop);
        // Every node begins with the same state, whatever limits its configuration has. The leader
        // proposes its own limits later.
        let view = Arc::new(View::new(State::default(), ViewLimits::of(&config)));
        let log_since_snapshot_bytes = Arc::new(AtomicU64::new(0));
        let decoded = Arc::new(DecodedEntries::knowing(config.program.levels));
        let entry_clock = Arc::new(EntryClock::new(host.clone()));
        let (alive, state_machine_gone) = mpsc::channel(1);
        let state_machine = StateMachine::new(
            Arc::clone(&view),
            storage.snapshots.clone(),
            OwnCluster { host: host.clone(), cluster: Arc::clone(&identity.cluster), meta: storage.meta.clone() },
            Arc::clone(&log_since_snapshot_bytes),
            Arc::clone(&decoded),
            Arc::clone(&entry_clock),
            alive,
        );
        let progress =
            StoredProgress::read(&mut storage.log, &storage.meta, &storage.snapshots, &identity.cluster).await?;
        story::start(&config, &progress);
        view.counters.again_up_to(progress.last_log);
        let raft = Raft::new(config.node_id, raft_config(&config)?.into(), peers.clone(), storage.log, state_machine)
            .await
            .map_err(|error| match *identity.cluster.outgrown().borrow() {
                // An entry in this node's own log is of a level that this program does not know.
                Some(other) => StartError::Level(other),
                None => StartError::Raft(error.to_string()),
            })?;
        peers.purge_index.told_by(raft.metrics());
        let bound_until = Instant::now() + Duration::from_millis(bound_ms(&config, &progress));
        let gate = Arc::new(VoteGate::new(progress.joined, bound_until));
        let disk_watch = DiskWatch::new(storage.log_writes, &config);
        let cluster = Arc::clone(&identity.cluster);
        let consensus = Arc::new(Consensus::new(host, &config, raft, peers, cluster, disk_watch));
        let space = Arc::new(DiskSpace::new(config.free_disk_min_bytes, storage.guard));
        let parts = Parts {
            config,
            life: Arc::new(Life::new(stop, Arc::clone(&view))),
            space,
            identity,
            consensus,
            view,
            gate,
            log_since_snapshot_bytes,
            decoded,
            entry_clock,
            snapshots: storage.snapshots,
            meta: storage.meta,
            recover_to: progress.committed,
        };
        Ok(parts.begin(listener, storage.disk, state_machine_gone))
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.lock().spawn(task);
    }

    /// Spawns a task that ends at an await when the node stops.
    fn spawn_until_stop(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stopped = self.life.stopped();
        self.spawn(async move {
            tokio::select! {
                biased;
                () = stopped.wait() => {}
                () = task => {}
            }
        });
    }

    /// See [`crate::Replica::shutdown`].
    pub(crate) async fn shutdown(&self) {
        if !self.life.is_stopped() {
            self.consensus.give_leadership_away(&BTreeSet::new()).await;
        }
        self.life.stop();
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        while tasks.join_next().await.is_some() {}
        if let Err(error) = self.consensus.raft.shutdown().await {
            tracing::warn!(%error, "raft did not end well");
        }
        let gone = self.state_machine_gone.lock().take();
        if let Some(mut gone) = gone {
            gone.recv().await;
        }
        self.proposer.space.release();
        let disk = self.disk.lock().take();
        let closing = disk.as_ref().and_then(|disk| disk.storage.as_ref()).map(Storage::closing);
        // Closing may wait for the disk.
        let close = move || {
            drop(disk);
            Ok(())
        };
        let _ = self.consensus.host.blocking(close).await;
        // Raft drops its log some time after its state machine.
        if let Some(closing) = closing {
            closing.closed().await;
        }
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
        has_peers: config.join || config.members.len() > 1,
    };
    let opened = Host::Machine.blocking(move || Ok(Storage::open(storage_config))).await;
    let opened = opened.map_err(|error| StartError::Storage(error.to_string()))?;
    opened.map_err(|error| StartError::Storage(error.to_string()))
}

/// Milliseconds after the start in which this node does not vote: the length of a lease, because it
/// may have heard a leader just before a restart. 0 if the node has never voted.
fn bound_ms(config: &Config, progress: &StoredProgress) -> u64 {
    if progress.vote.is_some() { config.lease_ms() } else { 0 }
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
        // Followers get entries while their next entry is still in the log, and a snapshot only
        // when they are further behind.
        replication_lag_threshold: config.snapshot_log_entries + config.log_entries_kept + 1_024,
        enable_pre_vote: Some(true),
        // No follower stands for election before `campaign.rs` says so.
        enable_elect: false,
        // Otherwise a restarted leader would go on leading without asking whether it still may.
        enable_leader_restore: Some(false),
        // A member may come back with an empty disk. It has no vote before it has caught up, so no
        // acknowledged entry is lost.
        allow_log_reversion: Some(true),
        backoff: "20ms 40ms 80ms ...400ms".into(),
        ..openraft::Config::default()
    };
    raft_config.validate().map_err(|error| StartError::Config(error.to_string()))
}

/// Makes the node fail when its storage or Raft has failed, or when the cluster is at a format
/// level that this program does not know.
async fn watch_failure(node: Arc<Node>) {
    let fatal = node.disk.lock().as_ref().map(|disk| disk.fatal.clone());
    let Some(fatal) = fatal else { return };
    let mut metrics = node.consensus.raft.metrics();
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
    let mut outgrown = node.consensus.cluster.outgrown();
    let failure = tokio::select! {
        biased;
        // Checked before Raft's end: Raft also ends when it cannot read an entry of a later level.
        Ok(other) = async { outgrown.wait_for(Option::is_some).await.map(|other| *other) } => match other {
            Some(other) => Failure::Level(other),
            None => return,
        },
        reason = fatal.failed() => Failure::Broken(reason.to_string()),
        reason = raft_ended => Failure::Broken(reason),
    };
    node.life.fail(failure);
}
