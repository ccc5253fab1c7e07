//! Who has voted for whom, as it stood on the disks of the nodes.

use std::collections::{BTreeMap, BTreeSet};

use storage::Vote;

use crate::hub::MachineId;

/// Every vote that was ever on a disk. A wiped node has given its votes all the same.
#[derive(Debug, Default)]
pub struct Votes {
    given: BTreeMap<(u64, MachineId), BTreeSet<MachineId>>,
    taken: BTreeMap<(u64, MachineId), BTreeSet<MachineId>>,
}

impl Votes {
    /// This vote is on the disk of `node`: given by it, or taken from the leader whom it follows.
    pub fn note(&mut self, node: MachineId, vote: &Vote) {
        let key = (vote.leader_id.term, vote.leader_id.voted_for);
        self.taken.entry(key).or_default().insert(node);
        if !vote.committed {
            self.given.entry(key).or_default().insert(node);
        }
    }

    /// Whether a majority of each of these sets has voted for `candidate` in `term`.
    pub fn elect(&self, candidate: MachineId, term: u64, voters: &[BTreeSet<MachineId>]) -> bool {
        is_quorum(self.given.get(&(term, candidate)), voters)
    }

    /// Whether a majority of each of these sets has voted for `leader` in `term`, or followed it.
    pub fn follow(&self, leader: MachineId, term: u64, voters: &[BTreeSet<MachineId>]) -> bool {
        is_quorum(self.taken.get(&(term, leader)), voters)
    }

    /// Who voted for it.
    pub fn given(&self, candidate: MachineId, term: u64) -> Vec<MachineId> {
        self.given.get(&(term, candidate)).into_iter().flatten().copied().collect()
    }
}

fn is_quorum(have: Option<&BTreeSet<MachineId>>, voters: &[BTreeSet<MachineId>]) -> bool {
    let Some(have) = have else { return false };
    !voters.is_empty() && voters.iter().all(|set| set.intersection(have).count() > set.len() / 2)
}
