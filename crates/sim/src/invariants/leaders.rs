//! Invariants of leaders, their elections and the members of the cluster.

use std::collections::{BTreeMap, BTreeSet};

use znode::Term;

use super::Invariant;
use crate::history::{Commit, History};
use crate::hub::Hub;
use crate::log_disk::LogDisk;
use crate::network::MachineId;
use crate::observation::{NodeView, Standing};
use crate::votes::Votes;

/// A term has at most one leader.
///
/// Source: Raft's Election Safety (Ongaro and Ousterhout 2014, section 5.2). A node that votes
/// twice in a term, for example after it forgot its vote in a crash, violates it.
#[derive(Default)]
pub(super) struct OneLeader {
    leaders: BTreeMap<Term, MachineId>,
}

impl Invariant for OneLeader {
    fn node(&mut self, view: &NodeView, _: &LogDisk, _: &mut History) -> Result<(), String> {
        let Some(term) = view.leads else { return Ok(()) };
        let leader = *self.leaders.entry(term).or_insert(view.node);
        if leader == view.node { Ok(()) } else { Err(format!("nodes {leader} and {} lead in term {term}", view.node)) }
    }
}

/// While a leader has a valid lease, no node leads in a later term.
///
/// Source: a leader's lease (Gray and Cheriton, "Leases", 1989; Ongaro's dissertation, section
/// 6.4.1). Because of the lease, an old leader acknowledges no heartbeat once a new leader counts
/// the timeouts of sessions (docs/sessions-and-time.md).
#[derive(Default)]
pub(super) struct OneSureLeader {
    latest: Term,
}

impl Invariant for OneSureLeader {
    fn step(&mut self, standings: &[Standing], _: u64) -> Result<(), String> {
        let latest = self.latest;
        self.latest = standings.iter().filter_map(|node| node.leads).chain([latest]).max().unwrap_or(latest);
        match standings.iter().find(|node| node.sure.is_some_and(|term| term < self.latest)) {
            Some(Standing { node, sure, .. }) => {
                Err(format!("node {node} is sure to lead in {sure:?}, and another one leads in {:?}", self.latest))
            }
            None => Ok(()),
        }
    }
}

/// A leader has the votes of a majority of each set of voters in its log. While a leader has a
/// valid lease, no other node has the votes of a quorum of the memberships in its own log.
///
/// Source: Raft's Election Safety with changes of members (Ongaro's dissertation, chapter 4:
/// quorums of consecutive memberships overlap), and the leader's lease of `OneSureLeader`. A node
/// violates the invariant if it counts a quorum over the wrong members, for example over those of
/// the configuration file, or over learners as well.
pub(super) struct OneQuorum {
    hub: Hub,
    /// Terms whose leader's votes were checked.
    judged: BTreeSet<Term>,
}

impl OneQuorum {
    pub(super) fn new(hub: Hub) -> OneQuorum {
        OneQuorum { hub, judged: BTreeSet::new() }
    }
}

impl Invariant for OneQuorum {
    fn step(&mut self, standings: &[Standing], _: u64) -> Result<(), String> {
        let shared = self.hub.lock();
        for leader in standings {
            let Some(term) = leader.leads else { continue };
            if self.judged.insert(term) && !shared.votes.elect(leader.node, term.0, &leader.voters) {
                return Err(why(leader, term, &shared.votes, "leads"));
            }
        }
        for leader in standings {
            let Some(term) = leader.sure else { continue };
            if !shared.votes.follow(leader.node, term.0, &leader.voters) {
                return Err(why(leader, term, &shared.votes, "is sure to lead, without being followed by them,"));
            }
            let elected = |other: &&Standing| {
                let later = other.node != leader.node && other.term >= term;
                later && shared.votes.elect(other.node, other.term.0, &other.voters)
            };
            if let Some(other) = standings.iter().find(elected) {
                let while_sure = format!("leads while node {} is sure to lead in term {term}", leader.node);
                return Err(why(other, other.term, &shared.votes, &while_sure));
            }
        }
        Ok(())
    }
}

fn why(node: &Standing, term: Term, votes: &Votes, what: &str) -> String {
    let Standing { node, voters, .. } = node;
    format!(
        "node {node} {what} in term {term}; the voters in its log are {voters:?}, and its voters were {:?}",
        votes.given(*node, term.0)
    )
}

/// A node that was removed never becomes a member again under the same id.
///
/// Source: docs/operating.md ("ids are never used again"). A second node with the same id may vote
/// differently from the first one, and its disk lacks the entries that the first one acknowledged.
#[derive(Default)]
pub(super) struct IdsOnce {
    members: BTreeSet<MachineId>,
    gone: BTreeSet<MachineId>,
}

impl Invariant for IdsOnce {
    fn committed(&mut self, commit: &Commit<'_>, _: &History) -> Result<(), String> {
        let Some(membership) = &commit.entry.membership else { return Ok(()) };
        let now: BTreeSet<MachineId> = membership.nodes().map(|(id, _)| *id).collect();
        self.gone.extend(self.members.difference(&now));
        self.members = now;
        match self.members.intersection(&self.gone).next() {
            Some(id) => Err(format!("node {id} was removed, and is a member again since {}", commit.entry.zxid)),
            None => Ok(()),
        }
    }
}
