//! A node's program knows the format level of the node's applied state, and no log entry needs a
//! higher format level than the one that the cluster had when the entry was applied.
//!
//! Source: docs/dev/formats.md. A node ends if its program is older than the raised level, and the
//! last line of its log says that a newer release must be started.

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
