//! Check that a membership in a leader's append may follow the memberships before it.
//!
//! A membership is in force as soon as it is in the log. So a frame with a membership that no
//! leader can have written is refused before Raft gets it. Otherwise a sender that is no member
//! could make a node the only voter of a new cluster.

use std::collections::BTreeSet;

use storage::StoredMembership;
use storage::codec::{MembershipRecord, PayloadRecord};

use crate::raft::transport::AppendFrame;

/// The last membership that came on one connection of a leader.
#[derive(Default)]
pub(crate) struct Transitions {
    last: Option<Vec<BTreeSet<u64>>>,
}

impl Transitions {
    /// Tells whether each membership in a frame may follow one of three: the last on this
    /// connection; `ruling`, which is in force at this node; or `committed`, to which a new leader
    /// may go back. A membership at or before the committed one in the log passes without this
    /// test, because the leader may send old entries again.
    pub(crate) fn are_possible(
        &mut self,
        frame: &AppendFrame,
        ruling: &StoredMembership,
        committed: &StoredMembership,
    ) -> bool {
        let agreed = committed.log_id().as_ref().map(|id| id.index);
        for entry in &frame.entries {
            let PayloadRecord::Membership(MembershipRecord { configs, .. }) = &entry.payload else { continue };
            let known = [ruling, committed].map(|stored| stored.get_joint_config());
            // A node without a membership takes the first one.
            let first = known.iter().all(|sets| sets.is_empty()) && self.last.is_none();
            let again = Some(entry.log_id.index) <= agreed;
            if !first && !again && !known.into_iter().chain(&self.last).any(|before| may_follow(before, configs)) {
                return false;
            }
            self.last = Some(configs.clone());
        }
        true
    }
}

/// Tells whether quorums of both memberships have a voter in common: they share a set of voters, or
/// each has one set and the sets differ by at most one voter.
fn may_follow(before: &[BTreeSet<u64>], then: &[BTreeSet<u64>]) -> bool {
    if let ([before], [then]) = (before, then) {
        return before.symmetric_difference(then).count() <= 1;
    }
    before.iter().any(|set| then.contains(set))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(before: &[&[u64]], then: &[&[u64]], expected: bool) {
        let sets = |sets: &[&[u64]]| sets.iter().map(|set| set.iter().copied().collect()).collect::<Vec<_>>();
        assert_eq!(may_follow(&sets(before), &sets(then)), expected, "{before:?} {then:?}");
        assert_eq!(may_follow(&sets(then), &sets(before)), expected, "{then:?} {before:?}");
    }

    #[test]
    fn one_voter_more_or_less_or_a_set_in_common() {
        check(&[&[1, 2, 3]], &[&[1, 2, 3]], true);
        check(&[&[1, 2, 3]], &[&[1, 2, 3, 4]], true);
        check(&[&[1, 2, 3]], &[&[1, 2, 3], &[1, 2, 4]], true);
        check(&[&[1, 2, 4]], &[&[1, 2, 3], &[1, 2, 4]], true);
        check(&[&[1, 2, 3]], &[&[1, 2, 4]], false);
        check(&[&[1, 2, 3]], &[&[1]], false);
        check(&[&[1, 2, 3]], &[&[7]], false);
        check(&[&[1, 2, 3]], &[&[1, 2, 5], &[1, 2, 4]], false);
    }
}
