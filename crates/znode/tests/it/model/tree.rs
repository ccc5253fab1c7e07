//! The model's tree.

use znode::{
    ADMIN, Acl, CREATE, Create, CreateMode, DELETE, Ensure, Error, EventKind, IDENTITY_BYTES_MAX, READ, ReapCandidate,
    Refusal, Reply, SessionId, WRITE, ZPath, ZnodeOp,
};

use super::{Answer, LockNode, Model, Node, Stay, contends, join, name_of, parent_of, refused, zpath};

impl Model {
    pub(super) fn multi(&mut self, ops: Vec<ZnodeOp>, session: Option<SessionId>) -> Answer {
        if ops.len() > self.limits.ops_max as usize {
            return Err(Error::TooManyOps.into());
        }
        let before = self.clone();
        let mut replies = Vec::new();
        for (index, op) in ops.into_iter().enumerate() {
            let answer = match &op {
                ZnodeOp::Create(create) if create.ensure != Ensure::New => Err(Error::BadArguments.into()),
                _ => self.znode_op(op, session),
            };
            match answer {
                Ok(reply) => replies.push(reply),
                Err(refusal) => {
                    *self = before;
                    return Err(Refusal { op_index: Some(index as u32), ..refusal });
                }
            }
        }
        Ok(Reply::Multi(replies))
    }

    pub(super) fn znode_op(&mut self, op: ZnodeOp, session: Option<SessionId>) -> Answer {
        match op {
            ZnodeOp::Create(create) => self.create(create, session),
            ZnodeOp::Delete { path, version } => self.delete(path.as_str(), version),
            ZnodeOp::SetData { path, data, version } => match self.nodes.get(path.as_str()) {
                Some(_) if !self.may_write(path.as_str(), &data) => refused(Error::NoAuth, path.as_str()),
                _ => self.set_data(path.as_str(), data, version),
            },
            ZnodeOp::Check { path, version } => match self.nodes.get(path.as_str()) {
                None => refused(Error::NoNode, path.as_str()),
                Some(_) if !self.may(path.as_str(), READ) => refused(Error::NoAuth, path.as_str()),
                Some(node) if version != -1 && version != node.version => refused(Error::BadVersion, path.as_str()),
                Some(_) => Ok(Reply::Done),
            },
        }
    }

    fn create(&mut self, create: Create, session: Option<SessionId>) -> Answer {
        let Create { parent, name, data, mode, acl, ensure } = create;
        let parent = parent.as_str();
        let ensured = ensure != Ensure::New;
        if ensured && mode != CreateMode::Ephemeral {
            return refused(Error::BadArguments, parent);
        }
        let stay = match (mode, session) {
            (CreateMode::Persistent | CreateMode::PersistentSequential, _) => Stay::Persistent,
            (CreateMode::Container, _) => Stay::Container,
            (CreateMode::PersistentTtl { ttl_ms } | CreateMode::PersistentSequentialTtl { ttl_ms }, _) => {
                if ttl_ms == 0 || ttl_ms > 0xff_ffff_ffff {
                    return refused(Error::BadArguments, parent);
                }
                Stay::Ttl(ttl_ms)
            }
            (CreateMode::Ephemeral | CreateMode::EphemeralSequential, session) => {
                Stay::Session(session.unwrap_or(SessionId(0)))
            }
        };
        if !acl.is_empty() && !self.good_acl(&acl) {
            return refused(Error::InvalidAcl, parent);
        }
        if !ensured && !self.nodes.contains_key(parent) {
            return refused(Error::NoNode, parent);
        }
        let (base, to_make) = self.way_to(parent).map_err(|error| Refusal::at(error, &zpath(parent)))?;
        if !self.may(&base, CREATE) {
            return refused(Error::NoAuth, parent);
        }
        let over = &self.nodes[&base];
        let sequential = matches!(
            mode,
            CreateMode::PersistentSequential
                | CreateMode::EphemeralSequential
                | CreateMode::PersistentSequentialTtl { .. }
        );
        let name = if sequential { format!("{name}{:010}", over.children_created) } else { name };
        if zpath(parent).child(&name).is_err() {
            return refused(Error::BadArguments, parent);
        }
        let path = join(parent, &name);
        if contends(&path, stay) && self.settings(parent).managed {
            return refused(Error::LockManaged, parent);
        }
        if let Some(there) = self.nodes.get(&path) {
            let own = session.is_some_and(|session| there.stay == Stay::Session(session));
            let same = ensure == Ensure::Own || there.data == data;
            return if ensured && own && same { self.created(&path) } else { refused(Error::NodeExists, &path) };
        }
        if stay == Stay::Session(SessionId(0)) {
            return refused(Error::SessionRequired, &path);
        }
        if let Err(error) = self.room(&base, &path, data.len(), to_make.len() as u64 + 1, stay) {
            return refused(error, &path);
        }
        let above = self.nodes[&base].acl.clone();
        for directory in &to_make {
            self.put(directory, Stay::Container, Vec::new(), above.clone(), None);
        }
        let acl = if acl.is_empty() { above } else { acl };
        self.put(&path, stay, data, acl, None);
        self.downgrade(&path);
        self.created(&path)
    }

    pub(super) fn created(&self, path: &str) -> Answer {
        Ok(Reply::Created { stat: self.stat(path), path: zpath(path) })
    }

    /// The answer to a retried create with `Ensure`: a refusal if its znode has been deleted since;
    /// otherwise `None`, and the former answer is repeated.
    pub(super) fn gone_since(&self, create: &Create, answer: &Answer) -> Option<Answer> {
        let Ok(Reply::Created { path, stat }) = answer else { return None };
        let there = self.nodes.get(path.as_str()).is_some_and(|node| node.created.0 == stat.czxid);
        (create.ensure != Ensure::New && !there).then(|| refused(Error::NoNode, path.as_str()))
    }

    fn delete(&mut self, path: &str, version: i32) -> Answer {
        match self.nodes.get(path) {
            _ if path == "/" => refused(Error::BadArguments, path),
            None => refused(Error::NoNode, path),
            Some(_) if !self.may(parent_of(path).unwrap(), DELETE) => refused(Error::NoAuth, path),
            Some(node) if version != -1 && version != node.version => refused(Error::BadVersion, path),
            Some(_) if !self.children(path).is_empty() => refused(Error::NotEmpty, path),
            Some(_) => {
                self.take_out(path);
                Ok(Reply::Done)
            }
        }
    }

    /// Tells whether the client of the present request may write data to a znode. Only the session
    /// of a ticket may write the ticket's data, except for data that asks for the release.
    fn may_write(&self, path: &str, data: &[u8]) -> bool {
        let over = parent_of(path).unwrap_or("/");
        match self.nodes[path].lock {
            None => self.may(path, WRITE),
            Some(_) if self.is_own(path) || self.is_super() => true,
            Some(_) => [&b"__REVOKE__"[..], b"unlock"].contains(&data) && self.may(over, DELETE | ADMIN),
        }
    }

    pub(crate) fn is_super(&self) -> bool {
        self.proven.iter().any(|who| who.scheme == "super")
    }

    /// Tells whether the client of the present request has a permission on a znode.
    pub(crate) fn may(&self, path: &str, perm: u32) -> bool {
        if self.is_super() {
            return true;
        }
        let mut granted = self.nodes[path].acl.iter().filter(|entry| entry.perms & perm != 0);
        granted.any(|entry| {
            (&*entry.scheme, &*entry.id) == ("world", "anyone")
                || self.proven.iter().any(|who| (&who.scheme, &who.id) == (&entry.scheme, &entry.id))
        })
    }

    fn is_own(&self, path: &str) -> bool {
        matches!(self.nodes[path].stay, Stay::Session(id) if self.asking == Some(id))
    }

    pub(super) fn set_data(&mut self, path: &str, data: Vec<u8>, version: i32) -> Answer {
        let Some(node) = self.nodes.get(path) else {
            return refused(Error::NoNode, path);
        };
        if version != -1 && version != node.version {
            return refused(Error::BadVersion, path);
        }
        if data.len() > self.limits.data_bytes_max as usize {
            return refused(Error::DataTooLarge, path);
        }
        self.replace_data(path, data)
    }

    pub(super) fn replace_data(&mut self, path: &str, data: Vec<u8>) -> Answer {
        let total = self.data_bytes();
        let now = (self.last_zxid, self.time_ms);
        let node = self.nodes.get_mut(path).unwrap();
        let grows = data.len() > node.data.len();
        if grows && total - node.data.len() as u64 + data.len() as u64 > self.limits.state_bytes_max {
            return refused(Error::QuotaExceeded, path);
        }
        node.data = data;
        node.version += 1;
        node.set = now;
        self.tell(EventKind::DataChanged, path);
        Ok(Reply::Set { stat: self.stat(path) })
    }

    pub(super) fn set_acl(&mut self, path: &str, acl: Vec<Acl>, version: i32) -> Answer {
        let good = self.good_acl(&acl);
        if self.nodes.get(path).is_some_and(|node| match node.lock {
            Some(_) => !self.is_own(path) && !self.is_super(),
            None => !self.may(path, ADMIN),
        }) {
            return refused(Error::NoAuth, path);
        }
        let Some(node) = self.nodes.get_mut(path) else {
            return refused(Error::NoNode, path);
        };
        if version != -1 && version != node.aversion {
            return refused(Error::BadVersion, path);
        }
        if !good {
            return refused(Error::InvalidAcl, path);
        }
        node.acl = acl;
        node.aversion += 1;
        let own = parent_of(path).is_some_and(|parent| self.nodes[parent].acl != self.nodes[path].acl);
        let node = self.nodes.get_mut(path).unwrap();
        if own && matches!(node.stay, Stay::Container) && !contends(path, Stay::Persistent) {
            node.stay = Stay::Persistent;
        }
        Ok(Reply::Set { stat: self.stat(path) })
    }

    pub(super) fn reap(&mut self, candidates: &[ReapCandidate]) -> Answer {
        let mut count = 0;
        for ReapCandidate { path, czxid } in candidates {
            let same = self.nodes.get(path.as_str()).is_some_and(|node| node.created.0 == *czxid);
            if same && self.due(path.as_str(), self.time_ms) {
                self.take_out(path.as_str());
                count += 1;
            }
        }
        Ok(Reply::Removed { count })
    }

    /// Tells whether the leader may delete a znode at the time `now_ms`, because its TTL, idle
    /// time, lock-delay or deadline for a release is over.
    pub(crate) fn due(&self, path: &str, now_ms: u64) -> bool {
        let node = &self.nodes[path];
        let childless = self.children(path).is_empty();
        let lingered = node.lock.as_ref().and_then(|lock| lock.lingers_until_ms).is_some_and(|until| until <= now_ms);
        let by_kind = match node.stay {
            Stay::Ttl(ttl_ms) => childless && node.set.1 + ttl_ms <= now_ms,
            Stay::Container => {
                let idle_ms = u64::from(self.limits.container_idle_ms);
                childless && node.children_created > 0 && node.emptied_ms + idle_ms <= now_ms
            }
            Stay::Persistent | Stay::Session(_) => false,
        };
        let due_ms = self.revocation(path).and_then(|revocation| revocation.due_ms);
        by_kind || lingered || due_ms.is_some_and(|due_ms| due_ms <= now_ms)
    }

    /// Checks the limits for `count` new znodes: missing directories below the existing znode
    /// `over`, and the znode at `path` with `data` bytes.
    pub(super) fn room(&self, over: &str, path: &str, data: usize, count: u64, stay: Stay) -> Result<(), Error> {
        let limits = &self.limits;
        let owns =
            |node: &&Node| matches!((node.stay, stay), (Stay::Session(one), Stay::Session(other)) if one == other);
        if matches!(self.nodes[over].stay, Stay::Session(_)) {
            Err(Error::NoChildrenForEphemerals)
        } else if self.is_too_long(path) {
            Err(Error::PathTooLong)
        } else if data > limits.data_bytes_max as usize {
            Err(Error::DataTooLarge)
        } else if self.children(over).len() >= limits.children_max as usize {
            Err(Error::TooManyChildren)
        } else if self.nodes.len() as u64 + count > limits.znodes_max
            || self.data_bytes() + data as u64 > limits.state_bytes_max
        {
            Err(Error::QuotaExceeded)
        } else if self.nodes.values().filter(owns).count() >= limits.ephemerals_max as usize
            && matches!(stay, Stay::Session(_))
        {
            Err(Error::TooManyEphemerals)
        } else {
            Ok(())
        }
    }

    fn is_too_long(&self, path: &str) -> bool {
        let limits = &self.limits;
        path.len() > limits.path_bytes_max as usize
            || path.split('/').count() - 1 > limits.path_depth_max as usize
            || path.split('/').any(|name| name.len() > limits.name_bytes_max as usize)
    }

    /// The nearest existing znode on the path of a lock, and the missing directories below it,
    /// topmost first. A path that is too long is refused before the walk.
    pub(super) fn way_to(&self, lock: &str) -> Result<(String, Vec<String>), Error> {
        if !self.nodes.contains_key(lock) && self.is_too_long(lock) {
            return Err(Error::PathTooLong);
        }
        Ok(self.nearest(lock))
    }

    /// The nearest existing znode on the path of a lock, and the missing directories below it. The
    /// length of the path is not checked.
    pub(super) fn nearest(&self, lock: &str) -> (String, Vec<String>) {
        let mut to_make = Vec::new();
        let mut base = lock.to_string();
        while !self.nodes.contains_key(&base) {
            to_make.insert(0, base.clone());
            base = parent_of(&base).unwrap().to_string();
        }
        (base, to_make)
    }

    /// The existing and missing directories on the path of a lock, as from [`Model::way_to`];
    /// refused if the client may not enter the lock's queue.
    pub(super) fn way_into(&self, lock: &str) -> Result<(String, Vec<String>), Refusal> {
        let refuse = |error| Refusal::at(error, &zpath(lock));
        let (base, to_make) = self.way_to(lock).map_err(refuse)?;
        if !self.may(&base, CREATE) {
            return Err(refuse(Error::NoAuth));
        }
        Ok((base, to_make))
    }

    fn good_acl(&self, acl: &[Acl]) -> bool {
        !acl.is_empty()
            && acl.len() <= self.limits.acl_entries_max as usize
            && acl.iter().all(|entry| entry.perms != 0 && !entry.scheme.is_empty())
            && acl.iter().all(|entry| entry.scheme.len().max(entry.id.len()) <= IDENTITY_BYTES_MAX)
    }

    pub(super) fn put(&mut self, path: &str, stay: Stay, data: Vec<u8>, acl: Vec<Acl>, lock: Option<LockNode>) {
        let parent = parent_of(path).unwrap();
        let mut node = Node::new(stay, data, acl, self.last_zxid, self.time_ms);
        node.lock = lock;
        self.nodes.insert(path.into(), node);
        let over = self.nodes.get_mut(parent).unwrap();
        over.children_created += 1;
        over.children_changed = self.last_zxid;
        self.queue_changed(path, stay);
        self.tell(EventKind::Created, path);
        self.tell(EventKind::ChildrenChanged, parent);
    }

    pub(super) fn take_out(&mut self, path: &str) {
        let parent = parent_of(path).unwrap();
        self.note_end(path);
        let node = self.nodes.remove(path).unwrap();
        let over = self.nodes.get_mut(parent).unwrap();
        over.children_deleted += 1;
        over.children_changed = self.last_zxid;
        over.emptied_ms = self.time_ms;
        self.queue_changed(path, node.stay);
        self.tell(EventKind::Deleted, path);
        self.tell(EventKind::ChildrenChanged, parent);
        if let Some(at) = self.multis.iter().position(|(_, tickets)| tickets.iter().any(|ticket| ticket == path)) {
            let (_, tickets) = self.multis.remove(at);
            tickets.iter().filter(|ticket| *ticket != path).for_each(|ticket| self.take_out(ticket));
        }
    }

    /// The names of a znode's children, sorted.
    pub(crate) fn children(&self, path: &str) -> Vec<&str> {
        let child = |other: &&String| parent_of(other) == Some(path);
        let mut names: Vec<&str> = self.nodes.keys().filter(child).map(|child| name_of(child)).collect();
        names.sort_unstable();
        names
    }

    pub(crate) fn stat(&self, path: &str) -> znode::Stat {
        self.nodes[path].stat(self.children(path).len())
    }

    pub(crate) fn data_bytes(&self) -> u64 {
        self.nodes.values().map(|node| node.data.len() as u64).sum()
    }

    /// The paths of the znodes that a session owns, sorted.
    pub(crate) fn owned_by(&self, id: SessionId) -> Vec<ZPath> {
        self.nodes.iter().filter(|(_, node)| node.stay == Stay::Session(id)).map(|(path, _)| zpath(path)).collect()
    }
}
