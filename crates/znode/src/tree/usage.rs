//! What is below each znode, kept as it changes: how many znodes, and how much data.
//!
//! A create, a delete and a change of data cost a step for each ancestor; asking costs a look. So
//! neither setting a quota nor ZooKeeper's `getAllChildrenNumber` walks a subtree, however large.
//! Nothing is kept at the root, which has everything, and no bytes are kept of what is below
//! `/zookeeper`: no quota can be there, and what quotas write there would have to be counted for
//! each of them. It is no part of snapshots: it comes back as the znodes do.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::ZPath;
use crate::state::State;
use crate::tree::Tree;
use crate::tree::system_paths::is_system;
use crate::tree::znode::Znode;

/// Znodes and their data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Znodes.
    pub count: u64,
    /// The length of their data.
    pub bytes: u64,
}

impl Usage {
    pub(crate) fn of(node: &Znode) -> Usage {
        Usage { count: 1, bytes: node.data.len() as u64 }
    }

    /// What a znode is for its ancestors.
    pub(crate) fn at(path: &ZPath, node: &Znode) -> Usage {
        if is_system(path.as_str()) { Usage { count: 1, bytes: 0 } } else { Usage::of(node) }
    }

    pub(crate) fn add(&mut self, other: Usage) {
        self.count += other.count;
        self.bytes += other.bytes;
    }

    pub(crate) fn take(&mut self, other: Usage) {
        self.count -= other.count;
        self.bytes -= other.bytes;
    }
}

/// As `zookeeper_stats` has it (StatsTrack.toString).
impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "count={},bytes={}", self.count, self.bytes)
    }
}

impl State {
    /// How many znodes are below one, at any depth; 0 when there is none. O(log n): the number is
    /// kept.
    pub fn descendant_count(&self, path: &ZPath) -> u64 {
        if path.is_root() {
            return self.tree.len() as u64 - 1;
        }
        self.node(path).map_or(0, |node| node.below.count)
    }
}

impl Tree {
    /// What a subtree has, its root included.
    pub(crate) fn usage(&self, subtree: &ZPath) -> Usage {
        let Some(node) = self.get(subtree) else {
            return Usage::default();
        };
        let (own, below) = (Usage::of(node), node.below);
        Usage { count: own.count + below.count, bytes: own.bytes + below.bytes }
    }

    /// What is below each ancestor of a path changes, but for the root.
    pub(crate) fn change_below(&mut self, path: &ZPath, change: impl Fn(&mut Usage)) {
        let mut above = path.as_str();
        while let Some(slash) = above.rfind('/').filter(|slash| *slash > 0) {
            above = &above[..slash];
            let node = self.nodes.get_mut(above).expect("a znode has all its ancestors");
            change(&mut Arc::make_mut(node).below);
        }
    }

    /// For tests: what is kept, against the tree.
    pub(crate) fn check_below(&self) -> Result<(), String> {
        let mut counted: BTreeMap<&str, Usage> = BTreeMap::new();
        for (path, node) in self.iter() {
            let own = is_system(path.as_str());
            let mut above = path.as_str();
            while let Some(slash) = above.rfind('/').filter(|slash| *slash > 0) {
                above = &above[..slash];
                let below = counted.entry(above).or_default();
                below.count += 1;
                below.bytes += if own { 0 } else { node.data.len() as u64 };
            }
        }
        let differs =
            |(path, node): &(&ZPath, &Znode)| node.below != counted.get(path.as_str()).copied().unwrap_or_default();
        match self.iter().find(differs) {
            None => Ok(()),
            Some((path, node)) => {
                Err(format!("{path}: {:?} below it, kept as {:?}", counted.get(path.as_str()), node.below))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Acl, Create, CreateMode, Ensure, LogPosition, Op, Request, Term, Txn, ZnodeOp, Zxid};

    fn path(path: &str) -> ZPath {
        ZPath::parse(path).unwrap()
    }

    fn create(at: &str, data: &str) -> ZnodeOp {
        let at = path(at);
        let (parent, name) = (at.parent().unwrap(), at.name().into());
        ZnodeOp::Create(Create {
            parent,
            name,
            data: data.into(),
            mode: CreateMode::Persistent,
            acl: Acl::open(),
            ensure: Ensure::New,
        })
    }

    fn apply(state: &mut State, op: Op) {
        let at = LogPosition { term: Term(1), zxid: Zxid(state.last_zxid().0 + 1) };
        assert!(state.apply(at, Txn { time_ms: 1, request: Request::new(op) }).reply.is_ok());
    }

    #[test]
    fn setting_quotas_64_times_in_one_entry_walks_no_subtree() {
        let mut state = State::default();
        for at in ["/big", "/big/a", "/zookeeper", "/zookeeper/quota", "/zookeeper/quota/big"] {
            apply(&mut state, Op::Znode(create(at, "")));
        }
        state.check_invariants().unwrap();
        // What a walk over the subtree would not find.
        state.tree.edit(&path("/big"), |node| node.below = Usage { count: 500_000, bytes: 7 });
        let limits = "/zookeeper/quota/big/zookeeper_limits";
        let again =
            (0..64).flat_map(|_| [create(limits, "count=5"), ZnodeOp::Delete { path: path(limits), version: -1 }]);
        apply(&mut state, Op::Multi(again.collect()));
        apply(&mut state, Op::Znode(create(limits, "count=5")));
        let usage = state.quotas().next().map(|(_, quota)| quota.usage);
        assert_eq!(usage, Some(Usage { count: 500_001, bytes: 7 }));
        assert_eq!(state.descendant_count(&path("/big")), 500_000);
    }
}
