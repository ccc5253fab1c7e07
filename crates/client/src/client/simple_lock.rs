//! Simple locks: one ephemeral znode that is there or not.
//!
//! Every try is a request of its own, with its own key: it is done once, and sent again it says
//! what became of it. Between tries the client watches for the znode to go. So a try that is
//! dropped leaves nothing that could be granted later.

use std::time::Duration;

use crate::api::{SimpleHolder, SimpleLock as View, Ticket};
use hyper::Method;

use crate::client::Client;
use crate::client::call::{Call, Target};
use crate::client::claim::{Claim, Kind, SIMPLE_LOCKS, without_end};
use crate::client::clock::Moment;
use crate::{Error, Guard, WatchKind, WithError};

/// After a look that failed.
const PAUSE: Duration = Duration::from_millis(250);

impl Client {
    /// A lock that is one ephemeral znode. No client queues: all who wait try again when it goes,
    /// and the quickest has it. For few contenders.
    pub fn simple_lock(&self, path: impl Into<String>) -> SimpleLock {
        SimpleLock { client: self.clone(), path: path.into(), owner: None }
    }
}

/// A simple lock that can be acquired. Made by [`Client::simple_lock`]; a value that asks nothing
/// by itself.
#[derive(Clone, Debug)]
pub struct SimpleLock {
    client: Client,
    path: String,
    owner: Option<String>,
}

impl SimpleLock {
    /// A name within the session, which others see. A client that acquires as an owner that holds
    /// already has the lock, too, and one release frees it: do not share a name. Without one every
    /// acquire has a name of its own.
    pub fn owner(mut self, owner: impl Into<String>) -> SimpleLock {
        self.owner = Some(owner.into());
        self
    }

    /// Waits for the lock, in no order.
    ///
    /// # Errors
    /// As [`crate::Lock::acquire`]: it waits as long as its session lives. Also `Refused` when the
    /// znode of the lock may not be read.
    pub async fn acquire(&self) -> Result<Guard, Error> {
        without_end(self.wait(None).await?)
    }

    /// Waits for the lock for so long. `None` when the time was over first.
    ///
    /// # Errors
    /// As [`SimpleLock::acquire`].
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
        Guard::of(Claim::take::<Ticket>(&self.client, call, Kind::Simple, None).await?, &self.path)
    }

    /// Waits for the lock, runs the work while it is held, and releases it: as
    /// [`crate::Lock::with`].
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
                None => self.gone().await?,
                Some(deadline) => match tokio::time::timeout(deadline.remaining(), self.gone()).await {
                    Ok(gone) => gone?,
                    Err(_) => return Ok(None),
                },
            }
        }
    }

    /// Returns when the znode is not there, or may not have been for a moment.
    ///
    /// # Errors
    /// `Refused`, with `SessionExpired` when the session was lost. That no node answers is no
    /// reason to give up while the session lives.
    async fn gone(&self) -> Result<(), Error> {
        // That of the try, but for one that was lost since.
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
        // Whatever happens to it first: the next try says what it was.
        self.client.changed_since(&self.path, WatchKind::Exists, answer.zxid).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ProblemType;
    use crate::client::fake_node::fake_node;

    const SESSION: &str = r#"{"id":5,"secret":"00","session":"5.00","timeout_ms":60000,"safe_for_ms":SAFE}"#;

    /// A refusal, as a node answers it.
    fn refusal(kind: ProblemType, status: u16) -> String {
        let (kind, title) = (kind.uri(), kind.title());
        format!(r#"{{"type":"{kind}","title":"{title}","status":{status},"detail":"d","outcome":"refused","zxid":9}}"#)
    }

    /// How a wait ends for a lock that another client holds. `look` is what the node answers to all
    /// that comes after the try; `None` is silence.
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
        // A wait that goes on is no error: its time is over in the end.
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
