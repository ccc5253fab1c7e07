//! A term has at most one leader.
//!
//! Source: Raft's Election Safety (Ongaro and Ousterhout 2014, section 5.2). A node that votes
//! twice in a term, for example after it forgot its vote in a crash, violates it.

use std::collections::BTreeMap;

use znode::Term;

use super::Invariant;
use crate::history::History;
use crate::hub::MachineId;
use crate::log_disk::LogDisk;
use crate::observation::NodeView;

#[derive(Default)]
pub(super) struct OneLeader {
    leaders: BTreeMap<Term, MachineId>,
}

impl Invariant for OneLeader {
    fn name(&self) -> &'static str {
        "one leader in a term"
    }

    fn node(&mut self, view: &NodeView, _: &LogDisk, _: &mut History) -> Result<(), String> {
        let Some(term) = view.leads else { return Ok(()) };
        let leader = *self.leaders.entry(term).or_insert(view.node);
        if leader == view.node { Ok(()) } else { Err(format!("nodes {leader} and {} lead in term {term}", view.node)) }
    }
}
