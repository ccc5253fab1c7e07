//! Replicas that have applied the same number of entries have applied the same entries, and have
//! the same state, byte for byte.
//!
//! Source: Raft's State Machine Safety (Ongaro and Ousterhout 2014, section 5.4.3), and the
//! determinism of `znode` (docs/dev/architecture.md). The state of each node is compared by digest
//! with that of a plain loop over the committed entries.

use replica::Replica;

use super::Invariant;
use crate::history::History;
use crate::log_disk::LogDisk;
use crate::observation::NodeView;

pub(super) struct ReplicasAgree;

impl Invariant for ReplicasAgree {
    fn name(&self) -> &'static str {
        "replicas agree"
    }

    fn node(&mut self, view: &NodeView, log: &LogDisk, history: &mut History) -> Result<(), String> {
        let zxid = view.state.last_zxid();
        if zxid.0 == 0 {
            return Ok(());
        }
        let expected = history.digest(zxid).ok_or_else(|| format!("node {} has applied {zxid}, unknown", view.node))?;
        if Replica::digest(&view.state) != expected {
            return Err(format!("the state of node {} at {zxid} is another one", view.node));
        }
        let written = history
            .index(zxid)
            .and_then(|index| log.archived(index))
            .map(|archived| archived.entry.log_id.committed_leader_id().term);
        let committed = history.entry(zxid).map(|entry| entry.term.0);
        // A node that got this state by a snapshot may lack the entry in its log, or may have
        // another entry in its place.
        let by_entries = view.state.last_term().0 == committed.unwrap_or_default();
        match written {
            _ if by_entries => Ok(()),
            written => Err(format!("node {} applied {zxid} of term {written:?}, not {committed:?}", view.node)),
        }
    }
}
