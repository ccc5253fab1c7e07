//! Programs that the members run, and raising the cluster's format level (version of its entries'
//! format) once all of them know the next one.
//!
//! The leader knows the programs: each node names its program when a connection begins, and every
//! follower has a connection to the leader. Other nodes ask the leader.

use std::sync::Arc;

use tokio::time::{Duration, Instant};
use znode::{Levels, Op, Zxid};

use crate::raft::consensus::Consensus;
use crate::raft::transport::{Answer, Ask, ChannelError, MemberRecord, ProposeAnswer, UpgradeAsk, UpgradeRecord};
use crate::write::propose::Proposer;
use crate::{Error, Program};

/// The program that a member runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberProgram {
    /// The member's id.
    pub id: u64,
    /// Program of the member when it last connected to the leader. `None` if it has not connected,
    /// or if its program does not name itself.
    pub program: Option<Program>,
    /// True if the member follows the leader, or is the leader.
    pub reachable: bool,
}

impl MemberProgram {
    /// Tells whether the member is reachable and its program knows this format level.
    pub fn is_ready_for(&self, level: u16) -> bool {
        self.reachable && self.program.as_ref().is_some_and(|program| program.levels.contains(level))
    }
}

/// Format level of the cluster, and the programs of its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpgradeStatus {
    /// Format level of the cluster.
    pub level: u16,
    /// All members, by id.
    pub members: Vec<MemberProgram>,
}

impl UpgradeStatus {
    /// The highest format level that any member knows.
    fn highest(&self) -> u16 {
        let levels = self.members.iter().filter_map(|member| member.program.as_ref());
        levels.map(|program| program.levels.max).max().unwrap_or(self.level)
    }

    /// The highest format level that all members are ready for; `None` if it is not above the
    /// cluster's.
    pub fn next_level(&self) -> Option<u16> {
        let ready = |level: &u16| self.members.iter().all(|member| member.is_ready_for(*level));
        (self.level + 1..=self.highest()).rev().find(ready)
    }
}

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
        Ok(self.ask(UpgradeAsk::Status, deadline).await?.into())
    }

    /// Raises the cluster's format level: see [`crate::Replica::finalize`].
    pub(crate) async fn finalize(&self, level: Option<u16>, deadline: Instant) -> Result<FinalizeOutcome, Error> {
        let within = deadline.saturating_duration_since(Instant::now());
        let within_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        let record = self.ask(UpgradeAsk::Finalize { level, within_ms }, deadline).await?;
        let (not_ready_for, at) = (record.not_ready_for, Zxid(record.at));
        let status = UpgradeStatus::from(record);
        if let Some(level) = not_ready_for {
            return Ok(FinalizeOutcome::NotReady { level, status });
        }
        // The next requests to this node are answered at the new level.
        if self.proposer.is_applied_here(at, deadline).await {
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
        let status = UpgradeStatus::from(before.clone());
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
            Err(refusal) if after.level < level => Err(Error::Refused(refusal.error)),
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
            let program = program.map(|Program { version, levels }| (version, levels.min, levels.max));
            MemberRecord { id, program, reachable }
        };
        let state = self.proposer.view.state();
        let members = self.members().into_iter().map(member).collect();
        UpgradeRecord { at: state.last_zxid().0, level: state.level(), members, not_ready_for: None }
    }
}

impl From<UpgradeRecord> for UpgradeStatus {
    fn from(record: UpgradeRecord) -> Self {
        let member = |MemberRecord { id, program, reachable }| {
            let program = program.map(|(version, min, max)| Program { version, levels: Levels { min, max } });
            MemberProgram { id, program, reachable }
        };
        UpgradeStatus { level: record.level, members: record.members.into_iter().map(member).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u64, levels: Option<(u16, u16)>, reachable: bool) -> MemberProgram {
        let program = levels.map(|(min, max)| Program { version: "0".into(), levels: Levels { min, max } });
        MemberProgram { id, program, reachable }
    }

    #[test]
    fn the_next_level_is_the_highest_that_all_members_are_ready_for() {
        let next = |members: &[MemberProgram]| UpgradeStatus { level: 2, members: members.to_vec() }.next_level();
        let (new, newer) = (member(1, Some((1, 3)), true), member(2, Some((2, 5)), true));
        assert_eq!(next(&[new.clone(), newer.clone()]), Some(3));
        assert_eq!(next(std::slice::from_ref(&newer)), Some(5));
        for hindrance in [member(3, Some((1, 2)), true), member(3, Some((1, 3)), false), member(3, None, true)] {
            assert_eq!(next(&[new.clone(), newer.clone(), hindrance]), None);
        }
        // This member knows none of the levels between.
        assert_eq!(next(&[newer, member(3, Some((5, 6)), true)]), Some(5));
    }
}
