//! Times at which this node, as the leader, sent the last frame (append or heartbeat) that a peer
//! has accepted.
//!
//! An answer carries the number of its frame, and counts from the time at which this node sent that
//! frame. Raft's own time of the last contact with a quorum is no substitute. Raft may take an
//! answer to an earlier append for the answer to a later append without entries. A leader that was
//! paused, and deposed meanwhile, would find such old answers waiting, and believe that a quorum
//! still follows it. Simulations found sessions that such a leader kept alive and that the new
//! leader expired (crates/sim/tests/it/seeds.rs), and linearizable reads that missed acknowledged
//! writes of the new leader.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use accept::Mutex;
use storage::LogId;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::raft::transport::AppendResult;

/// Newest frame of this leader that a peer accepted, and the last entry that the peer acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Following {
    newest: Mutex<Option<(u64, Instant)>>,
    /// Term in which this node led, and the last entry that the peer reported in that term to be on
    /// its disk.
    acknowledged: Mutex<Option<(u64, LogId)>>,
    /// Number of times that the peer turned out to have fewer entries than it had acknowledged.
    losses: AtomicU64,
    /// Wakes its waiters each time that any peer accepts an append or heartbeat of this leader.
    noted: Arc<Notify>,
}

impl Following {
    pub(crate) fn new(noted: Arc<Notify>) -> Following {
        Following { noted, ..Following::default() }
    }

    /// Notes that the peer accepted a frame of `term` that was sent at `sent`.
    pub(crate) fn note(&self, term: u64, sent: Instant) {
        {
            let mut newest = self.newest.lock();
            *newest = (*newest).max(Some((term, sent)));
        }
        self.noted.notify_waiters();
    }

    /// The last entry that the peer reported to the leader of `term` to be on the peer's disk.
    pub(crate) fn acknowledged(&self, term: u64) -> Option<LogId> {
        self.acknowledged.lock().filter(|acknowledged| acknowledged.0 == term).map(|acknowledged| acknowledged.1)
    }

    /// Takes the peer's answer to a frame of `term` whose entries come after `prev` and end with
    /// `last`.
    pub(crate) fn hear(&self, term: u64, prev: Option<LogId>, last: Option<LogId>, answer: &AppendResult) {
        let mut acknowledged = self.acknowledged.lock();
        let held = match answer {
            AppendResult::Success if last > prev => last,
            AppendResult::PartialSuccess(id) => id.map(LogId::from),
            // The peer has fewer entries than it acknowledged. That is right if its data directory
            // is new; otherwise the peer stops by itself.
            AppendResult::Conflict if acknowledged.is_some_and(|held| held.0 == term && prev <= Some(held.1)) => {
                tracing::warn!(?prev, ?acknowledged, "a peer has lost entries that it had on its disk");
                self.losses.fetch_add(1, Ordering::Relaxed);
                *acknowledged = None;
                return;
            }
            _ => return,
        };
        if let Some(held) = held {
            *acknowledged = (*acknowledged).max(Some((term, held)));
        }
    }

    /// Number of times that the peer turned out to have fewer entries on its disk than it had
    /// acknowledged to a leader on this node.
    pub(crate) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Relaxed)
    }

    /// Time at which this leader sent the newest frame of `term` that the peer has accepted.
    pub(crate) fn since(&self, term: u64) -> Option<Instant> {
        self.last().filter(|newest| newest.0 == term).map(|newest| newest.1)
    }

    /// Term of the newest frame that the peer has accepted, and the time at which this leader sent
    /// it.
    pub(crate) fn last(&self) -> Option<(u64, Instant)> {
        *self.newest.lock()
    }
}

/// Time at which this leader sent the newest frame that a quorum has accepted: a majority of each
/// set in `voters`. `own` is the id of this node, which accepts its own frames at once if it is a
/// voter. `None` if no quorum has accepted a frame, or if there are no voters.
pub(crate) fn quorum(voters: &[BTreeSet<u64>], own: u64, since: impl Fn(u64) -> Option<Instant>) -> Option<Instant> {
    let now = Instant::now();
    let of_set = |set: &BTreeSet<u64>| {
        let taken = |id: &u64| if *id == own { Some(now) } else { since(*id) };
        let mut taken: Vec<Instant> = set.iter().filter_map(taken).collect();
        taken.sort_unstable();
        // Sorted by time, so this is the newest time that a majority has reached.
        taken.len().checked_sub(set.len() / 2 + 1).and_then(|at| taken.get(at).copied())
    };
    let sets: Option<Vec<Instant>> = voters.iter().map(of_set).collect();
    sets?.into_iter().min()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_quorum_is_as_recent_as_its_slowest_member() {
        let start = Instant::now() - Duration::from_secs(1);
        let at = |ms: u64| Some(start + Duration::from_millis(ms));
        let check = |voters: &[&[u64]], taken: &[(u64, u64)], expected| {
            let sets: Vec<BTreeSet<u64>> = voters.iter().map(|set| set.iter().copied().collect()).collect();
            let since = |id| taken.iter().find(|(peer, _)| *peer == id).and_then(|(_, ms)| at(*ms));
            assert_eq!(quorum(&sets, 1, since), expected, "{voters:?} {taken:?}");
        };
        check(&[&[1, 2, 3]], &[], None);
        check(&[&[1, 2, 3]], &[(2, 5)], at(5));
        check(&[&[1, 2, 3]], &[(2, 5), (3, 9)], at(9));
        check(&[&[1, 2, 3, 4, 5]], &[(2, 5)], None);
        check(&[&[1, 2, 3, 4, 5]], &[(2, 5), (3, 9), (5, 7)], at(7));
        check(&[&[1, 2]], &[(2, 3)], at(3));
        // A node that does not vote does not count, not even this one.
        check(&[&[1, 2, 3]], &[(4, 9)], None);
        check(&[&[2, 3, 4]], &[(2, 5)], None);
        check(&[&[2, 3, 4]], &[(2, 5), (4, 6)], at(5));
        // In a joint membership each set must have a majority.
        check(&[&[1, 2, 3], &[3, 4, 5]], &[(2, 5), (4, 8)], None);
        check(&[&[1, 2, 3], &[3, 4, 5]], &[(2, 5), (4, 8), (5, 7)], at(5));
        check(&[&[1, 2, 3], &[3, 4, 5]], &[(3, 6), (4, 8)], at(6));
        check(&[], &[(2, 5)], None);
    }

    #[test]
    fn a_leader_alone_is_followed_now() {
        let before = Instant::now();
        assert!(quorum(&[BTreeSet::from([1])], 1, |_| None).is_some_and(|since| since >= before));
    }

    /// Compares [`quorum`] with Raft's own quorum rule, for random memberships and accepted frames.
    #[test]
    fn a_quorum_here_is_one_for_raft() {
        let mut rng = fastrand::Rng::with_seed(7);
        let now = Instant::now();
        for _ in 0..20_000 {
            let mut sets = Vec::new();
            for _ in 0..rng.usize(1..4) {
                let set: BTreeSet<u64> = (0..rng.usize(1..6)).map(|_| rng.u64(1..8)).collect();
                sets.push(set);
            }
            let all: BTreeSet<u64> = sets.iter().flatten().copied().collect();
            let nodes: BTreeMap<u64, storage::Member> =
                all.iter().map(|id| (*id, storage::Member::default())).collect();
            let mut followers = BTreeMap::new();
            for id in 1..9 {
                if rng.bool() {
                    followers.insert(id, now - Duration::from_millis(rng.u64(0..20)));
                }
            }
            let membership = storage::Membership::new(sets.clone(), nodes).unwrap();
            // `found` must be the newest time at which Raft still counts a quorum: this node, and
            // the peers that accepted a frame of that time or later.
            let found = quorum(&sets, 1, |id| followers.get(&id).copied());
            for moment in followers.values().copied().chain([now]) {
                let taken: BTreeSet<u64> =
                    followers.iter().filter(|(_, since)| **since >= moment).map(|(id, _)| *id).chain([1]).collect();
                let is_quorum = quorum_set::QuorumSet::is_quorum(&membership, taken.iter());
                assert_eq!(found.is_some_and(|since| since >= moment), is_quorum, "{sets:?} {followers:?}");
            }
        }
    }

    #[test]
    fn what_a_peer_has_on_its_disk_is_known_to_the_leader_whom_it_told() {
        let (following, id) = (Following::default(), |index| Some(LogId::new_term_index(1, index)));
        following.hear(2, id(3), id(3), &AppendResult::Success);
        assert_eq!(following.acknowledged(2), None, "a heartbeat brings nothing");
        following.hear(2, id(3), id(7), &AppendResult::Success);
        following.hear(2, id(3), id(5), &AppendResult::Success);
        assert_eq!((following.acknowledged(2), following.acknowledged(3)), (id(7), None));
        // The leader searches for the end of the peer's log, beyond what the peer has acknowledged.
        following.hear(2, id(9), id(9), &AppendResult::Conflict);
        assert_eq!((following.acknowledged(2), following.losses()), (id(7), 0));
        following.hear(2, id(6), id(6), &AppendResult::Conflict);
        assert_eq!((following.acknowledged(2), following.losses()), (None, 1), "its disk is new");
        following.hear(3, id(3), id(4), &AppendResult::Success);
        assert_eq!((following.acknowledged(2), following.acknowledged(3)), (None, id(4)));
    }

    #[test]
    fn frames_of_earlier_terms_do_not_count() {
        let (following, now) = (Following::default(), Instant::now());
        following.note(2, now);
        assert_eq!((following.since(2), following.since(3)), (Some(now), None));
        following.note(3, now - Duration::from_secs(1));
        following.note(2, now + Duration::from_secs(1));
        assert_eq!((following.since(2), following.since(3)), (None, Some(now - Duration::from_secs(1))));
    }
}
