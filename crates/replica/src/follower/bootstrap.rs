//! Steps by which a node with a new data directory gets a vote.
//!
//! A new directory means that the cluster is new, or that this node's disk was lost. The node
//! cannot tell these cases apart by itself. If its disk was lost, it may have voted in the current
//! term and acknowledged entries that it no longer has. So it takes part in nothing at first:
//!
//! - When all configured members answer and none has an entry beyond the first membership, the
//!   cluster is new. The node founds it with the configured members; every founder does the same,
//!   which does no harm. Answers of a majority would not be enough: one may come from a lost disk
//!   and one from a node that has nothing yet, while the third node, which does not answer, has
//!   everything. All lists of configured members must be equal: otherwise two parts of the members
//!   could found two clusters. A node that is told to join never founds a cluster.
//! - Otherwise there is a cluster, and its members are in its log; the configuration only names the
//!   nodes to ask first. The node takes the newest membership that a node with a vote reports, and
//!   also asks the members in it. It asks until a majority of each set of voters, not counting
//!   itself, has answered with its term. If the node voted or acknowledged entries before it lost
//!   its disk, one of these voters knows the term in which it did so, and one knows any newer
//!   membership in which this node had a part. The node takes entries only from leaders of the
//!   highest of these terms or later. It has no vote and stands for no election until it has
//!   applied all entries that such a leader's log had when that leader answered. This does not
//!   cover an election that is still undecided: the node voted for a candidate, and the candidate's
//!   request reaches its last voter only after that voter has answered this node. The request would
//!   have to be on its way for longer than the node was away.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use storage::NodeMeta;
use storage::codec::StoredMembershipRecord;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use znode::Zxid;

use crate::Config;
use crate::local::vote_gate::VoteGate;
use crate::raft::consensus::Consensus;
use crate::raft::transport::{Answer, Ask, KnownMembers, MEMBERS_MAX, Standing};
use crate::view::View;

/// Log message of a node that cannot choose between several clusters.
const SEVERAL: &str = "the nodes that answer belong to several clusters of this name, as their uuids say: check the addresses \
                       in `members`";
/// Log message of a new node that founds no cluster, because another node's configuration differs.
const OTHER_LIST: &str = "another node lists other members, and node.members must be the same on every node";
/// Pause before the other nodes are asked again about the cluster.
const PAUSE: Duration = Duration::from_millis(100);

/// Conclusion of a node with a new data directory from the other members' answers.
#[derive(Debug, PartialEq, Eq)]
enum Conclusion {
    /// The answers are too few to tell whether there is a cluster: ask again.
    Ask,
    /// There is no cluster yet: found it.
    Found,
    /// There is a cluster to join. The node may follow leaders of term `floor` or later, because it
    /// cannot have voted or acknowledged entries in a later term than `floor`.
    Join { floor: u64 },
    /// There is no cluster yet, and node `with` has another list of configured members.
    Differ { with: u64 },
    /// The answers come from several clusters, which have the configured name and different uuids.
    Several,
}

/// Answers of another node, which was asked for its progress and for the cluster's members.
#[derive(Clone, Debug)]
struct PeerAnswers {
    id: u64,
    standing: Standing,
    /// Members that the other node knows; `None` if its program is too old to be asked for them.
    members: Option<KnownMembers>,
    /// Members in the other node's configuration; `None` if it did not tell them.
    founders: Option<BTreeSet<u64>>,
}

impl PeerAnswers {
    /// The membership that the other node reports, with its position in the log; `None` if it has
    /// none.
    fn membership(&self) -> Option<&StoredMembershipRecord> {
        self.members.as_ref().map(|known| &known.membership).filter(|stored| !stored.membership.nodes.is_empty())
    }

    /// Tells whether these answers count, because the node that gave them knows the cluster: it has
    /// a vote and was not removed.
    fn counts(&self) -> bool {
        self.standing.joined && self.members.as_ref().is_none_or(|known| !known.removed)
    }
}

/// Facts of this node that, with the other nodes' answers, decide its [`Conclusion`].
#[derive(Clone, Copy, Debug)]
struct Asker<'a> {
    id: u64,
    /// True if this node's log is empty or has only the first membership.
    fresh: bool,
    /// Configured members, which may found the cluster; `None` for a node that is configured to
    /// join an existing one.
    founders: Option<&'a BTreeSet<u64>>,
}

/// The newest membership in the answers, by its position in the log. Only answers of nodes that
/// have a vote and were not removed count.
fn newest(answers: &[PeerAnswers]) -> Option<&StoredMembershipRecord> {
    let position = |stored: &StoredMembershipRecord| stored.log_id.map(|id| (id.term, id.index));
    answers
        .iter()
        .filter(|heard| heard.counts())
        .filter_map(PeerAnswers::membership)
        .max_by_key(|stored| position(stored))
}

fn judge(asker: Asker<'_>, answers: &[PeerAnswers]) -> Conclusion {
    if asker.fresh
        && let Some(founders) = asker.founders
        && answers.iter().all(|answer| answer.standing.fresh)
    {
        let differs = |answer: &&PeerAnswers| answer.founders.as_ref().is_some_and(|theirs| theirs != founders);
        if let Some(other) = answers.iter().find(differs) {
            return Conclusion::Differ { with: other.id };
        }
        // All members must answer, and not only a majority: a member that does not answer may be
        // the only one left that knows of a cluster. Answers of other nodes, such as new members of
        // a cluster that exists, do not count.
        let has_answered = |id: &u64| *id == asker.id || answers.iter().any(|answer| answer.id == *id);
        return if founders.iter().all(has_answered) { Conclusion::Found } else { Conclusion::Ask };
    }
    let sure = || answers.iter().filter(|answer| answer.counts());
    let uuids: BTreeSet<_> = sure().filter_map(|answer| answer.members.as_ref()?.uuid.map(|uuid| uuid.0)).collect();
    if uuids.len() > 1 {
        return Conclusion::Several;
    }
    let Some(newest) = newest(answers) else { return Conclusion::Ask };
    let has_majority = |set: &BTreeSet<u64>| {
        let others = sure().filter(|answer| answer.id != asker.id && set.contains(&answer.id));
        others.count() > set.len() / 2
    };
    if !newest.membership.configs.iter().all(has_majority) {
        return Conclusion::Ask;
    }
    Conclusion::Join { floor: sure().map(|answer| answer.standing.term).max().unwrap_or(0) }
}

/// Founds the cluster with the other members, or joins this node to it.
pub(crate) struct Bootstrap {
    pub(crate) consensus: Arc<Consensus>,
    pub(crate) config: Arc<Config>,
    pub(crate) view: Arc<View>,
    pub(crate) gate: Arc<VoteGate>,
    pub(crate) meta: NodeMeta,
    /// True while an operator has drained the node.
    pub(crate) drained: watch::Receiver<bool>,
}

impl Bootstrap {
    /// Founds or joins the cluster, until this node has a vote and its log has a membership.
    pub(crate) async fn join(self: Arc<Self>) {
        let mut catch_up: Option<u64> = None;
        let mut told: Option<String> = None;
        let mut asks_callers = false;
        let founders: BTreeSet<u64> = self.config.members.iter().map(|member| member.id).collect();
        while !(self.gate.joined() && self.consensus.is_initialized()) {
            let answers = self.ask().await;
            let missing = self.missing(&answers);
            self.meet_those_named(&answers);
            // Every other round, so that a silent node is asked at both its addresses in turn.
            asks_callers = !asks_callers;
            if asks_callers {
                self.meet_callers(&answers);
            }
            match judge(self.asker(&founders), &answers) {
                Conclusion::Found => self.found().await,
                Conclusion::Join { .. } if self.gate.joined() => {}
                Conclusion::Join { floor } => {
                    if self.gate.admit_from(floor) {
                        tracing::info!(floor, "new data directory in a cluster that exists: catching up before voting");
                    }
                    let mut standings = answers.iter().map(|answer| answer.standing);
                    let leader = standings.find(|standing| standing.leads && standing.term >= floor);
                    catch_up = catch_up.or(leader.map(|leader| leader.last_log));
                }
                // Logged once for each change in the set of members that do not answer.
                Conclusion::Ask if told.as_ref() != Some(&missing) => {
                    tracing::info!(missing, "waiting for other members to found the cluster or to join it");
                    told = Some(missing);
                }
                Conclusion::Differ { with } => {
                    let theirs = answers.iter().find(|answer| answer.id == with).and_then(|one| one.founders.clone());
                    let theirs = theirs.unwrap_or_default();
                    let differ = format!("{with} {theirs:?}");
                    if told.as_ref() != Some(&differ) {
                        tracing::error!(node = with, ?theirs, own = ?founders, "{OTHER_LIST}");
                        told = Some(differ);
                    }
                }
                Conclusion::Several if told.as_deref() != Some(SEVERAL) => {
                    tracing::error!("{SEVERAL}");
                    told = Some(SEVERAL.into());
                }
                Conclusion::Ask | Conclusion::Several => {}
            }
            if let Some(index) = catch_up.filter(|_| !self.gate.joined()) {
                let _ = self.view.applied_at_least(self.consensus.zxid(index), Instant::now() + PAUSE).await;
                // The node may have learned the zxid base meanwhile, so the two zxids must be read
                // in this order.
                let applied = self.view.applied();
                if applied >= self.consensus.zxid(index) && applied > Zxid(0) {
                    self.set_joined().await;
                }
            }
            sleep(PAUSE).await;
        }
    }

    fn asker<'a>(&self, founders: &'a BTreeSet<u64>) -> Asker<'a> {
        let config = &self.config;
        Asker { id: config.node_id, fresh: self.standing().fresh, founders: (!config.join).then_some(founders) }
    }

    /// Asks the other nodes for their progress and for the members. Returns the answers that come.
    async fn ask(&self) -> Vec<PeerAnswers> {
        let deadline = Instant::now() + self.consensus.peer_timeout;
        let known = |answer| match answer {
            Answer::Members(known) => Some(known),
            _ => None,
        };
        let peers = &self.consensus.peers;
        let (standings, known) = tokio::join!(peers.standings(deadline), peers.ask_all(Ask::Members, known, deadline));
        let mut known: BTreeMap<u64, KnownMembers> = known.into_iter().collect();
        let heard = |(id, standing)| {
            let founders = self.consensus.cluster.founders_of(id);
            PeerAnswers { id, standing, members: known.remove(&id), founders }
        };
        standings.into_iter().map(heard).collect()
    }

    /// Makes the members of the newest membership in the answers peers of this node: their
    /// connections are accepted, and the next questions go to them, too.
    fn meet_those_named(&self, answers: &[PeerAnswers]) {
        let Some(newest) = newest(answers) else { return };
        let nodes = &newest.membership.nodes;
        nodes.iter().for_each(|(id, member)| self.consensus.peers.reach(*id, &member.peer_addr));
        if self.consensus.membership().nodes().next().is_none() {
            let configured = self.config.members.iter().map(|member| (member.id, member.peer_addr.clone()));
            let named = nodes.iter().map(|(id, member)| (*id, member.peer_addr.clone()));
            self.consensus.cluster.note_members(configured.chain(named).collect());
        }
    }

    /// Makes peers of the nodes that have called this one and did not answer, so that the next
    /// questions go to the addresses that they have told. The configured members may have left the
    /// cluster or moved, and then only the leader's calls tell where the cluster is.
    fn meet_callers(&self, answers: &[PeerAnswers]) {
        let peers = &self.consensus.peers;
        for (id, addr) in self.consensus.cluster.told_addrs() {
            let is_silent = answers.iter().all(|answer| answer.id != id);
            if is_silent && (peers.get(id).is_some() || peers.all().len() < MEMBERS_MAX) {
                peers.reach(id, &addr);
            }
        }
    }

    /// Ids of the other members that did not answer, with commas between them.
    fn missing(&self, answers: &[PeerAnswers]) -> String {
        let silent = self.consensus.peers.all().into_iter().map(|(id, _)| id);
        let silent = silent.filter(|id| answers.iter().all(|answer| answer.id != *id));
        silent.map(|id| id.to_string()).collect::<Vec<_>>().join(",")
    }

    async fn found(&self) {
        if !self.set_joined().await {
            return;
        }
        let members: BTreeMap<u64, storage::Member> = self.config.members.iter().map(|m| (m.id, m.into())).collect();
        match self.consensus.raft.initialize(members).await {
            Ok(()) => tracing::info!("cluster founded"),
            // Another founder's leader was faster than the founding of this node.
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

    /// Makes the answer to node `asker`, which has asked for the members that this node knows.
    pub(crate) fn known_members(&self, asker: u64) -> KnownMembers {
        let cluster = &self.consensus.cluster;
        KnownMembers {
            uuid: cluster.uuid(),
            membership: self.consensus.membership().as_ref().into(),
            removed: cluster.removed_at(self.consensus.node_id).is_some(),
            asker_removed: cluster.removed_at(asker).map(|zxid| zxid.0),
        }
    }

    /// Progress of this node: how far its log and its term are, and whether it has a vote.
    pub(crate) fn standing(&self) -> Standing {
        let metrics = self.consensus.metrics();
        Standing {
            // A node that has lost its state knows that there is a cluster, and must never found
            // another one.
            fresh: metrics.last_log_index.is_none_or(|index| index == 0)
                && metrics.snapshot.is_none()
                && !self.meta.rejoining(),
            joined: self.gate.joined(),
            term: metrics.current_term,
            leads: self.consensus.leader_term(&metrics).is_some(),
            last_log: metrics.last_log_index.unwrap_or(0),
            steady: self.consensus.disk_watch.is_steady(),
            drained: *self.drained.borrow(),
        }
    }
}

#[cfg(test)]
mod tests {
    use storage::codec::{LogIdRecord, MembershipRecord};
    use znode::ClusterUuid;

    use super::*;

    const FRESH: Standing =
        Standing { fresh: true, joined: false, term: 0, leads: false, last_log: 0, steady: true, drained: false };
    const FORMED: Standing = Standing { fresh: false, joined: true, term: 1, last_log: 10, ..FRESH };

    /// Answers of node `id`. The last membership in its log is the entry at `index`, with these
    /// sets of voters.
    fn formed(id: u64, term: u64, sets: &[&[u64]], index: u64) -> PeerAnswers {
        let configs: Vec<BTreeSet<u64>> = sets.iter().map(|set| set.iter().copied().collect()).collect();
        let nodes = configs.iter().flatten().map(|id| (*id, storage::Member::default())).collect();
        let membership = MembershipRecord { configs, nodes };
        let log_id = Some(LogIdRecord { term: 1, index });
        let membership = StoredMembershipRecord { log_id, membership };
        let members =
            Some(KnownMembers { uuid: Some(ClusterUuid([1; 16])), membership, removed: false, asker_removed: None });
        PeerAnswers { id, standing: Standing { term, ..FORMED }, members, founders: None }
    }

    fn fresh(id: u64) -> PeerAnswers {
        let membership = StoredMembershipRecord {
            log_id: None,
            membership: MembershipRecord { configs: Vec::new(), nodes: BTreeMap::new() },
        };
        PeerAnswers {
            id,
            standing: FRESH,
            members: Some(KnownMembers { uuid: None, membership, removed: false, asker_removed: None }),
            founders: None,
        }
    }

    /// Checks the [`Conclusion`] of node 3, which is new and one of `founders` configured members.
    #[track_caller]
    fn check(founders: u64, answers: &[PeerAnswers], expected: Conclusion) {
        let founders = BTreeSet::from_iter(1..=founders);
        let asker = Asker { id: 3, fresh: true, founders: Some(&founders) };
        assert_eq!(judge(asker, answers), expected, "{founders:?} {answers:?}");
    }

    const THREE: &[&[u64]] = &[&[1, 2, 3]];

    #[test]
    fn a_new_node_founds_only_when_all_members_answer_and_have_nothing() {
        let alone = Asker { id: 1, fresh: true, founders: Some(&BTreeSet::from([1])) };
        assert_eq!(judge(alone, &[]), Conclusion::Found);
        check(3, &[], Conclusion::Ask);
        check(3, &[fresh(1), fresh(2)], Conclusion::Found);
        check(5, &[fresh(1), fresh(2)], Conclusion::Ask);
        check(5, &[1, 2, 4, 5].map(fresh), Conclusion::Found);
        // Node 2 has a vote and knows a term, but has no entry yet: it ended before its first
        // entry.
        let begun = Standing { joined: true, term: 1, ..FRESH };
        check(3, &[fresh(1), PeerAnswers { standing: begun, ..fresh(2) }], Conclusion::Found);
        // A node that is told to join waits for a cluster.
        let asker = Asker { id: 3, fresh: true, founders: None };
        assert_eq!(judge(asker, &[fresh(1), fresh(2)]), Conclusion::Ask);
    }

    /// Nodes 4 and 5 are being added to a cluster of nodes 1 to 3, and have no data yet.
    #[test]
    fn only_answers_of_configured_members_count_for_the_founding() {
        check(3, &[fresh(4), fresh(5)], Conclusion::Ask);
        check(3, &[fresh(1), fresh(4), fresh(5)], Conclusion::Ask);
        check(3, &[fresh(1), fresh(2), fresh(4)], Conclusion::Found);
    }

    #[test]
    fn nodes_with_different_lists_of_members_found_nothing() {
        let lists = |id, founders: &[u64]| {
            let founders = Some(founders.iter().copied().collect());
            PeerAnswers { founders, ..fresh(id) }
        };
        check(3, &[lists(1, &[1, 2, 3]), lists(2, &[3, 2, 1])], Conclusion::Found);
        check(3, &[lists(1, &[1, 2, 3]), lists(2, &[2, 3])], Conclusion::Differ { with: 2 });
        check(3, &[lists(1, &[1, 2, 3, 4])], Conclusion::Differ { with: 1 });
        // Once there is a cluster, its log has the members.
        let formed = |id| PeerAnswers { founders: Some(BTreeSet::from([1])), ..formed(id, 4, THREE, 0) };
        check(3, &[formed(1), formed(2)], Conclusion::Join { floor: 4 });
    }

    #[test]
    fn a_lost_disk_and_a_member_without_entries_found_nothing_while_the_third_is_away() {
        // Simulation seed 20672: only the third node had the entries, and they were lost.
        let begun = Standing { joined: true, term: 1, ..FRESH };
        check(3, &[fresh(1)], Conclusion::Ask);
        check(3, &[PeerAnswers { standing: begun, ..fresh(1) }], Conclusion::Ask);
        check(3, &[formed(1, 2, THREE, 0)], Conclusion::Ask);
    }

    #[test]
    fn a_wiped_node_never_founds_and_waits_for_a_majority_of_the_others() {
        const FIVE: &[&[u64]] = &[&[1, 2, 3, 4, 5]];
        check(3, &[formed(1, 4, THREE, 0)], Conclusion::Ask);
        check(3, &[formed(1, 4, THREE, 0), fresh(2)], Conclusion::Ask);
        check(3, &[formed(1, 4, THREE, 0), formed(2, 7, THREE, 0)], Conclusion::Join { floor: 7 });
        check(5, &[formed(1, 4, FIVE, 0), formed(2, 7, FIVE, 0), fresh(4), fresh(5)], Conclusion::Ask);
        let three = [formed(1, 4, FIVE, 0), formed(2, 7, FIVE, 0), formed(4, 5, FIVE, 0), fresh(5)];
        check(5, &three, Conclusion::Join { floor: 7 });
        // The answer of another wiped node does not count.
        let mut wiped = formed(2, 9, THREE, 0);
        wiped.standing.joined = false;
        check(3, &[formed(1, 4, THREE, 0), wiped], Conclusion::Ask);
        // This node has begun to catch up: it is not fresh any more, and neither is the cluster.
        let founders = BTreeSet::from([1, 2, 3]);
        let asker = Asker { id: 3, fresh: false, founders: Some(&founders) };
        assert_eq!(judge(asker, &[fresh(1), fresh(2)]), Conclusion::Ask);
    }

    /// The configuration of node 3 names nodes 1, 2 and 3, but the members are now 3, 4 and 5. Node
    /// 3 is wiped; nodes 1 and 2 still run with their old logs. Node 3 joins once nodes 4 and 5
    /// have answered.
    #[test]
    fn the_newest_membership_counts_and_not_the_file() {
        const LATER: &[&[u64]] = &[&[3, 4, 5]];
        let old = |id| formed(id, 4, THREE, 0);
        // Node 1 was in the majority that agreed to the change, and knows the joint membership.
        let knows = formed(1, 5, &[&[1, 2, 3], &[3, 4, 5]], 90);
        check(3, &[knows.clone(), old(2)], Conclusion::Ask);
        check(3, &[knows.clone(), old(2), formed(4, 9, LATER, 91)], Conclusion::Ask);
        let all = [knows, old(2), formed(4, 9, LATER, 91), formed(5, 8, LATER, 91)];
        check(3, &all, Conclusion::Join { floor: 9 });
        // The answer of a node that was removed does not count.
        let mut removed = formed(1, 5, THREE, 99);
        removed.members.as_mut().unwrap().removed = true;
        check(3, &[removed, old(2), formed(4, 9, LATER, 91), formed(5, 8, LATER, 91)], Conclusion::Join { floor: 9 });
    }

    #[test]
    fn a_node_that_was_never_a_voter_waits_for_a_majority_of_those() {
        check(3, &[formed(1, 4, &[&[1]], 5)], Conclusion::Join { floor: 4 });
        check(3, &[formed(1, 4, &[&[1, 2]], 5)], Conclusion::Ask);
        check(3, &[formed(1, 4, &[&[1, 2]], 5), formed(2, 4, &[&[1, 2]], 5)], Conclusion::Join { floor: 4 });
    }

    #[test]
    fn two_clusters_of_one_name_are_none_to_join() {
        let mut other = formed(2, 7, THREE, 0);
        other.members.as_mut().unwrap().uuid = Some(ClusterUuid([2; 16]));
        check(3, &[formed(1, 4, THREE, 0), other], Conclusion::Several);
    }
}
