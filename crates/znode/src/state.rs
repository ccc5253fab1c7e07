//! The state and the one way to change it.

use std::ops::Bound;
use std::sync::Arc;

use crate::cluster::Cluster;
pub(crate) use crate::entry::changes::Changes;
use crate::lock::history::end_of;
use crate::lock::locks::Locks;
use crate::session::open::Sessions;
use crate::session::{Answered, Session};
use crate::tree::Tree;
use crate::tree::quota::Quotas;
use crate::tree::znode::{Family, Kind, Znode};
use crate::{
    Acl, Applied, Attempt, Credential, Error, Limits, LockGuard, LogPosition, Op, ReapCandidate, Recorded, Refusal,
    Reply, Request, RequestKey, SessionId, Term, Turn, Txn, Usage, ZPath, Zxid, fingerprint, lock,
};

/// Everything that is replicated. A clone is O(1) and does not change when the original does.
#[derive(Clone, Debug)]
pub struct State {
    pub(crate) cluster: Option<Arc<Cluster>>,
    pub(crate) last_zxid: Zxid,
    pub(crate) last_term: Term,
    pub(crate) time_ms: u64,
    pub(crate) limits: Arc<Limits>,
    pub(crate) tree: Tree,
    pub(crate) sessions: Sessions,
    pub(crate) locks: Locks,
    pub(crate) quotas: Quotas,
}

impl Default for State {
    fn default() -> Self {
        State::new(Limits::default())
    }
}

impl State {
    /// The state before the first transaction: the root and nothing else.
    pub fn new(limits: Limits) -> State {
        let mut state = State::empty(limits);
        let root = Znode {
            kind: Kind::Persistent,
            data: Arc::new([]),
            acl: Acl::open().into(),
            czxid: Zxid(0),
            mzxid: Zxid(0),
            pzxid: Zxid(0),
            ctime_ms: 0,
            mtime_ms: 0,
            emptied_ms: 0,
            version: 0,
            aversion: 0,
            creates: 0,
            deletes: 0,
            below: Usage::default(),
            family: Family::default(),
            contender: None,
        };
        state.tree.plant(root);
        state
    }

    /// Without even a root: what a snapshot is read into.
    pub(crate) fn empty(limits: Limits) -> State {
        State {
            cluster: None,
            last_zxid: Zxid(0),
            last_term: Term(0),
            time_ms: 0,
            limits: Arc::new(limits),
            tree: Tree::default(),
            sessions: Sessions::default(),
            locks: Locks::default(),
            quotas: Quotas::default(),
        }
    }

    /// Applies one transaction. A refused one changes nothing but the last zxid and the time.
    ///
    /// # Panics
    /// When zxids do not rise: entries apply once and in order.
    pub fn apply(&mut self, at: LogPosition, txn: Txn) -> Applied {
        let (applied, recorded) = self.apply_recorded(at, txn);
        Applied { events: recorded.into_iter().map(|recorded| recorded.event).collect(), ..applied }
    }

    /// The same for a caller that tells others of it: the events are apart, each with who may hear
    /// of it.
    ///
    /// # Panics
    /// When zxids do not rise.
    pub fn apply_recorded(&mut self, at: LogPosition, txn: Txn) -> (Applied, Vec<Recorded>) {
        self.advance(at);
        self.time_ms = self.time_ms.max(txn.time_ms);
        let mut changes = Changes::new(at);
        let (zxid, reply) = self.answer(txn.request, &mut changes);
        self.take_up_unsettled(&mut changes);
        self.grant_ready(&mut changes);
        (Applied { zxid, reply, events: Vec::new() }, changes.events)
    }

    /// Passes over an entry of the log that is no transaction.
    ///
    /// # Panics
    /// When zxids do not rise.
    pub fn skip(&mut self, at: LogPosition) {
        self.advance(at);
    }

    /// The last entry that was applied.
    pub fn last_zxid(&self) -> Zxid {
        self.last_zxid
    }

    /// The term of the last entry that was applied.
    pub fn last_term(&self) -> Term {
        self.last_term
    }

    /// The latest time that a leader put on an entry, in milliseconds since 1970.
    pub fn time_ms(&self) -> u64 {
        self.time_ms
    }

    /// The bounds in force.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// How many znodes there are, the root included.
    pub fn znode_count(&self) -> usize {
        self.tree.len()
    }

    /// The length of all data, in bytes.
    pub fn data_bytes(&self) -> u64 {
        self.tree.data_bytes()
    }

    /// How many locks have contenders.
    pub fn lock_count(&self) -> usize {
        self.locks.directory_count()
    }

    /// How many contenders all locks have together, holders included.
    pub fn contender_count(&self) -> u64 {
        self.locks.ticket_count()
    }

    /// How many of them hold, of those whom a session owns.
    pub fn holder_count(&self) -> u64 {
        self.locks.holder_count()
    }

    /// How many sessions are open.
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// A znode.
    pub fn node(&self, path: &ZPath) -> Option<&Znode> {
        self.tree.get(path)
    }

    /// The session that owns a znode.
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

    /// The names after `after`, sorted: one page follows another.
    ///
    /// # Errors
    /// `NoNode` when there is no such znode.
    pub fn children_from<'a>(&'a self, path: &ZPath, after: &str) -> Result<impl Iterator<Item = &'a str>, Error> {
        let node = self.node(path).ok_or(Error::NoNode)?;
        let range = (Bound::Excluded(after), Bound::<&str>::Unbounded);
        Ok(node.family.names.range::<_, str>(range).map(|name| &**name))
    }

    /// An open session.
    pub fn session(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(id)
    }

    /// The open sessions with ids after `after`, by id. Start with `SessionId(0)`.
    pub fn sessions_from(&self, after: SessionId) -> impl Iterator<Item = &Session> {
        self.sessions.from(after)
    }

    /// The session that a credential proves.
    ///
    /// # Errors
    /// `SessionExpired` when it is not open, or is being ended, `AuthFailed` when the secret is
    /// another one.
    pub fn authenticate(&self, credential: &Credential) -> Result<&Session, Error> {
        let open = self.session(credential.session).filter(|session| !self.sessions.is_ending(session.id));
        let session = open.ok_or(Error::SessionExpired)?;
        if session.secret_hash == credential.secret_hash { Ok(session) } else { Err(Error::AuthFailed) }
    }

    /// What could be collected if it were `now_ms`: at most `max`, the longest overdue first.
    pub fn reap_candidates(&self, now_ms: u64, max: usize) -> Vec<ReapCandidate> {
        let idle_ms = u64::from(self.limits.container_idle_ms);
        let due = self.tree.due(now_ms, idle_ms).chain(self.locks.revocations.due(now_ms));
        due.take(max).map(|path| ReapCandidate { path: path.clone(), czxid: self.tree[path].czxid }).collect()
    }

    fn advance(&mut self, at: LogPosition) {
        assert!(at.zxid.0 < 1 << 53, "zxid {} is beyond what a JSON number holds exactly", at.zxid);
        assert!(at.zxid > self.last_zxid, "entries apply once and in order: {} after {}", at.zxid, self.last_zxid);
        self.last_zxid = at.zxid;
        self.last_term = at.term;
    }

    /// Who asks, whether it was answered before, and only then what.
    pub(crate) fn answer(&mut self, request: Request, changes: &mut Changes) -> (Zxid, Result<Reply, Refusal>) {
        let now = changes.zxid;
        let Request { credential, key, guard, identities, address, turn, attempt, op } = request;
        (changes.identities, changes.address, changes.key, changes.attempt) = (identities, address, key, attempt);
        // Neither of these is remembered under the key: the session that would remember it is not
        // proven.
        if let Some(Err(error)) = credential.map(|credential| self.authenticate(&credential).map(drop)) {
            return (now, Err(error.into()));
        }
        changes.session = credential.map(|credential| credential.session);
        let Some(key) = key else {
            return (now, self.guarded(guard, turn, op, changes));
        };
        let Some(id) = changes.session else {
            return (now, Err(Error::SessionRequired.into()));
        };
        let fingerprint = fingerprint(&op, guard.as_ref());
        if let Some(answered) = self.sessions[&id].requests.get(&key).cloned() {
            if answered.fingerprint != fingerprint {
                return (now, Err(Error::RequestKeyReused.into()));
            }
            return self.answer_again(&op, id, key, attempt, &answered);
        }
        if self.is_full_of_keys(&op) {
            // An acquire whose key is forgotten may have been done all the same.
            return match self.counted_under(&op, id, key) {
                Some(Some(ticket)) => (now, self.acquire_again(&ticket, id, key, attempt)),
                _ => (now, Err(Error::QuotaExceeded.into())),
            };
        }
        let answer = self.guarded(guard, turn, op, changes);
        self.keep_answer(id, key, Answered { zxid: now, fingerprint, answer: Some(answer.clone()) });
        (now, answer)
    }

    /// A session that was closed by the request needs no memory.
    fn keep_answer(&mut self, id: SessionId, key: RequestKey, answered: Answered) {
        let (limits, overweight) = (self.limits.clone(), self.is_overweight());
        self.sessions.edit_requests(id, |requests| {
            requests.keep(key, answered, &limits);
            if overweight {
                requests.drop_answers();
            }
        });
    }

    /// A request whose key was used for the same before.
    fn answer_again(
        &mut self,
        op: &Op,
        id: SessionId,
        key: RequestKey,
        attempt: Attempt,
        answered: &Answered,
    ) -> (Zxid, Result<Reply, Refusal>) {
        let now = self.last_zxid;
        let acquires = matches!(op, Op::Acquire(_) | Op::AcquireAll(_) | Op::Upgrade(_));
        let ticket = match &answered.answer {
            // A retried acquire wants to know where its ticket stands by now.
            Some(Ok(Reply::Acquired { ticket, .. })) if acquires => Some(ticket.clone()),
            // And what was to be there need not be there any more.
            Some(Ok(Reply::Created { path, stat })) if self.is_gone_since(op, path, stat) => {
                return (now, Err(Refusal::at(Error::NoNode, path)));
            }
            Some(answer) => return (answered.zxid, answer.clone()),
            None => self.counted_under(op, id, key).flatten(),
        };
        match ticket {
            Some(ticket) => (now, self.acquire_again(&ticket, id, key, attempt)),
            None => (now, Err(Error::RequestKeyEvicted.into())),
        }
    }

    /// The ticket on which an acquire was counted already under this key. `None` for what is no
    /// acquire.
    fn counted_under(&self, op: &Op, id: SessionId, key: RequestKey) -> Option<Option<ZPath>> {
        Some(match op {
            Op::Acquire(acquire) => self.ticket_with(id, acquire, key),
            Op::AcquireAll(wish) => self.all_with(id, wish, key),
            Op::Upgrade(upgrade) => self.upgraded_with(id, upgrade, key),
            _ => return None,
        })
    }

    fn guarded(
        &mut self,
        guard: Option<LockGuard>,
        turn: Option<Turn>,
        op: Op,
        changes: &mut Changes,
    ) -> Result<Reply, Refusal> {
        let session = changes.session;
        if let Some(guard) = guard {
            // Who may not read the lock is told of its own ticket only.
            let LockGuard { lock, token } = &guard;
            let held = match self.may_read(lock, &changes.identities) {
                true => lock::is_held_with(self, lock, *token),
                false => session.is_some_and(|session| lock::is_held_by(self, lock, *token, session)),
            };
            if !held {
                return Err(Refusal::at(Error::LockNotHeld, &guard.lock));
            }
        }
        if let Some(turn) = turn {
            self.take_turn(turn, session)?;
        }
        changes.end = end_of(&op);
        self.execute(op, session, changes)
    }

    fn execute(&mut self, op: Op, session: Option<SessionId>, changes: &mut Changes) -> Result<Reply, Refusal> {
        match op {
            Op::OpenSession { secret_hash, timeout_ms, label, address, client } => {
                self.open_session(secret_hash, timeout_ms, &label, address, client, changes)
            }
            Op::CloseSession { session: id } => self.close_session(id, session, changes),
            Op::ExpireSessions { sessions, term } => self.expire_sessions(&sessions, term, changes),
            Op::AttachSession { connection, timeout_ms } => self.attach_session(session, connection, timeout_ms),
            Op::Znode(op) => self.znode_op(op, session, changes),
            Op::Multi(ops) => self.multi(ops, session, changes),
            Op::SetAcl { path, acl, version } => self.set_acl(&path, acl, version, changes),
            Op::Acquire(acquire) => self.acquire(&acquire, session, changes),
            Op::AcquireAll(wish) => self.acquire_all(&wish, session, changes),
            Op::Upgrade(upgrade) => self.upgrade(&upgrade, session, changes),
            Op::Release { ticket } => self.release(&ticket, session, changes),
            Op::ReleaseHeld(of) => self.release_held(&of, session, changes),
            Op::HandOver { ticket, to } => self.hand_over(&ticket, &to, session, changes),
            Op::Withdraw { ticket, attempt, if_waiting } => {
                self.withdraw(&ticket, attempt, if_waiting, session, changes)
            }
            Op::Revoke { path, deadline_ms } => self.revoke(&path, deadline_ms, changes),
            Op::SetLock { lock, settings } => self.set_lock(&lock, settings, changes),
            Op::Reap { candidates } => Ok(self.reap(&candidates, changes)),
            // Only a leader proposes what is below; the doors have no way to.
            Op::Found(founding) => self.found(founding),
            Op::SetLevel { level } => self.set_level(level),
            Op::NoteRemoved { node_id } => self.note_removed(node_id, changes.zxid),
            Op::SetLimits(limits) => {
                self.limits = Arc::new(limits);
                Ok(Reply::Done)
            }
        }
    }
}
