//! One znode, its children, and what a lock node knows.

use std::sync::Arc;

use imbl::OrdSet;

use crate::queue::{Position, Queue, Ticket};
use crate::tree::system_paths::is_system;
use crate::words::weight::{ZNODE, text};
use crate::{Acl, Contender, Kind, SessionId, Stat, Usage, ZPath, Zxid};

/// A znode. Values only: a reader that holds one sees one moment.
#[derive(Clone, Debug)]
pub struct Znode {
    pub(crate) kind: Kind,
    pub(crate) data: Arc<[u8]>,
    pub(crate) acl: Arc<[Acl]>,
    pub(crate) czxid: Zxid,
    pub(crate) mzxid: Zxid,
    pub(crate) pzxid: Zxid,
    pub(crate) ctime_ms: u64,
    pub(crate) mtime_ms: u64,
    /// Time at which the last child went; counts while there are none.
    pub(crate) emptied_ms: u64,
    pub(crate) version: i32,
    pub(crate) aversion: i32,
    /// Children ever created: the next sequence number. Never falls, so that a suffix never
    /// repeats.
    pub(crate) creates: u64,
    /// Children ever deleted.
    pub(crate) deletes: u64,
    /// Usage of what is below it, at any depth; see `usage.rs`.
    pub(crate) below: Usage,
    pub(crate) family: Family,
    pub(crate) contender: Option<Arc<Contender>>,
}

impl Znode {
    /// The kind: how long it stays.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The data.
    pub fn data(&self) -> &Arc<[u8]> {
        &self.data
    }

    /// The ACL.
    pub fn acl(&self) -> &Arc<[Acl]> {
        &self.acl
    }

    /// The record of the acquires that made it; `None` when it was made by a create.
    pub fn contender(&self) -> Option<&Contender> {
        self.contender.as_deref()
    }

    /// The facts, as ZooKeeper clients see them.
    pub fn stat(&self) -> Stat {
        Stat {
            czxid: self.czxid,
            mzxid: self.mzxid,
            ctime_ms: self.ctime_ms,
            mtime_ms: self.mtime_ms,
            version: self.version,
            cversion: wrapped(self.creates.wrapping_add(self.deletes)),
            aversion: self.aversion,
            ephemeral_owner: self.kind.ephemeral_owner(),
            data_length: u32::try_from(self.data.len()).unwrap_or(u32::MAX),
            num_children: u32::try_from(self.family.names.len()).unwrap_or(u32::MAX),
            pzxid: self.pzxid,
        }
    }

    /// The session that it belongs to, lingering lock nodes included.
    pub fn owner(&self) -> Option<SessionId> {
        match self.kind {
            Kind::Ephemeral { owner } => Some(owner),
            _ => None,
        }
    }

    /// Tells whether it belongs to the session that asks.
    pub(crate) fn is_owned_by(&self, session: Option<SessionId>) -> bool {
        session.is_some() && self.owner() == session
    }

    /// The data if that is text and no longer than `max` bytes. What a create made may hold
    /// anything.
    pub(crate) fn label(&self, max: u32) -> Option<&str> {
        let short = self.data.len() <= max as usize;
        short.then(|| std::str::from_utf8(&self.data).ok()).flatten()
    }

    /// Time until which it outlives its session.
    pub(crate) fn lingers_until_ms(&self) -> Option<u64> {
        self.contender.as_ref().and_then(|contender| contender.lingers_until_ms)
    }
}

/// The value as ZooKeeper's counter: these are 32 bits wide and wrap.
fn wrapped(count: u64) -> i32 {
    (count & u64::from(u32::MAX)) as u32 as i32
}

/// The children of a znode, and the queue of those that are tickets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Family {
    pub(crate) names: OrdSet<Arc<str>>,
    /// The queue: there while there are tickets, or settings to remember.
    pub(crate) queue: Option<Arc<Queue>>,
}

impl Family {
    pub(crate) fn insert(&mut self, name: &Arc<str>) {
        let new = self.names.insert(name.clone()).is_none();
        assert!(new, "the name was checked to be free");
    }

    pub(crate) fn remove(&mut self, name: &str) {
        let removed = self.names.remove(name).is_some();
        assert!(removed, "a child is in its parent's list");
    }

    /// Number of tickets.
    pub(crate) fn ticket_count(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.len())
    }

    /// Changes the queue, which is made for it, and forgotten when there is nothing in it any more.
    pub(crate) fn edit_queue<T>(&mut self, change: impl FnOnce(&mut Queue) -> T) -> T {
        let answer = change(Arc::make_mut(self.queue.get_or_insert_default()));
        self.queue.take_if(|queue| queue.is_over());
        answer
    }
}

/// Facts that it is for its parent, its ancestors and the memory.
impl Znode {
    /// The number in the queue of its parent, where it contends by this name.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.kind.number(name)
    }

    /// The position in that queue.
    pub(crate) fn position(&self, name: &str) -> Option<Position> {
        self.number(name).map(|number| Position { number, czxid: self.czxid, name: name.into() })
    }

    /// The ticket that a queue knows of it, where it contends.
    pub(crate) fn ticket(&self, name: &str) -> Ticket {
        Ticket::of(name, self.owner(), self.contender())
    }

    /// Usage that it counts for in a quota.
    pub(crate) fn usage(&self) -> Usage {
        Usage { count: 1, bytes: self.data.len() as u64 }
    }

    /// Usage that it is for its ancestors.
    pub(crate) fn usage_at(&self, path: &ZPath) -> Usage {
        if is_system(path.as_str()) { Usage { count: 1, bytes: 0 } } else { self.usage() }
    }

    /// Tells whether it has children, and a queue.
    pub(crate) fn shape(&self) -> (bool, bool) {
        (!self.family.names.is_empty(), self.family.queue.is_some())
    }

    /// Weight in its subtree. One that goes with its session counts for none.
    pub(crate) fn weight_in_subtree(&self, path: &ZPath) -> u64 {
        if self.owner().is_some() { 0 } else { ZNODE + self.weight(path) + self.data.len() as u64 }
    }

    /// Weight of its texts; those of a lock node stand in more indexes.
    pub(crate) fn weight(&self, path: &ZPath) -> u64 {
        let places = if self.number(path.name()).is_some() { 4 } else { 2 };
        places * text(path.as_str()) + self.contender().map_or(0, |contender| contender.weight(path))
    }
}
