//! Every znode has a parent that lists it, and all counts and indexes are right.
//!
//! Source: the data model of ZooKeeper (zookeeperProgrammers, "The ZooKeeper Data Model") and
//! docs/znode-model.md; `State::check_invariants` walks the whole state.

use super::Invariant;
use crate::history::History;
use crate::observation::Commit;

pub(super) struct ParentsExist;

impl Invariant for ParentsExist {
    fn name(&self) -> &'static str {
        "parents exist"
    }

    fn committed(&mut self, commit: &Commit<'_>, _: &History) -> Result<(), String> {
        commit.after.check_invariants().map_err(|why| format!("at {}: {why}", commit.zxid))
    }
}
