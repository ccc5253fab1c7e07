//! The edits of which operations consist: adding a znode, removing a znode, replacing a znode's
//! data. Each edit updates every index and records the events. The limits that are checked before
//! an edit are here, too.

use std::sync::Arc;

use crate::edits::budget::steps_to;
use crate::edits::context::Context;
use crate::edits::effects::Effects;
use crate::tree::quota::Growth;
use crate::tree::znode::Changes;
use crate::{Acl, Contender, Error, EventKind, Kind, Refusal, Reply, Stat, State, ZPath, Znode};

/// Number of creates after which a parent has no sequence numbers left. The next number would wrap
/// in ZooKeeper's 32 bits, and clients that compare names would sort its znode before all others.
pub const SEQUENCE_MAX: u64 = i32::MAX as u64;

/// A znode that passed all checks and is about to be added to the tree.
pub(crate) struct NewNode {
    pub(crate) kind: Kind,
    pub(crate) data: Arc<[u8]>,
    pub(crate) acl: Arc<[Acl]>,
    pub(crate) contender: Option<Contender>,
}

impl State {
    /// Adds a znode to the tree and every index, and records its events.
    pub(crate) fn insert(&mut self, path: &ZPath, new: NewNode, effects: &mut Effects) -> Stat {
        effects.steps += steps_to(path);
        let Context { zxid, time_ms, .. } = effects.context;
        let parent = path.parent().expect("only the root has no parent, and it is always there");
        let changes = Changes {
            mzxid: zxid,
            pzxid: zxid,
            ctime_ms: time_ms,
            mtime_ms: time_ms,
            emptied_ms: time_ms,
            ..Changes::default()
        };
        let node = Znode {
            kind: new.kind,
            data: new.data,
            acl: new.acl,
            czxid: zxid,
            changes,
            contender: new.contender.map(Arc::new),
            ..Znode::default()
        };
        let (stat, bytes, acl) = (node.stat(), node.data.len() as u64, self.readers(path, &node));
        self.link(path, &parent, node, |parent| {
            parent.changes.creates += 1;
            parent.changes.pzxid = zxid;
        });
        let told = self.quota_created(path, bytes);
        if self.tree()[path].number(path.name()).is_some() {
            effects.queue_changed(&parent);
            self.grant_downgraded(path, effects);
        }
        self.tell_with_parent(EventKind::Created, path, &parent, acl, effects);
        if told { self.tree()[path].stat() } else { stat }
    }

    /// Removes a znode without children from the tree and every index, and records its events.
    pub(crate) fn remove(&mut self, path: &ZPath, effects: &mut Effects) {
        effects.steps += steps_to(path);
        let parent = path.parent().expect("the root is never removed");
        let (node, grant) = self.unlink(path, &parent, effects.context.moment());
        self.ticket_ended(path, &node, grant, effects);
        self.quota_deleted(path, &node);
        if node.number(path.name()).is_some() {
            effects.queue_changed(&parent);
        }
        self.tell_with_parent(EventKind::Deleted, path, &parent, self.readers(path, &node), effects);
        for part in self.take_multi(path, node.czxid) {
            self.remove(&part, effects);
        }
    }

    /// Replaces the data of a znode for a client. The caller has checked the client's permission.
    pub(crate) fn set_data(
        &mut self,
        path: &ZPath,
        data: Vec<u8>,
        version: i32,
        effects: &mut Effects,
    ) -> Result<Reply, Refusal> {
        let refuse = |error| Refusal::at(error, path);
        let node = self.existing(path)?;
        expect_version(version, node.changes.version).map_err(refuse)?;
        if data.len() > self.limits().data_bytes_max as usize {
            return Err(refuse(Error::DataTooLarge));
        }
        self.replace_data(path, data, effects)
    }

    /// Replaces the data of an existing znode without checking its length, because the limit may
    /// have been lowered since the znode was made.
    pub(crate) fn replace_data(
        &mut self,
        path: &ZPath,
        data: Vec<u8>,
        effects: &mut Effects,
    ) -> Result<Reply, Refusal> {
        let node = &self.tree()[path];
        let (before, after) = (node.data.len() as u64, data.len() as u64);
        // Shrinking is always allowed, so that a full state can be emptied.
        if after > before {
            self.check_znode_bytes(path, node.kind, data.len(), after - before)?;
        }
        self.check_quota(path, Growth { count: 0, bytes: after.saturating_sub(before) })?;
        self.check_quota_text(path, &data).map_err(|error| Refusal::at(error, path))?;
        let Context { zxid, time_ms, .. } = effects.context;
        let stat = self.edit_znode(path, |node| {
            node.data = data.into();
            node.changes.version = next_version(node.changes.version);
            node.changes.mzxid = zxid;
            node.changes.mtime_ms = time_ms;
            node.stat()
        });
        self.tell(EventKind::DataChanged, path, effects);
        let told = self.quota_changed(path, before, after);
        // If the znode shows the usage of a quota, the usage has replaced the data.
        Ok(Reply::Set { stat: if told { self.tree()[path].stat() } else { stat } })
    }

    /// Checks a new znode at `path` against the limits for paths, data, children and znodes, but
    /// not for memory. `parent` is its nearest existing ancestor; `count` includes its missing
    /// ancestors.
    pub(crate) fn check_room(&self, parent: &Znode, path: &ZPath, data: usize, count: u64) -> Result<(), Error> {
        let limits = self.limits();
        if parent.owner().is_some() {
            return Err(Error::NoChildrenForEphemerals);
        }
        self.check_path(path)?;
        if data > limits.data_bytes_max as usize {
            Err(Error::DataTooLarge)
        } else if parent.family.names.len() >= limits.children_max as usize {
            Err(Error::TooManyChildren)
        } else if self.znode_count() as u64 + count > limits.znodes_max {
            Err(Error::QuotaExceeded)
        } else {
            Ok(())
        }
    }

    /// Checks that the state has room for an ACL; an ACL that a znode has already needs no room.
    /// The limit for znodes without a session applies also to ephemeral znodes, because each may
    /// have a long ACL.
    pub(crate) fn check_acl_room(&self, path: &ZPath, acl: &[Acl]) -> Result<(), Refusal> {
        self.check_plain_bytes(path, self.tree().acl_growth(acl))
    }

    /// Checks that a path is within the limits for length, depth and names.
    pub(crate) fn check_path(&self, path: &ZPath) -> Result<(), Error> {
        let limits = self.limits();
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
        let full = session.ephemerals.len() >= self.limits().ephemerals_max as usize;
        if full { Err(Error::TooManyEphemerals) } else { Ok(()) }
    }
}

/// The ACL for a new znode. An ACL equal to the parent's shares its memory, since most trees have
/// only one ACL. An empty ACL stands for the parent's.
pub(crate) fn shared_acl(acl: Vec<Acl>, parent: &Znode) -> Arc<[Acl]> {
    if acl.is_empty() || *parent.acl == *acl { Arc::clone(&parent.acl) } else { acl.into() }
}

/// The sequence number of the parent's next sequential child.
pub(crate) fn next_number(parent: &Znode) -> Result<u64, Error> {
    if parent.changes.creates < SEQUENCE_MAX { Ok(parent.changes.creates) } else { Err(Error::SequenceExhausted) }
}

pub(crate) fn expect_version(expected: i32, actual: i32) -> Result<(), Error> {
    if expected == -1 || expected == actual { Ok(()) } else { Err(Error::BadVersion) }
}

/// The version after a change. Versions have 32 bits and wrap, but skip -1, which stands for any
/// version in a request (ZOOKEEPER-4743).
pub(crate) fn next_version(version: i32) -> i32 {
    if version == -2 { 0 } else { version.wrapping_add(1) }
}
