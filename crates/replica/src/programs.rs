//! Programs that the members of a cluster run.

use bincode::{Decode, Encode};

use crate::Program;

/// The program that a member runs.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct MemberProgram {
    /// The member's id.
    pub id: u64,
    /// Program of the member when it last connected to the leader. `None` if it has not connected,
    /// or if its program does not name itself.
    pub program: Option<Program>,
    /// True if the member follows the leader, or is the leader.
    pub reachable: bool,
}

impl MemberProgram {
    /// Tells whether the member is reachable and its program knows this format level.
    pub fn is_ready_for(&self, level: u16) -> bool {
        self.reachable && self.program.as_ref().is_some_and(|program| program.levels.contains(level))
    }
}

/// Format level of the cluster, and the programs of its members.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct UpgradeStatus {
    /// Format level of the cluster.
    pub level: u16,
    /// All members, by id.
    pub members: Vec<MemberProgram>,
}

impl UpgradeStatus {
    /// The highest format level that any member knows.
    pub(crate) fn highest(&self) -> u16 {
        let levels = self.members.iter().filter_map(|member| member.program.as_ref());
        levels.map(|program| program.levels.max).max().unwrap_or(self.level)
    }

    /// The highest format level that all members are ready for; `None` if it is not above the
    /// cluster's.
    pub fn next_level(&self) -> Option<u16> {
        let ready = |level: &u16| self.members.iter().all(|member| member.is_ready_for(*level));
        (self.level + 1..=self.highest()).rev().find(ready)
    }
}

#[cfg(test)]
mod tests {
    use znode::Levels;

    use super::*;

    fn member(id: u64, levels: Option<(u16, u16)>, reachable: bool) -> MemberProgram {
        let program = levels.map(|(min, max)| Program { version: "0".into(), levels: Levels { min, max } });
        MemberProgram { id, program, reachable }
    }

    #[test]
    fn the_next_level_is_the_highest_that_all_members_are_ready_for() {
        let next = |members: &[MemberProgram]| UpgradeStatus { level: 2, members: members.to_vec() }.next_level();
        let (new, newer) = (member(1, Some((1, 3)), true), member(2, Some((2, 5)), true));
        assert_eq!(next(&[new.clone(), newer.clone()]), Some(3));
        assert_eq!(next(std::slice::from_ref(&newer)), Some(5));
        for hindrance in [member(3, Some((1, 2)), true), member(3, Some((1, 3)), false), member(3, None, true)] {
            assert_eq!(next(&[new.clone(), newer.clone(), hindrance]), None);
        }
        // This member knows none of the levels between.
        assert_eq!(next(&[newer, member(3, Some((5, 6)), true)]), Some(5));
    }
}
