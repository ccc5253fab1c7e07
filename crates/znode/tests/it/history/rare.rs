//! Rare combinations that random requests would seldom make: upgrades, downgrades and lock nodes of
//! plain creates, together with tickets of other kinds.

use znode::{Acquire, Create, CreateMode, Ensure, HeldTicket, LockMode, Op, Txn, Upgrade, ZPath, ZnodeOp};

use super::{History, LOCKS};
use crate::model::{Model, Node, Stay, number, parent_of, reads, zpath};

impl History {
    pub(super) fn rare_op(&mut self, model: &Model) -> Op {
        match self.rng.u8(..10) {
            0..4 => self.upgrade(model),
            4..6 => self.downgrade(model),
            6 => Op::Znode(ZnodeOp::Create(self.numbered(model))),
            7 => self.several_permits(model),
            8 => Op::Release { ticket: self.upgraded_reader(model).into() },
            _ => self.lease_beside_others(model),
        }
    }

    pub(super) fn upgrade(&mut self, model: &Model) -> Op {
        let (ticket, label) = (self.reader(model), self.word());
        Op::Upgrade(Upgrade { ticket, label })
    }

    /// Acquires a read lock for an owner (a user of the lock within its session) that holds the
    /// write lock (a downgrade), if there is such an owner.
    fn downgrade(&mut self, model: &Model) -> Op {
        let mut acquire = self.acquire();
        let mut writers = Vec::new();
        for (path, node) in &model.nodes {
            let writes = node.lock.as_ref().filter(|lock| lock.mode == LockMode::Write && !lock.owner.is_empty());
            writers.extend(writes.filter(|_| node.held.is_some()).map(|lock| (path, &lock.owner)));
        }
        if let Some((writer, owner)) = self.one_of(&writers) {
            let (lock, owner) = (zpath(parent_of(writer).unwrap()), owner.to_string());
            acquire = Acquire { lock, owner, mode: LockMode::Read, ..acquire };
        }
        Op::Acquire(acquire)
    }

    /// Removes the session's secret from many transactions, as a leader does after it has compared
    /// the secret.
    pub(super) fn proven(&mut self, mut txn: Txn) -> Txn {
        if let Some(credential) = txn.request.credential.as_mut().filter(|it| it.secret_hash == [1; 16])
            && self.rng.bool()
        {
            (txn.proven, credential.secret_hash) = (true, [0; 16]);
        }
        txn
    }

    /// Creates a lock node with a chosen sequence number: often a number below those of the
    /// holders, or that of a holder.
    fn numbered(&mut self, model: &Model) -> Create {
        let family = self.pick(&["n-", "_c_1-lock-", "_c_2-lease-", "r-__READ__", "w-__WRIT__", "read-"]);
        let name = format!("{family}{:010}", self.rng.u8(..5));
        let mode = if self.rng.u8(..3) == 0 { CreateMode::Persistent } else { CreateMode::Ephemeral };
        Create { mode, acl: Vec::new(), ..Create::new(self.lock_in_use(model), name) }
    }

    /// Turns a create into one that makes sure that the session has the znode (`Ensure::Own` or
    /// `Ensure::OwnWithData`). The znode is mostly ephemeral, and often one that exists.
    pub(super) fn ensured(&mut self, model: &Model, new: Create) -> Create {
        let ensure = if self.rng.bool() { Ensure::Own } else { Ensure::OwnWithData };
        let mode = if self.rng.u8(..8) > 0 { CreateMode::Ephemeral } else { new.mode };
        let there = self.simple_znodes(model);
        let anew = self.rng.u8(..4) == 0;
        let Some(&(path, data)) = self.one_of(&there).filter(|_| !anew) else {
            return Create { mode, ensure, ..new };
        };
        let data = if self.rng.bool() { data.clone() } else { new.data };
        let (parent, name) = (zpath(parent_of(path).unwrap()), zpath(path).name().to_owned());
        Create { parent, name, data, mode, ensure, ..new }
    }

    /// Makes a release name a simple lock (an ephemeral znode at the lock's own path) instead of a
    /// ticket, if there is a simple lock.
    pub(super) fn simple(&mut self, model: &Model, of: HeldTicket) -> HeldTicket {
        let there = self.simple_znodes(model);
        let Some(&(path, data)) = self.one_of(&there) else { return of };
        let owner = if self.rng.u8(..4) > 0 { String::from_utf8_lossy(data).into() } else { self.word() };
        let (mode, token) = (of.mode.filter(|_| self.rng.bool()), of.token.filter(|_| self.rng.bool()));
        HeldTicket { lock: zpath(path), mode, token, owner: Some(owner) }
    }

    /// Ephemeral znodes that are not lock nodes, with their data.
    fn simple_znodes<'a>(&self, model: &'a Model) -> Vec<(&'a String, &'a Vec<u8>)> {
        let ephemeral = |node: &Node| matches!(node.stay, Stay::Session(_));
        let there = model.nodes.iter().filter(|(path, node)| ephemeral(node) && number(path).is_none());
        there.map(|(path, node)| (path, &node.data)).collect()
    }

    /// Creates several lock nodes in one log entry, so that they have the same czxid; mostly for
    /// permits of a semaphore, if there is one.
    fn several_permits(&mut self, model: &Model) -> Op {
        let semaphores: Vec<&str> = LOCKS.into_iter().filter(|lock| model.settings(lock).limit.is_some()).collect();
        let parent = match self.one_of(&semaphores) {
            Some(lock) => zpath(lock),
            None => self.lock_in_use(model),
        };
        let (family, mode) =
            (self.pick(&["_c_2-lease-", "_c_2-lease-", "r-__READ__"]), CreateMode::EphemeralSequential);
        let create = Create { mode, acl: Vec::new(), ..Create::new(parent, family) };
        Op::Multi(vec![ZnodeOp::Create(create); self.rng.usize(2..4)])
    }

    /// The read ticket of a present upgrade, if there is one; otherwise the lock node of another
    /// reader.
    fn upgraded_reader(&mut self, model: &Model) -> ZPath {
        let upgrades = LOCKS.into_iter().filter_map(|lock| model.upgrade_in(lock));
        let readers: Vec<&String> = upgrades.filter_map(|(_, reader)| reader.as_ref()).collect();
        match self.one_of(&readers) {
            Some(reader) => zpath(reader),
            None => self.reader(model),
        }
    }

    /// Acquires permits, as if the lock were a semaphore, in a lock that mostly has contenders of
    /// other modes.
    fn lease_beside_others(&mut self, model: &Model) -> Op {
        let mode = LockMode::Lease { permits: self.rng.u32(1..3), limit: 3 };
        Op::Acquire(Acquire { lock: self.lock_in_use(model), mode, ..self.acquire() })
    }

    /// Mostly the lock node of a reader that holds its lock; otherwise a path as
    /// [`History::ticket`] gives it.
    fn reader(&mut self, model: &Model) -> ZPath {
        let readers = model.nodes.iter().filter(|(path, node)| reads(path) && node.held.is_some());
        let readers: Vec<&String> = readers.map(|(path, _)| path).collect();
        match self.one_of(&readers) {
            Some(reader) if self.rng.u8(..8) > 0 => zpath(reader),
            _ => self.ticket(model),
        }
    }

    fn lock_in_use(&mut self, model: &Model) -> ZPath {
        let locks: Vec<&str> = LOCKS.into_iter().filter(|lock| !model.contenders(lock).is_empty()).collect();
        zpath(self.one_of(&locks).copied().unwrap_or(LOCKS[0]))
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        if all.is_empty() { None } else { Some(&all[self.rng.usize(..all.len())]) }
    }
}
