//! Locks and the options of an acquire.

use std::time::Duration;

use crate::api::{LockQueue, Millis, ProblemType, Ticket};

use crate::client::Client;
use crate::client::call::{Call, FENCE, Target};
use crate::client::claim::{Claim, Kind, without_end};
use crate::client::clock::Moment;
use crate::client::guard::Guard;
use crate::{Error, Loss};

impl Client {
    /// Returns an exclusive lock. No request is sent before an acquire.
    pub fn lock(&self, path: impl Into<String>) -> Lock {
        Lock::new(self.clone(), path.into(), None)
    }

    /// Returns a lock that readers share.
    pub fn rw_lock(&self, path: impl Into<String>) -> RwLock {
        RwLock { client: self.clone(), path: path.into() }
    }
}

/// Reason for which work under a lock did not run to its end, from [`Lock::with`].
#[derive(Clone, Debug, thiserror::Error)]
pub enum WithError {
    /// The lock was not acquired. The work did not begin.
    #[error("the lock was not acquired: {0}")]
    NotAcquired(#[from] Error),
    /// The lock was lost. The work was dropped at its next wait, unless it had ended already.
    #[error("the lock was lost: {0}")]
    Lost(#[from] Loss),
}

/// A lock that can be acquired, made by [`Client::lock`] and [`RwLock`]. Making the value sends no
/// request.
#[derive(Clone, Debug)]
pub struct Lock {
    client: Client,
    /// Route of the acquire: the route of locks, or the route of elections.
    pub(crate) route: &'static str,
    path: String,
    /// Mode as spelled in the request's query; `None` for the exclusive mode.
    mode: Option<&'static str>,
    /// Number of permits to acquire of a semaphore, and the semaphore's total `permits_max`.
    /// Without a total, the number in the semaphore's settings applies. `None` for other locks.
    pub(crate) permits: Option<(u32, Option<u32>)>,
    owner: Option<String>,
    label: Option<String>,
    pub(crate) lock_delay: Option<Duration>,
    priority: Option<u32>,
}

impl Lock {
    pub(crate) fn new(client: Client, path: String, mode: Option<&'static str>) -> Lock {
        let (permits, owner, label, lock_delay, priority) = (None, None, None, None, None);
        Lock { client, route: "/v1/locks", path, mode, permits, owner, label, lock_delay, priority }
    }

    /// Sets the owner: a name that tells the contenders of one session apart. An acquire by an
    /// owner that already holds the lock in this mode succeeds at once and adds a hold, which needs
    /// its own release. Without this setting every acquire has an owner of its own.
    pub fn owner(mut self, owner: impl Into<String>) -> Lock {
        self.owner = Some(owner.into());
        self
    }

    /// Sets the label: free text for people who look at the queue.
    pub fn label(mut self, label: impl Into<String>) -> Lock {
        self.label = Some(label.into());
        self
    }

    /// Sets the time for which other contenders are kept out after the session *expired* while it
    /// held the lock. For resources that do not check fencing tokens. A lost session that asked for
    /// a lock with a delay is left to expire, not closed, as only an expiry starts the delay.
    pub fn lock_delay(mut self, delay: Duration) -> Lock {
        self.lock_delay = Some(delay);
        self
    }

    /// Sets the priority: a waiter with a higher priority gets the lock earlier; 0 by default. Only
    /// for locks with the setting `managed` ([`Client::set_settings`]).
    pub fn priority(mut self, priority: u32) -> Lock {
        self.priority = Some(priority);
        self
    }

    /// The path of the lock.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Waits for the lock in the order of the queue. Dropping the future leaves the queue in the
    /// background.
    ///
    /// # Errors
    /// `Unavailable` and `Unknown` when no node takes the request in time. Once its ticket is in
    /// the queue, the call waits as long as its session lives. `Refused` with `SessionExpired` when
    /// the session is lost before the grant is known.
    pub async fn acquire(&self) -> Result<Guard, Error> {
        without_end(self.queue_up(None).await?)
    }

    /// Waits for the lock for at most `wait`. Returns `None` when the time was over first; this
    /// client has then left the queue. A `wait` of zero is a [`Lock::try_acquire`].
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    pub async fn acquire_within(&self, wait: Duration) -> Result<Option<Guard>, Error> {
        if wait.is_zero() { self.try_acquire().await } else { self.queue_up(Some(Moment::now().after(wait))).await }
    }

    /// Takes the lock if it is free. Returns `None` when the lock cannot be granted at once.
    ///
    /// # Errors
    /// As [`Lock::acquire`]. `Unknown` also when the lock is taken and an earlier try of this call
    /// got no answer. A ticket of that try is released in the background.
    pub async fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        let acquire = Call::acquire(self.target()?).forgotten();
        Guard::of(Claim::take::<Ticket>(&self.client, acquire, Kind::Queue, self.lock_delay).await?, &self.path)
    }

    /// Waits for the lock, runs the work while the lock is held, and releases it. When the lock is
    /// lost first, the work is dropped at its next wait. Returns the value of the work, which may
    /// be an error of its own.
    ///
    /// ```no_run
    /// # async fn example(client: zlock_client::Client) -> Result<(), zlock_client::WithError> {
    /// let lock = client.lock("/orders").label("worker 7");
    /// let token = lock.with(async |guard| {
    ///     // Steps that wait, so that they can be dropped.
    ///     guard.fencing_token()
    /// });
    /// println!("done under {}", token.await?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`WithError::NotAcquired`] as [`Lock::acquire`], [`WithError::Lost`] as [`Guard::run`].
    pub async fn with<T>(&self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, WithError> {
        Ok(self.acquire().await?.run(work).await?)
    }

    /// Returns the first page of the lock's queue: holders and waiters.
    ///
    /// # Errors
    /// As any read: see [`Error`].
    pub async fn queue(&self) -> Result<LockQueue, Error> {
        self.client.lock_queue(&self.path).await
    }

    /// Tells whether a fencing token belongs to a present holder of the lock. For servers of
    /// resources that the lock protects.
    ///
    /// # Errors
    /// As any read: see [`Error`].
    pub async fn is_held_with(&self, fencing_token: u64) -> Result<bool, Error> {
        let target = Target::route(FENCE).with("path", &self.path).with("fencing_token", fencing_token);
        match self.client.ask(target).await {
            Ok(_) => Ok(true),
            Err(error) if error.code() == Some(ProblemType::Fenced) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn queue_up(&self, deadline: Option<Moment>) -> Result<Option<Guard>, Error> {
        // With `keep`, the ticket stays in the queue when a long-poll ends, fails or moves to
        // another node. A dropped claim withdraws the ticket.
        let acquire = Call::acquire(self.target()?.with("keep", true));
        Guard::of(Claim::wait::<Ticket>(&self.client, acquire, self.lock_delay, deadline).await?, &self.path)
    }

    fn target(&self) -> Result<Target, Error> {
        let delay = self.lock_delay.map(Millis::from);
        let target = Target::path(self.route, &self.path)?.with_some("mode", self.mode);
        let (permits, permits_max) = self.permits.unzip();
        let target = target.with_some("permits", permits).with_some("permits_max", permits_max.flatten());
        let target = target.with_some("owner", self.owner.as_deref()).with_some("label", self.label.as_deref());
        Ok(target.with_some("lock_delay", delay).with_some("priority", self.priority))
    }
}

/// A lock that readers share and a writer has alone, made by [`Client::rw_lock`].
#[derive(Clone, Debug)]
pub struct RwLock {
    client: Client,
    path: String,
}

impl RwLock {
    /// Returns the lock in the mode of a reader.
    pub fn read(&self) -> Lock {
        Lock::new(self.client.clone(), self.path.clone(), Some("read"))
    }

    /// Returns the lock in the mode of a writer.
    pub fn write(&self) -> Lock {
        Lock::new(self.client.clone(), self.path.clone(), Some("write"))
    }
}
