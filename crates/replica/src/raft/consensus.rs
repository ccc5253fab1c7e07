//! Raft as the rest of the node sees it: who leads, in which term, and whether another node may
//! have been elected already.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use accept::Mutex;
use futures_util::future::join_all;
use openraft::ServerState;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::metrics::{RaftMetrics, RaftServerMetrics};
use openraft::type_config::alias::WatchReceiverOf;
use storage::codec::{LogIdRecord, VoteRecord};
use storage::{StoredMembership, TypeConfig};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use znode::{Term, Zxid};

use crate::local::disk_watch::{DiskWatch, STALLED};
use crate::local::host::Host;
use crate::local::leader_term::Sessions;
use crate::local::leader_watch::LeaderWatch;
use crate::raft::agreement::Agreement;
use crate::raft::known_cluster::KnownCluster;
use crate::raft::peers::{Peer, Peers};
use crate::raft::state_machine::StateMachine;
use crate::raft::transport::{Answer, Ask, ChannelError, Standing, TOUCHES_MAX};
use crate::{Config, Error, PeerMeasures};

/// Timeout of the question to all peers whether they are drained.
const DRAINED_ANSWER_MAX: Duration = Duration::from_millis(250);
/// Largest number of entries that a member may lack to become a voter, or to be the preferred
/// leader.
pub(crate) const LAG_ENTRIES_MAX: u64 = 5_000;

/// Time that a leader waits for the election of its successor.
const HAND_OVER_MAX: Duration = Duration::from_millis(1_000);
/// Longest time in which a leader tells its successor how long sessions have been silent.
const TELL_MAX: Duration = Duration::from_millis(250);

pub(crate) type Raft = openraft::Raft<TypeConfig, StateMachine>;

/// Raft, the peers, and signs of the leader that Raft does not keep.
pub(crate) struct Consensus {
    pub(crate) host: Host,
    pub(crate) node_id: u64,
    /// Configured members, which count as the members as long as the log has no membership.
    configured: Vec<crate::Member>,
    pub(crate) election_timeout_max: Duration,
    /// Time after the last contact with a quorum in which a leader is sure that no other node was
    /// elected.
    sure: Duration,
    /// Timeout of one round trip between peers, after which the peer counts as lost.
    pub(crate) peer_timeout: Duration,
    pub(crate) raft: Raft,
    pub(crate) peers: Peers,
    pub(crate) cluster: Arc<KnownCluster>,
    /// Measurement of how long writes to the log wait for the disk.
    pub(crate) disk_watch: DiskWatch,
    pub(crate) leader_watch: LeaderWatch,
    /// Term in which this node, as the leader, has asked another node to take over; 0 for none. The
    /// other node may lead before this node learns of it.
    hands_over: AtomicU64,
    /// True while new proposals wait, during a transfer of leadership, until the next leader has
    /// every entry.
    pub(crate) holds: watch::Sender<bool>,
    /// Whether this node agrees with the other members about the state.
    pub(crate) agreement: Agreement,
    /// Heartbeats of sessions in the term in which this node leads, and sessions' times without a
    /// heartbeat as the previous leader sent them.
    pub(crate) sessions: Mutex<Sessions>,
    server_metrics: WatchReceiverOf<TypeConfig, RaftServerMetrics<TypeConfig>>,
    raft_metrics: WatchReceiverOf<TypeConfig, RaftMetrics<TypeConfig>>,
}

impl Consensus {
    pub(crate) fn new(
        host: Host,
        config: &Config,
        raft: Raft,
        peers: Peers,
        cluster: Arc<KnownCluster>,
        disk_watch: DiskWatch,
    ) -> Consensus {
        let (server_metrics, raft_metrics) = (raft.server_metrics(), raft.metrics());
        let (leader_watch, hands_over) = (LeaderWatch::new(), AtomicU64::new(0));
        Consensus {
            host,
            node_id: config.node_id,
            configured: config.members.clone(),
            election_timeout_max: Duration::from_millis(config.election_timeout_max_ms),
            sure: Duration::from_millis(config.sure_ms()),
            peer_timeout: config.peer_timeout(),
            raft,
            peers,
            cluster,
            disk_watch,
            leader_watch,
            hands_over,
            holds: watch::Sender::new(false),
            agreement: Agreement::default(),
            sessions: Mutex::default(),
            server_metrics,
            raft_metrics,
        }
    }

    /// Index of the last entry of this node's log, as Raft last published it; `None` for an empty
    /// log.
    pub(crate) fn last_log_index(&self) -> Option<u64> {
        self.raft_metrics.borrow_watched().last_log_index
    }

    /// Tells whether this node has asked another node to take over leadership in this term.
    pub(crate) fn hands_over_in(&self, term: u64) -> bool {
        self.hands_over.load(Ordering::Acquire) == term
    }

    pub(crate) fn zxid(&self, index: u64) -> Zxid {
        self.cluster.zxid(index)
    }

    /// Copy of Raft's metrics. The original blocks Raft while it is looked at.
    pub(crate) fn metrics(&self) -> RaftMetrics<TypeConfig> {
        self.raft_metrics.borrow_watched().clone()
    }

    /// Term in which this node leads; `None` if it does not lead.
    pub(crate) fn leader_term(&self, metrics: &RaftMetrics<TypeConfig>) -> Option<u64> {
        let leads = metrics.state == ServerState::Leader && metrics.vote.committed;
        (leads && metrics.vote.leader_id.voted_for == self.node_id).then_some(metrics.current_term)
    }

    /// Id of the leader, as far as this node knows; it may be this node.
    pub(crate) fn leader(&self) -> Option<u64> {
        let (leader, term) = {
            let metrics = self.server_metrics.borrow_watched();
            (metrics.current_leader, metrics.vote.leader_id.term)
        };
        self.disk_watch.noted_above(term).map(|(leader, _)| leader).or(leader)
    }

    /// Term of this node's vote, as Raft last published it.
    pub(crate) fn voted_term(&self) -> u64 {
        self.server_metrics.borrow_watched().vote.leader_id.term
    }

    /// Channel of Raft's role, leader, vote and membership.
    pub(crate) fn role_changes(&self) -> WatchReceiverOf<TypeConfig, RaftServerMetrics<TypeConfig>> {
        self.server_metrics.clone()
    }

    /// Term in which this node leads, with true if a quorum followed it so lately that no other
    /// leader can have been elected. `None` if this node does not lead. Copies no metrics, because
    /// it is called often.
    pub(crate) fn leading_term(&self) -> Option<(u64, bool)> {
        let (term, membership) = {
            let metrics = self.server_metrics.borrow_watched();
            let vote = &metrics.vote;
            let leads = metrics.state == ServerState::Leader && vote.committed;
            let term = (leads && vote.leader_id.voted_for == self.node_id).then_some(vote.leader_id.term)?;
            (term, Arc::clone(&metrics.membership_config))
        };
        // A leader that was removed from the membership is never sure: Raft may pass its leadership
        // on at any moment, before this node hears of it.
        let is_member = membership.get_node(&self.node_id).is_some();
        let followed = self.peers.followed_since(term, &membership).is_some_and(|since| since.elapsed() < self.sure);
        Some((term, is_member && followed))
    }

    /// Membership in force: the last one in this node's log, committed or not.
    pub(crate) fn membership(&self) -> Arc<StoredMembership> {
        Arc::clone(&self.server_metrics.borrow_watched().membership_config)
    }

    /// The last membership that is known to be committed; see [`Consensus::membership`].
    pub(crate) fn committed_membership(&self) -> Arc<StoredMembership> {
        Arc::clone(&self.server_metrics.borrow_watched().committed_membership_config)
    }

    /// Ids of the voters; during a membership change, the voters after the change. Without a
    /// membership in the log, ids of the configured members.
    pub(crate) fn voters(&self) -> BTreeSet<u64> {
        let membership = self.membership();
        let configured = || self.configured.iter().map(|member| member.id).collect();
        membership.get_joint_config().last().cloned().unwrap_or_else(configured)
    }

    /// Tells whether this node is the only voter.
    pub(crate) fn votes_alone(&self) -> bool {
        let membership = self.membership();
        let alone = membership.get_joint_config().iter().all(|set| set.iter().eq([&self.node_id]));
        alone && !membership.get_joint_config().is_empty()
    }

    /// The members. Without a membership in the log, the configured members.
    pub(crate) fn members(&self) -> Vec<crate::Member> {
        let membership = self.membership();
        if membership.nodes().next().is_none() {
            return self.configured.clone();
        }
        membership.nodes().map(|(id, member)| crate::Member::of(*id, member)).collect()
    }

    /// Waits until a quorum has accepted a frame of this leader of `term` that was sent at `since`
    /// or later.
    pub(crate) async fn followed_again(&self, term: u64, since: Instant) {
        loop {
            let noted = self.peers.noted();
            let followed = self.peers.followed_since(term, &self.membership());
            if self.votes_alone() || followed.is_some_and(|followed| followed >= since) {
                return;
            }
            noted.await;
        }
    }

    /// Number of this leader's entries that a peer lacks, by the peer's last answer; `None` if not
    /// known.
    pub(crate) fn lag(&self, id: u64) -> Option<u64> {
        let metrics = self.raft_metrics.borrow_watched();
        let matched = metrics.replication.as_ref()?.get(&id)?.as_ref()?.index;
        Some(metrics.last_log_index.unwrap_or(0).saturating_sub(matched))
    }

    /// Facts about the connections to the other members, by id.
    pub(crate) fn peer_measures(&self) -> Vec<PeerMeasures> {
        let measures = |(id, peer): (u64, Arc<Peer>)| PeerMeasures {
            id,
            round_trips: Arc::clone(&peer.round_trips),
            lag: self.lag(id),
        };
        self.peers.all().into_iter().map(measures).collect()
    }

    /// Tells whether a peer follows this node as the leader of `term` now.
    pub(crate) fn is_in_contact(&self, id: u64, term: u64) -> bool {
        let peer = self.peers.get(id);
        peer.and_then(|peer| peer.following.since(term))
            .is_some_and(|since| since.elapsed() < self.election_timeout_max)
    }

    /// Voter that is to lead next: of the voters that follow this leader of `term` and lack few
    /// entries, the one with the highest preference, and of equals the one that lacks the fewest
    /// entries. If all lack many, one of those. One of `avoided` only if the others lack many.
    pub(crate) fn successor(&self, term: u64, avoided: &BTreeSet<u64>) -> Option<u64> {
        let membership = self.membership();
        let voters = membership.voter_ids().filter(|id| *id != self.node_id && self.is_in_contact(*id, term));
        let rank = |id: u64| {
            let lag = self.lag(id).unwrap_or(u64::MAX);
            (lag <= LAG_ENTRIES_MAX, !avoided.contains(&id), self.cluster.priority_of(id).unwrap_or(50), Reverse(lag))
        };
        voters.max_by_key(|id| rank(*id))
    }

    /// Asks a member for its progress. `None` if it does not answer in time.
    pub(crate) async fn standing(&self, id: u64) -> Option<Standing> {
        let peer = self.peers.get(id)?;
        match peer.control.ask(Ask::Standing, Instant::now() + self.peer_timeout).await {
            Ok(Answer::Standing(standing)) => Some(standing),
            _ => None,
        }
    }

    /// Waits as long as proposals must wait for a transfer of leadership.
    pub(crate) async fn unheld(&self) {
        if *self.holds.borrow() {
            // The sender lives as long as `self`.
            let _ = self.holds.subscribe().wait_for(|held| !held).await;
        }
    }

    /// Peers that answer that an operator has drained them.
    pub(crate) async fn drained_peers(&self) -> BTreeSet<u64> {
        let standings = self.peers.standings(Instant::now() + DRAINED_ANSWER_MAX).await;
        standings.into_iter().filter(|(_, standing)| standing.drained).map(|(id, _)| id).collect()
    }

    /// Hands leadership over to the [successor](Self::successor), and waits a short time for its
    /// election. Does nothing if no voter follows this node.
    pub(crate) async fn give_leadership_away(self: &Arc<Self>, avoided: &BTreeSet<u64>) {
        let Some(term) = self.leader_term(&self.metrics()) else { return };
        if !self.hands_over_in(term) {
            let Some(successor) = self.successor(term, avoided) else { return };
            tracing::info!(term, successor, "handing leadership over");
            if !self.hand_over_to(successor, term).await {
                return;
            }
        }
        let mut changes = self.role_changes();
        let elected =
            async { while changes.borrow_watched().vote.leader_id.term == term && changes.changed().await.is_ok() {} };
        let _ = timeout(HAND_OVER_MAX, elected).await;
    }

    /// Asks a member to take over from this leader of `term`. Returns true if Raft has begun the
    /// transfer. Goes on when the caller no longer waits, because a leader that stopped halfway
    /// would accept no heartbeats any more.
    pub(crate) async fn hand_over_to(self: &Arc<Self>, successor: u64, term: u64) -> bool {
        // Set before the successor can lead. Once it leads, it counts the time since each session's
        // last heartbeat, and this node must acknowledge no heartbeat.
        self.hands_over.store(term, Ordering::Release);
        let consensus = Arc::clone(self);
        let begun = tokio::spawn(async move {
            consensus.tell_ages(successor, term).await;
            consensus.raft.trigger().transfer_leader(successor).await.is_ok()
        });
        begun.await.unwrap_or(false)
    }

    /// Tells the successor how long each session has been silent. If that fails, or if the
    /// successor's program does not know the message, sessions have their whole timeout again.
    async fn tell_ages(&self, successor: u64, term: u64) {
        let Some(peer) = self.peers.get(successor) else { return };
        let ages = self.sessions.lock().ages(Term(term));
        let deadline = Instant::now() + TELL_MAX;
        let asks =
            ages.chunks(TOUCHES_MAX).map(|ages| peer.forward.ask(Ask::Ages { term, ages: ages.into() }, deadline));
        let answers = join_all(asks).await;
        let untold = answers.iter().filter(|answer| !matches!(answer, Ok(Answer::Pong))).count();
        if untold > 0 {
            tracing::info!(successor, term, "sessions have their whole timeout again: their age was not taken");
        }
    }

    /// The leader, if this node heard it lately, or is the leader and was followed lately. `None`
    /// otherwise: the outcome of a proposal to a leader without contact would be unknown, so it is
    /// better not sent.
    pub(crate) fn heard_leader(&self) -> Option<u64> {
        self.leader().filter(|leader| match *leader == self.node_id {
            true => !self.is_out_of_touch(),
            false => self.hears_leader(),
        })
    }

    /// Tells whether this node heard a leader lately. Raft itself goes on naming the last leader
    /// that this node followed.
    pub(crate) fn hears_leader(&self) -> bool {
        let disconnected_after = self.disconnected_after();
        self.leader_watch.signs().heard.is_some_and(|heard| heard.elapsed() < disconnected_after)
    }

    /// Tells whether this node has neither heard a leader nor been followed by a quorum, for longer
    /// than an election takes. Then a request that needs a leader fails at once.
    pub(crate) fn is_out_of_touch(&self) -> bool {
        let followed = self.peers.followed_last(&self.membership());
        let last = self.leader_watch.signs().heard.max(followed).unwrap_or(self.leader_watch.since);
        last.max(self.leader_watch.since).elapsed() >= self.disconnected_after()
    }

    /// Tells whether this node learns of changes: it leads or hears a leader, its disk answers, and
    /// the members' states are not known to differ without a majority that agrees. A leader whose
    /// disk stalls learns of changes as long as the other nodes commit its entries.
    pub(crate) fn serves(&self) -> bool {
        self.heard_leader().is_some() && self.with_a_disk().is_ok() && !self.agreement.is_divided()
    }

    /// Time without contact after which a node counts as disconnected.
    pub(crate) fn disconnected_after(&self) -> Duration {
        2 * self.election_timeout_max
    }

    pub(crate) fn committed(&self, metrics: &RaftMetrics<TypeConfig>) -> Zxid {
        metrics.cluster_committed.or(metrics.local_committed).map_or(Zxid(0), |id| self.zxid(id.index))
    }

    /// Index of the last entry of this leader's log, and of its last committed entry; `None` if
    /// this node does not lead.
    pub(crate) fn own_log(&self) -> Option<(u64, u64)> {
        let metrics = self.raft_metrics.borrow_watched();
        self.leader_term(&metrics)?;
        Some((metrics.last_log_index?, metrics.cluster_committed.map_or(0, |id| id.index)))
    }

    /// Tells whether this leader may serve without its disk: the other nodes commit its proposals,
    /// and none of them was asked to take over.
    fn leads_without_its_disk(&self) -> bool {
        self.disk_watch.commits() && self.leading_term().is_some_and(|(term, _)| !self.hands_over_in(term))
    }

    /// Fails with `Unavailable` while the disk does not answer, for a request that needs the disk.
    /// Its outcome would be unknown otherwise.
    pub(crate) fn with_a_disk(&self) -> Result<(), Error> {
        if self.disk_watch.stalls() && !self.leads_without_its_disk() {
            return Err(Error::Unavailable { reason: STALLED.into(), retry_after_ms: 1_000 });
        }
        Ok(())
    }

    /// Sends a question to the leader. Returns the leader's answer, or the reason why there is
    /// none.
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

    /// Vote of this node, and `None` in place of its last entry: the answer to a candidate that
    /// gets no vote.
    pub(crate) fn own_vote(&self) -> (VoteRecord, Option<LogIdRecord>) {
        ((&self.metrics().vote).into(), None)
    }

    pub(crate) fn is_initialized(&self) -> bool {
        self.metrics().last_log_index.is_some()
    }
}
