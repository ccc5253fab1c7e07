//! Raft as the rest of the node sees it: who leads, in which term, and whether that is sure.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use openraft::ServerState;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::metrics::{RaftMetrics, RaftServerMetrics};
use openraft::type_config::alias::WatchReceiverOf;
use storage::TypeConfig;
use storage::codec::{LogIdRecord, VoteRecord};
use tokio::time::Instant;
use znode::Zxid;

use crate::follower::leader_watch::LeaderWatch;
use crate::host::Host;
use crate::operate::disk_watch::{DiskWatch, STALLED};
use crate::raft::known_cluster::KnownCluster;
use crate::raft::network::Peers;
use crate::raft::state_machine::StateMachine;
use crate::raft::transport::{Answer, Ask, ChannelError};
use crate::{Config, Error};

pub(crate) type Raft = openraft::Raft<TypeConfig, StateMachine>;

/// Raft, and what this node knows beside it of its leader.
pub(crate) struct Consensus {
    pub(crate) host: Host,
    pub(crate) config: Arc<Config>,
    pub(crate) raft: Raft,
    pub(crate) peers: Peers,
    pub(crate) cluster: Arc<KnownCluster>,
    /// How long the log has waited for the disk.
    pub(crate) disk_watch: DiskWatch,
    pub(crate) leader_watch: LeaderWatch,
    /// In this term this node has asked another to take over, and may be the last to hear that it
    /// did; 0: in none.
    hands_over: AtomicU64,
    server_metrics: WatchReceiverOf<TypeConfig, RaftServerMetrics<TypeConfig>>,
    raft_metrics: WatchReceiverOf<TypeConfig, RaftMetrics<TypeConfig>>,
}

impl Consensus {
    pub(crate) fn new(
        host: Host,
        config: Arc<Config>,
        raft: Raft,
        peers: Peers,
        cluster: Arc<KnownCluster>,
        disk_watch: DiskWatch,
    ) -> Consensus {
        let (server_metrics, raft_metrics) = (raft.server_metrics(), raft.metrics());
        let (leader_watch, hands_over) = (LeaderWatch::default(), AtomicU64::new(0));
        Consensus {
            host,
            config,
            raft,
            peers,
            cluster,
            disk_watch,
            leader_watch,
            hands_over,
            server_metrics,
            raft_metrics,
        }
    }

    /// How long a peer that owes an answer may say nothing.
    pub(crate) fn peer_timeout(&self) -> Duration {
        self.config.peer_timeout()
    }

    /// The last entry of this node's log, as far as Raft has published it.
    pub(crate) fn last_log_index(&self) -> Option<u64> {
        self.raft_metrics.borrow_watched().last_log_index
    }

    /// Whether this node has asked another to take over in this term.
    pub(crate) fn hands_over_in(&self, term: u64) -> bool {
        self.hands_over.load(Ordering::Acquire) == term
    }

    pub(crate) fn zxid(&self, index: u64) -> Zxid {
        self.cluster.zxid(index)
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
    pub(crate) fn leading_term(&self) -> Option<(u64, bool)> {
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

    /// Asks a member to take over from this leader of `term`. True when Raft has taken it on.
    pub(crate) async fn hand_over_to(&self, successor: u64, term: u64) -> bool {
        // Before the successor can lead: from then on it gives sessions their time.
        self.hands_over.store(term, Ordering::Release);
        self.raft.trigger().transfer_leader(successor).await.is_ok()
    }

    /// Who leads, if it is this node or was heard lately. Asking a leader who has fallen silent
    /// would only turn "nothing was done" into "it is not known".
    pub(crate) fn heard_leader(&self) -> Option<u64> {
        self.leader().filter(|leader| *leader == self.config.node_id || self.hears_leader())
    }

    /// Whether a leader was heard lately. Raft by itself keeps naming the last one that this node
    /// followed.
    pub(crate) fn hears_leader(&self) -> bool {
        let disconnected_after = self.disconnected_after();
        self.leader_watch.seen().heard.is_some_and(|heard| heard.elapsed() < disconnected_after)
    }

    /// Who says nothing for so long is not connected.
    pub(crate) fn disconnected_after(&self) -> Duration {
        Duration::from_millis(2 * self.config.election_timeout_max_ms)
    }

    pub(crate) fn committed(&self, metrics: &RaftMetrics<TypeConfig>) -> Zxid {
        metrics.cluster_committed.or(metrics.local_committed).map_or(Zxid(0), |id| self.zxid(id.index))
    }

    /// Refuses when the disk does not answer: what needs it would come to nothing, or to an unclear
    /// end.
    pub(crate) fn with_a_disk(&self) -> Result<(), Error> {
        if self.disk_watch.stalls() {
            return Err(Error::Unavailable { reason: STALLED.into(), retry_after_ms: 1_000 });
        }
        Ok(())
    }

    /// Asks the leader. The answer is the leader's own, or why there is none.
    pub(crate) async fn ask_leader(&self, ask: Ask, within: Duration) -> Result<Answer, String> {
        let leader = self.heard_leader().ok_or("no leader is heard")?;
        let peer = self.peers.get(leader).ok_or("the leader is this node by now, or unknown")?;
        match peer.forward.ask(ask, Instant::now() + within).await {
            Ok(Answer::NotLeader(_)) => Err(format!("node {leader} does not lead any more")),
            Ok(Answer::Refused(reason)) => Err(reason),
            Ok(answer) => Ok(answer),
            Err(ChannelError::NotSent(reason) | ChannelError::Lost(reason)) => Err(reason),
        }
    }

    /// This node's vote and its last entry, for candidates that it cannot vote for.
    pub(crate) fn own_vote(&self) -> (VoteRecord, Option<LogIdRecord>) {
        ((&self.metrics().vote).into(), None)
    }

    pub(crate) fn is_initialized(&self) -> bool {
        self.metrics().last_log_index.is_some()
    }
}
