//! Who sees whom: clients of different libraries that queue in one directory without knowing of
//! each other.
//!
//! zlock counts every child whose name ends in ten digits. Other libraries count those with names
//! like their own, and two of them that do not see each other's lock nodes both believe to hold.
//! Each rule here is a column of the table that the libraries' own comparators give.

use std::fmt;

use imbl::{OrdMap, OrdSet};

use crate::lock::ticket_name::sequence_of;
use crate::{ZPath, Znode};

/// The kinds of names that lock nodes have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Naming {
    /// `...lock-`: Curator's mutex, go-zookeeper, zlock's exclusive locks.
    Curator,
    /// `...__READ__`, `...__WRIT__`: Curator's read/write lock and zlock's.
    CuratorReadWrite,
    /// `...latch-`: Curator's LeaderLatch.
    CuratorLatch,
    /// `...__lock__`, `...__rlock__`: kazoo.
    Kazoo,
    /// `x-<session>-`: the recipe that comes with ZooKeeper.
    Recipe,
    /// Another name that ends in a dash.
    Dash,
    /// Any other.
    Other,
}

const ALL: [Naming; 7] = [
    Naming::Curator,
    Naming::CuratorReadWrite,
    Naming::CuratorLatch,
    Naming::Kazoo,
    Naming::Recipe,
    Naming::Dash,
    Naming::Other,
];

/// A library's clients that queue in a directory, and lock nodes there that they do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlindSpot {
    /// Whose clients.
    pub clients: Naming,
    /// What they do not see.
    pub unseen: Naming,
}

/// As messages and answers name them.
impl fmt::Display for Naming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Naming::Curator => "curator",
            Naming::CuratorReadWrite => "curator-rw",
            Naming::CuratorLatch => "curator-latch",
            Naming::Kazoo => "kazoo",
            Naming::Recipe => "zookeeper-recipe",
            Naming::Dash | Naming::Other => "other",
        })
    }
}

impl fmt::Display for BlindSpot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} does not see {}", self.clients, self.unseen)
    }
}

impl Naming {
    /// By the name of a lock node.
    pub fn of(name: &str) -> Naming {
        let family = name.get(..name.len().saturating_sub(10)).unwrap_or_default();
        let ends = |end: &str| family.ends_with(end);
        if ends("__READ__") || ends("__WRIT__") {
            Naming::CuratorReadWrite
        } else if ends("__lock__") || ends("__rlock__") {
            Naming::Kazoo
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

    /// Whether the library that names its lock nodes so counts others with that name. Nothing is
    /// known of, and so nothing said against, names that are nobody's.
    fn sees(self, other: Naming) -> bool {
        use Naming as N;
        match self {
            // These look for their own word in the name. (kazoo's `extra_lock_patterns` cannot be
            // told from outside.)
            N::Curator | N::CuratorReadWrite | N::CuratorLatch | N::Kazoo => self == other,
            // This one takes what is behind the last dash.
            N::Recipe => matches!(other, N::Curator | N::CuratorLatch | N::Recipe | N::Dash),
            N::Dash | N::Other => true,
        }
    }
}

/// How many contenders of a directory have which kind of name: those of zlock's own, which see
/// all of them, and the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    own: u32,
    foreign: u32,
}

/// The directories with contenders.
#[derive(Clone, Debug, Default)]
pub(crate) struct MixedClients {
    by_lock: OrdMap<ZPath, [Count; ALL.len()]>,
    /// Those with a blind spot.
    mixed: OrdSet<ZPath>,
}

impl MixedClients {
    pub(crate) fn add(&mut self, lock: &ZPath, name: &str, node: &Znode) {
        self.change(lock, name, node, |count| *count += 1);
    }

    pub(crate) fn remove(&mut self, lock: &ZPath, name: &str, node: &Znode) {
        self.change(lock, name, node, |count| *count -= 1);
    }

    /// The blind spots of one directory.
    pub(crate) fn of(&self, lock: &ZPath) -> Vec<BlindSpot> {
        let counts = self.mixed.get(lock).and_then(|lock| self.by_lock.get(lock));
        counts.map_or_else(Vec::new, |counts| blind_spots(counts).collect())
    }

    /// The directories that have a blind spot.
    pub(crate) fn mixed(&self) -> impl Iterator<Item = &ZPath> {
        self.mixed.iter()
    }

    /// How many directories have a blind spot.
    pub(crate) fn len(&self) -> usize {
        self.mixed.len()
    }

    /// For tests: what is counted, against all znodes.
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
        if sequence_of(name).is_none() {
            return;
        }
        let mut counts = self.by_lock.get(lock).copied().unwrap_or_default();
        let count = &mut counts[Naming::of(name) as usize];
        change(if node.contender().is_some() { &mut count.own } else { &mut count.foreign });
        if counts.iter().all(|count| *count == Count::default()) {
            self.by_lock.remove(lock);
        } else {
            self.by_lock.insert(lock.clone(), counts);
        }
        if blind_spots(&counts).next().is_some() {
            self.mixed.insert(lock.clone());
        } else if !self.mixed.is_empty() {
            self.mixed.remove(lock);
        }
    }
}

fn blind_spots(counts: &[Count; ALL.len()]) -> impl Iterator<Item = BlindSpot> + '_ {
    let there = |naming: Naming| counts[naming as usize].own + counts[naming as usize].foreign > 0;
    let clients = ALL.into_iter().filter(|naming| counts[*naming as usize].foreign > 0);
    clients.flat_map(move |clients| {
        let unseen = ALL.into_iter().filter(move |unseen| there(*unseen) && !clients.sees(*unseen));
        unseen.map(move |unseen| BlindSpot { clients, unseen })
    })
}
