//! Mixed clients: clients of different libraries that queue in one directory and do not see each
//! other's lock nodes.
//!
//! zlock counts every contender. Other libraries count only children with names like their own. If
//! clients of two libraries do not see each other's lock nodes, both believe that they hold the
//! lock. Curator's clients also wait for children that do not contend. The rules here follow the
//! comparators in the libraries.

use std::fmt;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};

use crate::{LockMode, ZPath, Znode};

crate::named! {
    /// Kinds of names of lock nodes. The three kinds `Own...` are for tickets of acquires, whose
    /// records tell the kind. `Data` is for children that are not tickets.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Naming {
        /// `...lock-`: Curator's mutex, go-zookeeper.
        Curator = "curator",
        /// `...__READ__`, `...__WRIT__`: Curator's read/write lock.
        CuratorReadWrite = "curator-rw",
        /// `...latch-`: Curator's LeaderLatch.
        CuratorLatch = "curator-latch",
        /// `...__lock__`: kazoo's Lock, WriteLock and Election.
        Kazoo = "kazoo",
        /// `...__rlock__`: kazoo's ReadLock.
        KazooReader = "kazoo-reader",
        /// 32 hex digits, without a number: a permit of kazoo's Semaphore.
        KazooSemaphore = "kazoo-semaphore",
        /// `x-<session>-`: the recipe that comes with ZooKeeper.
        Recipe = "zookeeper-recipe",
        /// A name of none of the kinds above, with a dash before the ten digits of its number.
        Dash = "other",
        /// Any other name that ends with a number.
        Other = "other",
        /// A ticket of an acquire that wants the whole lock.
        Own = "zlock",
        /// A ticket of an acquire for reading.
        OwnReader = "zlock-reader",
        /// A ticket of an acquire for permits.
        OwnLease = "zlock-semaphore",
        /// A child that is not a ticket, with a name that sorts before those of tickets.
        Data = "data",
    }
}

/// A finding in one directory: the clients of one library do not see certain lock nodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MixedPair {
    /// The naming of the clients' own lock nodes.
    pub clients: Naming,
    /// The naming of the lock nodes that the clients do not see.
    pub unseen: Naming,
    /// Name of the first child of the kind [`Naming::Data`], for which Curator's clients wait.
    /// `None` for other pairs.
    pub child: Option<Arc<str>>,
}

/// The name of the kind in messages and answers.
impl fmt::Display for Naming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for MixedPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} does not see {}", self.clients, self.unseen)?;
        self.child.as_ref().map_or(Ok(()), |child| write!(f, " ({})", child.escape_default()))
    }
}

impl Naming {
    /// The naming of a lock node that a plain create made, told by its name.
    pub fn of(name: &str) -> Naming {
        let family = name.get(..name.len().saturating_sub(10)).unwrap_or_default();
        let ends = |end: &str| family.ends_with(end);
        if ends("__READ__") || ends("__WRIT__") {
            Naming::CuratorReadWrite
        } else if ends("__lock__") {
            Naming::Kazoo
        } else if ends("__rlock__") {
            Naming::KazooReader
        } else if ends("lock-") {
            Naming::Curator
        } else if ends("latch-") {
            Naming::CuratorLatch
        } else if family.starts_with("x-") && ends("-") && family.len() > 2 {
            Naming::Recipe
        } else if ends("-") {
            Naming::Dash
        } else {
            Naming::Other
        }
    }

    /// The naming of a child: by its record if an acquire made it, otherwise by its name. `None`
    /// for a child that every client ignores.
    pub(crate) fn of_child(name: &str, node: &Znode) -> Option<Naming> {
        if node.number(name).is_none() {
            let hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            let is_permit = node.owner().is_some() && name.len() == 32 && name.bytes().all(hex);
            let is_before = name.starts_with(|c| c <= '9');
            return is_permit.then_some(Naming::KazooSemaphore).or(is_before.then_some(Naming::Data));
        }
        Some(match node.contender().map(|record| record.mode) {
            None => Naming::of(name),
            Some(LockMode::Exclusive | LockMode::Write | LockMode::Latch) => Naming::Own,
            Some(LockMode::Read) => Naming::OwnReader,
            Some(LockMode::Lease { .. }) => Naming::OwnLease,
        })
    }

    /// Tells whether a client library, and not an acquire, made the lock node.
    fn is_of_library(self) -> bool {
        !matches!(self, Naming::Own | Naming::OwnReader | Naming::OwnLease | Naming::Data)
    }

    /// Tells whether clients of this library wait for every child whose name sorts before their
    /// own.
    fn waits_for_data(self) -> bool {
        matches!(self, Naming::Curator | Naming::CuratorReadWrite | Naming::CuratorLatch)
    }

    /// Tells whether clients with this naming count lock nodes named `other`. True for names of
    /// unknown libraries, to raise no false alarm.
    fn sees(self, other: Naming) -> bool {
        use Naming as N;
        match self {
            // Curator sorts by the text after its own marker in a name, or by the whole name if the
            // marker is missing. The name of an acquire's ticket begins with its number.
            N::Curator | N::CuratorReadWrite | N::CuratorLatch => {
                self == other || matches!(other, N::Own | N::OwnReader)
            }
            // A name cannot tell kazoo's Lock from its WriteLock, which sees readers, so readers of
            // kazoo count as seen. kazoo's `extra_lock_patterns` cannot be known from outside.
            N::Kazoo => matches!(other, N::Kazoo | N::KazooReader | N::Own),
            N::KazooReader => matches!(other, N::Kazoo | N::KazooReader | N::Own | N::OwnReader),
            // kazoo's Semaphore keeps its permits in the directory beside a lock of its own, and
            // ignores all other children.
            N::KazooSemaphore => other != N::OwnLease,
            // ZooKeeper's recipe sorts by the number after the last dash.
            N::Recipe => matches!(other, N::Curator | N::CuratorLatch | N::Recipe | N::Dash | N::OwnLease),
            N::Dash | N::Other | N::Own | N::OwnReader | N::OwnLease | N::Data => true,
        }
    }
}

/// Number of children of a directory for each naming.
type Counts = [u32; Naming::ALL.len()];

/// Counts of children by naming in each directory, and the directories with mixed clients (clients
/// that do not see each other's lock nodes).
#[derive(Clone, Debug, Default)]
pub(crate) struct MixedClients {
    by_lock: OrdMap<ZPath, Counts>,
    /// Directories with clients that do not see each other's lock nodes.
    mixed: OrdSet<ZPath>,
}

impl MixedClients {
    pub(crate) fn add(&mut self, lock: &ZPath, name: &str, node: &Znode) {
        self.change(lock, name, node, |count| *count += 1);
    }

    pub(crate) fn remove(&mut self, lock: &ZPath, name: &str, node: &Znode) {
        self.change(lock, name, node, |count| *count -= 1);
    }

    /// The kinds of clients in a directory that do not see each other's lock nodes; empty if all
    /// clients see each other.
    pub(crate) fn of(&self, lock: &ZPath) -> Vec<MixedPair> {
        let counts = self.mixed.get(lock).and_then(|lock| self.by_lock.get(lock));
        counts.map_or_else(Vec::new, |counts| pairs(counts).collect())
    }

    /// The directories with clients that do not see each other's lock nodes.
    pub(crate) fn mixed(&self) -> impl Iterator<Item = &ZPath> {
        self.mixed.iter()
    }

    /// Number of directories with clients that do not see each other's lock nodes.
    pub(crate) fn len(&self) -> usize {
        self.mixed.len()
    }

    /// Compares the counts with all znodes, for tests.
    pub(crate) fn check<'a>(&self, nodes: impl Iterator<Item = (&'a ZPath, &'a Znode)>) -> Result<(), String> {
        let mut anew = MixedClients::default();
        for (path, node) in nodes {
            if let Some(lock) = path.parent() {
                anew.add(&lock, path.name(), node);
            }
        }
        let same = anew.by_lock == self.by_lock && anew.mixed == self.mixed;
        if same { Ok(()) } else { Err(format!("clients are {anew:?} and kept as {self:?}")) }
    }

    fn change(&mut self, lock: &ZPath, name: &str, node: &Znode, change: impl FnOnce(&mut u32)) {
        let Some(naming) = Naming::of_child(name, node) else { return };
        let mut counts = self.by_lock.get(lock).copied().unwrap_or_default();
        change(&mut counts[naming as usize]);
        if counts.iter().all(|count| *count == 0) {
            self.by_lock.remove(lock);
        } else {
            self.by_lock.insert(lock.clone(), counts);
        }
        if pairs(&counts).next().is_some() {
            self.mixed.insert(lock.clone());
        } else if !self.mixed.is_empty() {
            self.mixed.remove(lock);
        }
    }
}

fn pairs(counts: &Counts) -> impl Iterator<Item = MixedPair> + '_ {
    let there = |naming: &Naming| counts[*naming as usize] > 0;
    let clients = Naming::ALL.into_iter().filter(move |clients| clients.is_of_library() && there(clients));
    let between = clients.clone().flat_map(move |clients| {
        let unseen = Naming::ALL
            .into_iter()
            .filter(move |unseen| *unseen != Naming::Data && there(unseen) && !clients.sees(*unseen));
        unseen.map(move |unseen| MixedPair { clients, unseen, child: None })
    });
    // Curator's clients wait for a child that is not a ticket, and zlock does not.
    let is_data = there(&Naming::Data) && clients.into_iter().any(Naming::waits_for_data);
    let data = MixedPair { clients: Naming::Own, unseen: Naming::Data, child: None };
    between.chain(Some(data).filter(move |_| is_data))
}
