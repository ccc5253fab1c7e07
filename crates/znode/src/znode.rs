//! One znode and the family below it.

use std::sync::Arc;

use bincode::{Decode, Encode};
use imbl::OrdSet;

use crate::ledger::Ledger;
use crate::{Acl, Attempt, CreateMode, LockMode, RequestKey, SessionId, Stat, Usage, Zxid};

/// How long a znode stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Kind {
    /// Until it is deleted.
    Persistent,
    /// Until its session ends.
    Ephemeral {
        /// The session.
        owner: SessionId,
    },
    /// Until it had children and has none for a while.
    Container,
    /// Until it has no children and was not set for a while.
    Ttl {
        /// The while, in milliseconds.
        ttl_ms: u64,
    },
}

impl Kind {
    /// The kind that a create mode makes; `owner` is for the ephemeral ones.
    pub(crate) fn of(mode: CreateMode, owner: SessionId) -> Kind {
        match mode {
            CreateMode::Persistent | CreateMode::PersistentSequential => Kind::Persistent,
            CreateMode::Ephemeral | CreateMode::EphemeralSequential => Kind::Ephemeral { owner },
            CreateMode::Container => Kind::Container,
            CreateMode::PersistentTtl { ttl_ms } | CreateMode::PersistentSequentialTtl { ttl_ms } => {
                Kind::Ttl { ttl_ms }
            }
        }
    }

    /// ZooKeeper's `ephemeralOwner` (EphemeralType.java): containers and TTL nodes are told by the high bits.
    fn ephemeral_owner(self) -> u64 {
        match self {
            Kind::Persistent => 0,
            Kind::Ephemeral { owner } => owner.0,
            Kind::Container => 1 << 63,
            Kind::Ttl { ttl_ms } => 0xff << 56 | ttl_ms,
        }
    }
}

/// A znode. Values only: whoever holds one sees one moment.
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
    /// When the last child went; counts while there are none.
    pub(crate) emptied_ms: u64,
    pub(crate) version: i32,
    pub(crate) aversion: i32,
    /// Children ever created: the next sequence number. Never falls, so that a suffix never repeats.
    pub(crate) creates: u64,
    /// Children ever deleted.
    pub(crate) deletes: u64,
    /// What is below it, at any depth; see `subtree.rs`.
    pub(crate) below: Usage,
    pub(crate) family: Family,
    pub(crate) contender: Option<Arc<Contender>>,
}

impl Znode {
    /// How long it stays.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Its data.
    pub fn data(&self) -> &Arc<[u8]> {
        &self.data
    }

    /// Who may do what with it.
    pub fn acl(&self) -> &Arc<[Acl]> {
        &self.acl
    }

    /// What the acquires that made it said; `None` when it was not made by [`crate::Op::Acquire`].
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

    /// The session that it goes with, lingering lock nodes included.
    pub(crate) fn owner(&self) -> Option<SessionId> {
        match self.kind {
            Kind::Ephemeral { owner } => Some(owner),
            _ => None,
        }
    }

    /// Whether it belongs to the session that asks.
    pub(crate) fn is_owned_by(&self, session: Option<SessionId>) -> bool {
        session.is_some() && self.owner() == session
    }

    /// Until when it outlives its session.
    pub(crate) fn lingers_until_ms(&self) -> Option<u64> {
        self.contender.as_ref().and_then(|contender| contender.lingers_until_ms)
    }
}

/// ZooKeeper's counters are 32 bits wide and wrap.
fn wrapped(count: u64) -> i32 {
    (count & u64::from(u32::MAX)) as u32 as i32
}

/// What a lock node knows beyond ZooKeeper's facts. Its label is the znode's data.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Contender {
    /// How it wants the lock.
    pub mode: LockMode,
    /// Who, within the session; empty for nobody.
    pub owner: String,
    /// How long the node outlives its session if that expires while it holds.
    pub lock_delay_ms: u32,
    /// One for each acquire that was not given back, oldest first, and [`Contender::released`] more.
    pub holds: Vec<Hold>,
    /// How many of the holds were given back. A release does not say which; a withdrawal does, and must find its own
    /// also after a release by another of the same owner. Always fewer than the holds.
    pub released: u32,
    /// Set when the session expired while it held: the time at which the node may be collected.
    pub lingers_until_ms: Option<u64>,
    /// It was acquired without key and owner.
    pub keyless: bool,
}

/// Released holds that are kept in a list of holds, so that it stays short when an owner comes and goes.
const RELEASED_MAX: u32 = 64;

impl Contender {
    /// How often the owner holds it, or waits with it.
    pub fn count(&self) -> u32 {
        u32::try_from(self.holds.len()).unwrap_or(u32::MAX).saturating_sub(self.released)
    }

    /// Gives one hold back.
    pub(crate) fn release(&mut self) {
        self.released += 1;
        if self.released > RELEASED_MAX {
            // The oldest: it is the one whose acquire was answered first.
            self.holds.remove(0);
            self.released -= 1;
        }
    }
}

/// One acquire that shares a ticket.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Hold {
    /// The idempotency key of the acquire.
    pub key: RequestKey,
    /// Its tries that were not withdrawn, in the order of the log; never empty.
    ///
    /// That is not the order in which the client made them: a try that it gave up may overtake the retry that it was told
    /// about. So the hold stays as long as one of them does.
    pub attempts: Vec<Attempt>,
}

/// Tries of one acquire that are kept; the oldest is forgotten first.
const ATTEMPTS_MAX: usize = 16;

impl Hold {
    /// A try of the same acquire.
    pub(crate) fn retry(&mut self, attempt: Attempt) {
        if self.attempts.contains(&attempt) {
            return;
        }
        if self.attempts.len() >= ATTEMPTS_MAX {
            self.attempts.remove(0);
        }
        self.attempts.push(attempt);
    }
}

/// A place in a queue: sequence number first; the czxid decides between equal numbers, and the name between znodes that
/// one multi created.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) number: u64,
    pub(crate) czxid: Zxid,
    pub(crate) name: Arc<str>,
}

impl Place {
    /// The place of a child; `None` when it does not queue.
    pub(crate) fn of(name: &str, czxid: Zxid) -> Option<Place> {
        sequence_of(name).map(|number| Place { number, czxid, name: name.into() })
    }
}

/// The children of a znode, and those among them that queue. The indexes make enqueueing, leaving and "who is before
/// me" O(log n).
#[derive(Clone, Debug, Default)]
pub(crate) struct Family {
    pub(crate) names: OrdSet<Arc<str>>,
    /// Children whose names end in ten digits, in queue order.
    pub(crate) contenders: OrdSet<Place>,
    /// Those of them that want the lock alone.
    pub(crate) writers: OrdSet<Place>,
    /// The contenders by token, which is the czxid for almost all: finds the lock node that a fencing token belongs to.
    pub(crate) tokens: OrdSet<(Zxid, Arc<str>)>,
    /// Who holds, where the order does not say it.
    pub(crate) ledger: Option<Arc<Ledger>>,
    /// The contenders of sessions that never held so far. Finds the next holder.
    pub(crate) pending: OrdSet<Place>,
}

impl Family {
    pub(crate) fn insert(&mut self, name: &Arc<str>, czxid: Zxid) {
        let new = self.names.insert(name.clone()).is_none();
        assert!(new, "the name was checked to be free");
        if let Some(number) = sequence_of(name) {
            let place = Place { number, czxid, name: name.clone() };
            self.tokens.insert((czxid, name.clone()));
            if !is_shared(name) {
                self.writers.insert(place.clone());
            }
            if let Some(ledger) = &mut self.ledger {
                Arc::make_mut(ledger).enter(place.clone());
            }
            self.contenders.insert(place);
        }
    }

    /// A session owns this child: if it queues, it may come to hold.
    pub(crate) fn await_grant(&mut self, name: &str, czxid: Zxid) {
        self.pending.extend(Place::of(name, czxid));
    }

    /// It holds, or its session is gone.
    pub(crate) fn settle(&mut self, name: &str, czxid: Zxid) {
        if let Some(place) = Place::of(name, czxid) {
            self.pending.remove(&place);
        }
    }

    /// A contender has another token from here on.
    pub(crate) fn change_token(&mut self, name: &str, old: Zxid, new: Zxid) {
        if old == new {
            return;
        }
        if let Some((_, name)) = self.tokens.remove(&(old, name.into())) {
            self.tokens.insert((new, name));
        }
    }

    pub(crate) fn remove(&mut self, name: &str, czxid: Zxid) {
        let removed = self.names.remove(name).is_some();
        assert!(removed, "a child is in its parent's list");
        if let Some(place) = Place::of(name, czxid) {
            self.contenders.remove(&place);
            if let Some(ledger) = &mut self.ledger {
                Arc::make_mut(ledger).leave(&place);
                self.ledger.take_if(|ledger| ledger.is_over());
            }
            self.writers.remove(&place);
            self.pending.remove(&place);
            self.tokens.remove(&(czxid, place.name));
        }
    }
}

/// The number of a lock node: ten digits at the end of its name, without a sign (rule 2 of docs/znode-model.md).
pub(crate) fn sequence_of(name: &str) -> Option<u64> {
    let digits = name.as_bytes().last_chunk::<10>()?;
    let mut number = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        number = number * 10 + u64::from(digit - b'0');
    }
    Some(number)
}

/// Whether a lock node wants the lock together with others, told by the names that ZooKeeper's clients give: Curator's
/// `__READ__`, kazoo's `__rlock__`, the recipe's `read-` and `-R-`. Everything else wants it alone.
pub(crate) fn is_shared(name: &str) -> bool {
    name.contains("__READ__") || name.contains("__rlock__") || name.starts_with("read-") || name.contains("-R-")
}

/// The mode that a lock node's name stands for.
pub(crate) fn mode_of(name: &str) -> LockMode {
    if is_shared(name) {
        LockMode::Read
    } else if name.contains("__WRIT__") || name.starts_with("write-") || name.contains("-W-") {
        LockMode::Write
    } else {
        LockMode::Exclusive
    }
}
