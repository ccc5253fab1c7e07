//! What there is to see of a cluster: nodes, sessions, locks; and asking for a lock.

use std::time::Duration;

use crate::api::{
    Cluster, LockHistory, LockList, LockQueue, LockSet, LockSettings, LockSummary, Millis, Revoked, SessionInfo,
    SessionList,
};
use hyper::Method;

use crate::Error;
use crate::client::Client;
use crate::client::call::{Call, Target};

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

    /// What a lock remembers of its past: the tickets that ended last, the newest end first.
    ///
    /// # Errors
    /// As any read.
    pub async fn lock_history(&self, path: &str) -> Result<LockHistory, Error> {
        Ok(self.read(Target::path("/v1/locks", path)?.with("history", true)).await?.0)
    }

    /// Says what a lock is: closed to lock nodes of clients' own making, with so many waiters at most, a semaphore of so many
    /// permits. What is left out is as in any lock; the default takes all back.
    ///
    /// # Errors
    /// `Refused` with `NotEmpty` when it is to be closed and somebody is in the queue.
    pub async fn set_lock(&self, path: &str, settings: LockSettings) -> Result<LockSet, Error> {
        let target = Target::path("/v1/locks", path)?;
        self.write(Call::write(Method::PUT, target.finish()).json(&settings)).await
    }

    /// Asks those who hold a lock, or the holder of one ticket, to give it up. With a deadline it is taken away from them
    /// then; a deadline of zero does so at once.
    ///
    /// # Errors
    /// As any write.
    pub async fn revoke(&self, path: &str, deadline: Option<Duration>) -> Result<Revoked, Error> {
        let deadline = deadline.map(|deadline| Millis(u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX)));
        let target = Target::path("/v1/revoke", path)?.with_some("deadline", deadline);
        self.write(Call::write(Method::POST, target.finish())).await
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::client::fake_node::fake_node;

    #[tokio::test]
    async fn a_node_that_does_not_answer_is_waited_for_no_longer_than_an_operation_may_take() {
        let (addr, _requests) = fake_node(async |_| std::future::pending().await).await;
        let client = Client::builder([addr]).operation_timeout(Duration::from_millis(50));
        let client = client.attempt_timeout(Duration::from_secs(86_400)).build().unwrap();
        assert!(client.status().await[0].1.is_err());
    }
}
