//! Changes of the state. Each keeps the parts of the state consistent with each other.

use std::sync::Arc;

use crate::queue::ended::{EndedSession, EndedTicket, Moment};
use crate::state::session::RequestRecord;
use crate::{
    Acl, Cluster, Error, EventRecord, Limits, LogPosition, Refusal, RequestKey, Session, SessionId, State, TxnOutcome,
    ZPath,
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

    /// Keeps a request's answer under its idempotency key in the session, unless the request has
    /// closed the session.
    pub(crate) fn keep_answer(&mut self, id: SessionId, key: RequestKey, answered: RequestRecord) {
        let overweight = self.is_overweight();
        self.sessions.edit_requests(id, |requests| {
            requests.keep(key, answered, &self.limits);
            if overweight {
                requests.drop_answers();
            }
        });
    }

    /// Keeps a record of a session that ended at `ended`.
    pub(crate) fn remember_session(&mut self, session: &Session, expired: bool, ended: Moment) {
        let session = EndedSession {
            id: session.id,
            label: session.label.to_string(),
            timeout_ms: session.timeout_ms,
            opened_ms: session.opened_ms,
            ended,
            expired,
            ephemerals: u32::try_from(session.ephemeral_count()).unwrap_or(u32::MAX),
            client: session.client.clone(),
        };
        self.locks.histories.add_session(session, &self.limits);
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
