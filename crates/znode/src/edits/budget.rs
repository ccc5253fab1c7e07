//! The budget of a log entry: how much work one entry may do.
//!
//! Applying an entry makes all readers of the state wait, so each entry has a budget of
//! [`crate::Limits::entry_cost_max`] steps. Making a znode, removing a znode, and granting a lock
//! to a ticket takes one step each. A znode that is made or removed changes all its ancestors, so
//! it takes several steps if it is far down in the tree. A request that takes more steps than the
//! budget is refused (`TooManyOps`) and undone. But a session can always end and a ticket can
//! always be released, so
//!
//! * the end of one session is one entry, however many znodes the session owns: `ephemerals_max`
//!   bounds their number;
//! * an expiry of several sessions ends the first session, and the next sessions as long as the
//!   budget lasts; the leader proposes the expiry of the other sessions again;
//! * a grant that exceeds the budget is left to a later entry. The leader proposes such entries
//!   while grants are left over ([`State::is_unsettled`]).
//!
//! Work that only reads has its own bounds, at the places where it is done. docs/znode-model.md
//! lists them all.

use crate::edits::effects::Effects;
use crate::{Error, Limits, Refusal, SessionId, State, ZPath};

/// Maximum number of locks with left-over grants ([`State::is_unsettled`]) that one entry examines.
const TAKEN_UP_MAX: usize = 1_024;

impl State {
    /// Tells whether some grants of locks are left over for later entries, because an entry's
    /// budget was used up, or a grant would have repeated a fencing token. Every later entry makes
    /// such grants within its budget.
    pub fn is_unsettled(&self) -> bool {
        !self.locks().unsettled().is_empty()
    }

    /// Cost of ending a session, in steps of [`Limits::entry_cost_max`]: one for the session, and
    /// one or more for each ephemeral znode. The computation takes O(n) in these znodes.
    pub fn cost_of_ending(&self, session: SessionId) -> u64 {
        self.session(session).map_or(0, |session| session.ephemerals().map(steps_to).sum::<u64>() + 1)
    }

    /// Steps of [`Limits::entry_cost_max`] that the entry being applied has not used yet.
    pub(crate) fn steps_left(&self, effects: &Effects) -> u64 {
        u64::from(self.limits().entry_cost_max).saturating_sub(effects.steps)
    }

    /// Checks that the entry is within its budget.
    ///
    /// # Errors
    /// `TooManyOps` when the entry has used more steps.
    pub(crate) fn check_steps(&self, effects: &Effects) -> Result<(), Refusal> {
        let over = effects.steps > u64::from(self.limits().entry_cost_max);
        if over { Err(Error::TooManyOps.into()) } else { Ok(()) }
    }

    /// Returns the longest prefix of the list `sessions` that one entry can end within its budget,
    /// but at least the first session.
    pub(crate) fn ending_together<'a>(&self, sessions: &'a [SessionId]) -> &'a [SessionId] {
        let mut cost = 0;
        let fits = |id: &&SessionId| {
            let first = cost == 0;
            cost += self.cost_of_ending(**id);
            first || cost <= u64::from(self.limits().entry_cost_max)
        };
        &sessions[..sessions.iter().take_while(fits).count()]
    }

    /// Makes the entry being applied examine also the locks whose next grants earlier entries did
    /// not make, because their budget was used up.
    pub(crate) fn take_up_unsettled(&mut self, effects: &mut Effects) {
        for lock in self.take_unsettled(TAKEN_UP_MAX) {
            effects.queue_changed(&lock);
        }
    }
}

/// Steps of an entry's budget for making or removing a znode: one, and one more for every
/// [`ANCESTORS_A_STEP`] names in its path.
pub(crate) fn steps_to(path: &ZPath) -> u64 {
    steps_at(path.depth())
}

/// Number of ancestors for which a new znode costs one more step, because their change takes about
/// as long as the creation of one znode.
const ANCESTORS_A_STEP: usize = 8;

pub(crate) fn steps_at(depth: usize) -> u64 {
    1 + (depth / ANCESTORS_A_STEP) as u64
}

impl Limits {
    /// Steps of [`Limits::entry_cost_max`] that a multi takes with [`Limits::ops_max`] creates at
    /// the depth [`Limits::path_depth_max`].
    pub fn creates_cost_max(&self) -> u64 {
        steps_at(self.path_depth_max as usize).saturating_mul(u64::from(self.ops_max))
    }
}
