//! Choice of the leader's next step in a change of the members. A step follows from the membership
//! and the state alone, so that a later leader can go on.
//!
//! An operator's order adds a learner, or sets a mark: a property that the membership stores for a
//! member. The leader takes the later steps by itself:
//!
//! ```text
//! add        learner ── in step ──> Promote ──> voter
//! replace    learner, replaces OLD ── in step ──> PassLeadership, if OLD leads
//!            ──> Replace (joint: NEW in, OLD out) ──> MarkReplaced
//! remove     marked ──> PassLeadership, if it leads ──> Demote ──> NoteRemoved ──> Drop
//! joint      left by a leader that died ──> PassLeadership, if this leader loses its vote
//!            ──> LeaveJoint
//! ```

use std::collections::BTreeSet;

use storage::{Member, StoredMembership};

/// Names and values of marks: properties that the membership stores for a member.
pub(crate) mod mark {
    /// Name of the mark for a member's role. Its only value is [`OBSERVER`].
    pub(crate) const ROLE: &str = "role";
    /// Value of [`ROLE`] for a member that never becomes a voter.
    pub(crate) const OBSERVER: &[u8] = b"observer";
    /// Name of the mark for how a learner becomes a voter. Its only value is [`MANUAL`]; a learner
    /// without the mark is promoted by the leader.
    pub(crate) const PROMOTE: &str = "promote";
    /// Value of [`PROMOTE`] for a learner that becomes a voter only by an operator's order.
    pub(crate) const MANUAL: &[u8] = b"manual";
    /// Name of the mark with the id, in decimal, of the voter that this learner is to replace.
    pub(crate) const REPLACES: &str = "replaces";
    /// Name of the mark for a member that is being removed. Its value is [`SAFE`] or [`FORCED`].
    pub(crate) const REMOVING: &str = "removing";
    /// Value of [`REMOVING`] for a removal that waits until a quorum of the remaining voters
    /// follows the leader.
    pub(crate) const SAFE: &[u8] = b"safe";
    /// Value of [`REMOVING`] for a removal that waits for no quorum of the remaining voters.
    pub(crate) const FORCED: &[u8] = b"forced";
    /// Name of the mark with the name of the member's zone, for people.
    pub(crate) const ZONE: &str = "zone";
}

/// Step by which a leader goes on with a change of the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Completes a joint change of the voters that an earlier leader began.
    LeaveJoint,
    /// Makes a learner a voter.
    Promote { id: u64 },
    /// Makes learner `new` a voter and the voter `old`, which it replaces, a learner, in one joint
    /// change.
    Replace { old: u64, new: u64 },
    /// Marks the replaced member `old` for removal, and removes the mark [`mark::REPLACES`] from
    /// the new voter.
    MarkReplaced { old: u64, new: u64 },
    /// Hands leadership over, because this leader has no vote or is to lose it.
    PassLeadership,
    /// Makes a voter that is being removed a learner.
    Demote { id: u64 },
    /// Writes into the state that the member with this id was removed, so that no new member gets
    /// the id.
    NoteRemoved { id: u64 },
    /// Removes a learner from the membership, once the state has the learner's id as that of a
    /// removed member.
    Drop { id: u64 },
}

/// Facts that a leader knows of the other members, for the choice of the next step.
pub(crate) struct LeaderSight<'a> {
    /// The id of this leader.
    pub(crate) own: u64,
    /// Tells whether the state has this id as that of a removed member.
    pub(crate) removed: &'a dyn Fn(u64) -> bool,
    /// Tells whether a member follows this leader now.
    pub(crate) in_contact: &'a dyn Fn(u64) -> bool,
    /// Tells whether a learner has been nearly up to date (in step) for `promote_after_ms`.
    pub(crate) in_step: &'a dyn Fn(u64) -> bool,
}

/// Id of the member that this one is to replace; `None` if it replaces none.
pub(crate) fn replaces(member: &Member) -> Option<u64> {
    std::str::from_utf8(member.extra.get(mark::REPLACES)?).ok()?.parse().ok()
}

/// Tells whether a member serves without ever voting.
pub(crate) fn is_observer(member: &Member) -> bool {
    member.extra.get(mark::ROLE).is_some_and(|role| role == mark::OBSERVER)
}

fn promotes_itself(member: &Member) -> bool {
    let manual = member.extra.get(mark::PROMOTE).is_some_and(|how| how == mark::MANUAL);
    !is_observer(member) && !manual && !member.extra.contains_key(mark::REMOVING)
}

/// Tells whether a majority of these voters follows this leader now. The leader itself counts.
pub(crate) fn has_quorum(voters: &BTreeSet<u64>, sight: &LeaderSight<'_>) -> bool {
    let there = voters.iter().filter(|id| **id == sight.own || (sight.in_contact)(**id)).count();
    there > voters.len() / 2
}

/// The next step of a change of the members; `None` if there is no change, or if the next step must
/// wait.
pub(crate) fn next_step(membership: &StoredMembership, sight: &LeaderSight<'_>) -> Option<Step> {
    let sets = membership.get_joint_config();
    // A leader that has no vote, or is about to lose it, must hand over here. Raft would do so
    // without telling this node, which would then believe that it leads at the same time as its
    // successor.
    if sets.last().is_some_and(|voters| !voters.contains(&sight.own)) {
        return Some(Step::PassLeadership);
    }
    let [voters] = sets.as_slice() else {
        return (!sets.is_empty()).then_some(Step::LeaveJoint);
    };
    let mut steps = membership.nodes().filter_map(|(id, member)| step_of(*id, member, voters, sight));
    steps.next()
}

/// The next step that concerns one member; `None` if there is none now.
fn step_of(id: u64, member: &Member, voters: &BTreeSet<u64>, sight: &LeaderSight<'_>) -> Option<Step> {
    if let Some(how) = member.extra.get(mark::REMOVING) {
        return remove(id, how == mark::FORCED, voters, sight);
    }
    let is_voter = voters.contains(&id);
    if let Some(old) = replaces(member) {
        if is_voter {
            return Some(Step::MarkReplaced { old, new: id });
        }
        // The member to be replaced may have lost its vote in another way. Then this learner is
        // promoted like any other.
        if !voters.contains(&old) {
            return promote(id, member, voters, sight);
        }
        let may = (sight.in_step)(id) && promotes_itself(member);
        let mut then = voters.clone();
        then.remove(&old);
        then.insert(id);
        let step = if old == sight.own { Step::PassLeadership } else { Step::Replace { old, new: id } };
        return (may && has_quorum(&then, sight)).then_some(step);
    }
    if is_voter { None } else { promote(id, member, voters, sight) }
}

fn promote(id: u64, member: &Member, voters: &BTreeSet<u64>, sight: &LeaderSight<'_>) -> Option<Step> {
    let mut then = voters.clone();
    then.insert(id);
    let may = promotes_itself(member) && (sight.in_step)(id) && has_quorum(&then, sight);
    may.then_some(Step::Promote { id })
}

fn remove(id: u64, forced: bool, voters: &BTreeSet<u64>, sight: &LeaderSight<'_>) -> Option<Step> {
    if voters.contains(&id) {
        let mut then = voters.clone();
        then.remove(&id);
        // The last voter is not removed, and a quorum of the voters left must be in contact.
        if then.is_empty() || !(forced || has_quorum(&then, sight)) {
            return None;
        }
        return Some(if id == sight.own { Step::PassLeadership } else { Step::Demote { id } });
    }
    Some(if (sight.removed)(id) { Step::Drop { id } } else { Step::NoteRemoved { id } })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use storage::Membership;

    use super::*;

    fn marked(marks: &[(&str, &str)]) -> Member {
        let extra = marks.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec())).collect();
        Member { extra, ..Member::default() }
    }

    fn membership(sets: &[&[u64]], others: &[(u64, &[(&str, &str)])]) -> StoredMembership {
        let sets: Vec<BTreeSet<u64>> = sets.iter().map(|set| set.iter().copied().collect()).collect();
        let mut nodes: BTreeMap<u64, Member> = sets.iter().flatten().map(|id| (*id, Member::default())).collect();
        nodes.extend(others.iter().map(|(id, marks)| (*id, marked(marks))));
        StoredMembership::new(None, Membership::new(sets, nodes).unwrap())
    }

    /// Checks the next step of leader 1. The members in `contacts` follow it, and the learners
    /// among them are nearly up to date.
    #[track_caller]
    fn check(membership: &StoredMembership, contacts: &[u64], removed: &[u64], expected: Option<Step>) {
        let sight = LeaderSight {
            own: 1,
            removed: &|id| removed.contains(&id),
            in_contact: &|id| contacts.contains(&id),
            in_step: &|id| contacts.contains(&id),
        };
        assert_eq!(next_step(membership, &sight), expected);
    }

    #[test]
    fn a_learner_becomes_a_voter_once_it_is_in_step_unless_it_is_not_to_be_one() {
        let plain = membership(&[&[1, 2, 3]], &[(4, &[])]);
        check(&plain, &[2, 3], &[], None);
        check(&plain, &[2, 3, 4], &[], Some(Step::Promote { id: 4 }));
        // A quorum of four voters is three.
        check(&plain, &[4], &[], None);
        for marks in [&[("role", "observer")][..], &[("promote", "manual")], &[("removing", "safe")]] {
            let kept = membership(&[&[1, 2, 3]], &[(4, marks)]);
            assert!(!matches!(next_of(&kept), Some(Step::Promote { .. })), "{marks:?}");
        }
    }

    fn next_of(membership: &StoredMembership) -> Option<Step> {
        next_step(membership, &LeaderSight { own: 1, removed: &|_| false, in_contact: &|_| true, in_step: &|_| true })
    }

    #[test]
    fn a_dead_voter_is_replaced_through_a_joint_membership_and_then_removed() {
        // Node 3 is dead. With four voters, a quorum would be all three live nodes, the new one
        // included.
        let added = membership(&[&[1, 2, 3]], &[(4, &[("replaces", "3")])]);
        check(&added, &[2], &[], None);
        check(&added, &[2, 4], &[], Some(Step::Replace { old: 3, new: 4 }));
        let joint = membership(&[&[1, 2, 3], &[1, 2, 4]], &[(4, &[("replaces", "3")])]);
        check(&joint, &[2, 4], &[], Some(Step::LeaveJoint));
        let replaced = membership(&[&[1, 2, 4]], &[(3, &[]), (4, &[("replaces", "3")])]);
        check(&replaced, &[2, 4], &[], Some(Step::MarkReplaced { old: 3, new: 4 }));
        let marked = membership(&[&[1, 2, 4]], &[(3, &[("removing", "forced")])]);
        check(&marked, &[2, 4], &[], Some(Step::NoteRemoved { id: 3 }));
        check(&marked, &[2, 4], &[3], Some(Step::Drop { id: 3 }));
        check(&membership(&[&[1, 2, 4]], &[]), &[2, 4], &[3], None);
        let observer = membership(&[&[1, 2, 3]], &[(4, &[("replaces", "3"), ("role", "observer")])]);
        check(&observer, &[2, 4], &[], None);
    }

    #[test]
    fn a_leader_that_is_replaced_lets_another_one_lead_first() {
        // Simulation seed 199: Raft handed over by itself, and the old leader was still sure.
        let added = membership(&[&[1, 2, 3]], &[(4, &[("replaces", "1")])]);
        check(&added, &[2, 3], &[], None);
        check(&added, &[2, 3, 4], &[], Some(Step::PassLeadership));
        let joint = membership(&[&[1, 2, 3], &[2, 3, 4]], &[(4, &[("replaces", "1")])]);
        check(&joint, &[2, 3, 4], &[], Some(Step::PassLeadership));
        check(&membership(&[&[2, 3, 4]], &[(1, &[])]), &[2, 3, 4], &[], Some(Step::PassLeadership));
    }

    #[test]
    fn a_member_whose_forerunner_has_gone_otherwise_is_like_any_other() {
        // Simulation seeds 167 and 359: the new member stayed a learner, or kept its mark
        // `replaces` for good.
        let learner = membership(&[&[1, 2]], &[(4, &[("replaces", "3")])]);
        check(&learner, &[2, 4], &[3], Some(Step::Promote { id: 4 }));
        check(&learner, &[2], &[3], None);
        let voter = membership(&[&[1, 2, 4]], &[(4, &[("replaces", "3")])]);
        check(&voter, &[2, 4], &[3], Some(Step::MarkReplaced { old: 3, new: 4 }));
    }

    #[test]
    fn a_voter_is_removed_only_if_those_left_are_a_quorum_that_is_there() {
        let marks: &[(&str, &str)] = &[("removing", "safe")];
        check(&membership(&[&[1, 2, 3]], &[(3, marks)]), &[2], &[], Some(Step::Demote { id: 3 }));
        check(&membership(&[&[1, 2, 3]], &[(2, marks)]), &[2], &[], None);
        check(&membership(&[&[1, 2, 3]], &[(2, &[("removing", "forced")])]), &[2], &[], Some(Step::Demote { id: 2 }));
        check(&membership(&[&[1, 2, 3]], &[(1, marks)]), &[2, 3], &[], Some(Step::PassLeadership));
        check(&membership(&[&[1]], &[(1, marks)]), &[], &[], None);
    }
}
