//! A lock that is held.

use std::fmt;
use std::time::{Duration, Instant};

use crate::api::{RevokeRequest, Ticket};

use crate::client::call::{Call, Target};
use crate::client::claim::{Claim, Grant, Kind, without_end};
use crate::client::holding::{Holding, while_held};
use crate::{Error, Loss, SessionState};

/// A lock that is held, until it is released, dropped, or lost with its session.
///
/// Dropping it releases the lock in the background. [`Guard::release`] waits and says whether that
/// worked. A program that ends right after should release explicitly, or call
/// [`crate::Client::close`]: what runs in the background ends with it.
pub struct Guard {
    claim: Claim,
    lock: String,
    grant: Grant,
}

impl Guard {
    /// # Errors
    /// As [`Claim::check_held`].
    fn new(claim: Claim, lock: String, grant: Grant) -> Result<Guard, Error> {
        claim.check_held()?;
        Ok(Guard { claim, lock, grant })
    }

    /// The guard of a lock that was taken, if it was.
    pub(crate) fn of(taken: Option<(Claim, Grant)>, lock: &str) -> Result<Option<Guard>, Error> {
        taken.map(|(claim, grant)| Guard::new(claim, lock.to_owned(), grant)).transpose()
    }

    /// What to show to the resource that the lock protects. Rises with every grant of the lock.
    pub fn fencing_token(&self) -> u64 {
        self.grant.token
    }

    /// The lock's path.
    pub fn lock(&self) -> &str {
        &self.lock
    }

    /// The lock node's path: what others see of this holder, and what is given back.
    pub fn ticket(&self) -> &str {
        self.claim.ticket()
    }

    /// How often this owner held the lock when it was acquired, this guard included.
    pub fn holds(&self) -> u32 {
        self.grant.holds
    }

    /// The session that the lock is held in.
    pub fn session_id(&self) -> u64 {
        self.claim.session.id
    }

    /// The session's state.
    pub fn session_state(&self) -> SessionState {
        self.claim.session.state()
    }

    /// Until when the lock cannot be lost by expiry, by this machine's clock. Heartbeats move it
    /// on.
    ///
    /// Compare with it right before each step that needs the lock. Where the machine may sleep, ask
    /// [`Guard::safe_for`] again: `Instant` does not count that time.
    pub fn safe_until(&self) -> Instant {
        Instant::now() + self.safe_for()
    }

    /// How much longer the lock cannot be lost by expiry; zero when it may be lost already, or is
    /// known to be.
    pub fn safe_for(&self) -> Duration {
        self.claim.safe_for()
    }

    /// Whether the lock is held at this moment, as far as this client knows: not after the
    /// session's deadline, nor after anything has told that the lock is gone. That is
    /// [`Guard::lost`] while it is awaited, [`Guard::revoked`], an upgrade or a hand-over, and a
    /// write of this client with `if_lock` that was refused. It asks no node: a lock that another
    /// client takes away is noticed by one of these, so await `lost` beside the work, or let
    /// [`Guard::run`] do so.
    pub fn is_safe(&self) -> bool {
        !self.safe_for().is_zero()
    }

    /// Returns when the lock is lost, or may be, and says why: the session's own deadline has
    /// passed, the session has ended, or the lock node was removed. By the clock this is never
    /// later than the moment at which another may be granted. Dropping the future loses nothing.
    pub async fn lost(&self) -> Loss {
        self.holding().lost().await
    }

    /// Returns when [`Guard::lost`] does, without asking why, which takes a request: for what is to
    /// be stopped at once. Dropping the future loses nothing.
    pub async fn gone(&self) {
        self.holding().gone().await;
    }

    /// Runs the work while the lock is held, then releases it. When the lock is lost first, the
    /// work is dropped where it waits. Work that does not wait, or runs in a task of its own, is
    /// not stopped by that.
    ///
    /// ```no_run
    /// # async fn example(guard: zlock_client::Guard) -> Result<(), zlock_client::Loss> {
    /// let sum = guard.run(async |guard| guard.fencing_token() + 1).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Why the lock was lost; also when only the clock or the release tells of it: then the work
    /// has ended, and not under the lock to its end.
    pub async fn run<T>(self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, Loss> {
        // Why is asked when the work is dropped.
        let done = while_held(self.gone(), work(&self)).await;
        self.end(done).await
    }

    /// Ends work under the lock: releases it after work that is done, and says why the lock was
    /// lost otherwise.
    pub(crate) async fn end<T>(mut self, done: Option<T>) -> Result<T, Loss> {
        match done {
            Some(done) if self.claim.was_held_to_the_end().await => Ok(done),
            _ => Err(self.lost().await),
        }
    }

    /// Returns when a client asks the holder to give the lock up, and says who and until when: by
    /// [`crate::Client::revoke`], or by writing `__REVOKE__` (Curator) or `unlock` (ZooKeeper's
    /// recipes) into the lock node. Go on to a good place, then release; with a deadline the lock
    /// is taken away then, which [`Guard::lost`] tells. A simple lock cannot be asked for.
    pub async fn revoked(&self) -> RevokeRequest {
        self.holding().revoked().await
    }

    /// Takes the lock to write, too, where this guard reads: nobody writes in between, and new
    /// readers wait. Releasing the answer is the way back to reading. Dropping the future leaves it
    /// at reading.
    ///
    /// # Errors
    /// `Refused` with `UpgradeConflict`, at once, when another reader is being upgraded: each would
    /// wait for the other.
    pub async fn upgrade(&self) -> Result<Guard, Error> {
        let target = Target::path("/v1/locks", &self.lock)?.with("upgrade", self.ticket()).with("keep", true);
        let (client, session) = (self.claim.client(), self.claim.session.clone());
        let entered = Claim::enter_in::<Ticket>(client, session, Call::acquire(target), Kind::Queue).await;
        let (claim, grant) = entered.inspect_err(|error| {
            if error.is_gone(self.ticket()) {
                self.claim.fate().tell_gone();
            }
        })?;
        let (claim, grant) = without_end(claim.grant_by::<Ticket>(grant, None).await?)?;
        Guard::new(claim, self.lock.clone(), grant)
    }

    /// Releases the lock and waits until the cluster has confirmed it. Answers how many holds of
    /// the same owner are left.
    ///
    /// # Errors
    /// `Refused` when there was nothing to release any more (`NoNode`, `SessionExpired`): the lock
    /// had been lost. After `Unavailable` and `Unknown` the release goes on in the background, as
    /// after a drop.
    pub async fn release(mut self) -> Result<u32, Error> {
        self.claim.give_back().await
    }

    /// Keeps the lock for the rest of the session, and gives the guard up.
    pub fn leak(mut self) {
        self.claim.forget();
    }

    /// Gives the lock to the named waiter, before all others, in one entry: all holds of the ticket
    /// are given back. `to` is a ticket in the lock's queue ([`crate::Lock::queue`]). For managed
    /// locks ([`crate::Client::set_lock`]). Afterwards the guard holds nothing.
    ///
    /// # Errors
    /// `Refused` with `HandOverRefused` when that ticket does not wait, with `LockNotManaged`; the
    /// lock is still held then. After `Unknown` it may be the other's: drop the guard.
    pub async fn hand_over(&mut self, to: &str) -> Result<(), Error> {
        self.claim.hand_over(to).await
    }

    /// What a write that is to be made under this lock tells of, if it is refused.
    pub(crate) fn claim(&self) -> &Claim {
        &self.claim
    }

    fn holding(&self) -> Holding<'_> {
        Holding { claim: &self.claim, node: self.ticket(), token: self.grant.token }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Guard");
        shown.field("lock", &self.lock).field("ticket", &self.ticket()).field("fencing_token", &self.grant.token);
        shown.field("session", &self.claim.session).field("is_safe", &self.is_safe()).finish_non_exhaustive()
    }
}
