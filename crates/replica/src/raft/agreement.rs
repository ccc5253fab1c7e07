//! Agreement of the members' states, by the hashes of their histories at one log index.
//!
//! All members apply the same entries and come to the same outcomes, so their hashes are equal. A
//! member whose hash differs has a damaged entry, a damaged state or a bug. What a majority has is
//! taken for right, because a majority has also written it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use accept::Mutex;
use tokio::sync::Notify;
use znode::{HistoryHash, Zxid};

use crate::Error;

/// Reason why a node serves no request that needs a majority, while the members' states differ.
pub(crate) const DIVIDED: &str = "the states of the members differ, and no majority agrees: see docs/storage-trouble.md, \"A node whose state differs\"";

/// Reason why a node refuses a linearizable read while its state differs from the leader's.
const UNLIKE_LEADER: &str =
    "this node's state differs from the leader's: see docs/storage-trouble.md, \"A node whose state differs\"";

fn refused(reason: &'static str) -> Error {
    Error::Unavailable { reason: reason.into(), retry_after_ms: 1_000 }
}

/// Result of comparing the hashes of several members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A majority has this hash.
    Majority(HistoryHash),
    /// Voters have different hashes, and no majority has the same one.
    Divided,
    /// Too few voters have answered, and their hashes are equal.
    TooFew,
}

/// Compares the hashes of members, by id. `voters` are the sets of voters; each must have a
/// majority with the same hash.
pub(crate) fn judge(voters: &[BTreeSet<u64>], hashes: &BTreeMap<u64, HistoryHash>) -> Verdict {
    let votes = |set: &BTreeSet<u64>, hash| set.iter().filter(|id| hashes.get(id) == Some(&hash)).count();
    let is_majority = |hash: &HistoryHash| voters.iter().all(|set| votes(set, *hash) > set.len() / 2);
    let said = |id: &u64| hashes.get(id).copied();
    let of_voters: BTreeSet<HistoryHash> = voters.iter().flatten().filter_map(said).collect();
    match of_voters.iter().find(|hash| is_majority(hash)) {
        Some(hash) => Verdict::Majority(*hash),
        None if of_voters.len() > 1 => Verdict::Divided,
        None => Verdict::TooFew,
    }
}

/// Whether this node agrees with the other members, as it has found by comparing hashes.
#[derive(Debug, Default)]
pub(crate) struct Agreement {
    divided: AtomicBool,
    /// Notifies the comparison with all members that this node's state or the leader's may be
    /// wrong.
    suspected: Notify,
    /// Zxid of the last entry up to which this node is known to agree with a majority.
    agreed: AtomicU64,
    /// Members whose last answer differed from that of the majority.
    differing: Mutex<BTreeSet<u64>>,
}

impl Agreement {
    /// Fails while the states of voters differ and no majority is known to agree.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.is_divided() { Err(refused(DIVIDED)) } else { Ok(()) }
    }

    /// Fails if this node's hash differs from the leader's hash at the same log index. Then a
    /// comparison with all members begins at once, because the leader's state may be the wrong one.
    pub(crate) fn compare_with_leader(&self, own: HistoryHash, leaders: HistoryHash) -> Result<(), Error> {
        if own == leaders {
            return Ok(());
        }
        self.suspected.notify_one();
        Err(refused(UNLIKE_LEADER))
    }

    pub(crate) fn is_divided(&self) -> bool {
        self.divided.load(Ordering::Acquire)
    }

    /// Notes whether the states of voters differ without a majority. Returns true if that is new.
    pub(crate) fn note_divided(&self, divided: bool) -> bool {
        self.divided.swap(divided, Ordering::AcqRel) != divided
    }

    /// Waits until this node's state or the leader's may be wrong.
    pub(crate) async fn suspected(&self) {
        self.suspected.notified().await;
    }

    /// Notes that this node and a majority agree up to `zxid`.
    pub(crate) fn note_agreed(&self, zxid: Zxid) {
        self.agreed.fetch_max(zxid.0, Ordering::Relaxed);
    }

    /// Zxid of the last entry up to which this node is known to agree with a majority.
    pub(crate) fn agreed(&self) -> Zxid {
        Zxid(self.agreed.load(Ordering::Relaxed))
    }

    /// Notes for each member that has answered whether it differs from the majority, and drops
    /// nodes that are no members any more. Returns the members that differ since now.
    pub(crate) fn note_answers(
        &self,
        majority: HistoryHash,
        answers: &BTreeMap<u64, HistoryHash>,
        members: &BTreeSet<u64>,
    ) -> BTreeSet<u64> {
        let mut differing = self.differing.lock();
        let before = differing.clone();
        differing.retain(|id| members.contains(id) && !answers.contains_key(id));
        differing.extend(answers.iter().filter(|(_, hash)| **hash != majority).map(|(id, _)| *id));
        differing.difference(&before).copied().collect()
    }

    /// Number of members whose last answer differed from that of the majority.
    pub(crate) fn differing(&self) -> u64 {
        self.differing.lock().len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(answers: &[(u64, u64)]) -> BTreeMap<u64, HistoryHash> {
        answers.iter().map(|(id, hash)| (*id, HistoryHash(*hash))).collect()
    }

    #[track_caller]
    fn check(voters: &[&[u64]], answers: &[(u64, u64)], expected: Verdict) {
        let sets: Vec<BTreeSet<u64>> = voters.iter().map(|set| set.iter().copied().collect()).collect();
        assert_eq!(judge(&sets, &hashes(answers)), expected, "{voters:?} {answers:?}");
    }

    #[test]
    fn a_majority_of_every_set_of_voters_decides() {
        let majority = |hash| Verdict::Majority(HistoryHash(hash));
        check(&[&[1, 2, 3]], &[(1, 7), (2, 7), (3, 7)], majority(7));
        check(&[&[1, 2, 3]], &[(1, 8), (2, 7), (3, 7)], majority(7));
        check(&[&[1, 2, 3]], &[(1, 7), (2, 7)], majority(7));
        check(&[&[1, 2, 3]], &[(1, 7), (2, 8)], Verdict::Divided);
        check(&[&[1, 2, 3]], &[(1, 7), (2, 8), (3, 9)], Verdict::Divided);
        check(&[&[1, 2, 3]], &[(1, 7)], Verdict::TooFew);
        check(&[&[1, 2]], &[(1, 7), (2, 8)], Verdict::Divided);
        check(&[&[1]], &[(1, 7)], majority(7));
        // Members without a vote do not decide.
        check(&[&[1, 2, 3]], &[(1, 7), (4, 8), (5, 8)], Verdict::TooFew);
        check(&[&[1]], &[(1, 7), (4, 8), (5, 8)], majority(7));
        check(&[&[1, 2, 3], &[1, 4, 5]], &[(1, 7), (2, 7), (4, 7)], majority(7));
        check(&[&[1, 2, 3], &[1, 4, 5]], &[(1, 7), (2, 7), (4, 8), (5, 8)], Verdict::Divided);
        check(&[&[1, 2, 3], &[1, 4, 5]], &[(1, 7), (2, 7)], Verdict::TooFew);
        check(&[], &[(1, 7)], Verdict::TooFew);
    }

    #[test]
    fn a_member_that_differs_counts_until_it_agrees_or_is_gone() {
        let (agreement, members) = (Agreement::default(), BTreeSet::from([1, 2, 3]));
        let note = |answers: &[(u64, u64)], members| {
            agreement.note_answers(HistoryHash(7), &hashes(answers), members).into_iter().collect::<Vec<_>>()
        };
        assert_eq!(note(&[(1, 7), (2, 8), (3, 7)], &members), [2]);
        assert_eq!(note(&[(1, 7), (2, 8), (3, 9)], &members), [3]);
        assert_eq!((note(&[(1, 7)], &members), agreement.differing()), (vec![], 2));
        assert_eq!((note(&[(1, 7), (3, 7)], &members), agreement.differing()), (vec![], 1));
        assert_eq!((note(&[(1, 7)], &BTreeSet::from([1, 3])), agreement.differing()), (vec![], 0));
    }
}
