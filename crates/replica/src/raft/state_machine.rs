//! State machine of Raft around [`znode::State`]. It applies entries, publishes the new state
//! (makes it visible to readers) and answers proposers; it makes and installs snapshots.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use accept::Seldom;
use futures_util::{Stream, StreamExt};
use openraft::storage::{ApplyResponder, EntryResponder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend, RaftSnapshotBuilder};
use storage::{Command, LogId, NodeMeta, Outcome, Snapshot, SnapshotMeta, SnapshotStore, StoredMembership, TypeConfig};
use tokio::sync::mpsc;
use tokio::time::Instant;
use znode::{
    DecodeError, EventRecord, Founding, Levels, LogPosition, Op, OtherLevel, Reply, SEQUENCE_MAX, State, StateBuilder,
    Term, Txn, TxnOutcome, Zxid,
};

use crate::local::entry_clock::EntryClock;
use crate::local::host::Host;
use crate::raft::decoded_entries::DecodedEntries;
use crate::raft::known_cluster::KnownCluster;
use crate::view::View;
use crate::view::forced::{ForcedLog, ForcedRelease};

/// Largest number of entries that are applied before readers see the new state and the proposers of
/// these entries are answered.
const BATCH_MAX: usize = 512;
/// Largest size in bytes (in the log) of the entries that are applied before readers see the new
/// state. The last of these entries is not counted.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Number of events (changes of znodes and grants of locks) after which the state is published
/// before the next entry is applied. Readers wait until the state is published, and even a small
/// entry can make many events, for example by expiring sessions.
const EVENTS_ENOUGH: usize = 1_000;
/// Number of used sequence numbers under one parent from which on a warning is logged: 90 % of all.
const SEQUENCE_TOLD: u64 = SEQUENCE_MAX / 10 * 9;

/// A snapshot with its metadata, in the form in which Raft passes it.
pub(crate) type RaftSnapshot = openraft::alias::SnapshotOf<TypeConfig, Snapshot>;

/// Result of a proposal, as the value of Raft's [`Outcome`].
#[derive(Debug)]
pub(crate) struct ProposalResult {
    /// Zxid of the entry.
    pub(crate) at: Zxid,
    /// Result of applying the entry, without events.
    pub(crate) applied: TxnOutcome,
}

/// Raft's state machine. It is in memory only: a restarted node rebuilds it from the newest
/// snapshot and the later entries of the log.
pub(crate) struct StateMachine {
    last_applied: Option<LogId>,
    membership: StoredMembership,
    own_cluster: OwnCluster,
    view: Arc<View>,
    snapshots: SnapshotStore,
    /// Bytes of entries applied since this node last began or installed a snapshot.
    log_since_snapshot_bytes: Arc<AtomicU64>,
    /// Entries from a leader that were decoded at their arrival.
    decoded: Arc<DecodedEntries>,
    /// Clock that stamps this node's proposals.
    clock: Arc<EntryClock>,
    /// Log lines about tickets (lock znodes) that another client takes from their sessions.
    forced: ForcedLog,
    /// Limit on log lines about parents under which few numbers for sequential znodes are left.
    running_out: Seldom,
    /// Sender whose drop tells that the state machine is gone.
    _alive: mpsc::Sender<()>,
}

/// Facts that this node knows of its cluster, in memory and on disk.
pub(crate) struct OwnCluster {
    pub(crate) host: Host,
    pub(crate) cluster: Arc<KnownCluster>,
    pub(crate) meta: NodeMeta,
}

impl OwnCluster {
    /// Makes the founding of the cluster (its uuid and zxid base) durable, before the founding
    /// entry is applied.
    async fn join(&self, founding: Founding) -> io::Result<()> {
        let (cluster, meta) = (Arc::clone(&self.cluster), self.meta.clone());
        self.host.blocking(move || cluster.join(&meta, founding)).await
    }

    /// Makes the error of a committed entry or a snapshot that cannot be decoded. `what` names it
    /// in the message. The error ends this node.
    fn unread(&self, what: &str, error: DecodeError) -> io::Error {
        let error = unread(what, error);
        other_level(&error).into_iter().for_each(|other| self.cluster.outgrow(other));
        error
    }

    /// Takes over the cluster's founding, format level and removed members from a state.
    fn learn(&self, state: &State) {
        state.cluster().into_iter().for_each(|cluster| self.cluster.learn(cluster));
    }
}

/// An entry that is committed and decoded, and not applied yet.
struct CommittedEntry {
    id: LogId,
    what: EntryContent,
    responder: Option<ApplyResponder<TypeConfig>>,
}

/// Decoded content of an entry.
enum EntryContent {
    /// A transaction, and its bytes in the log.
    Txn(Box<Txn>, Command),
    Membership(StoredMembership),
    Nothing,
}

impl StateMachine {
    pub(crate) fn new(
        view: Arc<View>,
        snapshots: SnapshotStore,
        own_cluster: OwnCluster,
        log_since_snapshot_bytes: Arc<AtomicU64>,
        decoded: Arc<DecodedEntries>,
        clock: Arc<EntryClock>,
        alive: mpsc::Sender<()>,
    ) -> StateMachine {
        StateMachine {
            last_applied: None,
            membership: StoredMembership::default(),
            own_cluster,
            view,
            snapshots,
            log_since_snapshot_bytes,
            decoded,
            clock,
            forced: ForcedLog::default(),
            running_out: Seldom::default(),
            _alive: alive,
        }
    }

    /// Takes the next committed entries from Raft, up to the bounds of a batch. Returns true if
    /// more entries may follow.
    async fn read_batch<S>(&self, entries: &mut S) -> io::Result<(VecDeque<CommittedEntry>, bool)>
    where
        S: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + OptionalSend,
    {
        let (mut batch, mut bytes, mut more) = (VecDeque::new(), 0, true);
        while batch.len() < BATCH_MAX && bytes < BATCH_BYTES_MAX {
            let Some(next) = entries.next().await else {
                more = false;
                break;
            };
            let (entry, responder) = next?;
            let id = entry.log_id;
            let what = match entry.payload {
                EntryPayload::Normal(command) => {
                    bytes += command.0.len();
                    let txn = self.decoded.take(id.index, &command.0);
                    let txn = txn.map_err(|error| self.own_cluster.unread(&format!("entry {id}"), error))?;
                    EntryContent::Txn(txn, command)
                }
                EntryPayload::Membership(membership) => {
                    EntryContent::Membership(StoredMembership::new(Some(id), membership))
                }
                EntryPayload::Blank => EntryContent::Nothing,
            };
            batch.push_back(CommittedEntry { id, what, responder });
        }
        self.log_since_snapshot_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok((batch, more))
    }

    /// Tells whether a batch founds the cluster, raises its format level or removes a member. Makes
    /// a founding durable before any entry of the batch is applied.
    async fn prepare(&self, batch: &VecDeque<CommittedEntry>) -> io::Result<bool> {
        let (mut of_cluster, mut founded) = (false, false);
        for committed in batch {
            let EntryContent::Txn(txn, _) = &committed.what else { continue };
            match txn.request.op {
                Op::Found(founding) => {
                    if !std::mem::replace(&mut founded, true) && self.view.state().cluster().is_none() {
                        self.own_cluster.join(founding).await?;
                    }
                    of_cluster = true;
                }
                Op::SetLevel { .. } | Op::NoteRemoved { .. } => of_cluster = true,
                _ => {}
            }
        }
        Ok(of_cluster)
    }

    /// Applies the first entries of a batch and publishes the state. Stops at an entry after which
    /// an observer (the ZooKeeper server) wants the state to be published, or after
    /// [`EVENTS_ENOUGH`] events; otherwise applies the whole batch.
    fn apply_first(&mut self, batch: &mut VecDeque<CommittedEntry>) {
        let view = Arc::clone(&self.view);
        let mut proposed = Vec::with_capacity(batch.len());
        view.change(|state, is_wanted| {
            let mut events = Vec::new();
            let mut histories = view.histories.lock();
            while let Some(CommittedEntry { id, what, responder }) = batch.pop_front() {
                let term = Term(id.committed_leader_id().term);
                let request = if let EntryContent::Txn(txn, _) = &what { Some(&txn.request) } else { None };
                let at = LogPosition { term, zxid: state.zxid_of(id.index, request) };
                self.last_applied = Some(id);
                let (applied, wanted) = match what {
                    EntryContent::Txn(txn, command) => {
                        let wanted = is_wanted(&txn.request);
                        let proposed_ms = txn.time_ms;
                        let before = events.len();
                        let applied = self.apply_txn(state, at, (*txn, &command), &mut events);
                        // Only the leader, whose proposal waits for this entry, counts the times.
                        if responder.is_some() {
                            let now_ms = || self.clock.now_ms(state.time_ms());
                            let age = || Duration::from_millis(now_ms().saturating_sub(proposed_ms));
                            view.times.note_locks(state, at.zxid, &applied, &events[before..], age);
                        }
                        (applied, wanted)
                    }
                    EntryContent::Membership(membership) => {
                        self.membership = membership;
                        (skip(state, at), false)
                    }
                    EntryContent::Nothing => (skip(state, at), false),
                };
                histories.push(id.index, state.history_hash());
                proposed.extend(responder.map(|responder| (responder, ProposalResult { at: at.zxid, applied })));
                if wanted || events.len() >= EVENTS_ENOUGH {
                    break;
                }
            }
            events
        });
        self.forced.tell();
        // Answered only now, so that a proposer finds its entry in the published state.
        for (responder, proposed) in proposed {
            responder.send(Outcome(Arc::new(proposed)));
        }
    }

    /// Applies a transaction, which comes with its bytes in the log.
    fn apply_txn(
        &mut self,
        state: &mut State,
        at: LogPosition,
        (txn, command): (Txn, &Command),
        events: &mut Vec<EventRecord>,
    ) -> TxnOutcome {
        let expires = matches!(txn.request.op, Op::ExpireSessions { .. });
        let may_force = self.view.counters.is_new(at.zxid) && ForcedRelease::may_come_of(&txn.request.op);
        let own = txn.request.credential.map(|credential| credential.session);
        let sessions = state.session_count();
        let (applied, mut recorded) = state.apply_recorded(at, txn, &command.0);
        events.append(&mut recorded);
        if expires {
            self.view.counters.sessions_expired(at.zxid, sessions - state.session_count());
        }
        match &applied.reply {
            Ok(Reply::Scrubbed { last, .. }) => self.view.scrub.note(last.clone(), state.time_ms()),
            Ok(reply) => self.note_sequence(state, reply),
            Err(_) => {}
        }
        if may_force {
            self.forced.find(ForcedRelease::by(state, own, &applied));
        }
        applied
    }

    /// Counts the numbers for sequential znodes that are used under a parent, if the reply is that
    /// of a sequential create. Logs a parent that has few numbers left.
    fn note_sequence(&self, state: &State, reply: &Reply) {
        let Some((parent, used)) = state.sequence_used(reply) else { return };
        self.view.counters.sequence_used(used);
        if used >= SEQUENCE_TOLD
            && let Some(times) = self.running_out.note(Instant::now())
        {
            let left = SEQUENCE_MAX - used;
            tracing::warn!(%parent, used, left, times, "sequence numbers under a znode run out");
        }
    }

    /// Reads a snapshot's records into a state, for a program that knows the format levels `known`.
    /// Blocking.
    pub(crate) fn read(snapshot: &Snapshot, known: Levels) -> io::Result<State> {
        let mut builder = StateBuilder::knowing(known);
        let damaged = |error| unread("a snapshot", error);
        for record in snapshot.records() {
            builder.push(&record?).map_err(damaged)?;
        }
        builder.finish().map_err(damaged)
    }
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotData = Snapshot;
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        Ok((self.last_applied, self.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + OptionalSend,
    {
        let mut more = true;
        while more {
            let mut batch;
            (batch, more) = self.read_batch(&mut entries).await?;
            let of_cluster = self.prepare(&batch).await?;
            while !batch.is_empty() {
                self.apply_first(&mut batch);
                if of_cluster {
                    self.own_cluster.learn(&self.view.state());
                }
                // Yields between long steps, so that the tasks of heartbeats and the log can run.
                while self.view.wake_some() {
                    tokio::task::yield_now().await;
                }
                if !batch.is_empty() {
                    tokio::task::yield_now().await;
                }
            }
        }
        Ok(())
    }

    async fn try_create_snapshot_builder(&mut self, _force: bool) -> Option<SnapshotBuilder> {
        Some(self.builder())
    }

    #[allow(deprecated)]
    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        self.builder()
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: Snapshot) -> io::Result<()> {
        let known = self.own_cluster.cluster.program().levels;
        let state = self.own_cluster.host.blocking(move || StateMachine::read(&snapshot, known)).await;
        let state = state.inspect_err(|error| {
            other_level(error).into_iter().for_each(|other| self.own_cluster.cluster.outgrow(other));
        })?;
        if let Some(cluster) = state.cluster() {
            self.own_cluster.join(*cluster.founding()).await?;
            self.own_cluster.learn(&state);
        }
        self.last_applied = meta.last_log_id;
        self.membership = meta.last_membership.clone();
        self.log_since_snapshot_bytes.store(0, Ordering::Relaxed);
        self.view.counters.snapshot_installed();
        self.view.scrub.begin_anew();
        if let Some(last) = meta.last_log_id {
            self.view.histories.lock().push(last.index, state.history_hash());
        }
        self.view.replace(Arc::new(state));
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<RaftSnapshot>> {
        Ok(self.snapshots.current().map(|snapshot| RaftSnapshot { meta: snapshot.meta().clone(), snapshot }))
    }
}

impl StateMachine {
    fn builder(&self) -> SnapshotBuilder {
        self.log_since_snapshot_bytes.store(0, Ordering::Relaxed);
        SnapshotBuilder {
            state: Some(self.view.state()),
            meta: SnapshotMeta { last_log_id: self.last_applied, last_membership: self.membership.clone() },
            snapshots: self.snapshots.clone(),
            view: Arc::clone(&self.view),
            host: self.own_cluster.host.clone(),
        }
    }
}

/// Writes a snapshot of the state as of the time at which the builder was made.
pub(crate) struct SnapshotBuilder {
    /// The state to write; `None` once writing has begun.
    state: Option<Arc<State>>,
    meta: SnapshotMeta,
    snapshots: SnapshotStore,
    view: Arc<View>,
    host: Host,
}

impl RaftSnapshotBuilder<TypeConfig> for SnapshotBuilder {
    type SnapshotData = Snapshot;

    async fn build_snapshot(&mut self) -> io::Result<RaftSnapshot> {
        let state = self.state.take().ok_or_else(|| io::Error::other("a builder builds one snapshot"))?;
        let (meta, snapshots) = (self.meta.clone(), self.snapshots.clone());
        let began = Instant::now();
        let snapshot = self.host.in_background("zlock-snapshot", move || {
            let mut writer = snapshots.writer()?;
            for record in state.records() {
                writer.push(&record)?;
            }
            // Dropped on this thread: freeing the parts that have changed since takes a while, too.
            drop(state);
            writer.finish(&meta)
        });
        let snapshot = snapshot.await?;
        self.view.counters.snapshot_built();
        self.view.times.snapshot.note(began.elapsed());
        tracing::info!(id = snapshot.id(), bytes = snapshot.bytes(), "snapshot built");
        // Returns the snapshot that was built, even if a newer one was received meanwhile and is
        // current: Raft must still install the newer one.
        Ok(RaftSnapshot { meta: self.meta.clone(), snapshot })
    }
}

/// Makes the error of an entry or a snapshot that cannot be decoded. `what` names it in the
/// message.
fn unread(what: &str, error: DecodeError) -> io::Error {
    match error {
        // The error is not turned into text, so that `other_level` finds the level in it.
        DecodeError::Level(_) => io::Error::new(io::ErrorKind::InvalidData, error),
        error => io::Error::new(io::ErrorKind::InvalidData, format!("{what} cannot be read: {error}")),
    }
}

/// The cluster's format level and the program's levels, if `error` says that the program does not
/// know the cluster's level; otherwise `None`.
pub(crate) fn other_level(error: &io::Error) -> Option<OtherLevel> {
    match error.get_ref()?.downcast_ref::<DecodeError>()? {
        DecodeError::Level(other) => Some(*other),
        _ => None,
    }
}

/// Advances the state's zxid by an entry without a transaction; changes nothing else.
fn skip(state: &mut State, at: LogPosition) -> TxnOutcome {
    // The first membership is entry 0, and zxid 0 means "never".
    if at.zxid > state.last_zxid() {
        state.skip(at);
    }
    TxnOutcome { zxid: at.zxid, reply: Ok(znode::Reply::Done), events: Vec::new() }
}

#[cfg(test)]
mod tests {
    use sim::memory_disk::MemoryDisk;
    use znode::{Create, Limits, Request, ZPath, ZnodeOp, encode_txn};

    use super::*;
    use crate::view::ViewLimits;

    fn machine() -> (StateMachine, SnapshotStore) {
        let identity = storage::Identity { cluster_id: "c".into(), node_id: 1 };
        let storage::simulation::Parts { snapshots, meta, .. } = MemoryDisk::default().open(identity).unwrap();
        let own_cluster = OwnCluster { host: Host::Machine, cluster: Arc::default(), meta };
        let limits = ViewLimits { watches_max: 1, events_max: 1, event_bytes_max: 1 };
        let state = State::new(Limits { ops_max: 4_096, ..Limits::default() });
        let view = Arc::new(View::new(state, limits));
        let (alive, _gone) = mpsc::channel(1);
        (
            StateMachine::new(
                view,
                snapshots.clone(),
                own_cluster,
                Arc::default(),
                Arc::default(),
                Arc::default(),
                alive,
            ),
            snapshots,
        )
    }

    #[test]
    fn readers_have_a_turn_after_an_entry_that_changed_much() {
        let (mut machine, _) = machine();
        let create = |name: String| ZnodeOp::Create(Create::new(ZPath::root(), name));
        let entry = |index: u64, count: usize| {
            let creates = (0..count).map(|number| create(format!("{index}-{number}")));
            let txn = Txn { proven: false, time_ms: 0, request: Request::new(Op::Multi(creates.collect())) };
            CommittedEntry {
                id: LogId::new_term_index(1, index),
                what: EntryContent::Txn(Box::new(txn.clone()), Command(encode_txn(&txn).into())),
                responder: None,
            }
        };
        let mut batch = VecDeque::from([entry(1, 1), entry(2, EVENTS_ENOUGH), entry(3, 1), entry(4, 1)]);
        let mut applied = Vec::new();
        while !batch.is_empty() {
            machine.apply_first(&mut batch);
            applied.push(machine.view.applied().0);
        }
        assert_eq!(applied, [2, 4]);
        assert_eq!(machine.view.state().znode_count(), EVENTS_ENOUGH + 4);
    }

    #[tokio::test]
    async fn a_snapshot_that_came_meanwhile_does_not_count_as_built_here() {
        let (machine, snapshots) = machine();
        let mut builder = machine.builder();
        // A snapshot of the leader is received and current, but not installed, while this node
        // still writes its own.
        let newer = SnapshotMeta { last_log_id: Some(LogId::new_term_index(2, 5)), ..SnapshotMeta::default() };
        snapshots.writer().unwrap().finish(&newer).unwrap();
        let built = builder.build_snapshot().await.unwrap();
        // If the builder returned the leader's snapshot, Raft would take it for installed, and this
        // node would never apply it.
        assert_eq!(built.meta.last_log_id, None);
        assert_eq!(snapshots.current().unwrap().meta(), &newer);
    }
}
