//! Semaphores: locks that several hold, each with a number of permits.
//!
//! The limit, how many permits there are, is kept in the lock's ledger: set by the first acquire, the same for all others,
//! forgotten with the directory. Permits are granted in the order of the queue: a wish for many is not passed by wishes for few.

use crate::acquire::{Entered, Way};
use crate::state::{Changes, State};
use crate::znode::Hold;
use crate::{Acquire, Error, LockMode, LockSettings, Refusal, SessionId};

impl State {
    /// Enqueues a contender of any mode, perhaps as a part of a multi-lock; in a semaphore, only if its limit is the one that
    /// the request says.
    pub(crate) fn enqueue_in_mode(
        &mut self,
        acquire: &Acquire,
        way: Way,
        part: bool,
        id: SessionId,
        hold: Hold,
        changes: &mut Changes,
    ) -> Result<Entered, Refusal> {
        let LockMode::Lease { permits, limit } = acquire.mode else {
            return self.enqueue(acquire, way, part, id, hold, changes);
        };
        let lock = &acquire.lock;
        if !(1..=limit).contains(&permits) {
            return Err(Refusal::at(Error::BadArguments, lock));
        }
        // Also when it has none because a multi-lock waits there.
        if self.ledger(lock).is_some_and(|ledger| ledger.settings.limit != Some(limit)) {
            return Err(Refusal::at(Error::LimitDiffers, lock));
        }
        self.check_ledger(lock).map_err(|error| Refusal::at(error, lock))?;
        let ticket = match self.enqueue(acquire, way, part, id, hold, changes)? {
            Entered::At(ticket) => ticket,
            answer => return Ok(answer),
        };
        self.open_ledger(lock, Some(&ticket), LockSettings { limit: Some(limit), ..LockSettings::default() });
        changes.touch(lock);
        Ok(Entered::At(ticket))
    }
}
