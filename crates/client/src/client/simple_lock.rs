//! Simple locks: a lock without a queue, which is held while one ephemeral znode exists.
//!
//! Every try to create the znode has an idempotency key of its own, so that a repeated request is
//! applied once. Between tries the client watches for the deletion of the znode. A client that
//! stops waiting therefore leaves no waiter behind that could get the lock later.

use std::time::Duration;

use crate::api::{SimpleHolder, SimpleLock as View, Ticket};
use hyper::Method;

use crate::client::Client;
use crate::client::call::{Call, Target};
use crate::client::claim::{Claim, Kind, SIMPLE_LOCKS, without_end};
use crate::client::clock::Moment;
use crate::{Error, Guard, WatchKind, WithError};

/// Pause after a failed request.
const PAUSE: Duration = Duration::from_millis(250);

impl Client {
    /// Returns a lock that is one ephemeral znode. It has no queue: all waiting clients try again
    /// when the znode is deleted, and the fastest gets the lock. For few contenders.
    pub fn simple_lock(&self, path: impl Into<String>) -> SimpleLock {
        SimpleLock { client: self.clone(), path: path.into(), owner: None }
    }
}

/// A simple lock that can be acquired, made by [`Client::simple_lock`]. Making the value sends no
/// request.
#[derive(Clone, Debug)]
pub struct SimpleLock {
    client: Client,
    path: String,
    owner: Option<String>,
}

impl SimpleLock {
    /// Sets the owner: a name that tells the contenders of one session apart, and that other
    /// clients see. An acquire by an owner that already holds the lock succeeds, but one release
    /// frees the lock. So two tasks should not share an owner. Without this setting every acquire
    /// has an owner of its own.
    pub fn owner(mut self, owner: impl Into<String>) -> SimpleLock {
        self.owner = Some(owner.into());
        self
    }

    /// Waits for the lock, in no particular order.
    ///
    /// # Errors
    /// As [`crate::Lock::acquire`]: the call waits as long as its session lives. Also `Refused`
    /// when the client may not read the znode of the lock.
    pub async fn acquire(&self) -> Result<Guard, Error> {
        without_end(self.wait(None).await?)
    }

    /// Waits for the lock for at most `wait`. Returns `None` when the time was over first.
    ///
    /// # Errors
    /// As [`SimpleLock::acquire`].
    pub async fn acquire_within(&self, wait: Duration) -> Result<Option<Guard>, Error> {
        self.wait(Some(Moment::now().after(wait))).await
    }

    /// Takes the lock if it is free; returns `None` otherwise.
    ///
    /// # Errors
    /// As [`crate::Lock::acquire`].
    pub async fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        let owner = self.owner.clone().unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
        let target = Target::path(SIMPLE_LOCKS, &self.path)?.with("owner", owner);
        let call = Call::write(Method::POST, target.finish());
        Guard::of(Claim::take::<Ticket>(&self.client, call, Kind::Simple, None).await?, &self.path)
    }

    /// Waits for the lock, runs the work while it is held, and releases it, as
    /// [`crate::Lock::with`].
    ///
    /// # Errors
    /// As [`crate::Lock::with`].
    pub async fn with<T>(&self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, WithError> {
        Ok(self.acquire().await?.run(work).await?)
    }

    /// Returns the holder of the lock; `None` when there is none.
    ///
    /// # Errors
    /// As any read: see [`Error`].
    pub async fn holder(&self) -> Result<Option<SimpleHolder>, Error> {
        Ok(self.client.read::<View>(Target::path(SIMPLE_LOCKS, &self.path)?).await?.0.holder)
    }

    async fn wait(&self, deadline: Option<Moment>) -> Result<Option<Guard>, Error> {
        loop {
            if let Some(guard) = self.try_acquire().await? {
                return Ok(Some(guard));
            }
            match deadline {
                None => self.gone().await?,
                Some(deadline) => match tokio::time::timeout(deadline.remaining(), self.gone()).await {
                    Ok(gone) => gone?,
                    Err(_) => return Ok(None),
                },
            }
        }
    }

    /// Waits until the lock's znode does not exist, or may have been deleted since the wait began.
    ///
    /// # Errors
    /// `Refused`, with `SessionExpired` when the session was lost. While the session lives, the
    /// wait goes on even if no node answers.
    async fn gone(&self) -> Result<(), Error> {
        // The session of the last acquire, or a new session if the session was lost since.
        let session = self.client.session().await?;
        let gone = async {
            loop {
                match self.look_until_gone().await {
                    Err(Error::Unavailable { .. } | Error::Unknown { .. }) => tokio::time::sleep(PAUSE).await,
                    looked => return looked,
                }
            }
        };
        tokio::select! {
            gone = gone => gone,
            _ = session.ended() => Err(Error::session_lost("the session was lost while waiting")),
        }
    }

    async fn look_until_gone(&self) -> Result<(), Error> {
        let (view, answer) = self.client.read::<View>(Target::path(SIMPLE_LOCKS, &self.path)?).await?;
        if view.holder.is_none() {
            return Ok(());
        }
        // Any event ends the wait. The next try finds out whether the lock is free.
        self.client.changed_since(&self.path, WatchKind::Exists, answer.zxid).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ProblemType;
    use crate::client::fake_node::fake_node;

    const SESSION: &str = r#"{"session":5,"session_key":"5.00","timeout_ms":60000,"safe_for_ms":SAFE}"#;

    /// Returns a node's answer that refuses a request: a problem document.
    fn refusal(kind: ProblemType, status: u16) -> String {
        let (kind, title) = (kind.uri(), kind.title());
        format!(r#"{{"type":"{kind}","title":"{title}","status":{status},"detail":"d","outcome":"refused","zxid":9}}"#)
    }

    /// Waits for a lock that another client holds, and returns the error that ends the wait. The
    /// session is safe from expiry for `safe_ms` ms. `look` is the node's answer to all requests
    /// after the acquire; with `None` the node does not answer them.
    async fn ended(safe_ms: u32, look: Option<String>) -> Error {
        let (addr, _requests) = fake_node(move |request: String| {
            let look = look.clone();
            async move {
                match request.as_str() {
                    "POST /v1/sessions" => SESSION.replace("SAFE", &safe_ms.to_string()),
                    _ if request.starts_with("POST /v1/simple-locks") => refusal(ProblemType::NotAcquired, 409),
                    _ => match look {
                        Some(look) => look,
                        None => std::future::pending().await,
                    },
                }
            }
        })
        .await;
        let client = Client::connect([addr]).await.unwrap();
        // A wait that does not end early would return `Ok(None)` after this time.
        client.simple_lock("/l").acquire_within(Duration::from_secs(60)).await.unwrap_err()
    }

    #[tokio::test]
    async fn a_wait_ends_with_its_session_when_no_node_answers() {
        assert_eq!(ended(300, None).await.code(), Some(ProblemType::SessionExpired));
    }

    #[tokio::test]
    async fn a_wait_for_a_znode_that_may_not_be_read_is_refused() {
        let refused = ended(58_800, Some(refusal(ProblemType::NoAuth, 403))).await;
        assert_eq!(refused.code(), Some(ProblemType::NoAuth));
    }
}
