//! The handle on a node, which the doors call.

use std::collections::BTreeSet;
use std::future::Future;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;

use openraft::storage::RaftLogStorage;
use sha2::{Digest, Sha256};
use storage::TypeConfig;
use tokio::time::Instant;
use znode::{Credential, Identity, Request, SessionId, State, Term, TxnOutcome, Zxid};

use crate::follower::session_heartbeats::Touch;
use crate::local::session_tracker::Silence;
use crate::node::Node;
use crate::operate::health::health;
use crate::read::Consistency;
use crate::simulation::Machine;
use crate::{
    Check, Config, Entrance, Error, EventBatch, EventKinds, EventsError, Failure, FinalizeOutcome, Health, Leader,
    MembersReport, NodeStatus, Observer, Order, OrderError, OrderOutcome, RequestEnd, StartError, Step, TurnedAway,
    UpgradeStatus, WaitEnd, WatchKey,
};

/// Handle on one node of the ensemble. Clones are handles on the same node, which runs until
/// [`Replica::shutdown`].
#[derive(Clone)]
pub struct Replica {
    node: Arc<Node>,
}

impl std::fmt::Debug for Replica {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Replica({})", self.node.consensus.node_id)
    }
}

impl Replica {
    /// Opens storage, listens for peers, and founds or joins the ensemble. Safe to repeat, in any
    /// order of nodes.
    ///
    /// # Errors
    /// See [`StartError`]; nothing is left running.
    pub async fn start(config: Config) -> Result<Replica, StartError> {
        let addr = config.peer_listen;
        let listener =
            TcpListener::bind(addr).map_err(|source| StartError::Listen { addr: addr.to_string(), source })?;
        Replica::start_on(config, listener).await
    }

    /// Starts a node as [`Replica::start`] does, with a peer listener that is already bound. The
    /// address of the listener counts, not `config.peer_listen`.
    ///
    /// # Errors
    /// As [`Replica::start`].
    pub async fn start_on(config: Config, listener: TcpListener) -> Result<Replica, StartError> {
        Ok(Replica::of(Node::start(config, listener).await?))
    }

    /// Starts a node as [`Replica::start`] does, on a simulated machine.
    ///
    /// # Errors
    /// As [`Replica::start`].
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

    /// Resolves with the reason when the node cannot go on. The program must end then.
    pub fn failed(&self) -> impl Future<Output = Failure> + Send + 'static {
        let mut failure = self.node.life.failure();
        async move {
            if let Ok(Some(reason)) = failure.wait_for(Option::is_some).await.as_deref() {
                return reason.clone();
            }
            // The node is gone without having failed.
            std::future::pending().await
        }
    }

    /// Writes, through the leader. Returns once this node has applied the entry, so that what the
    /// caller reads next from [`Replica::state`] includes it. `TxnOutcome::events` is empty: events
    /// go to those who watch.
    ///
    /// Dropping the future does not take the proposal back.
    ///
    /// # Errors
    /// `Unavailable` when nothing was proposed, `Unknown` when it may have been. A refusal by the
    /// state machine is a `TxnOutcome`; `Refused` is only a request that is too long to be an entry
    /// at all.
    pub async fn propose(&self, request: Request, deadline: Instant) -> Result<TxnOutcome, Error> {
        self.node.proposer.propose(request, deadline).await
    }

    /// The state that this node has applied, without waiting for anything.
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

    /// Sends a heartbeat of a session, which a leader that is sure to lead acknowledges. The call
    /// takes at most a third of the session's timeout, so that a client has time for another node.
    ///
    /// # Errors
    /// `Refused` with `SessionExpired` or `AuthFailed`. `Unavailable` when no leader acknowledged
    /// the heartbeat: the client should go to another node.
    pub async fn touch(&self, credential: Credential, deadline: Instant) -> Result<Touch, Error> {
        self.node.heartbeats.touch(credential, deadline).await
    }

    /// Term in which this node is sure to lead, or `None`. While it is sure, no other leader has
    /// been elected, and the node acknowledges heartbeats.
    pub fn sure_to_lead(&self) -> Option<Term> {
        self.node.heartbeats.leadership.sure_to_lead()
    }

    /// Silence of each session in `of`. `None` unless this node is sure to lead, because no other
    /// node knows.
    pub fn silences(&self, of: &[SessionId]) -> Option<Vec<Option<Silence>>> {
        self.node.heartbeats.leadership.silences(of)
    }

    /// Counts a request of the session as a heartbeat, without waiting for the leader. Never
    /// blocks.
    pub fn touch_soon(&self, credential: Credential) {
        self.node.heartbeats.touch_soon(credential);
    }

    /// Calls `step` on the state until it is ready, anew after each change that `step` asked to
    /// watch. The look at the state and the setting of the watch happen under one guard, so no
    /// change is missed. `step` must be short.
    ///
    /// # Errors
    /// See [`WaitEnd`].
    pub async fn wait_for<T>(&self, deadline: Instant, step: impl FnMut(&State) -> Step<T>) -> Result<T, WaitEnd> {
        self.node.view.wait_for(deadline, step).await
    }

    /// Returns events of `kinds` at `key` after `since`, and waits for the first one. The batch is
    /// empty at the deadline.
    ///
    /// # Errors
    /// `Gone` when the ring has lost events after `since`; see [`EventsError`].
    pub async fn events(
        &self,
        key: WatchKey,
        kinds: EventKinds,
        since: Zxid,
        deadline: Instant,
    ) -> Result<EventBatch, EventsError> {
        self.node.view.events(key, kinds, since, None, deadline).await
    }

    /// Returns events as [`Replica::events`] does, without events of znodes that the reader may not
    /// read.
    ///
    /// # Errors
    /// As [`Replica::events`].
    pub async fn events_for(
        &self,
        key: WatchKey,
        kinds: EventKinds,
        since: Zxid,
        reader: &[Identity],
        deadline: Instant,
    ) -> Result<EventBatch, EventsError> {
        self.node.view.events(key, kinds, since, Some(reader), deadline).await
    }

    /// Tells whether this node can serve now: it leads or hears a leader, and its disk answers or
    /// is not needed.
    pub fn serves(&self) -> bool {
        self.node.consensus.serves()
    }

    /// Resolves while this node cannot serve: it has heard no leader for the time of an election,
    /// or its disk has not answered. Waits end with [`WaitEnd::CannotServe`] then.
    pub async fn cannot_serve(&self) {
        self.node.view.suspended().await;
    }

    /// Registers an observer, until the observer is dropped. The observer hears the present state,
    /// and from then on every change.
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

    /// The members as this node sees them. The leader's report has the most.
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

    /// The cluster's format level, and the programs that its members run, as the leader knows them.
    ///
    /// # Errors
    /// `Unavailable` when no leader answers.
    pub async fn upgrade(&self, deadline: Instant) -> Result<UpgradeStatus, Error> {
        self.node.upgrade.status(deadline).await
    }

    /// Raises the cluster's level for good: to `level`, or with `None` to the highest level that a
    /// member knows. Does so only if every member knows the level and follows the leader. Does
    /// nothing if the cluster is at that level already.
    ///
    /// # Errors
    /// As [`Replica::propose`]; `Refused` with `BadArguments` for a level below the cluster's.
    pub async fn finalize(&self, level: Option<u16>, deadline: Instant) -> Result<FinalizeOutcome, Error> {
        self.node.upgrade.finalize(level, deadline).await
    }

    /// Conditions of [`NodeStatus::ready`] with their outcomes. `lag_max` is the number of entries
    /// that the node may be behind; `None` stands for [`Config::ready_lag_max`].
    pub fn checks(&self, lag_max: Option<u64>) -> Vec<Check> {
        self.node.status.checks_now(lag_max)
    }

    /// Tells whether the cluster is well, as far as this node knows.
    pub fn health(&self) -> Health {
        health(&self.node.status)
    }

    /// Drains this node, or ends the drain. While a node is drained, another one leads if it can,
    /// and doors send their clients elsewhere. Returns true if this is a change. The drain ends
    /// when the node stops.
    pub async fn set_drained(&self, drained: bool) -> bool {
        let changed = self.node.drain_wish.wish(drained);
        if drained {
            self.node.consensus.give_leadership_away().await;
        }
        changed
    }

    /// Tells whether the node is drained.
    pub fn is_drained(&self) -> bool {
        self.node.drain_wish.is_wished()
    }

    /// Directory of the node's log, snapshots and identity.
    pub fn data_dir(&self) -> &Path {
        &self.node.status.config.data_dir
    }

    /// Silence, in milliseconds, after which another member counts as not connected.
    pub fn disconnected_after_ms(&self) -> u64 {
        self.node.consensus.disconnected_after().as_millis() as u64
    }

    /// Counts a request that a door has answered.
    pub fn count(&self, entrance: Entrance, end: RequestEnd) {
        self.node.view.counters.request(entrance, end);
    }

    /// Counts a connection of a client that was turned away.
    pub fn count_turned_away(&self, entrance: Entrance, cause: TurnedAway) {
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
        for record in state.records() {
            // Lengths keep two splits of the same bytes apart.
            hash.update((record.len() as u64).to_le_bytes());
            hash.update(record);
        }
        hash.finalize().into()
    }
}
