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
/// Dropping the guard releases the lock in the background. [`Guard::release`] waits for the
/// cluster's answer. A program that ends right after should release explicitly, or call
/// [`crate::Client::close`], as the background work ends with the program.
pub struct Guard {
    pub(crate) claim: Claim,
    lock: String,
    grant: Grant,
}

impl Guard {
    /// Makes the guard of a granted claim.
    ///
    /// # Errors
    /// As [`Claim::check_held`].
    fn new(claim: Claim, lock: String, grant: Grant) -> Result<Guard, Error> {
        claim.check_held()?;
        Ok(Guard { claim, lock, grant })
    }

    /// Makes the guard of a granted claim. Returns `None` if no claim was granted.
    pub(crate) fn of(taken: Option<(Claim, Grant)>, lock: &str) -> Result<Option<Guard>, Error> {
        taken.map(|(claim, grant)| Guard::new(claim, lock.to_owned(), grant)).transpose()
    }

    /// The token to show to the resource that the lock protects. Every later grant of the lock has
    /// a larger token.
    pub fn fencing_token(&self) -> u64 {
        self.grant.token
    }

    /// The path of the lock.
    pub fn lock(&self) -> &str {
        &self.lock
    }

    /// The path of the lock node, by which other clients name this holder.
    pub fn ticket(&self) -> &str {
        self.claim.ticket()
    }

    /// Number of unreleased acquires of this owner when the lock was acquired, this acquire
    /// included.
    pub fn holds(&self) -> u32 {
        self.grant.holds
    }

    /// The id of the session in which the lock is held.
    pub fn session_id(&self) -> u64 {
        self.claim.session.id
    }

    /// The state of the session in which the lock is held.
    pub fn session_state(&self) -> SessionState {
        self.claim.session.state()
    }

    /// The time until which the lock cannot be lost by expiry, by this machine's clock. Each
    /// answered heartbeat extends it.
    ///
    /// Compare the clock with this time right before each step that needs the lock. If the machine
    /// may sleep, ask [`Guard::safe_for`] again instead, as `Instant` does not count that time.
    pub fn safe_until(&self) -> Instant {
        Instant::now() + self.safe_for()
    }

    /// The time for which the lock cannot be lost by expiry; zero when it is lost or may be lost
    /// already.
    pub fn safe_for(&self) -> Duration {
        self.claim.safe_for()
    }

    /// Tells whether the lock is held at this moment, as far as this client knows. False after the
    /// session's deadline, and once the client knows that the lock is gone. The client learns of
    /// the loss while [`Guard::lost`] or [`Guard::revoked`] is awaited, by an upgrade or a
    /// hand-over, and by a refused write with `if_lock`. This call sends no request. To notice that
    /// another client takes the lock away, await `lost` beside the work, or use [`Guard::run`].
    pub fn is_safe(&self) -> bool {
        !self.safe_for().is_zero()
    }

    /// Waits until the lock is lost or may be lost, and returns the reason: the session's deadline
    /// has passed, the session has ended, or the lock node was removed. The client counts the
    /// session as expired before another contender can get the lock. The future may be dropped and
    /// the call repeated.
    pub async fn lost(&self) -> Loss {
        self.holding().lost().await
    }

    /// Waits for the loss of the lock like [`Guard::lost`], but does not send the request for the
    /// reason. For work that must stop at once. The future may be dropped and the call repeated.
    pub async fn gone(&self) {
        self.holding().gone().await;
    }

    /// Runs the work while the lock is held, then releases the lock. When the lock is lost first,
    /// the work is dropped at its next wait. Work without a wait, and work in a task of its own,
    /// runs on.
    ///
    /// ```no_run
    /// # async fn example(guard: zlock_client::Guard) -> Result<(), zlock_client::Loss> {
    /// let sum = guard.run(async |guard| guard.fencing_token() + 1).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The reason for which the lock was lost. Work that has run to its end also gets this error,
    /// if the clock or the release shows that the lock was lost before the end.
    pub async fn run<T>(self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, Loss> {
        // The reason is asked for after the work is dropped.
        let done = while_held(self.gone(), work(&self)).await;
        self.end(done).await
    }

    /// Ends work under the lock. `done` is the work's value, or `None` if the work was dropped
    /// because the lock was lost. Releases the lock after finished work; otherwise returns the
    /// reason of the loss.
    pub(crate) async fn end<T>(mut self, done: Option<T>) -> Result<T, Loss> {
        match done {
            Some(done) if self.claim.was_held_to_the_end().await => Ok(done),
            _ => Err(self.lost().await),
        }
    }

    /// Waits until a client asks the holder to release the lock. Returns this request, with the
    /// client and the deadline. A client asks by [`crate::Client::revoke`], or by writing
    /// `__REVOKE__` (Curator) or `unlock` (ZooKeeper's recipes) into the lock node. The holder
    /// should reach a safe point, then release. At the deadline, if there is one, the lock is taken
    /// away, which [`Guard::lost`] reports. Never returns if the lock is lost first, so await
    /// `lost` beside it. Never returns for a simple lock (one znode without a queue), because
    /// clients cannot ask for its release.
    pub async fn revoked(&self) -> RevokeRequest {
        self.holding().revoked().await
    }

    /// Takes the write lock in addition to the read lock of this guard. No other client gets the
    /// write lock in between, and new readers wait. After the release of the returned guard, this
    /// guard still has the read lock. Dropping the future leaves this guard as it is.
    ///
    /// # Errors
    /// `Refused` with `UpgradeConflict`, at once, when another reader is being upgraded, as each
    /// would wait for the other.
    pub async fn upgrade(&self) -> Result<Guard, Error> {
        let target = Target::path("/v1/locks", &self.lock)?.with("upgrade", self.ticket()).with("keep", true);
        let (client, session) = (&self.claim.client, self.claim.session.clone());
        let entered = Claim::enter_in::<Ticket>(client, session, Call::acquire(target), Kind::Queue).await;
        let (claim, grant) = entered.inspect_err(|error| self.claim.note_refusal(error))?;
        let (claim, grant) = without_end(claim.grant_by::<Ticket>(grant, None).await?)?;
        Guard::new(claim, self.lock.clone(), grant)
    }

    /// Releases the lock and waits until the cluster has confirmed the release. Returns the number
    /// of acquires of the owner that are still unreleased.
    ///
    /// # Errors
    /// `Refused` when the lock had been lost before (`TicketGone`, `SessionExpired`). After
    /// `Unavailable` and `Unknown` the release goes on in the background, as after a drop.
    pub async fn release(mut self) -> Result<u32, Error> {
        self.claim.give_back().await
    }

    /// Keeps the lock for the rest of the session, and consumes the guard.
    pub fn leak(mut self) {
        self.claim.forget();
    }

    /// Gives the lock to the waiter `to` ahead of all other waiters, in one log entry. Ends all
    /// holds (unreleased acquires) of the guard's owner. `to` is a ticket in the lock's queue
    /// ([`crate::Lock::queue`]). Only for locks with the setting `managed`
    /// ([`crate::Client::set_settings`]). Afterwards the guard holds nothing.
    ///
    /// # Errors
    /// `Refused` with `HandOverRefused` when that ticket does not wait, or with `LockNotManaged`;
    /// the lock is still held then. `Refused` with `TicketGone` when the lock had been lost before:
    /// the guard is then no longer safe. After `Unknown` the lock may belong to the waiter: drop
    /// the guard.
    pub async fn hand_over(&mut self, to: &str) -> Result<(), Error> {
        self.claim.hand_over(to).await
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

#[cfg(test)]
mod tests;
