//! Status that a node reports of itself.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use openraft::ServerState;
use openraft::metrics::RaftMetrics;
use storage::{SnapshotStore, TypeConfig};
use znode::{Cluster, Term, ZPath, Zxid};

use crate::raft::agreement::DIVIDED;
use crate::raft::consensus::Consensus;
use crate::raft::peers::PeerTally;
use crate::read::Reads;
use crate::view::life::Life;
use crate::write::propose::Proposer;
use crate::{Config, Counts, Member};

znode::named! {
    /// Role of a node in Raft.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Role {
        /// The node leads.
        Leader = "leader",
        /// The node follows a leader, or does not know a leader yet.
        Follower = "follower",
        /// The node stands for election.
        Candidate = "candidate",
        /// The node gets entries, and has no vote.
        Learner = "learner",
        /// The node has stopped.
        Stopped = "stopped",
    }
}

/// The leader of the cluster, and its address for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// The leader's node id.
    pub id: u64,
    /// `host:port` of the leader's HTTP API.
    pub http_addr: String,
}

znode::named! {
    /// Advice to a load balancer: whether to send clients to this node, and if not, why.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Readiness {
        /// The node can serve.
        Ready = "ready",
        /// The node has not yet applied again all entries that it knew to be committed before its
        /// start.
        Recovering = "recovering",
        /// The node hears no leader, or it leads and has lost its quorum.
        NoQuorum = "no-quorum",
        /// The node hears a leader, but lacks too many committed entries.
        Lagging = "lagging",
        /// The states of the members differ, and no majority is known to agree.
        Divided = "divided",
        /// The disk is low on space: the node serves reads only.
        DiskLow = "disk-low",
        /// The disk has not answered for `disk_stall_max_ms`: the node serves only reads of the
        /// state that it has, and takes no part in elections.
        DiskStalled = "disk-stalled",
        /// The node failed or is shutting down.
        Stopped = "stopped",
    }
}

/// One condition that a ready node must meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Name of the condition, by which a health request can exclude the condition.
    pub name: &'static str,
    /// `None` if the condition is met. Otherwise the readiness of a node that fails it, and the
    /// reason.
    pub failure: Option<(Readiness, Cow<'static, str>)>,
}

impl Check {
    /// Names of all conditions that [`crate::Replica::checks`] returns, in its order.
    pub const NAMES: [&'static str; 7] = ["alive", "recovered", "disk", "quorum", "agreement", "lag", "space"];
}

/// The newest durable snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotStatus {
    /// Zxid of the last entry in the snapshot; 0 if there is no snapshot.
    pub zxid: Zxid,
    /// The snapshot's length in bytes.
    pub bytes: u64,
}

/// Status of a node, and of the ensemble as this node sees it, at one moment. Cheap, because no
/// other node is asked.
#[derive(Clone, Debug)]
pub struct NodeStatus {
    /// The id of this node.
    pub node_id: u64,
    /// The cluster's name.
    pub cluster_id: String,
    /// The cluster's uuid, zxid base, format level and removed members, from the state; `None`
    /// before the cluster is founded.
    pub cluster: Option<Cluster>,
    /// Role of the node.
    pub role: Role,
    /// Id of the leader, as far as this node knows.
    pub leader: Option<u64>,
    /// Newest term that the node knows.
    pub term: Term,
    /// Zxid of the last entry in the node's log.
    pub last_log: Zxid,
    /// Zxid of the last entry that the node knows to be committed.
    pub committed: Zxid,
    /// Zxid of the last entry that the node has applied.
    pub applied: Zxid,
    /// The newest snapshot.
    pub snapshot: SnapshotStatus,
    /// All members of the ensemble.
    pub members: Vec<Member>,
    /// Number of open sessions in the cluster, in the state that this node has applied.
    pub sessions: u64,
    /// Number of znodes, in the state that this node has applied.
    pub znodes: u64,
    /// Bytes of the data of all znodes, in the state that this node has applied.
    pub data_bytes: u64,
    /// Estimate of the bytes of memory that the state takes.
    pub state_bytes: u64,
    /// Bytes of memory that the state may take.
    pub state_bytes_max: u64,
    /// Child of the root whose subtree takes the most bytes, and these bytes; `None` if the root
    /// has no child, or if not every client may read the child's name.
    pub largest_subtree: Option<(ZPath, u64)>,
    /// Number of locks with holders or waiters.
    pub locks: u64,
    /// Number of tickets (lock znodes) of open sessions that hold their locks, over all locks.
    pub holders: u64,
    /// Number of tickets (lock znodes) of all locks that are not counted in `holders`.
    pub waiters: u64,
    /// Number of locks in whose queue some clients do not see the lock znodes of others. Two
    /// clients may hold such a lock at once.
    pub mixed_locks: u64,
    /// Bytes of entries applied since this node last began or received a snapshot.
    pub log_since_snapshot_bytes: u64,
    /// Number of members that vote.
    pub voters: u64,
    /// Counts of the other voters, as this leader sees them.
    pub followers: Followers,
    /// Counts of the members that do not vote, as this leader sees them.
    pub observers: Followers,
    /// Counts of snapshots that this node sent, and of entries that other members have lost.
    pub peers: PeerTally,
    /// Zxid of the last entry that was purged from the node's log; 0 for none.
    pub purged: Zxid,
    /// Number of callers that wait at this node for a change of the state.
    pub watches: u64,
    /// Number of watches that the ZooKeeper server keeps for its clients.
    pub observed: u64,
    /// Number of this node's proposals that are under way.
    pub proposals: u64,
    /// Counts of requests, connections, sessions and snapshots since this node started.
    pub counts: Counts,
    /// Time that the oldest write to the log has waited for the disk.
    pub disk_waits: Duration,
    /// True if the oldest write to the log has waited for longer than `disk_stall_max_ms`.
    pub disk_stalls: bool,
    /// Zxid of the last entry up to which this node's state is known to agree with a majority.
    pub agreed: Zxid,
    /// Time at which all records of the state had been hashed and compared (the end of a round of
    /// the scrub), in milliseconds since 1970; 0 for no round that this node knows.
    pub scrubbed_ms: u64,
    /// True while the states of voters differ and no majority is known to agree.
    pub divided: bool,
    /// Number of members whose state differs from that of the majority, by their last answers.
    pub differing: u64,
    /// Advice whether to send clients here.
    pub ready: Readiness,
}

/// Numbers of members that follow a leader; zeros at a node that does not lead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Followers {
    /// Number of members that accepted a message of the leader lately.
    pub following: u64,
    /// Number of these members that lack at most
    /// [`Config::ready_lag_max`](crate::Config::ready_lag_max) committed entries.
    pub synced: u64,
}

/// The parts of a node from which its status is read.
pub(crate) struct Status {
    pub(crate) consensus: Arc<Consensus>,
    pub(crate) config: Arc<Config>,
    pub(crate) life: Arc<Life>,
    pub(crate) proposer: Arc<Proposer>,
    pub(crate) reads: Arc<Reads>,
    pub(crate) snapshots: SnapshotStore,
    pub(crate) log_since_snapshot_bytes: Arc<AtomicU64>,
}

impl Status {
    /// See [`crate::Replica::status`].
    pub(crate) fn status(&self) -> NodeStatus {
        let metrics = self.consensus.metrics();
        let state = self.proposer.view.state();
        let committed = self.consensus.committed(&metrics);
        let snapshot = self.snapshots.current().map(|snapshot| SnapshotStatus {
            zxid: snapshot.meta().last_log_id.map_or(Zxid(0), |id| self.consensus.zxid(id.index)),
            bytes: snapshot.bytes(),
        });
        let voters = self.consensus.voters();
        let (followers, observers) = self.followers(&metrics, committed, &voters);
        NodeStatus {
            voters: voters.len() as u64,
            followers,
            observers,
            node_id: self.consensus.node_id,
            cluster_id: self.config.cluster_id.clone(),
            cluster: state.cluster().cloned(),
            role: self.role(metrics.state),
            leader: self.consensus.leader(),
            term: Term(metrics.current_term),
            last_log: metrics.last_log_index.map_or(Zxid(0), |index| self.consensus.zxid(index)),
            committed,
            applied: state.last_zxid(),
            snapshot: snapshot.unwrap_or_default(),
            members: self.consensus.members(),
            sessions: state.session_count() as u64,
            znodes: state.znode_count() as u64,
            data_bytes: state.data_bytes(),
            state_bytes: state.state_bytes(),
            state_bytes_max: state.limits().state_bytes_max,
            largest_subtree: state.largest_subtree_for(&[]).map(|(path, bytes)| (path.clone(), bytes)),
            locks: state.lock_count() as u64,
            holders: state.holder_count(),
            waiters: state.contender_count().saturating_sub(state.holder_count()),
            mixed_locks: state.mixed_lock_count() as u64,
            log_since_snapshot_bytes: self.log_since_snapshot_bytes.load(Ordering::Relaxed),
            peers: self.consensus.peers.tally(),
            purged: self.consensus.peers.purge_index.up_to().map_or(Zxid(0), |index| self.consensus.zxid(index)),
            watches: self.proposer.view.watches() as u64,
            observed: self.proposer.view.observed() as u64,
            proposals: self.proposer.proposals.count() as u64,
            counts: self.proposer.view.counters.look(),
            disk_waits: self.consensus.disk_watch.waits(),
            disk_stalls: self.consensus.disk_watch.stalls(),
            agreed: self.consensus.agreement.agreed(),
            scrubbed_ms: self.proposer.view.scrub.ended_ms(),
            divided: self.consensus.agreement.is_divided(),
            differing: self.consensus.agreement.differing(),
            ready: self.readiness(&metrics, committed, state.last_zxid()),
        }
    }

    /// Counts the voters and the other members that follow this leader.
    fn followers(
        &self,
        metrics: &RaftMetrics<TypeConfig>,
        committed: Zxid,
        voters: &BTreeSet<u64>,
    ) -> (Followers, Followers) {
        let (mut followers, mut observers) = (Followers::default(), Followers::default());
        let Some(term) = self.consensus.leader_term(metrics) else { return (followers, observers) };
        let disconnected_after = self.consensus.disconnected_after();
        let lag = |id| {
            let last = metrics.replication.as_ref()?.get(&id)?.as_ref()?;
            Some(committed.0.saturating_sub(self.consensus.zxid(last.index).0))
        };
        for (id, peer) in self.consensus.peers.all() {
            if peer.following.since(term).is_some_and(|since| since.elapsed() < disconnected_after) {
                let counts = if voters.contains(&id) { &mut followers } else { &mut observers };
                counts.following += 1;
                counts.synced += u64::from(lag(id).is_some_and(|lag| lag <= self.config.ready_lag_max));
            }
        }
        (followers, observers)
    }

    fn role(&self, state: ServerState) -> Role {
        match state {
            _ if self.life.is_stopped() => Role::Stopped,
            // While its disk stalls, a deposed leader's Raft does not learn of the successor.
            ServerState::Leader if self.consensus.leader() != Some(self.consensus.node_id) => Role::Follower,
            ServerState::Leader => Role::Leader,
            ServerState::Candidate => Role::Candidate,
            ServerState::Follower => Role::Follower,
            ServerState::Learner => Role::Learner,
            ServerState::Shutdown => Role::Stopped,
        }
    }

    /// Returns the readiness that [`Status::status`] also has, without reading the other facts.
    pub(crate) fn is_ready(&self) -> Readiness {
        let metrics = self.consensus.metrics();
        self.readiness(&metrics, self.consensus.committed(&metrics), self.proposer.view.applied())
    }

    fn readiness(&self, metrics: &RaftMetrics<TypeConfig>, committed: Zxid, applied: Zxid) -> Readiness {
        let checks = self.checks(metrics, committed.0.saturating_sub(applied.0), self.config.ready_lag_max);
        checks.into_iter().find_map(|check| check.failure).map_or(Readiness::Ready, |(readiness, _)| readiness)
    }

    /// Checks whether this node is ready: see [`crate::Replica::checks`].
    pub(crate) fn checks_now(&self, lag_max: Option<u64>) -> Vec<Check> {
        let metrics = self.consensus.metrics();
        let lag = self.consensus.committed(&metrics).0.saturating_sub(self.proposer.view.applied().0);
        self.checks(&metrics, lag, lag_max.unwrap_or(self.config.ready_lag_max))
    }

    /// Conditions that a ready node must meet, in order. The first that fails gives the node's
    /// readiness. `lag` is the number of committed entries that the node has not applied.
    fn checks(&self, metrics: &RaftMetrics<TypeConfig>, lag: u64, lag_max: u64) -> Vec<Check> {
        let fail = |readiness, fails: bool, why: &'static str| fails.then_some((readiness, Cow::Borrowed(why)));
        let ended = self.life.is_stopped() || metrics.running_state.is_err() || self.life.failure().borrow().is_some();
        let connected =
            self.consensus.leading_term().map_or_else(|| self.consensus.hears_leader(), |(_, followed)| followed);
        let alone = metrics.current_leader.is_none() || !connected;
        let is_behind = !self.reads.has_recovered();
        let failures = [
            fail(Readiness::Stopped, ended, "the node has failed or is shutting down"),
            fail(
                Readiness::Recovering,
                is_behind,
                "it has not caught up with its log from before the start, or waits for its cluster: its messages say which",
            ),
            fail(Readiness::DiskStalled, self.consensus.disk_watch.stalls(), "the disk does not answer"),
            fail(Readiness::NoQuorum, alone, "no leader is heard, or this leader has lost its quorum"),
            fail(Readiness::Divided, self.consensus.agreement.is_divided(), DIVIDED),
            lag_failure(lag, lag_max),
            fail(Readiness::DiskLow, self.proposer.space.is_low(), "the disk is low on space: no writes"),
        ];
        Check::NAMES.into_iter().zip(failures).map(|(name, failure)| Check { name, failure }).collect()
    }
}

fn lag_failure(lag: u64, lag_max: u64) -> Option<(Readiness, Cow<'static, str>)> {
    let why = || Cow::Owned(format!("{lag} entries behind, and {lag_max} may be missing"));
    (lag > lag_max).then(|| (Readiness::Lagging, why()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_may_lack_as_many_entries_as_is_said() {
        for (lag, lag_max) in [(0, 0), (10, 10), (9, 10)] {
            assert_eq!(lag_failure(lag, lag_max), None, "{lag} {lag_max}");
        }
        for (lag, lag_max, said) in
            [(1, 0, "1 entries behind, and 0 may be missing"), (11, 10, "11 entries behind, and 10 may be missing")]
        {
            assert_eq!(lag_failure(lag, lag_max), Some((Readiness::Lagging, said.into())));
        }
    }
}
