//! A leader has the votes of a majority of each set of voters in its log. While a leader has a
//! valid lease, no other node has the votes of a quorum of the memberships in its own log.
//!
//! Source: Raft's Election Safety with changes of members (Ongaro's dissertation, chapter 4:
//! quorums of consecutive memberships overlap), and the leader's lease of `one_sure_leader`. A node
//! violates the invariant if it counts a quorum over the wrong members, for example over those of
//! the configuration file, or over learners as well.

use std::collections::BTreeSet;

use znode::Term;

use super::Invariant;
use crate::hub::Hub;
use crate::observation::Standing;
use crate::votes::Votes;

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
    fn name(&self) -> &'static str {
        "one quorum"
    }

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
