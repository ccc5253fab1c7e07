//! What one entry may cost.
//!
//! All that waits for the state waits while an entry is applied, so each has a budget: it may make,
//! remove and grant a lock to [`crate::Limits::entry_cost_max`] znodes. These are its steps, and
//! they are counted as they are taken. A request that takes more is refused (`TooManyOps`) and
//! undone. What is made or removed changes all its ancestors, so one that is far down counts as
//! several. A session can always end and a ticket can always be released, though, so
//!
//! * the end of one session is one entry, whatever the session owns. `ephemerals_max` bounds that;
//! * a leader's expiry ends the first of its sessions, and others as long as there is room; it is
//!   proposed again for the rest;
//! * waiters that come to hold beyond the budget are granted their lock by the next entries. The
//!   leader makes such entries while locks are unsettled ([`State::is_unsettled`]).
//!
//! What is only looked at has bounds of its own where it stands. docs/znode-model.md lists them
//! all.

use crate::entry::changes::Changes;
use crate::tree::permissions::permit;
use crate::{
    CREATE, DELETE, Error, Limits, LogPosition, Op, READ, Refusal, Request, SessionId, State, WRITE, ZPath, ZnodeOp,
    Zxid,
};

/// Unsettled locks that one entry takes up.
const TAKEN_UP_MAX: usize = 1_024;

impl State {
    /// Whether locks are left to be looked at by the next entries, whatever these do.
    pub fn is_unsettled(&self) -> bool {
        !self.locks.unsettled().is_empty()
    }

    /// What ending a session takes of an entry's budget. O(n) in its ephemerals.
    pub fn cost_of_ending(&self, session: SessionId) -> u64 {
        self.session(session).map_or(0, |session| session.ephemerals().map(steps_to).sum::<u64>() + 1)
    }

    /// Whether a request would be refused for what it costs if it were applied now. For the leader,
    /// before it proposes.
    ///
    /// A request with a key, or in its turn, is left to the entry: its refusal is kept, or takes
    /// the turn, and an earlier copy of it may be under way.
    ///
    /// # Errors
    /// `TooManyOps`, as when it is applied.
    pub fn check_cost(&self, request: &Request) -> Result<(), Error> {
        if request.key.is_some() || self.cost_of(&request.op) <= u64::from(self.limits.entry_cost_max) {
            return Ok(());
        }
        // A refusal that is not for the cost may come first, and an earlier answer: only a copy of
        // the state knows. It changes nothing much, for what exceeds the budget is refused before
        // it is done.
        let at = LogPosition { term: self.last_term, zxid: Zxid(self.last_zxid.0 + 1) };
        let (_, answer) = self.clone().answer(request.clone(), false, &mut Changes::new(at));
        match answer {
            Err(Refusal { error: Error::TooManyOps, .. }) => Err(Error::TooManyOps),
            _ => Ok(()),
        }
    }

    /// What a request may take of an entry's budget, of those that may take much; 0 of others.
    fn cost_of(&self, op: &Op) -> u64 {
        match op {
            Op::Multi(ops) => self.cost_of_multi(ops),
            Op::Revoke { path, deadline_ms: Some(0) } => self.cost_of_revoking(path),
            _ => 0,
        }
    }

    fn cost_of_multi(&self, ops: &[ZnodeOp]) -> u64 {
        ops.iter().map(|op| self.cost_of_one(op)).sum()
    }

    fn cost_of_one(&self, op: &ZnodeOp) -> u64 {
        match op {
            ZnodeOp::Create(create) => steps_at(create.parent.depth() + 1),
            ZnodeOp::Delete { path, .. } => self.cost_of_removing(path),
            ZnodeOp::SetData { .. } | ZnodeOp::Check { .. } => 0,
        }
    }

    /// Refuses a multi for what it would take of the entry's budget, before any of it is done:
    /// undoing costs as much again, and what is refused can be asked for again and again. An
    /// operation that is not permitted is the end of what could be done.
    ///
    /// # Errors
    /// `TooManyOps` at the operation that exceeds the budget.
    pub(crate) fn check_multi_cost(&self, ops: &[ZnodeOp], changes: &Changes) -> Result<(), Refusal> {
        let mut left = self.steps_left(changes);
        for (index, op) in ops.iter().enumerate() {
            if self.is_denied(op, &ops[..index], changes) {
                return Ok(());
            }
            let Some(less) = left.checked_sub(self.cost_of_one(op)) else {
                let op_index = u32::try_from(index).ok();
                return Err(Refusal { op_index, ..Error::TooManyOps.into() });
            };
            left = less;
        }
        Ok(())
    }

    /// Whether an operation is not permitted, also behind these.
    fn is_denied(&self, op: &ZnodeOp, before: &[ZnodeOp], changes: &Changes) -> bool {
        let (guard, perms) = match op {
            ZnodeOp::Create(create) => (create.parent.as_str(), CREATE),
            ZnodeOp::Delete { path, .. } => (path.parent_str().unwrap_or("/"), DELETE),
            ZnodeOp::SetData { path, .. } => (path.as_str(), WRITE),
            ZnodeOp::Check { path, .. } => (path.as_str(), READ),
        };
        let Some(node) = self.tree.get(guard) else { return false };
        let denied = match op {
            ZnodeOp::SetData { path, data, .. } => self.permit_data(path, data, changes).is_err(),
            _ => permit(&node.acl, perms, changes).is_err(),
        };
        // It may have been made anew, with another ACL.
        denied && !before.iter().any(|op| matches!(op, ZnodeOp::Delete { path, .. } if path.as_str() == guard))
    }

    fn cost_of_revoking(&self, path: &ZPath) -> u64 {
        // A lock that is not there is refused for that.
        let there = Some(path).filter(|path| self.tree.contains(*path));
        let tickets = there.and_then(|path| self.holders(path).ok()).unwrap_or_default();
        tickets.iter().map(|ticket| self.cost_of_removing(ticket)).sum()
    }

    /// A part of a multi-lock takes the other parts with it.
    pub(crate) fn cost_of_removing(&self, path: &ZPath) -> u64 {
        let multi = self.node(path).and_then(|node| self.multi_of(path, node));
        multi.map_or_else(|| steps_to(path), |multi| multi.tickets.iter().map(steps_to).sum())
    }

    /// How much of its budget an entry has left.
    pub(crate) fn steps_left(&self, changes: &Changes) -> u64 {
        u64::from(self.limits.entry_cost_max).saturating_sub(changes.steps)
    }

    /// Whether an entry is within its budget.
    ///
    /// # Errors
    /// `TooManyOps` when it is not.
    pub(crate) fn check_steps(&self, changes: &Changes) -> Result<(), Refusal> {
        let over = changes.steps > u64::from(self.limits.entry_cost_max);
        if over { Err(Error::TooManyOps.into()) } else { Ok(()) }
    }

    /// The first of the sessions, and those behind it for which one entry has room.
    pub(crate) fn ending_together<'a>(&self, sessions: &'a [SessionId]) -> &'a [SessionId] {
        let mut cost = 0;
        let fits = |id: &&SessionId| {
            let first = cost == 0;
            cost += self.cost_of_ending(**id);
            first || cost <= u64::from(self.limits.entry_cost_max)
        };
        &sessions[..sessions.iter().take_while(fits).count()]
    }

    /// Goes on where earlier entries had to stop.
    pub(crate) fn take_up_unsettled(&mut self, changes: &mut Changes) {
        for lock in self.locks.take_unsettled(TAKEN_UP_MAX) {
            changes.queue_changed(&lock);
        }
    }
}

/// What making or removing a znode takes of an entry's budget.
pub(crate) fn steps_to(path: &ZPath) -> u64 {
    steps_at(path.depth())
}

/// So many ancestors are changed in about the time in which a znode is made.
const ANCESTORS_A_STEP: usize = 8;

pub(crate) fn steps_at(depth: usize) -> u64 {
    1 + (depth / ANCESTORS_A_STEP) as u64
}

impl Limits {
    /// What a transaction of [`Limits::ops_max`] creates takes of [`Limits::entry_cost_max`], as
    /// deep in the tree as they may be.
    pub fn creates_cost_max(&self) -> u64 {
        steps_at(self.path_depth_max as usize).saturating_mul(u64::from(self.ops_max))
    }
}
