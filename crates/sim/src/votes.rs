//! Votes of all nodes, as they were on the nodes' disks.

use std::collections::{BTreeMap, BTreeSet};

use storage::Vote;

use crate::network::MachineId;

/// All votes that were ever on a disk. Votes of a node count even after it was wiped.
#[derive(Debug, Default)]
pub struct Votes {
    given: BTreeMap<(u64, MachineId), BTreeSet<MachineId>>,
    taken: BTreeMap<(u64, MachineId), BTreeSet<MachineId>>,
}

impl Votes {
    /// Notes a vote that `node` has saved, or found on its disk at its start. An uncommitted vote
    /// is the node's own vote for a candidate. A committed vote names the elected leader that the
    /// node follows.
    pub fn note(&mut self, node: MachineId, vote: &Vote) {
        let key = (vote.leader_id.term, vote.leader_id.voted_for);
        self.taken.entry(key).or_default().insert(node);
        if !vote.committed {
            self.given.entry(key).or_default().insert(node);
        }
    }

    /// Tells whether a majority of each of these sets has voted for `candidate` in `term`.
    pub fn elect(&self, candidate: MachineId, term: u64, voters: &[BTreeSet<MachineId>]) -> bool {
        is_quorum(self.given.get(&(term, candidate)), voters)
    }

    /// Tells whether a majority of each of these sets has voted for `leader` in `term`, or followed
    /// it.
    pub fn follow(&self, leader: MachineId, term: u64, voters: &[BTreeSet<MachineId>]) -> bool {
        is_quorum(self.taken.get(&(term, leader)), voters)
    }

    /// Returns the nodes that voted for `candidate` in `term`.
    pub fn given(&self, candidate: MachineId, term: u64) -> Vec<MachineId> {
        self.given.get(&(term, candidate)).into_iter().flatten().copied().collect()
    }
}

fn is_quorum(have: Option<&BTreeSet<MachineId>>, voters: &[BTreeSet<MachineId>]) -> bool {
    let Some(have) = have else { return false };
    !voters.is_empty() && voters.iter().all(|set| set.intersection(have).count() > set.len() / 2)
}
