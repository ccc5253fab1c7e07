//! Multi-locks: several locks that are acquired together or not at all.

use std::fmt;
use std::time::Duration;

use crate::api::{AcquireAll, HeldPart, LockMode, LockWish, Millis, MultiTicket, Policy, RevokeRequest};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use hyper::Method;

use crate::client::Client;
use crate::client::call::{Call, Target};
use crate::client::claim::{Claim, Kind, without_end};
use crate::client::clock::Moment;
use crate::client::holding::{Holding, while_held};
use crate::{Error, Loss, WithError};

impl Client {
    /// Returns an empty multi-lock. Add locks with [`MultiLock::and`].
    pub fn multi_lock(&self) -> MultiLock {
        MultiLock { client: self.clone(), wish: AcquireAll::default() }
    }
}

/// Locks that are acquired together or not at all, made by [`Client::multi_lock`].
#[derive(Clone, Debug)]
pub struct MultiLock {
    client: Client,
    wish: AcquireAll,
}

impl MultiLock {
    /// Adds a lock with the mode in which it is wanted.
    pub fn and(mut self, path: impl Into<String>, mode: LockMode) -> MultiLock {
        self.wish.locks.push(LockWish { path: path.into(), mode, permits: None, permits_max: None });
        self
    }

    /// Adds permits of a semaphore, with `permits_max` as in [`Client::semaphore`].
    pub fn and_permits(
        mut self,
        path: impl Into<String>,
        permits: u32,
        permits_max: impl Into<Option<u32>>,
    ) -> MultiLock {
        let (permits, permits_max) = (Some(permits), permits_max.into());
        self.wish.locks.push(LockWish { path: path.into(), mode: LockMode::Semaphore, permits, permits_max });
        self
    }

    /// Lets other contenders take free locks of the set while the multi-lock waits for another lock
    /// of the set.
    pub fn backfill(mut self) -> MultiLock {
        self.wish.policy = Policy::Backfill;
        self
    }

    /// Sets the owner: a name that tells the contenders of one session apart. An acquire of exactly
    /// these locks in these modes by an owner that holds them adds a hold. An owner that already
    /// has a ticket of some of the locks, but not of exactly this set, is refused with `Overlap`.
    /// Waits that would close a cycle of owners are refused with `Deadlock`. Without this setting
    /// every acquire has an owner of its own.
    pub fn owner(mut self, owner: impl Into<String>) -> MultiLock {
        self.wish.owner = owner.into();
        self
    }

    /// Sets the label: free text for people who look at the queues.
    pub fn label(mut self, label: impl Into<String>) -> MultiLock {
        self.wish.label = label.into();
        self
    }

    /// Sets the lock-delay of all locks, as [`crate::Lock::lock_delay`].
    pub fn lock_delay(mut self, delay: Duration) -> MultiLock {
        self.wish.lock_delay = Some(Millis::from(delay));
        self
    }

    /// Waits for all locks. Dropping the future leaves all queues in the background.
    ///
    /// # Errors
    /// As [`crate::Lock::acquire`].
    pub async fn acquire(&self) -> Result<MultiGuard, Error> {
        without_end(self.queue_up(None).await?)
    }

    /// Waits for all locks for at most `wait`. Returns `None` when the time was over first.
    ///
    /// # Errors
    /// As [`MultiLock::acquire`].
    pub async fn acquire_within(&self, wait: Duration) -> Result<Option<MultiGuard>, Error> {
        if wait.is_zero() { self.try_acquire().await } else { self.queue_up(Some(Moment::now().after(wait))).await }
    }

    /// Takes all locks if all are free; returns `None` otherwise.
    ///
    /// # Errors
    /// As [`MultiLock::acquire`].
    pub async fn try_acquire(&self) -> Result<Option<MultiGuard>, Error> {
        let taken = Claim::take::<MultiTicket>(&self.client, self.call(false).forgotten(), Kind::Queue, self.delay());
        let taken = taken.await?;
        MultiGuard::of(taken)
    }

    /// Waits for all locks, runs the work while they are held, and releases them, as
    /// [`crate::Lock::with`].
    ///
    /// # Errors
    /// As [`crate::Lock::with`].
    pub async fn with<T>(&self, work: impl AsyncFnOnce(&MultiGuard) -> T) -> Result<T, WithError> {
        Ok(self.acquire().await?.run(work).await?)
    }

    async fn queue_up(&self, deadline: Option<Moment>) -> Result<Option<MultiGuard>, Error> {
        MultiGuard::of(Claim::wait::<MultiTicket>(&self.client, self.call(true), self.delay(), deadline).await?)
    }

    fn delay(&self) -> Option<Duration> {
        self.wish.lock_delay.map(|Millis(ms)| Duration::from_millis(ms))
    }

    fn call(&self, keep: bool) -> Call {
        let target = Target::route("/v1/multilocks").with_some("keep", keep.then_some(true));
        Call::write(Method::POST, target.finish()).json(&self.wish)
    }
}

/// Several locks that are held together, until all of them are released, dropped, or lost.
pub struct MultiGuard {
    claim: Claim,
    parts: Vec<HeldPart>,
    holds: u32,
}

impl MultiGuard {
    fn of(taken: Option<(Claim, (Vec<HeldPart>, u32))>) -> Result<Option<MultiGuard>, Error> {
        let Some((claim, (parts, holds))) = taken else { return Ok(None) };
        claim.check_held()?;
        Ok(Some(MultiGuard { claim, parts, holds }))
    }

    /// Number of unreleased acquires of this owner when the locks were acquired, this acquire
    /// included.
    pub fn holds(&self) -> u32 {
        self.holds
    }

    /// The locks with their fencing tokens, in the order in which the owner first named them.
    pub fn parts(&self) -> &[HeldPart] {
        &self.parts
    }

    /// The fencing token of one of the locks; `None` when `lock` is not among them.
    pub fn fencing_token(&self, lock: &str) -> Option<u64> {
        self.parts.iter().find(|part| part.path == lock).map(|part| part.fencing_token)
    }

    /// The time for which the locks cannot be lost by expiry, as [`crate::Guard::safe_for`].
    pub fn safe_for(&self) -> Duration {
        self.claim.safe_for()
    }

    /// Tells whether the locks are held at this moment, as [`crate::Guard::is_safe`].
    pub fn is_safe(&self) -> bool {
        !self.safe_for().is_zero()
    }

    /// Waits until the locks are lost or may be lost, and returns the reason, as
    /// [`crate::Guard::lost`]. The loss of one lock is the loss of all.
    pub async fn lost(&self) -> Loss {
        // All locks are lost in one entry of the log, so the first lock node shows it for all.
        match self.parts.first() {
            Some(part) => self.holding(part).lost().await,
            None => self.claim.session.ended().await,
        }
    }

    /// Waits until the locks are no longer held, without asking for the reason, as
    /// [`crate::Guard::gone`].
    pub async fn gone(&self) {
        match self.parts.first() {
            Some(part) => self.holding(part).gone().await,
            None => _ = self.claim.session.ended().await,
        }
    }

    /// Runs the work while the locks are held, then releases them, as [`crate::Guard::run`].
    ///
    /// # Errors
    /// As [`crate::Guard::run`].
    pub async fn run<T>(mut self, work: impl AsyncFnOnce(&MultiGuard) -> T) -> Result<T, Loss> {
        match while_held(self.gone(), work(&self)).await {
            Some(done) if self.claim.was_held_to_the_end().await => Ok(done),
            // The reason is asked for after the work is dropped.
            _ => Err(self.lost().await),
        }
    }

    /// Waits until a client asks the holder to release a lock of the set. Returns this lock and the
    /// request, as [`crate::Guard::revoked`]. If the request has a deadline, all locks are taken
    /// away at the deadline. While this call waits, it sends one long-poll for each lock.
    pub async fn revoked(&self) -> (&HeldPart, RevokeRequest) {
        let asked = self.parts.iter().map(async |part| (part, self.holding(part).revoked().await));
        match asked.collect::<FuturesUnordered<_>>().next().await {
            Some(first) => first,
            None => std::future::pending().await,
        }
    }

    fn holding<'a>(&'a self, part: &'a HeldPart) -> Holding<'a> {
        Holding { claim: &self.claim, node: &part.ticket, token: part.fencing_token }
    }

    /// Releases all locks and waits until the cluster has confirmed the release. Returns the number
    /// of acquires of the owner that are still unreleased.
    ///
    /// # Errors
    /// As [`crate::Guard::release`].
    pub async fn release(mut self) -> Result<u32, Error> {
        self.claim.give_back().await
    }
}

impl fmt::Debug for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("MultiGuard");
        shown.field("locks", &self.parts).field("session", &self.claim.session).field("is_safe", &self.is_safe());
        shown.finish_non_exhaustive()
    }
}
