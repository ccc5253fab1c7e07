//! `State::apply`, the only way to change the state. It checks the client, then looks up the
//! idempotency key, and only then executes the operation.

use crate::edits::context::Context;
use crate::edits::effects::Effects;
use crate::edits::history::end_of;
use crate::operations::readings;
use crate::state::session::RequestRecord;
use crate::{
    Error, EventRecord, LockGuard, LogPosition, Op, Refusal, Reply, Request, State, Txn, TxnOutcome, ZPath, ZnodeOp,
    Zxid, encode_txn, fingerprint,
};

impl State {
    /// Applies one transaction, and makes grants that earlier entries have left over. A refusal
    /// changes nothing else but the last zxid and term, the hash of the history, the time, the
    /// stored answer, and the number of the session's last ordered write.
    ///
    /// # Panics
    /// If zxids do not rise: entries are applied once and in order.
    pub fn apply(&mut self, at: LogPosition, txn: Txn) -> TxnOutcome {
        let command = encode_txn(&txn);
        let (applied, recorded) = self.apply_recorded(at, txn, &command);
        TxnOutcome { events: recorded.into_iter().map(|recorded| recorded.event).collect(), ..applied }
    }

    /// Applies one transaction as [`State::apply`] does. Returns its events separately, each with
    /// the ACLs that decide which clients may receive it. `command` has the bytes of the
    /// transaction in the log.
    ///
    /// # Panics
    /// If zxids do not rise.
    pub fn apply_recorded(&mut self, at: LogPosition, txn: Txn, command: &[u8]) -> (TxnOutcome, Vec<EventRecord>) {
        self.begin_entry(at, txn.time_ms);
        let (zxid, reply, mut effects) = self.ask(at, txn.request, txn.proven);
        self.take_up_unsettled(&mut effects);
        self.grant_ready(&mut effects);
        let outcome = TxnOutcome { zxid, reply, events: Vec::new() };
        self.end_entry(command, &outcome, &effects.events);
        (outcome, effects.events)
    }

    /// Checks that a request would not exceed the budget of its log entry (`entry_cost_max`) if it
    /// were applied now. The leader calls this before it proposes the request.
    ///
    /// A request with an idempotency key always passes: its entry must record the refusal, and an
    /// earlier copy of the request may be in the log. A request with a write number
    /// ([`crate::WriteTurn`]) always passes, because later writes of its connection wait until an
    /// entry has counted it.
    ///
    /// # Errors
    /// `TooManyOps`, as when the request is applied.
    pub fn check_cost(&self, request: &Request) -> Result<(), Error> {
        if request.key.is_some()
            || request.turn.is_some()
            || self.cost_of(&request.op) <= u64::from(self.limits().entry_cost_max)
        {
            return Ok(());
        }
        // The request may be refused for another reason first, so it is applied to a copy of the
        // state. That is cheap, because a request beyond the budget is refused before it is
        // executed.
        let at = LogPosition { zxid: Zxid(self.last_zxid().0 + 1), ..self.last() };
        let (_, answer, _) = self.clone().ask(at, request.clone(), false);
        match answer {
            Err(Refusal { error: Error::TooManyOps, .. }) => Err(Error::TooManyOps),
            _ => Ok(()),
        }
    }

    /// Checks the request's credential, and answers the request. Returns also the zxid of the entry
    /// that gave the answer: an earlier entry if the answer was stored under the idempotency key.
    fn ask(&mut self, at: LogPosition, request: Request, proven: bool) -> (Zxid, Result<Reply, Refusal>, Effects) {
        let Request { credential, key, guard, identities, address, turn, attempt, op } = request;
        let known = credential.map(|credential| match proven {
            true => self.open(credential.session).map(|session| session.id),
            false => self.authenticate(&credential).map(|session| session.id),
        });
        let session = known.and_then(Result::ok);
        let context = Context::new(at, self.time_ms());
        let context = Context { session, identities, address, key, attempt, guard, turn, ..context };
        let mut effects = Effects::new(context);
        let (zxid, answer) = match known {
            // The credential is wrong or expired, so the refusal is not kept under the request's
            // key.
            Some(Err(error)) => (at.zxid, Err(error.into())),
            _ => self.answer(op, &mut effects),
        };
        (zxid, answer, effects)
    }

    /// Executes a request, or repeats the answer that is kept under its idempotency key. The caller
    /// has checked the credential, if there is one.
    fn answer(&mut self, op: Op, effects: &mut Effects) -> (Zxid, Result<Reply, Refusal>) {
        let Context { zxid: now, session, key, .. } = effects.context;
        let Some(key) = key else {
            return (now, self.guarded(op, effects));
        };
        let Some(id) = session else {
            return (now, Err(Error::SessionRequired.into()));
        };
        let fingerprint = fingerprint(&op, effects.context.guard.as_ref());
        if let Some(answered) = self.sessions()[&id].requests.get(&key).cloned() {
            if answered.fingerprint != fingerprint {
                return (now, Err(Error::RequestKeyReused.into()));
            }
            return self.answer_again(&op, &answered, &effects.context);
        }
        let full_at = Some(self.state_bytes()).filter(|bytes| self.is_full_of_keys(*bytes));
        if full_at.is_some() && !gives_back(&op) {
            // An acquire may have been applied although its key is forgotten; its ticket still has
            // the key.
            return match self.counted_under(&op, &effects.context) {
                Some(Some(ticket)) => (now, self.acquire_again(&ticket, &effects.context)),
                _ => (now, Err(Error::QuotaExceeded.into())),
            };
        }
        let answer = self.guarded(op, effects);
        let answered = RequestRecord { zxid: now, fingerprint, answer: Some(answer.clone()) };
        // The answer is kept only if the operation freed at least as much memory as the answer
        // takes.
        if full_at.is_none_or(|before| self.state_bytes() + answered.weight() <= before) {
            self.keep_answer(id, key, answered);
        }
        (now, answer)
    }

    /// Answers a retry, whose idempotency key the session has used before for an equal request:
    /// with the stored answer or, for an acquire, with the present state of its ticket.
    fn answer_again(&mut self, op: &Op, answered: &RequestRecord, context: &Context) -> (Zxid, Result<Reply, Refusal>) {
        let now = self.last_zxid();
        let acquires = matches!(op, Op::Acquire(_) | Op::AcquireAll(_) | Op::Upgrade(_));
        let ticket = match &answered.answer {
            // A retried acquire is answered with the present state of its ticket.
            Some(Ok(Reply::Acquired { ticket, .. })) if acquires => Some(ticket.clone()),
            // The znode of a create that ensures its existence may have been deleted since.
            Some(Ok(Reply::Created { path, stat })) if self.is_gone_since(op, path, stat) => {
                return (now, Err(Refusal::at(Error::NoNode, path)));
            }
            Some(answer) => return (answered.zxid, answer.clone()),
            None => self.counted_under(op, context).flatten(),
        };
        match ticket {
            Some(ticket) => (now, self.acquire_again(&ticket, context)),
            None => (now, Err(Error::RequestKeyEvicted.into())),
        }
    }

    /// The ticket of an earlier acquire or upgrade with this idempotency key; `Some(None)` if there
    /// is no such ticket. `None` if `op` is neither an acquire nor an upgrade.
    fn counted_under(&self, op: &Op, context: &Context) -> Option<Option<ZPath>> {
        let (id, key) = context.session.zip(context.key)?;
        Some(match op {
            Op::Acquire(acquire) => self.ticket_with(id, acquire, key),
            Op::AcquireAll(wish) => self.all_with(id, wish, key),
            Op::Upgrade(upgrade) => self.upgraded_with(id, upgrade, key),
            _ => return None,
        })
    }

    fn guarded(&mut self, op: Op, effects: &mut Effects) -> Result<Reply, Refusal> {
        if let Some(LockGuard { lock, token }) = &effects.context.guard {
            // A client that may not read the lock can only use the token of its own session's
            // ticket as guard.
            let held = match self.may_read(lock, &effects.context.identities) {
                true => readings::is_held_with(self, lock, *token),
                false => {
                    effects.context.session.is_some_and(|session| readings::is_held_by(self, lock, *token, session))
                }
            };
            if !held {
                return Err(Refusal::at(Error::LockNotHeld, lock));
            }
        }
        if let Some(turn) = effects.context.turn {
            self.take_turn(turn, &effects.context)?;
        }
        effects.end = end_of(&op);
        self.execute(op, effects)
    }

    fn execute(&mut self, op: Op, effects: &mut Effects) -> Result<Reply, Refusal> {
        // Leaders do not propose an operation of a format level above the cluster's, because some
        // members may not know the operation.
        if op.row().level > self.level() {
            return Err(Error::LevelTooLow.into());
        }
        match op {
            Op::OpenSession { secret_hash, timeout_ms, label, address, client } => {
                self.open_session(secret_hash, timeout_ms, &label, address, client, &effects.context)
            }
            Op::CloseSession { session: id } => self.close_session(id, effects),
            Op::ExpireSessions { sessions, term } => self.expire_sessions(&sessions, term, effects),
            Op::AttachSession { connection, timeout_ms } => {
                self.attach_session(connection, timeout_ms, &effects.context)
            }
            Op::Znode(op) => self.znode_op(op, effects),
            Op::Multi(ops) => self.multi(ops, effects),
            Op::SetAcl { path, acl, version } => self.set_acl(&path, acl, version, &effects.context),
            Op::Acquire(acquire) => self.acquire(&acquire, effects),
            Op::AcquireAll(wish) => self.acquire_all(&wish, effects),
            Op::Upgrade(upgrade) => self.upgrade(&upgrade, effects),
            Op::Release { ticket } => self.release(ticket, effects),
            Op::HandOver { ticket, to } => self.hand_over(&ticket, &to, effects),
            Op::Withdraw { ticket, attempt, if_waiting } => self.withdraw(&ticket, attempt, if_waiting, effects),
            Op::Revoke { path, deadline_ms } => self.revoke(&path, deadline_ms, effects),
            Op::SetLock { lock, settings } => self.set_lock(&lock, settings, effects),
            Op::Reap { candidates } => Ok(self.reap(&candidates, effects)),
            // Only leaders propose the operations below; clients cannot request them.
            Op::Found(founding) => self.found(founding),
            Op::SetLevel { level } => self.set_level(level),
            Op::NoteRemoved { node_id } => self.note_removed(node_id, effects.context.zxid),
            Op::Scrub { after } => Ok(self.scrub(after.as_ref())),
            #[cfg(feature = "next-level")]
            Op::SetNote { text } => self.set_note(&text),
            Op::SetLimits(limits) => {
                self.set_limits(limits);
                Ok(Reply::Done)
            }
        }
    }

    /// Tells whether a state of `bytes` bytes is too full to remember another idempotency key with
    /// its answer. The bound is an eighth above `state_bytes_max`.
    fn is_full_of_keys(&self, bytes: u64) -> bool {
        let max = self.limits().state_bytes_max;
        bytes > max.saturating_add(max / 8)
    }
}

/// Tells whether an operation only frees memory: a release, the withdrawal of an acquire, the
/// hand-over of a lock, the close of a session, or deletes of znodes.
fn gives_back(op: &Op) -> bool {
    let deletes = |ops: &[ZnodeOp]| ops.iter().all(|op| matches!(op, ZnodeOp::Delete { .. }));
    match op {
        Op::Release { .. } | Op::Withdraw { .. } | Op::HandOver { .. } | Op::CloseSession { .. } => true,
        Op::Znode(op) => deletes(std::slice::from_ref(op)),
        Op::Multi(ops) => !ops.is_empty() && deletes(ops),
        _ => false,
    }
}
