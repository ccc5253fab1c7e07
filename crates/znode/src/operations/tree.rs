//! Creating, deleting and setting znodes by ZooKeeper's rules.

use std::sync::Arc;

use crate::edits::context::Context;
use crate::edits::edit::{NewNode, expect_version, next_number, next_version, shared_acl};
use crate::edits::effects::Effects;
use crate::edits::permissions::permit;
use crate::tree::quota::Growth;
use crate::tree::{idle_since, timed_at};
use crate::words::weight;
use crate::{
    Acl, CREATE, Create, CreateMode, DELETE, Ensure, Error, IDENTITY_BYTES_MAX, Kind, Op, READ, ReapCandidate, Refusal,
    Reply, SessionId, Stat, State, ZPath, Znode, ZnodeOp,
};

/// The longest TTL, as in ZooKeeper, in milliseconds: the largest number of 40 bits.
const TTL_MS_MAX: u64 = (1 << 40) - 1;

impl State {
    pub(crate) fn znode_op(&mut self, mut op: ZnodeOp, effects: &mut Effects) -> Result<Reply, Refusal> {
        self.check_system_write(&mut op, &effects.context)?;
        match op {
            ZnodeOp::Create(create) => self.create(create, effects),
            ZnodeOp::Delete { path, version } => self.delete(&path, version, effects),
            ZnodeOp::SetData { path, data, version } => {
                self.permit_data(&path, &data, &effects.context)?;
                self.set_data(&path, data, version, effects)
            }
            ZnodeOp::Check { path, version } => self.check(&path, version, &effects.context),
        }
    }

    /// Applies several operations, all or none. The state is changed in place; if an operation
    /// fails, a clone made before is put back, which costs O(1).
    pub(crate) fn multi(&mut self, ops: Vec<ZnodeOp>, effects: &mut Effects) -> Result<Reply, Refusal> {
        if ops.len() > self.limits().ops_max as usize {
            return Err(Error::TooManyOps.into());
        }
        self.check_multi_cost(&ops, effects)?;
        let before = self.clone();
        let mut replies = Vec::with_capacity(ops.len());
        for (index, op) in (0..).zip(ops) {
            let answer = match op.stands_alone() {
                true => Err(Error::BadArguments.into()),
                false => self.znode_op(op, effects),
            };
            match answer.and_then(|reply| self.check_steps(effects).map(|()| reply)) {
                Ok(reply) => replies.push(reply),
                Err(refusal) => {
                    *self = before;
                    effects.clear();
                    return Err(Refusal { op_index: Some(index), ..refusal });
                }
            }
        }
        Ok(Reply::Multi(replies))
    }

    fn create(&mut self, create: Create, effects: &mut Effects) -> Result<Reply, Refusal> {
        let Create { parent, name, data, mode, acl, ensure } = create;
        if ensure != Ensure::New && mode != CreateMode::Ephemeral {
            return Err(Refusal::at(Error::BadArguments, &parent));
        }
        if let CreateMode::PersistentTtl { ttl_ms } | CreateMode::PersistentSequentialTtl { ttl_ms } = mode
            && !(1..=TTL_MS_MAX).contains(&ttl_ms)
        {
            return Err(Refusal::at(Error::BadArguments, &parent));
        }
        // An empty ACL stands for the parent's.
        if !acl.is_empty() {
            self.check_acl(&acl).map_err(|error| Refusal::at(error, &parent))?;
        }
        let (base, missing) = self.way_to(&parent, ensure)?;
        let node = &self.tree()[&base];
        permit(&node.acl, CREATE, &effects.context).map_err(|error| Refusal::at(error, &parent))?;
        let path = if mode.is_sequential() {
            let path = next_number(node).and_then(|number| parent.child(&format!("{name}{number:010}")));
            path.map_err(|error| Refusal::at(error, &parent))?
        } else {
            parent.child(&name).map_err(|error| Refusal::at(error, &parent))?
        };
        let refuse = |error| Refusal::at(error, &path);
        self.check_managed(&parent, path.name(), Kind::of(mode, SessionId(0)))?;
        if let Some(there) = self.node(&path) {
            return match there.is_ensured(ensure, effects.context.session, &data) {
                true => Ok(Reply::Created { stat: there.stat(), path }),
                false => Err(refuse(Error::NodeExists)),
            };
        }
        let owner = match (mode.is_ephemeral(), effects.context.session) {
            (true, None) => return Err(refuse(Error::SessionRequired)),
            (true, Some(owner)) => owner,
            (false, _) => SessionId(0),
        };
        let kind = Kind::of(mode, owner);
        let count = missing.len() as u64 + 1;
        self.check_room(node, &path, data.len(), count).map_err(refuse)?;
        let queued = if kind.number(path.name()).is_some() { weight::QUEUED } else { 0 };
        let made = weight::made(&path, data.len(), count) + queued;
        self.check_znode_bytes(&path, kind, data.len(), made)?;
        // An empty ACL stands for the parent's, which is there already.
        if !acl.is_empty() {
            self.check_acl_room(&path, &acl)?;
        }
        self.check_quota(&path, Growth { count, bytes: data.len() as u64 })?;
        self.check_quota_text(&path, &data).map_err(refuse)?;
        self.check_ephemerals(kind).map_err(refuse)?;
        let (above, acl) = (Arc::clone(&node.acl), shared_acl(acl, node));
        self.make_containers(&missing, &above, effects);
        let new = NewNode { kind, data: data.into(), acl, contender: None };
        let stat = self.insert(&path, new, effects);
        Ok(Reply::Created { path, stat })
    }

    fn delete(&mut self, path: &ZPath, version: i32, effects: &mut Effects) -> Result<Reply, Refusal> {
        let refuse = |error| Refusal::at(error, path);
        let Some(parent) = path.parent_str() else {
            return Err(refuse(Error::BadArguments));
        };
        let node = self.existing(path)?;
        permit(&self.tree()[parent].acl, DELETE, &effects.context).map_err(refuse)?;
        expect_version(version, node.changes.version).map_err(refuse)?;
        if !node.family.names.is_empty() {
            return Err(refuse(Error::NotEmpty));
        }
        self.remove(path, effects);
        Ok(Reply::Done)
    }

    fn check(&self, path: &ZPath, version: i32, context: &Context) -> Result<Reply, Refusal> {
        let refuse = |error| Refusal::at(error, path);
        let node = self.existing(path)?;
        permit(self.acl_of(path, node), READ, context).map_err(refuse)?;
        expect_version(version, node.changes.version).map_err(refuse)?;
        Ok(Reply::Done)
    }

    pub(crate) fn set_acl(
        &mut self,
        path: &ZPath,
        acl: Vec<Acl>,
        version: i32,
        context: &Context,
    ) -> Result<Reply, Refusal> {
        let refuse = |error| Refusal::at(error, path);
        let node = self.existing(path)?;
        self.permit_acl(path, node, context).map_err(refuse)?;
        expect_version(version, node.changes.aversion).map_err(refuse)?;
        self.check_acl(&acl).map_err(refuse)?;
        self.check_acl_room(path, &acl)?;
        // A container with its own ACL becomes persistent. If it were collected, the next acquire
        // would make it again with its parent's ACL. A directory with the name of a ticket stays a
        // container, because a persistent znode with that name would contend for a lock.
        let own = path.parent_str().is_some_and(|parent| *self.tree()[parent].acl != *acl)
            && Kind::Persistent.number(path.name()).is_none();
        let stat = self.replace_acl(path, acl.into(), |node| {
            if own && node.kind == Kind::Container {
                node.kind = Kind::Persistent;
            }
            node.changes.aversion = next_version(node.changes.aversion);
            node.stat()
        });
        Ok(Reply::Set { stat })
    }

    /// Checks each candidate again, deletes it if its time is over, and skips it otherwise. Stops
    /// when the entry's budget is used up.
    pub(crate) fn reap(&mut self, candidates: &[ReapCandidate], effects: &mut Effects) -> Reply {
        let mut count = 0;
        for candidate in candidates {
            // The leader proposes the remaining candidates again.
            if self.check_steps(effects).is_err() {
                break;
            }
            let due = self.node(&candidate.path).is_some_and(|node| {
                // Another znode may have been made at the path after the leader looked.
                node.czxid == candidate.czxid && self.is_due(&candidate.path, node)
            });
            if due {
                self.remove(&candidate.path, effects);
                count += 1;
            }
        }
        Reply::Removed { count }
    }

    fn is_due(&self, path: &ZPath, node: &Znode) -> bool {
        let idle_ms = u64::from(self.limits().container_idle_ms);
        timed_at(node).is_some_and(|due_ms| due_ms <= self.time_ms())
            || idle_since(node).is_some_and(|emptied_ms| emptied_ms.saturating_add(idle_ms) <= self.time_ms())
            || self.locks().revocations.due_ms(path).is_some_and(|due_ms| due_ms <= self.time_ms())
    }

    /// The parent of the sequential znode in a reply, and how many of the parent's
    /// [`crate::SEQUENCE_MAX`] sequence numbers are used. `None` for other replies.
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
        let used = self.node(&parent)?.changes.creates;
        Some((parent, used))
    }

    /// Tells whether the znode in the answer to a create with [`Ensure`] has been deleted since,
    /// even if a new znode exists at the path. False for other operations.
    pub(crate) fn is_gone_since(&self, op: &Op, path: &ZPath, stat: &Stat) -> bool {
        let ensured = matches!(op, Op::Znode(op) if op.stands_alone());
        ensured && self.node(path).is_none_or(|node| node.czxid != stat.czxid)
    }

    fn check_acl(&self, acl: &[Acl]) -> Result<(), Error> {
        let good = |entry: &Acl| {
            let words = [&entry.scheme, &entry.id];
            entry.perms != 0 && !entry.scheme.is_empty() && words.iter().all(|word| word.len() <= IDENTITY_BYTES_MAX)
        };
        let fits = (1..=self.limits().acl_entries_max as usize).contains(&acl.len());
        if fits && acl.iter().all(good) { Ok(()) } else { Err(Error::InvalidAcl) }
    }
}

impl ZnodeOp {
    /// Tells whether the operation is forbidden in a multi.
    pub(crate) fn stands_alone(&self) -> bool {
        matches!(self, ZnodeOp::Create(create) if create.ensure != Ensure::New)
    }
}

impl Znode {
    /// Tells whether the znode is what a create with [`Ensure`] wants: owned by the session, and,
    /// for [`Ensure::OwnWithData`], with the same data.
    pub(crate) fn is_ensured(&self, ensure: Ensure, session: Option<SessionId>, data: &[u8]) -> bool {
        match ensure {
            Ensure::New => false,
            Ensure::Own => self.is_owned_by(session),
            Ensure::OwnWithData => self.is_owned_by(session) && *self.data == *data,
        }
    }
}
