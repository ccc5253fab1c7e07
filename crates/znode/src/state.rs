//! The replicated state, and reads that concern all of it.

pub(crate) mod changes;
pub(crate) mod cluster;
pub(crate) mod locks;
pub(crate) mod mixed_clients;
pub(crate) mod quotas;
pub(crate) mod session;
pub(crate) mod sessions;

use std::ops::Bound;
use std::sync::Arc;

use crate::state::locks::Locks;
use crate::state::sessions::Sessions;
use crate::tree::Tree;
use crate::tree::quota::Quotas;
use crate::tree::subtrees;
use crate::tree::system_paths::CONFIG;
use crate::words::weight::QUOTA;
use crate::{
    Acl, Cluster, Credential, Error, HistoryHash, Kind, Limits, LogPosition, ReapCandidate, Refusal, Session,
    SessionId, Term, ZPath, Znode, Zxid,
};

/// The replicated state. A clone costs O(1), and later changes of the original leave the clone as
/// it is.
#[derive(Clone, Debug)]
pub struct State {
    cluster: Option<Arc<Cluster>>,
    /// The last entry that was applied.
    last: LogPosition,
    history_hash: HistoryHash,
    time_ms: u64,
    limits: Arc<Limits>,
    tree: Tree,
    sessions: Sessions,
    locks: Locks,
    quotas: Quotas,
}

impl Default for State {
    fn default() -> Self {
        State::new(Limits::default())
    }
}

impl State {
    /// The state before the first transaction, in which the root is the only znode.
    pub fn new(limits: Limits) -> State {
        let mut state = State::empty(LogPosition::default(), HistoryHash::default(), 0, limits);
        state.tree.plant(Znode { acl: Acl::open().into(), ..Znode::default() });
        state
    }

    /// A state after the entry `last` that has no znodes yet, into which a snapshot is read.
    pub(crate) fn empty(last: LogPosition, history_hash: HistoryHash, time_ms: u64, limits: Limits) -> State {
        State {
            cluster: None,
            last,
            history_hash,
            time_ms,
            limits: Arc::new(limits),
            tree: Tree::default(),
            sessions: Sessions::default(),
            locks: Locks::default(),
            quotas: Quotas::default(),
        }
    }

    /// The tree of znodes, to read it.
    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The open sessions, to read them.
    pub(crate) fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Indexes and counts over all locks, to read them.
    pub(crate) fn locks(&self) -> &Locks {
        &self.locks
    }

    /// Facts about the cluster, such as its uuid; `None` before the cluster is founded.
    pub fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_deref()
    }

    /// The format level of log and snapshots; 1 before the founding. The effects of an entry depend
    /// on this level, and never on the version of the program.
    pub fn level(&self) -> u16 {
        self.cluster().map_or(1, Cluster::level)
    }

    /// Term and zxid of the last entry that was applied.
    pub(crate) fn last(&self) -> LogPosition {
        self.last
    }

    /// The zxid of the last entry that was applied.
    pub fn last_zxid(&self) -> Zxid {
        self.last.zxid
    }

    /// The term of the last entry that was applied.
    pub fn last_term(&self) -> Term {
        self.last.term
    }

    /// The hash of all entries that were applied, and of their outcomes. States with equal zxids
    /// and different hashes differ, or have differed before.
    pub fn history_hash(&self) -> HistoryHash {
        self.history_hash
    }

    /// The time of the state: the latest time that a leader gave to an entry, in milliseconds since
    /// 1970.
    pub fn time_ms(&self) -> u64 {
        self.time_ms
    }

    /// The limits in force.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Number of znodes, the root included.
    pub fn znode_count(&self) -> usize {
        self.tree.len()
    }

    /// Sum of the lengths of all znodes' data, in bytes.
    pub fn data_bytes(&self) -> u64 {
        self.tree.data_bytes()
    }

    /// Number of locks that have tickets (lock nodes in their queues).
    pub fn lock_count(&self) -> usize {
        self.locks.directory_count()
    }

    /// Number of tickets (lock nodes in queues) of all locks.
    pub fn contender_count(&self) -> u64 {
        self.locks.ticket_count()
    }

    /// Number of tickets of all locks that hold their lock; only tickets of open sessions count.
    pub fn holder_count(&self) -> u64 {
        self.locks.holder_count()
    }

    /// The locks with clients of different libraries that do not count each other's lock nodes.
    pub fn mixed_locks(&self) -> impl Iterator<Item = &ZPath> {
        self.locks.mixed_clients.mixed()
    }

    /// Number of locks with clients of different libraries that do not count each other's lock
    /// nodes.
    pub fn mixed_lock_count(&self) -> usize {
        self.locks.mixed_clients.len()
    }

    /// Number of open sessions.
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// The znode at a path.
    pub fn node(&self, path: &ZPath) -> Option<&Znode> {
        self.tree.get(path)
    }

    /// The znode at a path; the refusal `NoNode` if there is none.
    pub(crate) fn existing(&self, path: &ZPath) -> Result<&Znode, Refusal> {
        self.node(path).ok_or_else(|| Refusal::at(Error::NoNode, path))
    }

    /// The session that owns the ephemeral znode at a path; `None` if the znode is missing or not
    /// ephemeral.
    pub fn owner_of(&self, path: &ZPath) -> Option<SessionId> {
        self.node(path).and_then(Znode::owner)
    }

    /// The names of a znode's children, sorted.
    ///
    /// # Errors
    /// `NoNode` when there is no such znode.
    pub fn children(&self, path: &ZPath) -> Result<impl Iterator<Item = &str>, Error> {
        let node = self.node(path).ok_or(Error::NoNode)?;
        Ok(node.family.names.iter().map(|name| &**name))
    }

    /// The names of a znode's children after `after`, sorted. For reading page by page.
    ///
    /// # Errors
    /// `NoNode` when there is no such znode.
    pub fn children_from<'a>(&'a self, path: &ZPath, after: &str) -> Result<impl Iterator<Item = &'a str>, Error> {
        let node = self.node(path).ok_or(Error::NoNode)?;
        let range = (Bound::Excluded(after), Bound::<&str>::Unbounded);
        Ok(node.family.names.range::<_, str>(range).map(|name| &**name))
    }

    /// Number of znodes below a znode, at any depth; 0 if there is no znode. Costs O(log n),
    /// because each znode keeps this count.
    pub fn descendant_count(&self, path: &ZPath) -> u64 {
        if path.is_root() {
            return self.tree.len() as u64 - 1;
        }
        self.node(path).map_or(0, |node| node.below.count)
    }

    /// The open session with an id.
    pub fn session(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(id)
    }

    /// The open sessions with ids above `after`, by id; all open sessions for `SessionId(0)`.
    pub fn sessions_from(&self, after: SessionId) -> impl Iterator<Item = &Session> {
        self.sessions.from(after)
    }

    /// The session that a credential names, if its secret is right.
    ///
    /// # Errors
    /// `SessionExpired` if the session has ended, or has expired and will be removed by a later
    /// entry; `AuthFailed` if the secret is wrong.
    pub fn authenticate(&self, credential: &Credential) -> Result<&Session, Error> {
        let session = self.open(credential.session)?;
        if session.secret_hash == credential.secret_hash { Ok(session) } else { Err(Error::AuthFailed) }
    }

    /// The open session with an id, unless the session has expired and a later entry will remove
    /// it.
    pub(crate) fn open(&self, id: SessionId) -> Result<&Session, Error> {
        self.session(id).filter(|session| !self.sessions.is_ending(session.id)).ok_or(Error::SessionExpired)
    }

    /// Znodes and revoked tickets that may be deleted at the time `now_ms`, at most `max`. TTL
    /// znodes and lock nodes after their lock-delay come first, then containers, then revoked
    /// tickets; within each kind, the longest overdue come first.
    pub fn reap_candidates(&self, now_ms: u64, max: usize) -> Vec<ReapCandidate> {
        let idle_ms = u64::from(self.limits.container_idle_ms);
        let due = self.tree.due(now_ms, idle_ms).chain(self.locks.revocations.due(now_ms));
        due.take(max).map(|path| ReapCandidate { path: path.clone(), czxid: self.tree[path].czxid }).collect()
    }

    /// Memory that the state takes, in bytes, by estimate. Bounded by
    /// [`crate::Limits::state_bytes_max`]. Costs O(1).
    pub fn state_bytes(&self) -> u64 {
        let quotas = self.quotas.len() as u64 * QUOTA;
        self.tree.bytes() + self.sessions.bytes() + self.locks.bytes() + quotas
    }

    /// Estimated memory in bytes of the child of the root at or above a path, with all znodes below
    /// this child; bounded by [`crate::Limits::subtree_bytes_max`].
    pub fn subtree_bytes(&self, path: &ZPath) -> u64 {
        self.tree.subtrees().bytes_at(path)
    }

    /// Checks that the state may grow by `more` bytes.
    ///
    /// # Errors
    /// `QuotaExceeded` when the state would exceed `state_bytes_max`.
    pub(crate) fn check_bytes(&self, more: u64) -> Result<(), Error> {
        let over = self.state_bytes().saturating_add(more) > self.limits.state_bytes_max;
        if over { Err(Error::QuotaExceeded) } else { Ok(()) }
    }

    /// Checks that a znode of this kind, with `data` bytes of data, may add `more` bytes of
    /// estimated memory to the state. Ephemeral znodes with little data use the memory reserved for
    /// sessions: lock nodes of ZooKeeper's clients, simple locks (one znode without a queue),
    /// members of groups.
    ///
    /// # Errors
    /// `QuotaExceeded`, see [`State::check_plain_bytes`].
    pub(crate) fn check_znode_bytes(&self, path: &ZPath, kind: Kind, data: usize, more: u64) -> Result<(), Refusal> {
        if matches!(kind, Kind::Ephemeral { .. }) && data <= self.limits.label_bytes_max as usize {
            return self.check_bytes(more).map_err(|error| Refusal::at(error, path));
        }
        self.check_plain_bytes(path, more)
    }

    /// Checks that znodes without a session may grow by `more` bytes of estimated memory at a path.
    /// Their limit is lower than that of the whole state. The difference is reserved for sessions
    /// and ephemeral znodes, so that locks can be taken even when other znodes have reached their
    /// limit.
    ///
    /// # Errors
    /// `QuotaExceeded`, about the path, or about the child of the root whose subtree is full.
    pub(crate) fn check_plain_bytes(&self, path: &ZPath, more: u64) -> Result<(), Refusal> {
        if more == 0 {
            return Ok(());
        }
        // The nodes of the cluster write this znode, so only the bound of the whole state applies.
        if path.as_str() == CONFIG {
            return self.check_bytes(more).map_err(|error| Refusal::at(error, path));
        }
        if self.state_bytes().saturating_add(more) > self.limits.plain_bytes_max() {
            return Err(Refusal::at(Error::QuotaExceeded, path));
        }
        let Some(top) = subtrees::top(path) else { return Ok(()) };
        if self.subtree_bytes(path).saturating_add(more) > self.limits.subtree_bytes_max {
            let top = ZPath::parse(top).map_err(|error| Refusal::at(error, path))?;
            return Err(Refusal::at(Error::QuotaExceeded, &top));
        }
        Ok(())
    }

    /// Tells whether the estimated memory of the state is above `state_bytes_max`.
    pub(crate) fn is_overweight(&self) -> bool {
        self.state_bytes() > self.limits.state_bytes_max
    }
}
