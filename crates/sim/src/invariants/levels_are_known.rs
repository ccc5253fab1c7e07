//! Every node can apply each entry and read each state that it meets, and no entry is above the
//! level of the cluster.
//!
//! Source: docs/dev/formats.md. A node that runs an older program after the level was raised ends,
//! and names the program to start.

use super::Invariant;
use crate::history::History;
use crate::log_disk::LogDisk;
use crate::observation::{Commit, NodeView};

pub(super) struct LevelsAreKnown;

impl Invariant for LevelsAreKnown {
    fn name(&self) -> &'static str {
        "levels are known"
    }

    fn committed(&mut self, commit: &Commit<'_>, _: &History) -> Result<(), String> {
        let Some(txn) = commit.txn else { return Ok(()) };
        let (row, level) = (txn.request.op.row(), commit.before.level());
        if row.level > level {
            return Err(format!("`{}` came with level {}, and {} is at {level}", row.name, row.level, commit.zxid));
        }
        Ok(())
    }

    fn node(&mut self, view: &NodeView, _: &LogDisk, _: &mut History) -> Result<(), String> {
        let (level, known) = (view.state.level(), view.levels);
        if known.contains(level) {
            return Ok(());
        }
        Err(format!("node {} shows a state at level {level}, and its program knows {known}", view.node))
    }
}
