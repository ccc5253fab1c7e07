//! The edits of which all operations are made: a znode comes, goes or gets other data. Each keeps
//! every index and tells of it. Beside them stand the bounds that are checked before.

use std::sync::Arc;

use crate::edits::budget::steps_to;
use crate::edits::context::Context;
use crate::edits::effects::Effects;
use crate::tree::quota::Growth;
use crate::tree::system_paths::is_system;
use crate::tree::znode::Family;
use crate::{Acl, Contender, Error, EventKind, Kind, Refusal, Reply, Stat, State, Usage, ZPath, Znode};

/// Sequence numbers end here: one more would wrap in ZooKeeper, and clients that compare names
/// would see it first in line.
pub const SEQUENCE_MAX: u64 = i32::MAX as u64;

/// A znode about to be put into the tree; everything was checked.
pub(crate) struct NewNode {
    pub(crate) kind: Kind,
    pub(crate) data: Arc<[u8]>,
    pub(crate) acl: Arc<[Acl]>,
    pub(crate) contender: Option<Contender>,
}

impl State {
    /// Puts a znode into the tree and every index, and tells of it.
    pub(crate) fn insert(&mut self, path: &ZPath, new: NewNode, context: &Context, effects: &mut Effects) -> Stat {
        effects.steps += steps_to(path);
        let Context { zxid, time_ms, .. } = *context;
        let parent = path.parent().expect("only the root has no parent, and it is always there");
        let node = Znode {
            kind: new.kind,
            data: new.data,
            acl: new.acl,
            czxid: zxid,
            mzxid: zxid,
            pzxid: zxid,
            ctime_ms: time_ms,
            mtime_ms: time_ms,
            emptied_ms: time_ms,
            version: 0,
            aversion: 0,
            creates: 0,
            deletes: 0,
            below: Usage::default(),
            family: Family::default(),
            contender: new.contender.map(Arc::new),
        };
        let (stat, bytes, acl) = (node.stat(), node.data.len() as u64, self.readers(path, &node));
        self.link(path, &parent, node, |parent| {
            parent.creates += 1;
            parent.pzxid = zxid;
        });
        let told = self.quota_created(path, bytes);
        if self.tree[path].number(path.name()).is_some() {
            effects.queue_changed(&parent);
            self.grant_downgraded(path, context, effects);
        }
        self.tell_with_parent(EventKind::Created, path, &parent, acl, context, effects);
        if told { self.tree[path].stat() } else { stat }
    }

    /// Puts a znode where it belongs: the tree, its lock, its session. What is counted at the
    /// parent is the caller's.
    pub(crate) fn link(&mut self, path: &ZPath, parent: &ZPath, node: Znode, count: impl FnOnce(&mut Znode)) {
        if let Some(session) = node.owner().and_then(|owner| self.sessions.get_mut(owner)) {
            session.own(path, parent, node.contender());
        }
        let is_ticket = self.locks.entered(path, parent, &node);
        let tickets = self.tree.link(path, parent, node, count);
        if is_ticket && tickets == 1 {
            self.locks.opened(parent);
        }
    }

    /// Takes a childless znode out of the tree and every index, and tells of it.
    pub(crate) fn remove(&mut self, path: &ZPath, context: &Context, effects: &mut Effects) {
        effects.steps += steps_to(path);
        let parent = path.parent().expect("the root is never removed");
        let (node, grant, tickets) = self.tree.unlink(path, &parent, context.zxid, context.time_ms);
        self.locks.left(path, &parent, &node, tickets);
        self.ticket_ended(path, &node, grant, context, effects);
        self.quota_deleted(path, &node);
        if node.number(path.name()).is_some() {
            effects.queue_changed(&parent);
        }
        // The session of a lingering lock node is gone.
        if let Some(session) = node.owner().and_then(|owner| self.sessions.get_mut(owner)) {
            session.disown(path, &parent, node.contender());
        }
        self.tell_with_parent(EventKind::Deleted, path, &parent, self.readers(path, &node), context, effects);
        for part in self.locks.take_multi(path, node.czxid) {
            self.remove(&part, context, effects);
        }
    }

    /// Replaces the data of a znode as a client asks for it; whether that is permitted was checked.
    pub(crate) fn set_data(
        &mut self,
        path: &ZPath,
        data: Vec<u8>,
        version: i32,
        context: &Context,
        effects: &mut Effects,
    ) -> Result<Reply, Refusal> {
        let refuse = |error| Refusal::at(error, path);
        let Some(node) = self.node(path) else {
            return Err(refuse(Error::NoNode));
        };
        expect_version(version, node.version).map_err(refuse)?;
        if data.len() > self.limits.data_bytes_max as usize {
            return Err(refuse(Error::DataTooLarge));
        }
        self.replace_data(path, data, context, effects)
    }

    /// Replaces the data of a znode that is there, however long both are: the bound may have been
    /// lowered since.
    pub(crate) fn replace_data(
        &mut self,
        path: &ZPath,
        data: Vec<u8>,
        context: &Context,
        effects: &mut Effects,
    ) -> Result<Reply, Refusal> {
        let (before, after) = (self.tree[path].data.len() as u64, data.len() as u64);
        // Shrinking is always allowed: it is the way out.
        if after > before {
            self.check_plain_bytes(path, after - before)?;
        }
        self.check_quota(path, Growth { count: 0, bytes: after.saturating_sub(before) })?;
        self.check_quota_text(path, &data).map_err(|error| Refusal::at(error, path))?;
        let Context { zxid, time_ms, .. } = *context;
        let stat = self.tree.edit(path, |node| {
            node.data = data.into();
            node.version = next_version(node.version);
            node.mzxid = zxid;
            node.mtime_ms = time_ms;
            node.stat()
        });
        if before != after && !is_system(path.as_str()) {
            self.tree.change_below(path, |below| below.bytes = below.bytes - before + after);
        }
        self.tell(EventKind::DataChanged, path, context, effects);
        let told = self.quota_changed(path, before, after);
        // The usage of a subtree is written into a znode, which may be this one.
        Ok(Reply::Set { stat: if told { self.tree[path].stat() } else { stat } })
    }

    /// Checks whether there is room for `path` and the `count` znodes, itself included, that are
    /// made on the way to it below `parent`; but for their bytes.
    pub(crate) fn check_room(&self, parent: &Znode, path: &ZPath, data: usize, count: u64) -> Result<(), Error> {
        let limits = &*self.limits;
        if parent.owner().is_some() {
            return Err(Error::NoChildrenForEphemerals);
        }
        self.check_path(path)?;
        if data > limits.data_bytes_max as usize {
            Err(Error::DataTooLarge)
        } else if parent.family.names.len() >= limits.children_max as usize {
            Err(Error::TooManyChildren)
        } else if self.tree.len() as u64 + count > limits.znodes_max {
            Err(Error::QuotaExceeded)
        } else {
            Ok(())
        }
    }

    /// Checks whether there is room for an ACL that perhaps no other znode has: as for data,
    /// because an ephemeral znode may have one as long as any.
    pub(crate) fn check_acl_room(&self, path: &ZPath, acl: &[Acl]) -> Result<(), Refusal> {
        self.check_plain_bytes(path, self.tree.acl_growth(acl))
    }

    /// Checks whether a path is short enough to be made.
    pub(crate) fn check_path(&self, path: &ZPath) -> Result<(), Error> {
        let limits = &*self.limits;
        let long = path.as_str().len() > limits.path_bytes_max as usize
            || path.depth() > limits.path_depth_max as usize
            || path.as_str().split('/').any(|name| name.len() > limits.name_bytes_max as usize);
        if long { Err(Error::PathTooLong) } else { Ok(()) }
    }

    pub(crate) fn check_ephemerals(&self, kind: Kind) -> Result<(), Error> {
        let Kind::Ephemeral { owner } = kind else {
            return Ok(());
        };
        let session = self.session(owner).ok_or(Error::SessionExpired)?;
        let full = session.ephemerals.len() >= self.limits.ephemerals_max as usize;
        if full { Err(Error::TooManyEphemerals) } else { Ok(()) }
    }
}

/// The list that a new znode keeps. One that is the parent's own is kept once: in most trees all
/// znodes have the same. None at all is the parent's.
pub(crate) fn shared_acl(acl: Vec<Acl>, parent: &Znode) -> Arc<[Acl]> {
    if acl.is_empty() || *parent.acl == *acl { Arc::clone(&parent.acl) } else { acl.into() }
}

/// The number that a sequential create gets under a parent.
pub(crate) fn next_number(parent: &Znode) -> Result<u64, Error> {
    if parent.creates < SEQUENCE_MAX { Ok(parent.creates) } else { Err(Error::SequenceExhausted) }
}

pub(crate) fn expect_version(expected: i32, actual: i32) -> Result<(), Error> {
    if expected == -1 || expected == actual { Ok(()) } else { Err(Error::BadVersion) }
}

/// Versions are 32 bits wide and wrap, but pass over -1: to a client that means any
/// (ZOOKEEPER-4743).
pub(crate) fn next_version(version: i32) -> i32 {
    if version == -2 { 0 } else { version.wrapping_add(1) }
}
