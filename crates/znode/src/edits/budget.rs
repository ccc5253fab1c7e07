//! The budget of one entry.
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

use crate::edits::effects::Effects;
use crate::{Error, Limits, Refusal, SessionId, State, ZPath};

/// Unsettled locks that one entry takes up.
const TAKEN_UP_MAX: usize = 1_024;

impl State {
    /// Tells whether locks are left to be looked at by the next entries, whatever these do.
    pub fn is_unsettled(&self) -> bool {
        !self.locks.unsettled().is_empty()
    }

    /// Cost of ending a session, in steps of an entry's budget. O(n) in its ephemerals.
    pub fn cost_of_ending(&self, session: SessionId) -> u64 {
        self.session(session).map_or(0, |session| session.ephemerals().map(steps_to).sum::<u64>() + 1)
    }

    /// Steps of its budget that an entry has left.
    pub(crate) fn steps_left(&self, effects: &Effects) -> u64 {
        u64::from(self.limits.entry_cost_max).saturating_sub(effects.steps)
    }

    /// Checks whether an entry is within its budget.
    ///
    /// # Errors
    /// `TooManyOps` when it is not.
    pub(crate) fn check_steps(&self, effects: &Effects) -> Result<(), Refusal> {
        let over = effects.steps > u64::from(self.limits.entry_cost_max);
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
    pub(crate) fn take_up_unsettled(&mut self, effects: &mut Effects) {
        for lock in self.locks.take_unsettled(TAKEN_UP_MAX) {
            effects.queue_changed(&lock);
        }
    }
}

/// Steps of an entry's budget that making or removing a znode takes.
pub(crate) fn steps_to(path: &ZPath) -> u64 {
    steps_at(path.depth())
}

/// Number of ancestors that are changed in about the time in which a znode is made.
const ANCESTORS_A_STEP: usize = 8;

pub(crate) fn steps_at(depth: usize) -> u64 {
    1 + (depth / ANCESTORS_A_STEP) as u64
}

impl Limits {
    /// Steps that a transaction of [`Limits::ops_max`] creates takes of [`Limits::entry_cost_max`],
    /// as deep in the tree as they may be.
    pub fn creates_cost_max(&self) -> u64 {
        steps_at(self.path_depth_max as usize).saturating_mul(u64::from(self.ops_max))
    }
}
