//! The tree of znodes, with its indexes and sums. All changes of a znode go through this file.

pub(crate) mod acls;
pub(crate) mod quota;
pub(crate) mod subtrees;
pub(crate) mod system_paths;
#[cfg(test)]
mod tests;
pub(crate) mod usage;
pub(crate) mod znode;

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Index};
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};

use crate::entry::kind::Kind;
use crate::queue::Queue;
use crate::queue::contender::Contender;
use crate::queue::ended::Grant;
use crate::tree::acls::Acls;
use crate::tree::subtrees::Subtrees;
use crate::tree::system_paths::is_system;
use crate::tree::usage::Usage;
use crate::tree::znode::Znode;
use crate::words::acl::Acl;
use crate::words::ids::Zxid;
use crate::words::path::ZPath;
use crate::words::weight::Weight;

/// All znodes. A clone costs O(1).
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    nodes: OrdMap<ZPath, Arc<Znode>>,
    /// TTL znodes without children, and lock nodes kept for a lock-delay, by the time from which
    /// they can be deleted.
    timed: OrdSet<(u64, ZPath)>,
    /// Containers that had children and have none, by the time at which the last child was deleted.
    idle: OrdSet<(u64, ZPath)>,
    data_bytes: u64,
    acls: Acls,
    weight: Weight,
    subtrees: Subtrees,
}

impl<Q> Index<&Q> for Tree
where
    Q: Ord + ?Sized,
    ZPath: Borrow<Q>,
{
    type Output = Znode;

    /// The znode at a path. Panics if there is none.
    fn index(&self, path: &Q) -> &Znode {
        &self.nodes[path]
    }
}

impl Tree {
    pub(crate) fn get<Q>(&self, path: &Q) -> Option<&Znode>
    where
        Q: Ord + ?Sized,
        ZPath: Borrow<Q>,
    {
        self.nodes.get(path).map(|node| &**node)
    }

    pub(crate) fn contains<Q>(&self, path: &Q) -> bool
    where
        Q: Ord + ?Sized,
        ZPath: Borrow<Q>,
    {
        self.nodes.contains_key(path)
    }

    /// The znode at a path, unaffected by later changes of the tree. Panics if there is none.
    pub(crate) fn shared(&self, path: &ZPath) -> Arc<Znode> {
        Arc::clone(&self.nodes[path])
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// All znodes, sorted by path, so parents come before their children.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&ZPath, &Znode)> {
        self.nodes.iter().map(|(path, node)| (path, &**node))
    }

    /// Znodes with paths after `from` and before `to`.
    pub(crate) fn between(&self, from: &str, to: &str) -> impl Iterator<Item = (&ZPath, &Znode)> {
        let range = (Bound::Excluded(from), Bound::Excluded(to));
        self.nodes.range::<_, str>(range).map(|(path, node)| (path, &**node))
    }

    /// Znodes with paths after `path`, sorted by path.
    pub(crate) fn after(&self, path: &str) -> impl Iterator<Item = (&ZPath, &Znode)> {
        let range = (Bound::Excluded(path), Bound::Unbounded);
        self.nodes.range::<_, str>(range).map(|(path, node)| (path, &**node))
    }

    /// All znodes, sorted by path, unaffected by later changes of the tree.
    pub(crate) fn walk(&self) -> impl Iterator<Item = (ZPath, Arc<Znode>)> + Send + use<> {
        self.nodes.clone().into_iter()
    }

    /// The queue of a lock; `None` if it has neither tickets nor settings.
    pub(crate) fn queue<Q>(&self, lock: &Q) -> Option<&Queue>
    where
        Q: Ord + ?Sized,
        ZPath: Borrow<Q>,
    {
        self.get(lock).and_then(|node| node.family.queue.as_deref())
    }

    /// Sum of the lengths of all znodes' data, in bytes.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// Znodes that may be deleted at `now_ms`: first TTL znodes and lock nodes whose lock-delay is
    /// over, the longest overdue first; then containers that have been empty for `idle_ms`.
    pub(crate) fn due(&self, now_ms: u64, idle_ms: u64) -> impl Iterator<Item = &ZPath> {
        let timed = self.timed.iter().take_while(move |(due_ms, _)| *due_ms <= now_ms);
        let idle = self.idle.iter().take_while(move |(emptied_ms, _)| emptied_ms.saturating_add(idle_ms) <= now_ms);
        timed.chain(idle).map(|(_, path)| path)
    }

    /// Estimated memory of the tree with its ACLs and indexes, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let timed = self.timed.len() + self.idle.len();
        let tree = self.data_bytes + self.weight.of_tree(self.nodes.len(), timed);
        tree + self.acls.bytes() + self.subtrees.weight()
    }

    /// Estimated memory of the subtrees, one for each child of the root.
    pub(crate) fn subtrees(&self) -> &Subtrees {
        &self.subtrees
    }

    /// Bytes by which the tree grows when one more znode has this ACL.
    pub(crate) fn acl_growth(&self, acl: &[Acl]) -> u64 {
        self.acls.growth(acl)
    }

    /// Adds the root, which has no parent.
    pub(crate) fn plant(&mut self, mut root: Znode) {
        root.acl = self.acls.take(root.acl);
        self.data_bytes += root.data.len() as u64;
        self.weight.change((false, false), root.shape());
        self.nodes.insert(ZPath::root(), Arc::new(root));
    }

    /// Adds a znode to the tree, to its parent's list of children and, if it is a ticket, to the
    /// parent's queue. `count` updates the parent's counters. Returns the number of tickets in the
    /// parent's queue afterwards.
    pub(crate) fn link(
        &mut self,
        path: &ZPath,
        parent: &ZPath,
        mut node: Znode,
        count: impl FnOnce(&mut Znode),
    ) -> usize {
        node.acl = self.acls.take(node.acl);
        self.weight.bytes += node.weight(path);
        self.weight.change((false, false), node.shape());
        self.subtrees.change(path, 0, node.weight_in_subtree(path));
        let name: Arc<str> = path.name().into();
        let usage = node.usage_at(path);
        let top = parent.is_root();
        self.change_below(parent, |below| below.add(usage));
        let entering = node.position(path.name()).map(|position| (position, node.ticket(path.name())));
        let tickets = self.edit(parent, |parent| {
            count(parent);
            if !top {
                parent.below.add(usage);
            }
            parent.family.insert(&name);
            if let Some((position, ticket)) = entering {
                parent.family.edit_queue(|queue| queue.enter(position, ticket));
            }
            parent.family.ticket_count()
        });
        self.data_bytes += node.data.len() as u64;
        self.index(path, &node);
        self.nodes.insert(path.clone(), Arc::new(node));
        tickets
    }

    /// Removes a znode without children. Returns the znode, its grant if it was a ticket that held,
    /// and the number of tickets left in the parent's queue.
    pub(crate) fn unlink(
        &mut self,
        path: &ZPath,
        parent: &ZPath,
        zxid: Zxid,
        time_ms: u64,
    ) -> (Arc<Znode>, Option<Grant>, usize) {
        let node = self.nodes.remove(path).expect("the caller has seen it");
        assert!(node.family.names.is_empty(), "only childless znodes are removed");
        self.acls.release(&node.acl);
        self.weight.bytes -= node.weight(path);
        self.weight.change(node.shape(), (false, false));
        self.subtrees.change(path, node.weight_in_subtree(path), 0);
        self.unindex(path, &node);
        self.data_bytes -= node.data.len() as u64;
        let (usage, top) = (node.usage_at(path), parent.is_root());
        self.change_below(parent, |below| below.take(usage));
        let position = node.position(path.name());
        let (holder, tickets) = self.edit(parent, |parent| {
            parent.changes.deletes += 1;
            parent.changes.pzxid = zxid;
            if !top {
                parent.below.take(usage);
            }
            parent.family.remove(path.name());
            parent.changes.emptied_ms = time_ms;
            let holder = position.and_then(|position| parent.family.edit_queue(|queue| queue.leave(&position)));
            (holder, parent.family.ticket_count())
        });
        (node, holder.map(|holder| holder.grant), tickets)
    }

    /// Changes a znode in place, and updates the indexes and the estimate of memory.
    pub(crate) fn edit<T>(&mut self, path: &ZPath, change: impl FnOnce(&mut Znode) -> T) -> T {
        let node = Arc::make_mut(self.nodes.get_mut(path).expect("the caller has seen it"));
        let (before, shape, data) = ((timed_at(node), idle_since(node)), node.shape(), node.data.len() as u64);
        let answer = change(node);
        let after = (timed_at(node), idle_since(node));
        self.weight.change(shape, node.shape());
        let now = node.data.len() as u64;
        self.data_bytes = self.data_bytes - data + now;
        if node.owner().is_none() {
            self.subtrees.change(path, data, now);
        }
        if data != now && !is_system(path.as_str()) {
            self.change_below(path, |below| below.bytes = below.bytes - data + now);
        }
        if before != after {
            let node = Arc::clone(&self.nodes[path]);
            before.0.map(|due_ms| self.timed.remove(&(due_ms, path.clone())));
            before.1.map(|emptied_ms| self.idle.remove(&(emptied_ms, path.clone())));
            self.index(path, &node);
        }
        answer
    }

    /// Changes the contender (the record of the acquires) of a ticket. `None` for a ticket that a
    /// plain create made, because it has no contender.
    pub(crate) fn edit_contender<T>(&mut self, ticket: &ZPath, change: impl FnOnce(&mut Contender) -> T) -> Option<T> {
        let changed = self.edit(ticket, |node| {
            let contender = Arc::make_mut(node.contender.as_mut()?);
            let before = contender.holds_weight();
            Some((change(contender), before, contender.holds_weight()))
        });
        let (answer, before, now) = changed?;
        self.weight.bytes = self.weight.bytes - before + now;
        Some(answer)
    }

    pub(crate) fn edit_queue<T>(&mut self, lock: &ZPath, change: impl FnOnce(&mut Queue) -> T) -> T {
        self.edit(lock, |node| node.family.edit_queue(change))
    }

    /// Replaces a znode's ACL, then applies `change` to the znode and returns its result.
    pub(crate) fn set_acl<T>(&mut self, path: &ZPath, acl: Arc<[Acl]>, change: impl FnOnce(&mut Znode) -> T) -> T {
        let acl = self.acls.take(acl);
        let (answer, before) = self.edit(path, |node| {
            let before = std::mem::replace(&mut node.acl, acl);
            (change(node), before)
        });
        self.acls.release(&before);
        answer
    }

    fn index(&mut self, path: &ZPath, node: &Znode) {
        timed_at(node).map(|due_ms| self.timed.insert((due_ms, path.clone())));
        idle_since(node).map(|emptied_ms| self.idle.insert((emptied_ms, path.clone())));
    }

    fn unindex(&mut self, path: &ZPath, node: &Znode) {
        timed_at(node).map(|due_ms| self.timed.remove(&(due_ms, path.clone())));
        idle_since(node).map(|emptied_ms| self.idle.remove(&(emptied_ms, path.clone())));
    }

    /// Usage of the subtree at a path, with its top znode; zero if that znode does not exist.
    pub(crate) fn usage(&self, subtree: &ZPath) -> Usage {
        let Some(node) = self.get(subtree) else {
            return Usage::default();
        };
        let (own, below) = (node.usage(), node.below);
        Usage { count: own.count + below.count, bytes: own.bytes + below.bytes }
    }

    /// Applies `change` to the usage counters of each ancestor of a path, except the root, which
    /// has none.
    fn change_below(&mut self, path: &ZPath, change: impl Fn(&mut Usage)) {
        let mut above = path.as_str();
        while let Some(slash) = above.rfind('/').filter(|slash| *slash > 0) {
            above = &above[..slash];
            let node = self.nodes.get_mut(above).expect("a znode has all its ancestors");
            change(&mut Arc::make_mut(node).below);
        }
    }

    /// Compares indexes and sums with the znodes, for tests.
    pub(crate) fn check_invariants(&self) -> Result<(), String> {
        let (mut timed, mut idle, mut data_bytes) = (BTreeSet::new(), BTreeSet::new(), 0);
        let (mut weight, mut acls, mut subtrees) = (Weight::default(), Acls::default(), Subtrees::default());
        for (path, node) in self.iter() {
            timed.extend(timed_at(node).map(|due_ms| (due_ms, path.clone())));
            idle.extend(idle_since(node).map(|emptied_ms| (emptied_ms, path.clone())));
            data_bytes += node.data.len() as u64;
            weight.change((false, false), node.shape());
            weight.bytes += if path.is_root() { 0 } else { node.weight(path) };
            acls.take(Arc::clone(&node.acl));
            subtrees.change(path, 0, node.weight_in_subtree(path));
        }
        if subtrees != self.subtrees {
            return Err(format!("subtrees weigh {subtrees:?} and are kept as {:?}", self.subtrees));
        }
        if data_bytes != self.data_bytes {
            return Err(format!("{data_bytes} data bytes counted as {}", self.data_bytes));
        }
        if !self.timed.iter().eq(&timed) || !self.idle.iter().eq(&idle) {
            return Err(format!("{timed:?} and {idle:?} are kept as {:?} and {:?}", self.timed, self.idle));
        }
        if weight != self.weight {
            return Err(format!("weights are {weight:?} and kept as {:?}", self.weight));
        }
        self.acls.check(&acls)?;
        self.check_below()
    }

    /// Compares the usage by descendants, which each znode keeps, with a count over the tree, for
    /// tests.
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

/// Time from which a TTL znode without children, or a lock node kept for a lock-delay, may be
/// deleted, in milliseconds since 1970. `None` for other znodes.
pub(crate) fn timed_at(node: &Znode) -> Option<u64> {
    match node.kind {
        Kind::Ttl { ttl_ms } if node.family.names.is_empty() => Some(node.changes.mtime_ms.saturating_add(ttl_ms)),
        _ => node.lingers_until_ms(),
    }
}

/// Time since which a container has had no children, in milliseconds since 1970. `None` for a
/// container that never had a child, and for other znodes.
pub(crate) fn idle_since(node: &Znode) -> Option<u64> {
    let idle = node.kind == Kind::Container && node.changes.creates > 0 && node.family.names.is_empty();
    idle.then_some(node.changes.emptied_ms)
}
