//! A node that was removed never becomes a member again under the same id.
//!
//! Source: docs/operating.md ("ids are never used again"). A second node with the same id may vote
//! differently from the first one, and its disk lacks the entries that the first one acknowledged.

use std::collections::BTreeSet;

use super::Invariant;
use crate::history::History;
use crate::hub::MachineId;
use crate::observation::Commit;

#[derive(Default)]
pub(super) struct IdsOnce {
    members: BTreeSet<MachineId>,
    gone: BTreeSet<MachineId>,
}

impl Invariant for IdsOnce {
    fn name(&self) -> &'static str {
        "ids once"
    }

    fn committed(&mut self, commit: &Commit<'_>, _: &History) -> Result<(), String> {
        let Some(membership) = commit.membership else { return Ok(()) };
        let now: BTreeSet<MachineId> = membership.nodes().map(|(id, _)| *id).collect();
        self.gone.extend(self.members.difference(&now));
        self.members = now;
        match self.members.intersection(&self.gone).next() {
            Some(id) => Err(format!("node {id} was removed, and is a member again since {}", commit.zxid)),
            None => Ok(()),
        }
    }
}
