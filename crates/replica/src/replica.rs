//! Handle on a node, through which the HTTP and the ZooKeeper server call it.

use std::collections::BTreeSet;
use std::future::Future;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;

use openraft::storage::RaftLogStorage;
use sha2::{Digest, Sha256};
use storage::TypeConfig;
use tokio::time::Instant;
use znode::{Credential, Request, SessionId, State, Term, TxnOutcome};

use crate::follower::session_heartbeats::Touch;
use crate::local::session_tracker::Silence;
use crate::node::Node;
use crate::operate::health::health;
use crate::read::Consistency;
use crate::simulation::Machine;
use crate::{
    Bound, Check, Config, Durations, Entrance, Error, EventBatch, EventQuery, EventsError, Failure, FinalizeOutcome,
    Health, Leader, MembersReport, NodeStatus, Observer, Order, OrderError, OrderOutcome, PeerMeasures, RequestEnd,
    StartError, Step, Times, TurnedAway, UpgradeStatus, WaitEnd,
};

/// Handle on one node of the ensemble. All clones are handles on the same node, which runs until
/// [`Replica::shutdown`].
#[derive(Clone)]
pub struct Replica {
    node: Arc<Node>,
}

/// Guard that counts an open connection of a client. The drop ends the count.
#[derive(Debug)]
pub struct OpenConnection {
    replica: Replica,
    entrance: Entrance,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.replica.node.view.counters.disconnected(self.entrance);
    }
}

impl std::fmt::Debug for Replica {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Replica({})", self.node.consensus.node_id)
    }
}

impl Replica {
    /// Opens storage, listens for peers on the listener, and founds or joins the ensemble. The
    /// nodes of an ensemble may be started in any order, and again after a failure.
    /// `config.peer_listen` stands in errors only.
    ///
    /// # Errors
    /// See [`StartError`]; nothing is left running.
    pub async fn start_on(config: Config, listener: TcpListener) -> Result<Replica, StartError> {
        Ok(Replica::of(Node::start(config, listener).await?))
    }

    /// Starts a node as [`Replica::start_on`] does, on a simulated machine.
    ///
    /// # Errors
    /// As [`Replica::start_on`].
    pub async fn start_simulated<L>(config: Config, machine: Machine<L>) -> Result<Replica, StartError>
    where
        L: RaftLogStorage<TypeConfig>,
    {
        Ok(Replica::of(Node::start_simulated(config, machine).await?))
    }

    fn of(node: Arc<Node>) -> Replica {
        Replica { node }
    }

    /// Stops the node: hands leadership away, ends waits with `Stopped`, and closes storage.
    /// Returns when the data directory may be opened again.
    pub async fn shutdown(&self) {
        self.node.shutdown().await;
    }

    /// Resolves with the reason once the node has failed and serves no more. The caller must then
    /// end the process.
    pub fn failed(&self) -> impl Future<Output = Failure> + Send + 'static {
        let mut failure = self.node.life.failure();
        async move {
            if let Ok(Some(reason)) = failure.wait_for(Option::is_some).await.as_deref() {
                return reason.clone();
            }
            // The node has ended without a failure.
            std::future::pending().await
        }
    }

    /// Proposes a request through the leader. Returns once this node has applied the entry, so that
    /// [`Replica::state`] includes it. `TxnOutcome::events` is empty: events go to watchers and
    /// observers.
    ///
    /// Dropping the future does not take the proposal back.
    ///
    /// # Errors
    /// `Unavailable` when the request was not proposed, `Unknown` when it may have been. `Refused`
    /// when no entry is made of the request, for example because it is too long. `Restoring` when a
    /// restored cluster grants no lock yet. The refusal of an applied entry is a `TxnOutcome`.
    pub async fn propose(&self, request: Request, deadline: Instant) -> Result<TxnOutcome, Error> {
        let applied = self.node.proposer.propose(request, deadline).await?;
        if let Err(refusal) = &applied.reply
            && let Some(bound) = Bound::of(refusal, &self.state())
        {
            self.count_refused(bound);
        }
        Ok(applied)
    }

    /// State that this node has applied. It may be older than the leader's.
    pub fn state(&self) -> Arc<State> {
        self.node.view.state()
    }

    /// Returns the state, as fresh as `consistency` asks.
    ///
    /// # Errors
    /// `Unavailable` when no leader confirms the read before the deadline, or this node does not
    /// catch up in time.
    pub async fn read(&self, consistency: Consistency, deadline: Instant) -> Result<Arc<State>, Error> {
        self.node.reads.read(consistency, deadline).await
    }

    /// Sends a heartbeat of a session to the leader. It counts only if no other leader can have
    /// been elected. The call takes at most a third of the session's timeout, so that a client has
    /// time for another node.
    ///
    /// # Errors
    /// `Refused` with `SessionExpired` or `AuthFailed`. `Unavailable` when no leader acknowledged
    /// the heartbeat: the client should go to another node.
    pub async fn touch(&self, credential: Credential, deadline: Instant) -> Result<Touch, Error> {
        self.node.heartbeats.touch(credential, deadline).await
    }

    /// Term in which this node leads and no other leader can have been elected, because a quorum
    /// followed this node lately; `None` otherwise. Only such a leader acknowledges heartbeats.
    pub fn sure_to_lead(&self) -> Option<Term> {
        self.node.heartbeats.leadership.sure_to_lead()
    }

    /// Time without a heartbeat of each session in `of`; `None` for a session that this leader does
    /// not track. The whole result is `None` unless [`Replica::sure_to_lead`] has a term, because
    /// only the leader tracks sessions.
    pub fn silences(&self, of: &[SessionId]) -> Option<Vec<Option<Silence>>> {
        self.node.heartbeats.leadership.silences(of)
    }

    /// Counts a request of the session as a heartbeat. Never blocks, and does not wait for the
    /// leader's answer.
    pub fn touch_soon(&self, credential: Credential) {
        self.node.heartbeats.touch_soon(credential);
    }

    /// Calls `step` on the state now, and again after each change of the part of the state that its
    /// last result [`Step::Watch`] names, until it returns [`Step::Ready`]. The state is read and
    /// the watch is set under one lock, so no change is missed. `step` must be short.
    ///
    /// # Errors
    /// See [`WaitEnd`].
    pub async fn wait_for<T>(&self, deadline: Instant, step: impl FnMut(&State) -> Step<T>) -> Result<T, WaitEnd> {
        self.node.view.wait_for(deadline, step).await
    }

    /// Returns the events that the query asks for. If there are none yet, waits for the first. The
    /// result has no events if the deadline comes first.
    ///
    /// # Errors
    /// `Gone` when events after `since` are no longer kept; see [`EventsError`].
    pub async fn events(&self, query: EventQuery<'_>, deadline: Instant) -> Result<EventBatch, EventsError> {
        self.node.view.events(query, deadline).await
    }

    /// Tells whether this node can serve now: it leads or hears a leader, and its disk answers. A
    /// leader whose disk stalls can serve while the other nodes commit its entries.
    pub fn serves(&self) -> bool {
        self.node.consensus.serves()
    }

    /// Resolves once this node cannot serve: for the time of an election it has heard no leader, or
    /// its disk has not answered. Waits then end with [`WaitEnd::CannotServe`].
    pub async fn cannot_serve(&self) {
        self.node.view.suspended().await;
    }

    /// Registers an observer, which gets the present state now and every later change, until the
    /// last `Arc` of the observer is dropped.
    pub fn observe(&self, observer: &Arc<impl Observer + 'static>) {
        let observer: Arc<dyn Observer> = Arc::clone(observer) as _;
        self.node.view.observe(Arc::downgrade(&observer));
    }

    /// Carries out an operator's order, through the leader: see [`Order`].
    ///
    /// # Errors
    /// `Refused` with the reason when the order is not carried out, `Unavailable` when nothing was
    /// done, `Unknown` when the order may have been carried out.
    pub async fn order(&self, order: Order, deadline: Instant) -> Result<OrderOutcome, OrderError> {
        self.node.operators.order(order, deadline).await
    }

    /// Members of the cluster as this node sees them. The leader's report is the most complete.
    pub fn members(&self) -> MembersReport {
        self.node.operators.members.report()
    }

    /// Index of the entry with the membership in force at this node, and its sets of voters: two
    /// during a change.
    pub fn voters(&self) -> (u64, Vec<BTreeSet<u64>>) {
        let membership = self.node.consensus.membership();
        (membership.log_id().as_ref().map_or(0, |id| id.index), membership.get_joint_config().clone())
    }

    /// Status of this node, and of the ensemble as this node sees it.
    pub fn status(&self) -> NodeStatus {
        self.node.status.status()
    }

    /// Durations that this node has measured since it started.
    pub fn times(&self) -> &Times {
        &self.node.view.times
    }

    /// Durations of the syncs of this node's log since it was opened.
    pub fn log_syncs(&self) -> &Durations {
        self.node.consensus.disk_watch.syncs()
    }

    /// Facts about the connections to the other members, by id.
    pub fn peer_measures(&self) -> Vec<PeerMeasures> {
        self.node.consensus.peer_measures()
    }

    /// Bytes that were free on the disk of the data directory when the node last looked; `None` if
    /// the system cannot tell.
    pub fn free_disk_bytes(&self) -> Option<u64> {
        self.node.proposer.space.guard()?.last_free_bytes()
    }

    /// The cluster's format level, and the programs that its members run, as the leader knows them.
    ///
    /// # Errors
    /// `Unavailable` when no leader answers.
    pub async fn upgrade(&self, deadline: Instant) -> Result<UpgradeStatus, Error> {
        self.node.upgrade.status(deadline).await
    }

    /// Raises the cluster's format level for good: to `level`, or with `None` to the highest level
    /// that a member knows. Does so only if every member knows the level and follows the leader.
    /// Does nothing if the cluster is at that level already.
    ///
    /// # Errors
    /// As [`Replica::propose`]; `Refused` with `BadArguments` for a level below the cluster's.
    pub async fn finalize(&self, level: Option<u16>, deadline: Instant) -> Result<FinalizeOutcome, Error> {
        self.node.upgrade.finalize(level, deadline).await
    }

    /// Conditions that a ready node must meet, each with its outcome; see [`NodeStatus::ready`].
    /// `lag_max` is the number of entries that the node may be behind; `None` stands for
    /// [`Config::ready_lag_max`].
    pub fn checks(&self, lag_max: Option<u64>) -> Vec<Check> {
        self.node.status.checks_now(lag_max)
    }

    /// Health of the cluster, as far as this node knows.
    pub fn health(&self) -> Health {
        health(&self.node.status)
    }

    /// Drains this node, or ends the drain. A drained node gives leadership to another voter if it
    /// can, and its HTTP and ZooKeeper servers send clients to other nodes. Returns true if that is
    /// a change. A drain also ends when the node stops.
    pub async fn set_drained(&self, drained: bool) -> bool {
        let changed = self.node.drain_wish.wish(drained);
        if drained {
            self.node.drain_wish.give_leadership_away().await;
        }
        changed
    }

    /// Tells whether an operator has asked the node to stay without clients and leadership (drain).
    pub fn is_drained(&self) -> bool {
        self.node.drain_wish.is_wished()
    }

    /// Directory of the node's log, snapshots and identity.
    pub fn data_dir(&self) -> &Path {
        &self.node.status.config.data_dir
    }

    /// Time without contact, in milliseconds, after which another member counts as disconnected.
    pub fn disconnected_after_ms(&self) -> u64 {
        self.node.consensus.disconnected_after().as_millis() as u64
    }

    /// Counts an open connection of a client until the guard is dropped.
    pub(crate) fn connected(&self, entrance: Entrance) -> OpenConnection {
        self.node.view.counters.connected(entrance);
        OpenConnection { replica: self.clone(), entrance }
    }

    /// Counts a request of a client, with its outcome.
    pub fn count(&self, entrance: Entrance, end: RequestEnd) {
        self.node.view.counters.request(entrance, end);
    }

    /// Counts a request, body, watch, session or write of a client that is refused for a bound.
    pub fn count_refused(&self, bound: Bound) {
        self.node.view.counters.refused(bound);
    }

    /// Counts a connection of a client that was turned away.
    pub(crate) fn count_turned_away(&self, entrance: Entrance, cause: TurnedAway) {
        self.node.view.counters.turned_away(entrance, cause);
    }

    /// The leader as far as this node knows; `None` if it knows of none.
    pub fn leader(&self) -> Option<Leader> {
        let id = self.node.consensus.leader()?;
        let member = self.node.consensus.members().into_iter().find(|member| member.id == id)?;
        Some(Leader { id, http_addr: member.http_addr })
    }

    /// SHA-256 over the state's snapshot records: equal on all nodes at equal zxid.
    pub fn digest(state: &State) -> [u8; 32] {
        let mut hash = Sha256::new();
        state.digest_with(|bytes| hash.update(bytes));
        hash.finalize().into()
    }
}
