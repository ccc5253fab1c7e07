//! How a node with a new data directory comes to have a vote.
//!
//! A new directory means one of two things, and the node cannot tell them apart by itself: the
//! cluster is new, or this node's disk was lost. In the second case it may have voted in the
//! current term and acknowledged entries that it no longer has. So it takes part in nothing before
//! it knows better:
//!
//! - When all members answer and none of them has an entry beyond the first membership, the cluster
//!   is new. It founds the cluster with the configured members; that every founder does so makes no
//!   difference. A majority would not do: one of it may be a lost disk and the other a node that
//!   has nothing yet, while the third, who does not answer, has everything.
//! - Else it asks until a majority of all members, not counting itself, has answered with their
//!   terms. Whatever it promised before, one of these knows the term. It takes entries from leaders
//!   of the highest of these terms on, and none from older ones, and has no vote and stands for no
//!   election until it has applied what such a leader's log held when it answered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use storage::NodeMeta;
use tokio::time::{Instant, sleep};
use znode::Zxid;

use crate::follower::vote_gate::VoteGate;
use crate::raft::consensus::Consensus;
use crate::raft::transport::Standing;
use crate::read::view::View;
use crate::stop::Stop;

/// Between two rounds of questions.
const PAUSE: Duration = Duration::from_millis(100);

/// What the answers of the other members come to.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// Too few answers to tell.
    Ask,
    /// The cluster is new.
    Found,
    /// The cluster is there, and no promise of this node was made in a later term than this.
    Join { floor: u64 },
}

/// `answers` of other members; `fresh`: this node has nothing.
fn judge(members: usize, fresh: bool, answers: &[Standing]) -> Verdict {
    let majority = members / 2 + 1;
    if fresh && answers.iter().all(|answer| answer.fresh) {
        // All of them, not a majority: one that does not answer may be the only one left that knows
        // of a cluster.
        return if answers.len() + 1 >= members { Verdict::Found } else { Verdict::Ask };
    }
    let sure = answers.iter().filter(|answer| answer.joined);
    if sure.clone().count() < majority {
        return Verdict::Ask;
    }
    Verdict::Join { floor: sure.map(|answer| answer.term).max().unwrap_or(0) }
}

/// Runs until the node has joined and is initialised, or stops.
pub(crate) async fn form(bootstrap: Arc<Bootstrap>, stopped: Stop) {
    tokio::select! {
        biased;
        () = stopped.wait() => {}
        () = bootstrap.join() => {}
    }
}

/// Brings this node into the ensemble.
pub(crate) struct Bootstrap {
    pub(crate) consensus: Arc<Consensus>,
    pub(crate) view: Arc<View>,
    pub(crate) gate: Arc<VoteGate>,
    pub(crate) meta: NodeMeta,
}

impl Bootstrap {
    async fn join(&self) {
        let mut catch_up: Option<u64> = None;
        let mut told: Option<String> = None;
        while !(self.gate.joined() && self.consensus.is_initialized()) {
            let answers = self.consensus.peers.standings(Instant::now() + self.consensus.peer_timeout()).await;
            let missing = self.missing(&answers);
            let answers: Vec<Standing> = answers.into_iter().map(|(_, standing)| standing).collect();
            let verdict = judge(self.consensus.config.members.len(), self.standing().fresh, &answers);
            match verdict {
                Verdict::Found => self.found().await,
                Verdict::Join { .. } if self.gate.joined() => {}
                Verdict::Join { floor } => {
                    if self.gate.admit_from(floor) {
                        tracing::info!(floor, "new data directory in a cluster that exists: catching up before voting");
                    }
                    let leader = answers.iter().find(|answer| answer.leads && answer.term >= floor);
                    catch_up = catch_up.or(leader.map(|leader| leader.last_log));
                }
                // Once for each change of who is there.
                Verdict::Ask if told.as_ref() != Some(&missing) => {
                    tracing::info!(missing, "waiting for other members to found the cluster or to join it");
                    told = Some(missing);
                }
                Verdict::Ask => {}
            }
            if let Some(index) = catch_up.filter(|_| !self.gate.joined()) {
                let _ = self.view.applied_at_least(self.consensus.zxid(index), Instant::now() + PAUSE).await;
                // Zxids may have got their base meanwhile: what is compared must be read in this
                // order.
                let applied = self.view.applied();
                if applied >= self.consensus.zxid(index) && applied > Zxid(0) {
                    self.set_joined().await;
                }
            }
            sleep(PAUSE).await;
        }
    }

    /// The ids of the other members that did not answer.
    fn missing(&self, answers: &[(u64, Standing)]) -> String {
        let silent = self
            .consensus
            .peers
            .all()
            .map(|(id, _)| id)
            .filter(|id| answers.iter().all(|(answered, _)| answered != id));
        silent.map(|id| id.to_string()).collect::<Vec<_>>().join(",")
    }

    async fn found(&self) {
        if !self.set_joined().await {
            return;
        }
        let members: BTreeMap<u64, storage::Member> =
            self.consensus.config.members.iter().map(|m| (m.id, m.into())).collect();
        match self.consensus.raft.initialize(members).await {
            Ok(()) => tracing::info!("cluster founded"),
            // A leader was faster than this node's own founding.
            Err(error) => tracing::debug!(%error, "not initialised"),
        }
    }

    async fn set_joined(&self) -> bool {
        let meta = self.meta.clone();
        if let Err(error) = self.consensus.host.blocking(move || meta.set_joined()).await {
            tracing::error!(%error, "joining could not be made durable");
            return false;
        }
        if self.gate.join() {
            self.consensus.leader_watch.look_again();
            tracing::info!("this node has a vote now");
        }
        true
    }

    /// How far this node is, for those who found or join.
    pub(crate) fn standing(&self) -> Standing {
        let metrics = self.consensus.metrics();
        Standing {
            // A node that has lost its state knows that there is a cluster: it must never found
            // another.
            fresh: metrics.last_log_index.is_none_or(|index| index == 0)
                && metrics.snapshot.is_none()
                && !self.meta.rejoining(),
            joined: self.gate.joined(),
            term: metrics.current_term,
            leads: self.consensus.leader_term(&metrics).is_some(),
            last_log: metrics.last_log_index.unwrap_or(0),
            steady: self.consensus.disk_watch.is_steady(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRESH: Standing = Standing { fresh: true, joined: false, term: 0, leads: false, last_log: 0, steady: true };

    fn formed(term: u64) -> Standing {
        Standing { fresh: false, joined: true, term, leads: false, last_log: 10, steady: true }
    }

    #[track_caller]
    fn check(members: usize, answers: &[Standing], expected: Verdict) {
        assert_eq!(judge(members, true, answers), expected, "{members} {answers:?}");
    }

    #[test]
    fn a_new_node_founds_only_when_all_members_answer_and_have_nothing() {
        check(1, &[], Verdict::Found);
        check(3, &[], Verdict::Ask);
        check(3, &[FRESH, FRESH], Verdict::Found);
        check(5, &[FRESH, FRESH], Verdict::Ask);
        check(5, &[FRESH; 4], Verdict::Found);
        // A founder that ended before its first entry, and one that has heard of the founding only.
        let begun = Standing { joined: true, term: 1, ..FRESH };
        check(3, &[FRESH, begun], Verdict::Found);
    }

    #[test]
    fn a_lost_disk_and_a_member_without_entries_found_nothing_while_the_third_is_away() {
        // Simulation seed 20672 of an early version: the third had everything, and it was lost.
        let begun = Standing { joined: true, term: 1, ..FRESH };
        check(3, &[FRESH], Verdict::Ask);
        check(3, &[begun], Verdict::Ask);
        assert_eq!(judge(3, true, &[formed(2)]), Verdict::Ask);
    }

    #[test]
    fn a_wiped_node_never_founds_and_waits_for_a_majority_of_the_others() {
        check(3, &[formed(4)], Verdict::Ask);
        check(3, &[formed(4), FRESH], Verdict::Ask);
        check(3, &[formed(4), formed(7)], Verdict::Join { floor: 7 });
        check(5, &[formed(4), formed(7), FRESH, FRESH], Verdict::Ask);
        check(5, &[formed(4), formed(7), formed(5), FRESH], Verdict::Join { floor: 7 });
        // Another wiped node knows nothing that counts.
        let wiped = Standing { joined: false, ..formed(9) };
        check(3, &[formed(4), wiped], Verdict::Ask);
        // This node has begun to catch up: it is not fresh any more, and neither is the cluster.
        assert_eq!(judge(3, false, &[FRESH, FRESH]), Verdict::Ask);
    }
}
