//! The budget of an entry: how much work one entry may do.
//!
//! Applying an entry keeps all readers of the state waiting, so each entry has a budget: it may
//! make, remove and grant a lock to [`crate::Limits::entry_cost_max`] znodes. Each of these is a
//! step, counted as it is done. A change of a znode changes all its ancestors, so a znode that is
//! far down takes several steps. A request that takes more steps is refused (`TooManyOps`) and
//! undone. But a session can always end and a ticket can always be released, so
//!
//! * the end of one session is one entry, whatever the session owns. `ephemerals_max` bounds that;
//! * a leader's expiry ends the first of its sessions, and the next ones as long as there is room;
//!   the leader proposes it again for the rest;
//! * waiters whose grant exceeds the budget are granted their lock by later entries. The leader
//!   makes such entries while locks are unsettled ([`State::is_unsettled`]).
//!
//! Work that only reads has bounds at the places where it is done. docs/znode-model.md lists them
//! all.

use crate::edits::effects::Effects;
use crate::{Error, Limits, Refusal, SessionId, State, ZPath};

/// Most unsettled locks that one entry looks at.
const TAKEN_UP_MAX: usize = 1_024;

impl State {
    /// Tells whether locks are left to later entries. Any entry looks at them.
    pub fn is_unsettled(&self) -> bool {
        !self.locks.unsettled().is_empty()
    }

    /// Cost of ending a session, in steps of an entry's budget. Takes O(n) in its ephemeral znodes.
    pub fn cost_of_ending(&self, session: SessionId) -> u64 {
        self.session(session).map_or(0, |session| session.ephemerals().map(steps_to).sum::<u64>() + 1)
    }

    /// Steps that are left of the entry's budget.
    pub(crate) fn steps_left(&self, effects: &Effects) -> u64 {
        u64::from(self.limits.entry_cost_max).saturating_sub(effects.steps)
    }

    /// Checks that the entry is within its budget.
    ///
    /// # Errors
    /// `TooManyOps` when it is not.
    pub(crate) fn check_steps(&self, effects: &Effects) -> Result<(), Refusal> {
        let over = effects.steps > u64::from(self.limits.entry_cost_max);
        if over { Err(Error::TooManyOps.into()) } else { Ok(()) }
    }

    /// The first of the sessions, and those after it for which one entry has room.
    pub(crate) fn ending_together<'a>(&self, sessions: &'a [SessionId]) -> &'a [SessionId] {
        let mut cost = 0;
        let fits = |id: &&SessionId| {
            let first = cost == 0;
            cost += self.cost_of_ending(**id);
            first || cost <= u64::from(self.limits.entry_cost_max)
        };
        &sessions[..sessions.iter().take_while(fits).count()]
    }

    /// Looks again at locks that earlier entries had to leave.
    pub(crate) fn take_up_unsettled(&mut self, effects: &mut Effects) {
        for lock in self.locks.take_unsettled(TAKEN_UP_MAX) {
            effects.queue_changed(&lock);
        }
    }
}

/// Steps of an entry's budget that a znode takes when it is made or removed.
pub(crate) fn steps_to(path: &ZPath) -> u64 {
    steps_at(path.depth())
}

/// Number of ancestors whose change takes about as long as making one znode.
const ANCESTORS_A_STEP: usize = 8;

pub(crate) fn steps_at(depth: usize) -> u64 {
    1 + (depth / ANCESTORS_A_STEP) as u64
}

impl Limits {
    /// Steps of [`Limits::entry_cost_max`] that a transaction takes with [`Limits::ops_max`]
    /// creates at [`Limits::path_depth_max`].
    pub fn creates_cost_max(&self) -> u64 {
        steps_at(self.path_depth_max as usize).saturating_mul(u64::from(self.ops_max))
    }
}
