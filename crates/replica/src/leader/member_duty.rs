//! Work of a leader that completes changes of the membership, one step after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use openraft::ChangeMembers;
use storage::{Member, StoredMembership};
use tokio::time::{Instant, MissedTickBehavior, interval};
use znode::Term;

use crate::Config;
use crate::leader::member_steps::{LeaderSight, Step, mark, next_step};
use crate::leader::members::Members;
use crate::leader::orders::OrderError;
use crate::leader::transfer::Transfer;
use crate::raft::consensus::{Consensus, LAG_ENTRIES_MAX};
use crate::raft::transport::Standing;

/// Shortest time between two transfers of leadership to voters with a higher preference.
const REBALANCE: Duration = Duration::from_secs(60);

/// Carries out changes of the membership, step by step, while this node leads.
pub(crate) struct MemberDuty {
    pub(crate) config: Arc<Config>,
    pub(crate) members: Arc<Members>,
    pub(crate) transfer: Arc<Transfer>,
}

/// Facts that the leader keeps from one check of the members to the next.
struct Watch {
    term: u64,
    /// Learners that are nearly up to date (lack at most [`LAG_ENTRIES_MAX`] entries), each with
    /// the time since which that is so.
    in_step: BTreeMap<u64, Instant>,
    /// Time since which a voter has a higher preference as leader than this leader; `None` if none
    /// has.
    outranked: Option<Instant>,
    rebalanced: Option<Instant>,
}

impl MemberDuty {
    fn consensus(&self) -> &Consensus {
        &self.members.consensus
    }

    /// Completes changes of the members, step by step, until the node stops. Does nothing while
    /// another node leads.
    pub(crate) async fn fulfil(self) {
        let mut tick = interval(Duration::from_millis(self.config.tick_ms * 2));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut watch = Watch { term: 0, in_step: BTreeMap::new(), outranked: None, rebalanced: None };
        loop {
            tick.tick().await;
            self.look(&mut watch).await;
        }
    }

    /// Term in which this node leads and no other node can have been elected, once its own first
    /// entry is applied; otherwise `None`.
    fn term(&self) -> Option<u64> {
        let (term, followed) = self.consensus().leading_term()?;
        let settled = self.members.proposer.view.state().last_term() == Term(term);
        (followed && settled && !self.consensus().hands_over_in(term)).then_some(term)
    }

    async fn look(&self, watch: &mut Watch) {
        let Some(term) = self.term() else { return };
        if watch.term != term {
            *watch = Watch { term, in_step: BTreeMap::new(), outranked: None, rebalanced: watch.rebalanced };
        }
        let membership = self.consensus().membership();
        self.look_at_learners(&membership, watch).await;
        let stable = Duration::from_millis(self.config.promote_after_ms);
        let in_step = |id| watch.in_step.get(&id).is_some_and(|since| since.elapsed() >= stable);
        let voting = self.voting(&membership, term).await;
        let step = self.members.with_sight(term, &in_step, |sight| {
            // A voter that has just lost its disk is still in contact for a moment, and later it
            // acknowledges entries before it has its vote.
            let votes = |id| voting.as_ref().is_none_or(|voting| voting.contains(&id));
            let takes_part = |id| (sight.in_contact)(id) && votes(id);
            next_step(&membership, &LeaderSight { in_contact: &takes_part, ..*sight })
        });
        if let Some(step) = step {
            match self.carry_out(step, &membership, term).await {
                Ok(()) => tracing::info!(?step, term, "a change of the members goes on"),
                Err(error) => tracing::debug!(?step, term, %error, "a change of the members waits"),
            }
            return;
        }
        self.rebalance(&membership, watch, term).await;
    }

    /// Notes which learners are nearly up to date.
    async fn look_at_learners(&self, membership: &StoredMembership, watch: &mut Watch) {
        let voters: BTreeSet<u64> = membership.voter_ids().collect();
        let learners: Vec<u64> = membership.nodes().map(|(id, _)| *id).filter(|id| !voters.contains(id)).collect();
        watch.in_step.retain(|id, _| learners.contains(id));
        for id in learners {
            let near = self.members.lag(id).is_some_and(|lag| lag <= LAG_ENTRIES_MAX);
            let joined = near
                && self.members.in_contact(id, watch.term)
                && self.standing(id).await.is_some_and(|standing| standing.joined);
            if joined {
                watch.in_step.entry(id).or_insert_with(Instant::now);
            } else {
                watch.in_step.remove(&id);
            }
        }
    }

    /// Members in contact that answer that they have caught up and may vote. `None` without a
    /// question to them if no member is being removed or replaced.
    async fn voting(&self, membership: &StoredMembership, term: u64) -> Option<BTreeSet<u64>> {
        let leaves =
            |member: &Member| [mark::REMOVING, mark::REPLACES].iter().any(|mark| member.extra.contains_key(*mark));
        membership.nodes().find(|(_, member)| leaves(member))?;
        let others = membership.nodes().map(|(id, _)| *id).filter(|id| self.members.in_contact(*id, term));
        let asked = join_all(others.map(|id| async move { (id, self.standing(id).await) })).await;
        let may_vote = |(id, standing): (u64, Option<Standing>)| standing.is_some_and(|it| it.joined).then_some(id);
        Some(asked.into_iter().filter_map(may_vote).collect())
    }

    /// Progress of a member's log and term, as the member answers; `None` without an answer in
    /// time.
    pub(crate) async fn standing(&self, id: u64) -> Option<Standing> {
        self.consensus().standing(id).await
    }

    async fn carry_out(&self, step: Step, membership: &StoredMembership, term: u64) -> Result<(), OrderError> {
        match step {
            Step::LeaveJoint => self.members.change(ChangeMembers::AddVoterIds(BTreeSet::new()), membership).await,
            Step::Promote { id } => self.members.append(membership, |voters| voters.insert(id)).await,
            Step::Demote { id } => self.members.append(membership, |voters| voters.remove(&id)).await,
            Step::Replace { old, new } => {
                let add = ChangeMembers::AddVoterIds(BTreeSet::from([new]));
                let remove = ChangeMembers::RemoveVoters(BTreeSet::from([old]));
                self.members.change(ChangeMembers::Batch(vec![add, remove]), membership).await
            }
            Step::MarkReplaced { old, new } => {
                let mut nodes = BTreeMap::new();
                for id in [old, new] {
                    nodes.extend(membership.get_node(&id).map(|member| (id, member.clone())));
                }
                for (id, member) in &mut nodes {
                    if *id == old {
                        member.extra.insert(mark::REMOVING.to_owned(), mark::FORCED.to_vec());
                    } else {
                        member.extra.remove(mark::REPLACES);
                    }
                }
                self.members.change(ChangeMembers::SetNodes(nodes), membership).await
            }
            Step::PassLeadership => self.transfer.transfer(None, term).await.map(drop),
            Step::NoteRemoved { id } => self.members.note_removed(id).await,
            Step::Drop { id } => {
                self.members.change(ChangeMembers::RemoveNodes(BTreeSet::from([id])), membership).await
            }
        }
    }

    /// Hands leadership over to the voter with the highest preference that is not drained, once a
    /// voter that is nearly up to date has had a higher preference than this leader for
    /// `promote_after_ms`.
    async fn rebalance(&self, membership: &StoredMembership, watch: &mut Watch, term: u64) {
        let consensus = self.consensus();
        let own = self.config.leader_priority;
        let ranks = membership.voter_ids().filter(|id| *id != consensus.node_id);
        let ranks = ranks.filter(|id| self.members.in_contact(*id, term)).filter_map(|id| {
            let near = self.members.lag(id).is_some_and(|lag| lag <= LAG_ENTRIES_MAX);
            consensus.cluster.priority_of(id).filter(|priority| near && *priority > own).map(|priority| (priority, id))
        });
        let mut ranks: Vec<(u8, u64)> = ranks.collect();
        if ranks.is_empty() {
            watch.outranked = None;
            return;
        }
        let since = *watch.outranked.get_or_insert_with(Instant::now);
        let stable = Duration::from_millis(self.config.promote_after_ms);
        if since.elapsed() < stable || watch.rebalanced.is_some_and(|at| at.elapsed() < REBALANCE) {
            return;
        }
        ranks.sort_unstable();
        for (priority, to) in ranks.into_iter().rev() {
            if self.standing(to).await.is_some_and(|standing| standing.joined && !standing.drained) {
                watch.rebalanced = Some(Instant::now());
                tracing::info!(to, priority, own_priority = own, "a voter is preferred to this leader");
                if let Err(error) = self.transfer.transfer(Some(to), term).await {
                    tracing::warn!(to, %error, "leadership was not transferred");
                }
                return;
            }
        }
    }
}
