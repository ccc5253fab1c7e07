//! What one entry may cost.
//!
//! All that waits for the state waits while an entry is applied, so each has a budget: it may make, remove and grant a lock to
//! [`crate::Limits::entry_cost_max`] znodes. These are its steps, and they are counted as they are taken. A request that
//! takes more is refused (`TooManyOps`) and undone. A session can always end and a ticket can always be released, though, so
//!
//! * the end of one session is one entry, whatever the session owns. `ephemerals_max` bounds that;
//! * a leader's expiry ends the first of its sessions, and others as long as there is room; it is proposed again for the rest;
//! * waiters that come to hold beyond the budget are granted their lock by the next entries. The leader makes such entries
//!   while locks are unsettled ([`State::is_unsettled`]).
//!
//! What is only looked at has bounds of its own where it stands. docs/znode-model.md lists them all.

use crate::state::{Changes, State};
use crate::{Error, Op, ProvenOp, Refusal, Request, SessionId, TurnOp, ZPath, ZnodeOp};

/// Unsettled locks that one entry takes up.
const TAKEN_UP_MAX: usize = 1_024;

impl State {
    /// Whether locks are left to be looked at by the next entries, whatever these do.
    pub fn is_unsettled(&self) -> bool {
        !self.unsettled.is_empty()
    }

    /// What ending a session takes of an entry's budget.
    pub fn cost_of_ending(&self, session: SessionId) -> u64 {
        self.session(session).map_or(0, |session| session.ephemeral_count() as u64 + 1)
    }

    /// Whether a request would be refused for what it costs if it were applied now. For the leader, before it proposes.
    ///
    /// # Errors
    /// `TooManyOps`, as when it is applied.
    pub fn check_cost(&self, request: &Request) -> Result<(), Error> {
        let (ops, revoked) = match &request.op {
            Op::Multi(ops) => (&**ops, None),
            Op::InTurn(write) => match &write.op {
                TurnOp::Multi(ops) => (&**ops, None),
                _ => return Ok(()),
            },
            Op::Revoke { path, deadline_ms: Some(0) } => (&[][..], Some(path)),
            Op::Proven(proven) => match &proven.op {
                ProvenOp::Multi(ops) => (&**ops, None),
                ProvenOp::Revoke { path, deadline_ms: Some(0) } => (&[][..], Some(path)),
                _ => return Ok(()),
            },
            _ => return Ok(()),
        };
        // A lock that is not there is refused for that.
        let revoked = revoked.filter(|path| self.nodes.contains_key(*path));
        let revoked = revoked.and_then(|path| self.holders(path).ok()).unwrap_or_default();
        let deleted = ops.iter().map(|op| match op {
            ZnodeOp::Create(_) => 1,
            ZnodeOp::Delete { path, .. } => self.cost_of_removing(path),
            ZnodeOp::SetData { .. } | ZnodeOp::Check { .. } => 0,
        });
        let cost: u64 = deleted.chain(revoked.iter().map(|ticket| self.cost_of_removing(ticket))).sum();
        if cost > u64::from(self.limits.entry_cost_max) { Err(Error::TooManyOps) } else { Ok(()) }
    }

    /// A part of a multi-lock takes the other parts with it.
    fn cost_of_removing(&self, path: &ZPath) -> u64 {
        let multi = self.node(path).and_then(|node| self.multi_of(path, node));
        multi.map_or(1, |multi| multi.tickets.len() as u64)
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
        if self.unsettled.is_empty() {
            return;
        }
        for lock in self.unsettled.iter().take(TAKEN_UP_MAX).cloned().collect::<Vec<_>>() {
            self.unsettled.remove(&lock);
            if self.ledger(&lock).is_some() {
                changes.touch(&lock);
            } else {
                changes.queue_changed(&lock);
            }
        }
    }
}
