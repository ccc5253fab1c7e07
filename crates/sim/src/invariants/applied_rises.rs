//! The state that a node shows never goes back while the node runs.
//!
//! Source: ZooKeeper's guarantee of a single system image (zookeeperOver, "Guarantees"). After a
//! restart a node reads its log again, and may show an older state than before. Even then a client
//! never gets a state older than the newest zxid that the client has seen; `reads_are_fresh` checks
//! that.

use std::collections::BTreeMap;

use znode::Zxid;

use super::Invariant;
use crate::history::History;
use crate::hub::MachineId;
use crate::log_disk::LogDisk;
use crate::observation::NodeView;

#[derive(Default)]
pub(super) struct AppliedRises {
    shown: BTreeMap<MachineId, (u64, Zxid, u64)>,
}

impl Invariant for AppliedRises {
    fn name(&self) -> &'static str {
        "applied never regresses"
    }

    fn node(&mut self, view: &NodeView, _: &LogDisk, _: &mut History) -> Result<(), String> {
        let now = (view.boot, view.state.last_zxid(), view.state.time_ms());
        let before = self.shown.insert(view.node, now);
        match before.filter(|before| before.0 == view.boot) {
            Some((_, zxid, time_ms)) if zxid > now.1 || time_ms > now.2 => {
                Err(format!("node {} went from {zxid} back to {}", view.node, now.1))
            }
            _ => Ok(()),
        }
    }
}
