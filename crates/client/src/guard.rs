//! A lock that is held.

use std::time::{Duration, Instant};

use protocol::{RevokeRequest, Ticket};

use crate::call::Target;
use crate::claim::{Claim, Grant};
use crate::holding::Holding;
use crate::lock::acquire;
use crate::{Error, SessionState};

/// A lock that is held, until it is released, dropped, or lost with its session.
///
/// Dropping it releases the lock in the background. [`Guard::release`] waits and says whether that worked. A program that
/// ends right after should release explicitly, or call [`crate::Client::close`]: what runs in the background ends with it.
#[derive(Debug)]
pub struct Guard {
    claim: Claim,
    lock: String,
    grant: Grant,
}

impl Guard {
    /// # Errors
    /// As [`Claim::check_held`].
    pub(crate) fn new(claim: Claim, lock: String, grant: Grant) -> Result<Guard, Error> {
        claim.check_held()?;
        Ok(Guard { claim, lock, grant })
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

    /// Until when the lock cannot be lost by expiry, by this machine's clock. Heartbeats move it on.
    ///
    /// Compare with it right before each step that needs the lock. Where the machine may sleep, ask [`Guard::safe_for`]
    /// again: `Instant` does not count that time.
    pub fn safe_until(&self) -> Instant {
        Instant::now() + self.safe_for()
    }

    /// How much longer the lock cannot be lost by expiry; zero when it may be lost already.
    pub fn safe_for(&self) -> Duration {
        if self.claim.session.is_safe() { self.claim.session.safe_until().remaining() } else { Duration::ZERO }
    }

    /// Whether the lock cannot have been lost by expiry at this moment.
    pub fn is_safe(&self) -> bool {
        !self.safe_for().is_zero()
    }

    /// Returns when the lock is lost, or may be: the session's own deadline has passed, the cluster ended the session, or
    /// somebody removed the lock node. By the clock this is never later than the moment at which another may be granted.
    /// Dropping the future loses nothing.
    pub async fn lost(&self) {
        let holding = self.holding();
        tokio::select! {
            () = self.claim.session.ended() => {}
            () = holding.removed() => {}
        }
    }

    /// Returns when somebody asks the holder to give the lock up, and says who and until when: by [`crate::Client::revoke`],
    /// or by writing `__REVOKE__` (Curator) or `unlock` (ZooKeeper's recipes) into the lock node. Go on to a good place, then
    /// release; with a deadline the lock is taken away then, which [`Guard::lost`] tells. A simple lock cannot be asked for.
    pub async fn revoked(&self) -> RevokeRequest {
        self.holding().revoked().await
    }

    /// Takes the lock to write, too, where this guard reads: nobody writes in between, and new readers wait. Releasing the
    /// answer is the way back to reading. Dropping the future leaves it at reading.
    ///
    /// # Errors
    /// `Refused` with `UpgradeConflict`, at once, when another reader is being upgraded: each would wait for the other.
    pub async fn upgrade(&self) -> Result<Guard, Error> {
        let target = Target::path("/v1/locks", &self.lock)?.with("upgrade", self.ticket()).with("keep", true);
        let (client, session) = (self.claim.client(), self.claim.session.clone());
        let (mut claim, grant) = Claim::enter_in::<Ticket>(client, session, acquire(target)).await?;
        let grant = match grant {
            Some(grant) => Some(grant),
            None => claim.granted::<Ticket>(None).await?,
        };
        let grant = grant.ok_or_else(|| Error::unknown("a wait without an end has ended"))?;
        Guard::new(claim, self.lock.clone(), grant)
    }

    /// Releases the lock and waits until the cluster has confirmed it. Answers how many holds of the same owner are left.
    ///
    /// # Errors
    /// `Refused` when there was nothing to release any more (`NoNode`, `SessionExpired`): the lock had been lost.
    /// After `Unavailable` and `Unknown` the release goes on in the background, as after a drop.
    pub async fn release(mut self) -> Result<u32, Error> {
        self.claim.give_back().await
    }

    /// Keeps the lock for the rest of the session, and gives the guard up.
    pub fn leak(mut self) {
        self.claim.forget();
    }

    /// Gives the lock to the named waiter, before all others, in one entry: all holds of the ticket are given back. `to` is a
    /// ticket in the lock's queue ([`crate::Lock::queue`]). For locks that are closed ([`crate::Client::set_lock`]).
    /// Afterwards the guard holds nothing.
    ///
    /// # Errors
    /// `Refused` with `HandOverRefused` when that ticket does not wait, with `LockNotClosed`; the lock is still held then.
    /// After `Unknown` it may be the other's: drop the guard.
    pub async fn hand_over(&mut self, to: &str) -> Result<(), Error> {
        self.claim.hand_over(to).await
    }

    fn holding(&self) -> Holding<'_> {
        Holding { claim: &self.claim, node: self.ticket(), token: self.grant.token }
    }
}
