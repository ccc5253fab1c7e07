//! What there is to see of a cluster: nodes, sessions, locks.

use protocol::{Cluster, LockList, LockQueue, LockSummary, SessionInfo, SessionList};

use crate::Error;
use crate::call::{Call, Target};
use crate::client::Client;

impl Client {
    /// What every endpoint says about itself and the cluster, in the order in which the endpoints were given. Each is asked
    /// once.
    pub async fn status(&self) -> Vec<(String, Result<Cluster, Error>)> {
        let transport = &self.inner.transport;
        let asked = transport.addrs().enumerate().map(|(index, addr)| async move {
            let answer = transport.send_to(index, &Call::get("/v1/cluster".into())).await;
            (addr.to_owned(), answer.and_then(|answer| answer.json()))
        });
        futures_util::future::join_all(asked).await
    }

    /// The first page of a lock's queue, holders first. A lock that nobody wants has an empty one.
    ///
    /// # Errors
    /// As any read.
    pub async fn lock_queue(&self, path: &str) -> Result<LockQueue, Error> {
        Ok(self.read(Target::path("/v1/locks", path)?).await?.0)
    }

    /// The locks at and below a path that have contenders, with the first in each queue.
    ///
    /// # Errors
    /// As any read.
    pub async fn locks(&self, prefix: &str) -> Result<Vec<LockSummary>, Error> {
        let (mut locks, mut after) = (Vec::new(), None);
        loop {
            let target = Target::route("/v1/locks").with("prefix", prefix).with_some("after", after);
            let (page, _) = self.read::<LockList>(target).await?;
            locks.extend(page.locks);
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(locks),
            }
        }
    }

    /// The open sessions, by id.
    ///
    /// # Errors
    /// As any read.
    pub async fn sessions(&self) -> Result<Vec<SessionInfo>, Error> {
        let (mut sessions, mut after) = (Vec::new(), None);
        loop {
            let target = Target::route("/v1/sessions").with_some("after", after);
            let (page, _) = self.read::<SessionList>(target).await?;
            sessions.extend(page.sessions);
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(sessions),
            }
        }
    }

    /// One session, with the first page of its ephemeral znodes.
    ///
    /// # Errors
    /// `Refused` with `NoSession` when it is not open.
    pub async fn session_info(&self, id: u64) -> Result<SessionInfo, Error> {
        Ok(self.read(Target::route(&format!("/v1/sessions/{id}"))).await?.0)
    }
}
