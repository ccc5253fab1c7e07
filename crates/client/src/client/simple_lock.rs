//! Simple locks: one ephemeral znode that is there or not.
//!
//! Every try is a request of its own, with its own key: it is done once, and sent again it says what became of it. Between
//! tries the client watches for the znode to go. So a try that is dropped leaves nothing that could be granted later.

use std::time::Duration;

use crate::api::{ProblemType, SimpleHolder, SimpleLock as View, Ticket};
use hyper::Method;

use crate::client::Client;
use crate::client::call::{Call, Target};
use crate::client::claim::{Claim, Kind, SIMPLE_LOCKS};
use crate::client::clock::Moment;
use crate::{Error, Guard, WatchKind, WithError};

/// After a look that failed.
const PAUSE: Duration = Duration::from_millis(250);

impl Client {
    /// A lock that is one ephemeral znode. Nobody queues: all who wait try again when it goes, and the quickest has it. For
    /// few contenders.
    pub fn simple_lock(&self, path: impl Into<String>) -> SimpleLock {
        SimpleLock { client: self.clone(), path: path.into(), owner: None }
    }
}

/// A simple lock that can be acquired. Made by [`Client::simple_lock`]; a value that asks nothing by itself.
#[derive(Clone, Debug)]
pub struct SimpleLock {
    client: Client,
    path: String,
    owner: Option<String>,
}

impl SimpleLock {
    /// A name within the session, which others see. Whoever acquires as an owner that holds already has the lock, too, and
    /// one release frees it: do not share a name. Without one every acquire has a name of its own.
    pub fn owner(mut self, owner: impl Into<String>) -> SimpleLock {
        self.owner = Some(owner.into());
        self
    }

    /// Waits for the lock, in no order.
    ///
    /// # Errors
    /// As [`crate::Lock::acquire`].
    pub async fn acquire(&self) -> Result<Guard, Error> {
        let guard = self.wait(None).await?;
        guard.ok_or_else(|| Error::unknown("a wait without an end has ended"))
    }

    /// Waits for the lock for so long. `None` when the time was over first.
    ///
    /// # Errors
    /// As [`crate::Lock::acquire`].
    pub async fn acquire_within(&self, wait: Duration) -> Result<Option<Guard>, Error> {
        self.wait(Some(Moment::now().after(wait))).await
    }

    /// Takes the lock if it is free.
    ///
    /// # Errors
    /// As [`crate::Lock::acquire`].
    pub async fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        let owner = self.owner.clone().unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
        let target = Target::path(SIMPLE_LOCKS, &self.path)?.with("owner", owner);
        let call = Call::write(Method::POST, target.finish());
        let enter = async || {
            let session = self.client.session().await?;
            Claim::enter_as::<Ticket>(&self.client, session, call.clone(), Kind::Simple).await
        };
        let entered = match enter().await {
            // The session had ended without anybody noticing.
            Err(error) if error.code() == Some(ProblemType::SessionExpired) => enter().await,
            entered => entered,
        };
        match entered {
            Ok((claim, Some(grant))) => Guard::new(claim, self.path.clone(), grant).map(Some),
            Ok((_, None)) => Err(Error::unknown("a try was queued")),
            // Held by another, or it was taken by an earlier sending of this very try and is gone since.
            Err(Error::Refused { code: Some(ProblemType::NotAcquired | ProblemType::TicketGone), .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits for the lock, runs the work while it is held, and releases it: as [`crate::Lock::with`].
    ///
    /// # Errors
    /// As [`crate::Lock::with`].
    pub async fn with<T>(&self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, WithError> {
        Ok(self.acquire().await?.run(work).await?)
    }

    /// Who holds the lock.
    ///
    /// # Errors
    /// As any read.
    pub async fn holder(&self) -> Result<Option<SimpleHolder>, Error> {
        Ok(self.client.read::<View>(Target::path(SIMPLE_LOCKS, &self.path)?).await?.0.holder)
    }

    async fn wait(&self, deadline: Option<Moment>) -> Result<Option<Guard>, Error> {
        loop {
            if let Some(guard) = self.try_acquire().await? {
                return Ok(Some(guard));
            }
            match deadline {
                None => self.gone().await,
                Some(deadline) => match tokio::time::timeout(deadline.remaining(), self.gone()).await {
                    Ok(()) => {}
                    Err(_) => return Ok(None),
                },
            }
        }
    }

    /// Returns when the znode is not there, or may not have been for a moment.
    async fn gone(&self) {
        loop {
            match self.look_until_gone().await {
                Ok(()) => return,
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    async fn look_until_gone(&self) -> Result<(), Error> {
        let (view, answer) = self.client.read::<View>(Target::path(SIMPLE_LOCKS, &self.path)?).await?;
        if view.holder.is_none() {
            return Ok(());
        }
        // Whatever happens to it first: the next try says what it was.
        self.client.changed_since(&self.path, WatchKind::Exists, answer.zxid).await
    }
}
