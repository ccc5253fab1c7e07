//! One znode with the names of its children, and the record of a lock node.

use std::sync::Arc;

use bincode::{Decode, Encode};
use imbl::OrdSet;

use crate::queue::{Position, Queue, Ticket};
use crate::tree::system_paths::is_system;
use crate::words::weight::{ZNODE, text};
use crate::{Acl, Contender, Kind, SessionId, Stat, Usage, ZPath, Zxid};

/// A znode. It contains values only, so a clone stays as it is when the tree changes.
#[derive(Clone, Debug, Default)]
pub struct Znode {
    pub(crate) kind: Kind,
    pub(crate) data: Arc<[u8]>,
    pub(crate) acl: Arc<[Acl]>,
    pub(crate) czxid: Zxid,
    pub(crate) changes: Changes,
    /// Usage of all znodes below this one, at any depth; see `usage.rs`.
    pub(crate) below: Usage,
    pub(crate) family: Family,
    pub(crate) contender: Option<Arc<Contender>>,
}

/// Zxids, times and counts of a znode's changes, in the order in which snapshots store them.
#[derive(Clone, Copy, Debug, Default, Encode, Decode)]
pub(crate) struct Changes {
    pub(crate) mzxid: Zxid,
    pub(crate) pzxid: Zxid,
    pub(crate) ctime_ms: u64,
    pub(crate) mtime_ms: u64,
    /// Time at which the last child was deleted, or at which the znode was created, in milliseconds
    /// since 1970. It matters only while the znode has no children.
    pub(crate) emptied_ms: u64,
    pub(crate) version: i32,
    pub(crate) aversion: i32,
    /// Number of children ever created, which is the next sequence number. It never falls, so that
    /// a suffix never repeats.
    pub(crate) creates: u64,
    /// Number of children ever deleted.
    pub(crate) deletes: u64,
}

impl Znode {
    /// The kind of znode, which says how long it stays.
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

    /// The record of the acquires that share this ticket; `None` for a znode that a create made.
    pub fn contender(&self) -> Option<&Contender> {
        self.contender.as_deref()
    }

    /// The Stat of the znode, as ZooKeeper's clients see it.
    pub fn stat(&self) -> Stat {
        Stat {
            czxid: self.czxid,
            mzxid: self.changes.mzxid,
            ctime_ms: self.changes.ctime_ms,
            mtime_ms: self.changes.mtime_ms,
            version: self.changes.version,
            cversion: wrapped(self.changes.creates.wrapping_add(self.changes.deletes)),
            aversion: self.changes.aversion,
            ephemeral_owner: self.kind.ephemeral_owner(),
            data_length: u32::try_from(self.data.len()).unwrap_or(u32::MAX),
            num_children: u32::try_from(self.family.names.len()).unwrap_or(u32::MAX),
            pzxid: self.changes.pzxid,
        }
    }

    /// The session that owns the znode; `None` if it is not ephemeral. A lock node kept for a
    /// lock-delay still has its ended session.
    pub fn owner(&self) -> Option<SessionId> {
        match self.kind {
            Kind::Ephemeral { owner } => Some(owner),
            _ => None,
        }
    }

    /// Tells whether the session owns the znode; false for `None`.
    pub(crate) fn is_owned_by(&self, session: Option<SessionId>) -> bool {
        session.is_some() && self.owner() == session
    }

    /// The data as text; `None` if it is not text or longer than `max` bytes, as a plain create may
    /// have made it.
    pub(crate) fn label(&self, max: u32) -> Option<&str> {
        let short = self.data.len() <= max as usize;
        short.then(|| std::str::from_utf8(&self.data).ok()).flatten()
    }

    /// Time until which a lock node outlives its session because of its lock-delay, in milliseconds
    /// since 1970. `None` for other znodes.
    pub(crate) fn lingers_until_ms(&self) -> Option<u64> {
        self.contender.as_ref().and_then(|contender| contender.lingers_until_ms)
    }
}

/// A count as ZooKeeper's counters show it, which have 32 bits and wrap.
fn wrapped(count: u64) -> i32 {
    (count & u64::from(u32::MAX)) as u32 as i32
}

/// The children of a znode, and the queue of the tickets among them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Family {
    pub(crate) names: OrdSet<Arc<str>>,
    /// The queue; `None` while there are neither tickets nor settings.
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

    /// Number of tickets in the queue; 0 without a queue.
    pub(crate) fn ticket_count(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.len())
    }

    /// Changes the queue, which is created if it is missing, and dropped if it is empty afterwards.
    pub(crate) fn edit_queue<T>(&mut self, change: impl FnOnce(&mut Queue) -> T) -> T {
        let answer = change(Arc::make_mut(self.queue.get_or_insert_default()));
        self.queue.take_if(|queue| queue.is_over());
        answer
    }
}

/// Values derived from a znode for its parent, its ancestors and the memory estimates.
impl Znode {
    /// The sequence number in the parent's queue; `None` if the name and kind are not those of a
    /// ticket.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.kind.number(name)
    }

    /// The position in the parent's queue; `None` if the znode is not a ticket.
    pub(crate) fn position(&self, name: &str) -> Option<Position> {
        self.number(name).map(|number| Position { number, czxid: self.czxid, name: name.into() })
    }

    /// The record of this ticket for the parent's queue. The znode must be a ticket.
    pub(crate) fn ticket(&self, name: &str) -> Ticket {
        Ticket::of(name, self.owner(), self.contender())
    }

    /// Usage of this znode alone.
    pub(crate) fn usage(&self) -> Usage {
        Usage { count: 1, bytes: self.data.len() as u64 }
    }

    /// Usage that this znode adds to its ancestors. Below `/zookeeper` its bytes do not count.
    pub(crate) fn usage_at(&self, path: &ZPath) -> Usage {
        if is_system(path.as_str()) { Usage { count: 1, bytes: 0 } } else { self.usage() }
    }

    /// Tells whether the znode has children, and whether it has a queue.
    pub(crate) fn shape(&self) -> (bool, bool) {
        (!self.family.names.is_empty(), self.family.queue.is_some())
    }

    /// Estimated memory that the znode adds to its subtree, in bytes; 0 for an ephemeral znode.
    pub(crate) fn weight_in_subtree(&self, path: &ZPath) -> u64 {
        if self.owner().is_some() { 0 } else { ZNODE + self.weight(path) + self.data.len() as u64 }
    }

    /// Estimated memory of the path and the contender, in bytes. The path of a lock node counts
    /// twice as much, because more indexes store it.
    pub(crate) fn weight(&self, path: &ZPath) -> u64 {
        let places = if self.number(path.name()).is_some() { 4 } else { 2 };
        places * text(path.as_str()) + self.contender().map_or(0, |contender| contender.weight(path))
    }
}
