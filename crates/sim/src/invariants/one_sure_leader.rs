//! While a leader has a valid lease, no node leads in a later term.
//!
//! Source: a leader's lease (Gray and Cheriton, "Leases", 1989; Ongaro's dissertation, section
//! 6.4.1). Because of the lease, an old leader acknowledges no heartbeat once a new leader counts
//! the timeouts of sessions (docs/sessions-and-time.md).

use znode::Term;

use super::Invariant;
use crate::observation::Standing;

/// Invariant: while a leader has a valid lease, no node leads in a later term.
#[derive(Default)]
pub(super) struct OneSureLeader {
    latest: Term,
}

impl Invariant for OneSureLeader {
    fn name(&self) -> &'static str {
        "one sure leader"
    }

    fn step(&mut self, standings: &[Standing], _: u64) -> Result<(), String> {
        let latest = self.latest;
        self.latest = standings.iter().filter_map(|node| node.leads).chain([latest]).max().unwrap_or(latest);
        match standings.iter().find(|node| node.sure.is_some_and(|term| term < self.latest)) {
            Some(Standing { node, sure, .. }) => {
                Err(format!("node {node} is sure to lead in {sure:?}, and another one leads in {:?}", self.latest))
            }
            None => Ok(()),
        }
    }
}
