//! Programs that the members run, and raising the cluster's format level (version of its entries'
//! format) once all of them know the next one.
//!
//! The leader knows the programs: each node names its program when a connection begins, and every
//! follower has a connection to the leader. Other nodes ask the leader.

use std::sync::Arc;

use tokio::time::{Duration, Instant};
use znode::{Op, Zxid};

use crate::raft::consensus::Consensus;
use crate::raft::transport::{Answer, Ask, ChannelError, ProposeAnswer, UpgradeAsk, UpgradeRecord};
use crate::write::propose::Proposer;
use crate::{Error, MemberProgram, UpgradeStatus};

/// Result of raising the cluster's format level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FinalizeOutcome {
    /// The cluster is at the format level that was asked for.
    Done(UpgradeStatus),
    /// The format level was not raised, because not all members are reachable and know it.
    NotReady {
        /// Format level that was asked for.
        level: u16,
        /// Versions of the programs that the members run, and the levels that these know.
        status: UpgradeStatus,
    },
}

/// Reports and raises the cluster's format level: see [`crate::Replica::upgrade`] and
/// [`crate::Replica::finalize`].
pub(crate) struct Upgrade {
    pub(crate) consensus: Arc<Consensus>,
    pub(crate) proposer: Arc<Proposer>,
}

impl Upgrade {
    /// Asks the leader which programs the members run.
    pub(crate) async fn status(&self, deadline: Instant) -> Result<UpgradeStatus, Error> {
        Ok(self.ask(UpgradeAsk::Status, deadline).await?.status)
    }

    /// Raises the cluster's format level: see [`crate::Replica::finalize`].
    pub(crate) async fn finalize(&self, level: Option<u16>, deadline: Instant) -> Result<FinalizeOutcome, Error> {
        let within = deadline.saturating_duration_since(Instant::now());
        let within_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        let UpgradeRecord { at, status, not_ready_for } =
            self.ask(UpgradeAsk::Finalize { level, within_ms }, deadline).await?;
        if let Some(level) = not_ready_for {
            return Ok(FinalizeOutcome::NotReady { level, status });
        }
        // The next requests to this node are answered at the new level.
        if self.proposer.is_applied_here(Zxid(at), deadline).await {
            return Ok(FinalizeOutcome::Done(status));
        }
        Err(Error::unknown("the level is raised, but this node has not caught up with it in time"))
    }

    /// Sends a question about the upgrade to the leader. Answers it here if this node leads.
    async fn ask(&self, ask: UpgradeAsk, deadline: Instant) -> Result<UpgradeRecord, Error> {
        if let Some(end) = self.proposer.life.end() {
            return Err(Error::unavailable(end));
        }
        let leader = self.consensus.heard_leader().ok_or_else(|| Error::unavailable("no leader is heard"))?;
        if leader == self.consensus.node_id {
            return self.answer(ask, deadline).await;
        }
        let peer = self.consensus.peers.get(leader);
        let peer = peer.ok_or_else(|| Error::unavailable(format!("the leader, node {leader}, is not known here")))?;
        match peer.forward.ask(Ask::Upgrade(ask), deadline).await {
            Ok(Answer::Upgrade(record)) => Ok(record),
            Ok(Answer::Propose(ProposeAnswer::Unavailable { reason, retry_after_ms })) => {
                Err(Error::Unavailable { reason, retry_after_ms })
            }
            Ok(Answer::Propose(ProposeAnswer::Refused(error))) => Err(Error::Refused(error)),
            Ok(Answer::NotLeader(_)) => Err(Error::unavailable(format!("node {leader} does not lead any more"))),
            Ok(Answer::Refused(reason)) | Err(ChannelError::NotSent(reason)) => Err(Error::unavailable(reason)),
            Ok(Answer::Propose(ProposeAnswer::Unknown(reason))) | Err(ChannelError::Lost(reason)) => match ask {
                UpgradeAsk::Status => Err(Error::unavailable(reason)),
                UpgradeAsk::Finalize { .. } => Err(Error::unknown(reason)),
            },
            Ok(other) => Err(Error::unknown(format!("the leader answered something else: {other:?}"))),
        }
    }

    /// Answers a peer's question about the upgrade, if this node leads.
    pub(crate) async fn answer_peer(&self, ask: UpgradeAsk) -> Answer {
        let within_ms = match ask {
            UpgradeAsk::Status => 0,
            UpgradeAsk::Finalize { within_ms, .. } => within_ms,
        };
        if self.consensus.leader() != Some(self.consensus.node_id) {
            return Answer::NotLeader(self.consensus.leader());
        }
        match self.answer(ask, Instant::now() + Duration::from_millis(within_ms)).await {
            Ok(record) => Answer::Upgrade(record),
            Err(error) => Answer::Propose(error.into()),
        }
    }

    async fn answer(&self, ask: UpgradeAsk, deadline: Instant) -> Result<UpgradeRecord, Error> {
        let Some((term, true)) = self.consensus.leading_term() else {
            return Err(Error::unavailable("the leader has no quorum"));
        };
        let before = self.record(term);
        let UpgradeAsk::Finalize { level, .. } = ask else { return Ok(before) };
        let status = &before.status;
        let level = level.unwrap_or_else(|| status.highest().max(status.level));
        if level == status.level {
            return Ok(before);
        }
        if level < status.level {
            return Err(Error::Refused(znode::Error::BadArguments));
        }
        if !status.members.iter().all(|member| member.is_ready_for(level)) {
            return Ok(UpgradeRecord { not_ready_for: Some(level), ..before });
        }
        let (at, applied) = self.proposer.propose_own(Op::SetLevel { level }, deadline).await?;
        let after = self.record(term);
        match applied.reply {
            // Another call may have raised the level meanwhile.
            Err(refusal) if after.status.level < level => Err(Error::Refused(refusal.error)),
            reply => {
                if reply.is_ok() {
                    tracing::info!(level, zxid = at.0, "the upgrade is finalised: the cluster is at a new level");
                }
                Ok(UpgradeRecord { at: at.0, ..after })
            }
        }
    }

    /// Ids of all members, voters or not: every node that gets entries must be able to decode them.
    fn members(&self) -> Vec<u64> {
        let mut members: Vec<u64> = self.consensus.members().into_iter().map(|member| member.id).collect();
        members.sort_unstable();
        members
    }

    fn record(&self, term: u64) -> UpgradeRecord {
        let own = self.consensus.node_id;
        let recent = self.consensus.disconnected_after();
        let member = |id: u64| {
            let (program, reachable) = if id == own {
                (Some(self.consensus.cluster.program().clone()), true)
            } else {
                let since = self.consensus.peers.get(id).and_then(|peer| peer.following.since(term));
                (self.consensus.cluster.program_of(id), since.is_some_and(|since| since.elapsed() < recent))
            };
            MemberProgram { id, program, reachable }
        };
        let state = self.proposer.view.state();
        let members = self.members().into_iter().map(member).collect();
        let status = UpgradeStatus { level: state.level(), members };
        UpgradeRecord { at: state.last_zxid().0, status, not_ready_for: None }
    }
}
