//! A node ends by itself for two reasons only: its disk has failed, or it was removed and the log
//! says so. No entry, frame or snapshot of a leader ends a node.
//!
//! Source: Raft's Log Matching: every member can append and apply all that a leader sends.

use super::Invariant;
use crate::history::History;
use crate::hub::MachineId;

/// The first words of `replica::Failure::Removed`.
pub(crate) const REMOVED: &str = "this node was removed from the cluster";

#[derive(Default)]
pub(super) struct NodesCanApply;

impl Invariant for NodesCanApply {
    fn name(&self) -> &'static str {
        "nodes can apply"
    }

    fn ended(&mut self, node: MachineId, why: &str, history: &History) -> Result<(), String> {
        if why.contains("the disk has failed") {
            return Ok(());
        }
        let cluster = history.state(history.last()).and_then(znode::State::cluster);
        let removed = cluster.is_some_and(|cluster| cluster.removed().any(|(id, _)| id == node));
        if why.starts_with(REMOVED) && removed {
            return Ok(());
        }
        Err(format!("node {node} ended itself: {why}"))
    }
}
