//! Indexes and counts over all locks. The queue of each lock is in the tree, with its directory.

use std::ops::Bound;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};

use crate::queue::ended::Histories;
use crate::queue::revocations::Revocations;
use crate::state::mixed_clients::MixedClients;
use crate::words::weight;
use crate::{Policy, ZPath, Znode, Zxid};

/// Indexes and counts over all locks, with their histories and revocations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Locks {
    /// Znodes with at least one ticket among their children.
    directories: OrdSet<ZPath>,
    /// Number of tickets of all locks.
    tickets: u64,
    /// Number of tickets that hold their lock and whose session is open.
    holders: u64,
    /// All multi-locks, by the czxid that all lock nodes of one multi-lock have.
    multis: OrdMap<Zxid, Arc<MultiLock>>,
    /// Locks in which an entry left grants to later entries, because its budget was used up (see
    /// `budget.rs`), or because a grant would have repeated a fencing token.
    unsettled: OrdSet<ZPath>,
    pub(crate) histories: Histories,
    pub(crate) revocations: Revocations,
    pub(crate) mixed_clients: MixedClients,
}

impl Locks {
    /// Updates the counts for a znode that is about to be added to a directory. Returns true if the
    /// znode is a ticket.
    pub(crate) fn entered(&mut self, path: &ZPath, directory: &ZPath, node: &Znode) -> bool {
        self.mixed_clients.add(directory, path.name(), node);
        let is_ticket = node.number(path.name()).is_some();
        self.tickets += u64::from(is_ticket);
        is_ticket
    }

    /// Adds a directory that got its first ticket.
    pub(crate) fn opened(&mut self, directory: &ZPath) {
        self.directories.insert(directory.clone());
    }

    /// Updates the counts for a znode that was removed from a directory, which has `tickets`
    /// tickets left.
    pub(crate) fn left(&mut self, path: &ZPath, directory: &ZPath, node: &Znode, tickets: usize) {
        self.mixed_clients.remove(directory, path.name(), node);
        if node.number(path.name()).is_some() {
            self.tickets -= 1;
            if tickets == 0 {
                self.directories.remove(directory);
            }
        }
    }

    /// Raises the number of holders by one, for a ticket of a session that has got its lock.
    pub(crate) fn count_holder(&mut self) {
        self.holders += 1;
    }

    /// Lowers the number of holders by one, for a ticket of a session that no longer holds its
    /// lock.
    pub(crate) fn discount_holder(&mut self) {
        self.holders -= 1;
    }

    /// Estimated memory of tickets, multi-locks, histories and revocations, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        weight::locks(self.tickets, self.multis.len()) + self.histories.bytes() + self.revocations.bytes()
    }

    pub(crate) fn directory_count(&self) -> usize {
        self.directories.len()
    }

    pub(crate) fn ticket_count(&self) -> u64 {
        self.tickets
    }

    pub(crate) fn holder_count(&self) -> u64 {
        self.holders
    }

    /// The directory's path as stored here, to share its memory; `None` if the directory has no
    /// tickets.
    pub(crate) fn directory(&self, path: &ZPath) -> Option<&ZPath> {
        self.directories.get(path)
    }

    /// The directories with tickets, sorted by path, beginning at `from`.
    pub(crate) fn directories_from(&self, from: &str) -> impl Iterator<Item = &ZPath> + use<'_> {
        self.directories.range::<_, str>((Bound::Included(from), Bound::Unbounded))
    }

    /// The multi-lock that the entry with this zxid made; `None` if there is none.
    pub(crate) fn multi(&self, czxid: Zxid) -> Option<&Arc<MultiLock>> {
        self.multis.get(&czxid)
    }

    pub(crate) fn multis(&self) -> &OrdMap<Zxid, Arc<MultiLock>> {
        &self.multis
    }

    /// Adds a multi-lock. Returns false if a multi-lock with that zxid exists.
    pub(crate) fn add_multi(&mut self, czxid: Zxid, multi: MultiLock) -> bool {
        self.multis.insert(czxid, Arc::new(multi)).is_none()
    }

    /// Forgets the multi-lock of a lock node that is being removed. Returns the multi-lock's other
    /// lock nodes, which must be removed, too; empty for a lock node of a single lock.
    pub(crate) fn take_multi(&mut self, ticket: &ZPath, czxid: Zxid) -> Vec<ZPath> {
        let part = self.multis.get(&czxid).is_some_and(|multi| multi.tickets.contains(ticket));
        let taken = if part { self.multis.remove(&czxid) } else { None };
        let mut tickets = taken.map(|multi| multi.tickets.clone()).unwrap_or_default();
        tickets.retain(|other| other != ticket);
        tickets
    }

    pub(crate) fn unsettled(&self) -> &OrdSet<ZPath> {
        &self.unsettled
    }

    /// Marks a lock with grants left over, so that a later entry examines its waiters. Returns
    /// false if the lock is marked already.
    pub(crate) fn leave_unsettled(&mut self, lock: ZPath) -> bool {
        self.unsettled.insert(lock).is_none()
    }

    /// Removes and returns the first `max` locks whose grants were left to later entries.
    pub(crate) fn take_unsettled(&mut self, max: usize) -> Vec<ZPath> {
        if self.unsettled.is_empty() {
            return Vec::new();
        }
        let taken: Vec<ZPath> = self.unsettled.iter().take(max).cloned().collect();
        taken.iter().for_each(|lock| drop(self.unsettled.remove(lock)));
        taken
    }
}

/// A multi-lock: several locks that one acquire gets together. It is identified by the czxid that
/// all its lock nodes have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MultiLock {
    pub(crate) policy: Policy,
    /// The lock nodes, in the order of the request. The first one identifies the multi-lock in
    /// requests and answers.
    pub(crate) tickets: Vec<ZPath>,
}
