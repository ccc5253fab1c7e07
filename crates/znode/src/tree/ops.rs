//! The tree: creating, deleting and setting znodes by ZooKeeper's rules.

use std::sync::Arc;

use crate::entry::changes::Changes;
use crate::entry::cost::steps_to;
use crate::tree::permissions::permit;
use crate::tree::quota::Growth;
use crate::tree::system_paths::is_system;
use crate::tree::znode::Family;
use crate::tree::{idle_since, timed_at};
use crate::weight;
use crate::{
    Acl, CREATE, Contender, Create, CreateMode, DELETE, Ensure, Error, EventKind, Kind, READ, ReapCandidate, Refusal,
    Reply, SessionId, Stat, State, Usage, ZPath, Znode, ZnodeOp,
};

/// The longest TTL, as in ZooKeeper: 40 bits of milliseconds.
const TTL_MS_MAX: u64 = (1 << 40) - 1;

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
    pub(crate) fn znode_op(
        &mut self,
        mut op: ZnodeOp,
        session: Option<SessionId>,
        changes: &mut Changes,
    ) -> Result<Reply, Refusal> {
        self.check_system_write(&mut op, changes)?;
        match op {
            ZnodeOp::Create(create) => self.create(create, session, changes),
            ZnodeOp::Delete { path, version } => self.delete(&path, version, changes),
            ZnodeOp::SetData { path, data, version } => {
                self.permit_data(&path, &data, changes)?;
                self.set_data(&path, data, version, changes)
            }
            ZnodeOp::Check { path, version } => self.check(&path, version, changes),
        }
    }

    /// All or nothing. Working on the state itself and putting the old one back costs O(1).
    pub(crate) fn multi(
        &mut self,
        ops: Vec<ZnodeOp>,
        session: Option<SessionId>,
        changes: &mut Changes,
    ) -> Result<Reply, Refusal> {
        if ops.len() > self.limits.ops_max as usize {
            return Err(Error::TooManyOps.into());
        }
        self.check_multi_cost(&ops, changes)?;
        let before = self.clone();
        let mut replies = Vec::with_capacity(ops.len());
        for (index, op) in (0..).zip(ops) {
            let answer = match op.stands_alone() {
                true => Err(Error::BadArguments.into()),
                false => self.znode_op(op, session, changes),
            };
            match answer.and_then(|reply| self.check_steps(changes).map(|()| reply)) {
                Ok(reply) => replies.push(reply),
                Err(refusal) => {
                    *self = before;
                    changes.clear();
                    return Err(Refusal { op_index: Some(index), ..refusal });
                }
            }
        }
        Ok(Reply::Multi(replies))
    }

    fn create(&mut self, create: Create, session: Option<SessionId>, changes: &mut Changes) -> Result<Reply, Refusal> {
        let Create { parent, name, data, mode, acl, ensure } = create;
        if ensure != Ensure::New && mode != CreateMode::Ephemeral {
            return Err(Refusal::at(Error::BadArguments, &parent));
        }
        if let CreateMode::PersistentTtl { ttl_ms } | CreateMode::PersistentSequentialTtl { ttl_ms } = mode
            && !(1..=TTL_MS_MAX).contains(&ttl_ms)
        {
            return Err(Refusal::at(Error::BadArguments, &parent));
        }
        // None at all is the parent's.
        if !acl.is_empty() {
            self.check_acl(&acl).map_err(|error| Refusal::at(error, &parent))?;
        }
        let (base, missing) = self.way_to(&parent, ensure)?;
        let node = &self.tree[&base];
        permit(&node.acl, CREATE, changes).map_err(|error| Refusal::at(error, &parent))?;
        let path = if mode.is_sequential() {
            let path = next_number(node).and_then(|number| parent.child(&format!("{name}{number:010}")));
            path.map_err(|error| Refusal::at(error, &parent))?
        } else {
            parent.child(&name).map_err(|error| Refusal::at(error, &parent))?
        };
        let refuse = |error| Refusal::at(error, &path);
        self.check_managed(&parent, path.name(), Kind::of(mode, SessionId(0)))?;
        if let Some(there) = self.node(&path) {
            return match there.is_ensured(ensure, session, &data) {
                true => Ok(Reply::Created { stat: there.stat(), path }),
                false => Err(refuse(Error::NodeExists)),
            };
        }
        let owner = match (mode.is_ephemeral(), session) {
            (true, None) => return Err(refuse(Error::SessionRequired)),
            (true, Some(owner)) => owner,
            (false, _) => SessionId(0),
        };
        let kind = Kind::of(mode, owner);
        let count = missing.len() as u64 + 1;
        self.check_room(node, &path, data.len(), count).map_err(refuse)?;
        let queued = if kind.number(path.name()).is_some() { weight::QUEUED } else { 0 };
        let made = weight::made(&path, data.len(), count) + queued;
        // A lock node of a ZooKeeper client, a simple lock, a member.
        if mode.is_ephemeral() && data.len() <= self.limits.label_bytes_max as usize {
            self.check_bytes(made).map_err(refuse)?;
        } else {
            self.check_plain_bytes(&path, made)?;
        }
        self.check_acl_room(&path, &acl)?;
        self.check_quota(&path, Growth { count, bytes: data.len() as u64 })?;
        self.check_quota_text(&path, &data).map_err(refuse)?;
        self.check_ephemerals(kind).map_err(refuse)?;
        let (above, acl) = (Arc::clone(&node.acl), shared_acl(acl, node));
        self.make_containers(&missing, &above, changes);
        let new = NewNode { kind, data: data.into(), acl, contender: None };
        let stat = self.insert(&path, new, changes);
        Ok(Reply::Created { path, stat })
    }

    fn delete(&mut self, path: &ZPath, version: i32, changes: &mut Changes) -> Result<Reply, Refusal> {
        let refuse = |error| Refusal::at(error, path);
        let Some(parent) = path.parent_str() else {
            return Err(refuse(Error::BadArguments));
        };
        let Some(node) = self.node(path) else {
            return Err(refuse(Error::NoNode));
        };
        permit(&self.tree[parent].acl, DELETE, changes).map_err(refuse)?;
        expect_version(version, node.version).map_err(refuse)?;
        if !node.family.names.is_empty() {
            return Err(refuse(Error::NotEmpty));
        }
        self.remove(path, changes);
        Ok(Reply::Done)
    }

    /// Replaces the data of a znode; whether that is permitted was checked.
    pub(crate) fn set_data(
        &mut self,
        path: &ZPath,
        data: Vec<u8>,
        version: i32,
        changes: &mut Changes,
    ) -> Result<Reply, Refusal> {
        let refuse = |error| Refusal::at(error, path);
        let Some(node) = self.node(path) else {
            return Err(refuse(Error::NoNode));
        };
        expect_version(version, node.version).map_err(refuse)?;
        if data.len() > self.limits.data_bytes_max as usize {
            return Err(refuse(Error::DataTooLarge));
        }
        let (before, after) = (node.data.len() as u64, data.len() as u64);
        // Shrinking is always allowed: it is the way out.
        if after > before {
            self.check_plain_bytes(path, after - before)?;
        }
        self.check_quota(path, Growth { count: 0, bytes: after.saturating_sub(before) })?;
        self.check_quota_text(path, &data).map_err(refuse)?;
        let (zxid, time_ms) = (changes.zxid, self.time_ms);
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
        self.tell(EventKind::DataChanged, path, changes);
        let told = self.quota_changed(path, before, after);
        // What a subtree uses is written into a znode, which may be this one.
        Ok(Reply::Set { stat: if told { self.tree[path].stat() } else { stat } })
    }

    fn check(&self, path: &ZPath, version: i32, changes: &Changes) -> Result<Reply, Refusal> {
        let refuse = |error| Refusal::at(error, path);
        let Some(node) = self.node(path) else {
            return Err(refuse(Error::NoNode));
        };
        permit(self.acl_of(path, node), READ, changes).map_err(refuse)?;
        expect_version(version, node.version).map_err(refuse)?;
        Ok(Reply::Done)
    }

    pub(crate) fn set_acl(
        &mut self,
        path: &ZPath,
        acl: Vec<Acl>,
        version: i32,
        changes: &Changes,
    ) -> Result<Reply, Refusal> {
        let refuse = |error| Refusal::at(error, path);
        let Some(node) = self.node(path) else {
            return Err(refuse(Error::NoNode));
        };
        self.permit_acl(path, node, changes).map_err(refuse)?;
        expect_version(version, node.aversion).map_err(refuse)?;
        self.check_acl(&acl).map_err(refuse)?;
        self.check_acl_room(path, &acl)?;
        // An acquire would make the directory anew with its parent's ACL, for the first who comes.
        // One that would contend by its name stays a container.
        let own = path.parent_str().is_some_and(|parent| *self.tree[parent].acl != *acl)
            && Kind::Persistent.number(path.name()).is_none();
        let stat = self.tree.set_acl(path, acl.into(), |node| {
            if own && node.kind == Kind::Container {
                node.kind = Kind::Persistent;
            }
            node.aversion = next_version(node.aversion);
            node.stat()
        });
        Ok(Reply::Set { stat })
    }

    /// Collects those candidates that still qualify.
    pub(crate) fn reap(&mut self, candidates: &[ReapCandidate], changes: &mut Changes) -> Reply {
        let mut count = 0;
        for candidate in candidates {
            // The others are found again.
            if self.check_steps(changes).is_err() {
                break;
            }
            let due = self.node(&candidate.path).is_some_and(|node| {
                // A node made anew at the path is another one.
                node.czxid == candidate.czxid && self.is_due(&candidate.path, node)
            });
            if due {
                self.remove(&candidate.path, changes);
                count += 1;
            }
        }
        Reply::Removed { count }
    }

    fn is_due(&self, path: &ZPath, node: &Znode) -> bool {
        let idle_ms = u64::from(self.limits.container_idle_ms);
        timed_at(node).is_some_and(|due_ms| due_ms <= self.time_ms)
            || idle_since(node).is_some_and(|emptied_ms| emptied_ms.saturating_add(idle_ms) <= self.time_ms)
            || self.locks.revocations.due_ms(path).is_some_and(|due_ms| due_ms <= self.time_ms)
    }

    /// Whether there is room for `path` and the `count` znodes, itself included, that are made on
    /// the way to it below `parent`; but for their bytes.
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

    /// Whether there is room for an ACL that perhaps no other znode has: as for data, because an
    /// ephemeral znode may have one as long as any.
    fn check_acl_room(&self, path: &ZPath, acl: &[Acl]) -> Result<(), Refusal> {
        self.check_plain_bytes(path, self.tree.acl_growth(acl))
    }

    /// Whether a path is short enough to be made.
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

    /// The parent of a child that was made with a sequence number, and how many of its
    /// [`SEQUENCE_MAX`] numbers are used.
    pub fn sequence_used(&self, reply: &Reply) -> Option<(ZPath, u64)> {
        let made = match reply {
            Reply::Created { path, .. } => path,
            Reply::Acquired { ticket, .. } => ticket,
            Reply::Multi(replies) => {
                return replies.iter().filter_map(|reply| self.sequence_used(reply)).max_by_key(|(_, used)| *used);
            }
            _ => return None,
        };
        let number = made.as_str().as_bytes().last_chunk::<10>()?;
        let parent = made.parent().filter(|_| number.iter().all(u8::is_ascii_digit))?;
        let used = self.node(&parent)?.creates;
        Some((parent, used))
    }

    fn check_acl(&self, acl: &[Acl]) -> Result<(), Error> {
        let good = |entry: &Acl| {
            let words = [&entry.scheme, &entry.id];
            entry.perms != 0
                && !entry.scheme.is_empty()
                && words.iter().all(|word| word.len() <= self.limits.name_bytes_max as usize)
        };
        let fits = (1..=self.limits.acl_entries_max as usize).contains(&acl.len());
        if fits && acl.iter().all(good) { Ok(()) } else { Err(Error::InvalidAcl) }
    }

    /// Puts a znode into the tree and every index, and tells of it.
    pub(crate) fn insert(&mut self, path: &ZPath, new: NewNode, changes: &mut Changes) -> Stat {
        changes.steps += steps_to(path);
        let (zxid, time_ms) = (changes.zxid, self.time_ms);
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
            changes.queue_changed(&parent);
            self.grant_downgraded(path, changes);
        }
        self.tell_with_parent(EventKind::Created, path, &parent, acl, changes);
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
    pub(crate) fn remove(&mut self, path: &ZPath, changes: &mut Changes) {
        changes.steps += steps_to(path);
        let parent = path.parent().expect("the root is never removed");
        let (node, grant, tickets) = self.tree.unlink(path, &parent, changes.at(), self.time_ms);
        self.locks.left(path, &parent, &node, tickets);
        self.ticket_ended(path, &node, grant, changes);
        self.quota_deleted(path, &node);
        if node.number(path.name()).is_some() {
            changes.queue_changed(&parent);
        }
        // The session of a lingering lock node is gone.
        if let Some(session) = node.owner().and_then(|owner| self.sessions.get_mut(owner)) {
            session.disown(path, &parent, node.contender());
        }
        self.tell_with_parent(EventKind::Deleted, path, &parent, self.readers(path, &node), changes);
        for part in self.locks.take_multi(path, node.czxid) {
            self.remove(&part, changes);
        }
    }
}

/// An ACL that is the parent's own is kept once: in most trees all znodes have the same. None at
/// all is the parent's.
pub(crate) fn shared_acl(acl: Vec<Acl>, parent: &Znode) -> Arc<[Acl]> {
    if acl.is_empty() || *parent.acl == *acl { Arc::clone(&parent.acl) } else { acl.into() }
}

/// The name that a sequential create gets under a parent.
pub(crate) fn next_number(parent: &Znode) -> Result<u64, Error> {
    if parent.creates < SEQUENCE_MAX { Ok(parent.creates) } else { Err(Error::SequenceExhausted) }
}

fn expect_version(expected: i32, actual: i32) -> Result<(), Error> {
    if expected == -1 || expected == actual { Ok(()) } else { Err(Error::BadVersion) }
}

/// Versions are 32 bits wide and wrap, but pass over -1: to a client that means any
/// (ZOOKEEPER-4743).
fn next_version(version: i32) -> i32 {
    if version == -2 { 0 } else { version.wrapping_add(1) }
}
