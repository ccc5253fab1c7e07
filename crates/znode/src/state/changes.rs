//! Changes of the state. Each keeps the parts of the state consistent with each other.

use std::sync::Arc;

use crate::queue::Queue;
use crate::queue::ended::{EndedSession, EndedTicket, Grant, History, Moment};
use crate::queue::revocations::Revocation;
use crate::state::locks::MultiLock;
use crate::state::session::RequestRecord;
use crate::{
    Acl, Cluster, Contender, Error, EventRecord, Limits, LogPosition, Refusal, RequestKey, Session, SessionId, State,
    TxnOutcome, ZPath, Znode, Zxid,
};

impl State {
    /// Advances the state past a log entry that contains no transaction, such as a membership
    /// change. Only the last zxid, the last term and the hash of the history change.
    ///
    /// # Panics
    /// If zxids do not rise: entries are applied once and in order.
    pub fn skip(&mut self, at: LogPosition) {
        self.begin_entry(at, 0);
        self.history_hash = self.history_hash.after_blank(at);
    }

    /// Advances the state to a log entry, which a leader proposed at `time_ms`.
    ///
    /// # Panics
    /// If zxids do not rise.
    pub(crate) fn begin_entry(&mut self, at: LogPosition, time_ms: u64) {
        let last = self.last.zxid;
        assert!(at.zxid.0 < 1 << 53, "zxid {} is beyond what a JSON number holds exactly", at.zxid);
        assert!(at.zxid > last, "entries apply once and in order: {} after {last}", at.zxid);
        self.last = at;
        self.advance_time(time_ms);
    }

    /// Advances the time of the state to `time_ms`, unless it is later already.
    pub(crate) fn advance_time(&mut self, time_ms: u64) {
        self.time_ms = self.time_ms.max(time_ms);
    }

    /// Adds the last entry to the hash of the history, with its bytes in the log and its outcome.
    pub(crate) fn end_entry(&mut self, command: &[u8], outcome: &TxnOutcome, events: &[EventRecord]) {
        self.history_hash = self.history_hash.after(self.last, command, outcome, events);
    }

    /// Replaces the limits, and returns the former ones.
    pub(crate) fn set_limits(&mut self, limits: Limits) -> Limits {
        Arc::unwrap_or_clone(std::mem::replace(&mut self.limits, Arc::new(limits)))
    }

    /// Replaces the facts about the cluster. Returns false if there were some already.
    pub(crate) fn set_cluster(&mut self, cluster: Cluster) -> bool {
        self.cluster.replace(Arc::new(cluster)).is_none()
    }

    /// The facts about the founded cluster, to change them.
    ///
    /// # Errors
    /// `BadArguments` before the cluster is founded.
    pub(crate) fn founded(&mut self) -> Result<&mut Cluster, Refusal> {
        self.cluster.as_mut().map(Arc::make_mut).ok_or_else(|| Error::BadArguments.into())
    }

    /// Adds a znode to the tree, to its session, and to the queue of its parent if it is a ticket.
    /// `count` updates the counters of the parent.
    pub(crate) fn link(&mut self, path: &ZPath, parent: &ZPath, node: Znode, count: impl FnOnce(&mut Znode)) {
        if let Some(owner) = node.owner() {
            self.sessions.edit(owner, |session| session.own(path, parent, node.contender()));
        }
        let is_ticket = self.locks.entered(path, parent, &node);
        let tickets = self.tree.link(path, parent, node, count);
        if is_ticket && tickets == 1 {
            self.locks.opened(parent);
        }
    }

    /// Removes a znode without children from the tree, from its session, and from the queue of its
    /// parent. Returns the znode, and its grant if it was a ticket that held.
    pub(crate) fn unlink(&mut self, path: &ZPath, parent: &ZPath, at: Moment) -> (Arc<Znode>, Option<Grant>) {
        let (node, grant, tickets) = self.tree.unlink(path, parent, at.zxid, at.time_ms);
        self.locks.left(path, parent, &node, tickets);
        // The owner may have ended already: its lock node was kept for the lock-delay.
        if let Some(owner) = node.owner() {
            self.sessions.edit(owner, |session| session.disown(path, parent, node.contender()));
        }
        (node, grant)
    }

    /// Adds the root, which has no parent.
    pub(crate) fn plant(&mut self, root: Znode) {
        self.tree.plant(root);
    }

    /// Changes a znode in place.
    pub(crate) fn edit_znode<T>(&mut self, path: &ZPath, change: impl FnOnce(&mut Znode) -> T) -> T {
        self.tree.edit(path, change)
    }

    /// Replaces a znode's ACL, then applies `change` to the znode and returns its result.
    pub(crate) fn replace_acl<T>(&mut self, path: &ZPath, acl: Arc<[Acl]>, change: impl FnOnce(&mut Znode) -> T) -> T {
        self.tree.set_acl(path, acl, change)
    }

    /// Changes the contender (the record of the acquires) of a ticket. `None` for a ticket that a
    /// plain create made, because it has no contender.
    pub(crate) fn edit_contender<T>(&mut self, ticket: &ZPath, change: impl FnOnce(&mut Contender) -> T) -> Option<T> {
        self.tree.edit_contender(ticket, change)
    }

    /// Changes the queue of a lock, which is created if it is missing.
    pub(crate) fn edit_queue<T>(&mut self, lock: &ZPath, change: impl FnOnce(&mut Queue) -> T) -> T {
        self.tree.edit_queue(lock, change)
    }

    /// Raises the number of holders by one, for a ticket of a session that has got its lock.
    pub(crate) fn count_holder(&mut self) {
        self.locks.count_holder();
    }

    /// Takes a ticket that a session no longer has out of the counts: out of the number of holders
    /// if it `held` its lock, and out of the revocations. Returns its revocation.
    pub(crate) fn discount(&mut self, ticket: &ZPath, held: bool) -> Option<Revocation> {
        if held {
            self.locks.discount_holder();
        }
        self.locks.revocations.remove(ticket)
    }

    /// Records that a client asks for the release of a ticket.
    pub(crate) fn put_revocation(&mut self, ticket: &ZPath, revocation: Revocation) {
        self.locks.revocations.put(ticket, revocation);
    }

    /// Adds a multi-lock. Returns false if a multi-lock with that zxid exists.
    pub(crate) fn add_multi(&mut self, czxid: Zxid, multi: MultiLock) -> bool {
        self.locks.add_multi(czxid, multi)
    }

    /// Forgets the multi-lock of a removed lock node. Returns the multi-lock's other lock nodes.
    pub(crate) fn take_multi(&mut self, ticket: &ZPath, czxid: Zxid) -> Vec<ZPath> {
        self.locks.take_multi(ticket, czxid)
    }

    /// Marks a lock with grants left over, so that a later entry examines its waiters. Returns
    /// false if the lock is marked already.
    pub(crate) fn leave_unsettled(&mut self, lock: ZPath) -> bool {
        self.locks.leave_unsettled(lock)
    }

    /// Removes and returns the first `max` locks whose grants were left to later entries.
    pub(crate) fn take_unsettled(&mut self, max: usize) -> Vec<ZPath> {
        self.locks.take_unsettled(max)
    }

    /// Adds a history from a snapshot. Returns false if the lock has one already.
    pub(crate) fn restore_history(&mut self, lock: ZPath, history: History) -> bool {
        self.locks.histories.restore_history(lock, history)
    }

    /// Adds the record of an ended session from a snapshot. Returns false if there is one already.
    pub(crate) fn restore_ended(&mut self, session: EndedSession) -> bool {
        self.locks.histories.restore_session(session)
    }

    /// Adds an open session. Returns false if a session with that id exists.
    pub(crate) fn add_session(&mut self, session: Session) -> bool {
        self.sessions.add(session)
    }

    /// Changes a session. Returns `None` if the session is not open.
    pub(crate) fn edit_session<T>(&mut self, id: SessionId, change: impl FnOnce(&mut Session) -> T) -> Option<T> {
        self.sessions.edit(id, change)
    }

    /// Records expired sessions that later entries will remove.
    pub(crate) fn will_end(&mut self, sessions: impl IntoIterator<Item = SessionId>) {
        self.sessions.will_end(sessions);
    }

    /// Keeps a request's answer under its idempotency key in the session, unless the request has
    /// closed the session.
    pub(crate) fn keep_answer(&mut self, id: SessionId, key: RequestKey, answered: RequestRecord) {
        let overweight = self.is_overweight();
        self.sessions.edit(id, |session| {
            session.requests.keep(key, answered, &self.limits);
            if overweight {
                session.requests.drop_answers();
            }
        });
    }

    /// Removes an open session, which ends at `ended`, and keeps a record of it. Panics if there is
    /// no such session.
    pub(crate) fn remove_session(&mut self, id: SessionId, expired: bool, ended: Moment) -> Arc<Session> {
        let session = self.sessions.remove(id).expect("the caller has seen it");
        let record = EndedSession {
            id,
            label: session.label.to_string(),
            timeout_ms: session.timeout_ms,
            opened_ms: session.opened_ms,
            ended,
            expired,
            ephemerals: u32::try_from(session.ephemeral_count()).unwrap_or(u32::MAX),
            client: session.client.clone(),
        };
        self.locks.histories.add_session(record, &self.limits);
        session
    }

    /// Adds a ticket to a lock's history. If the state exceeds its memory bound, older histories
    /// are forgotten.
    pub(crate) fn remember_ticket(&mut self, lock: &ZPath, ticket: EndedTicket, readers: Option<Arc<[Acl]>>) {
        self.locks.histories.add_ticket(lock, ticket, readers, &self.limits);
        for _ in 0..2 {
            if self.is_overweight() {
                self.locks.histories.forget_oldest();
            }
        }
    }
}
