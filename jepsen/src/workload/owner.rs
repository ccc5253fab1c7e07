//! Sessions of a worker that holds locks, from one operation to the next.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::door::{Door, is_over};
use crate::answer::Answer;
use crate::client::{Client, Session};

/// Timeout of sessions, in milliseconds. It is longer than any fault, so that sessions do not
/// expire.
pub(super) const SESSION_TIMEOUT_MS: u64 = 60_000;
/// Longest time in which [`Owner::settle`] tries to close all sessions.
const SETTLE_MAX: Duration = Duration::from_secs(60);

/// Owner of locks, with one session at a time.
pub(super) struct Owner {
    door: Door,
    timeout_ms: u64,
    session: Option<Session>,
    /// Sessions with an operation of unknown outcome. They are closed, because after the close they
    /// certainly hold no lock.
    to_close: Vec<Session>,
}

impl Default for Owner {
    fn default() -> Owner {
        Owner::new(Door::Http)
    }
}

impl Owner {
    /// Returns an owner whose sessions have this timeout.
    pub(super) fn with_timeout(timeout_ms: u64) -> Owner {
        Owner { timeout_ms, ..Owner::default() }
    }

    /// Returns an owner that opens its sessions at this door (HTTP or ZooKeeper's protocol).
    pub(super) fn new(door: Door) -> Owner {
        Owner { door, timeout_ms: SESSION_TIMEOUT_MS, session: None, to_close: Vec::new() }
    }

    /// Takes the session for the next operation, or opens one. Returns `None` when this step was
    /// used to close a session of `to_close`.
    pub(crate) async fn session(&mut self, client: &mut Client) -> Result<Option<Session>, String> {
        if let Some(session) = self.to_close.pop() {
            if !close(&session, client).await {
                self.to_close.push(session);
            }
            return Ok(None);
        }
        match self.session.take() {
            Some(session) => Ok(Some(session)),
            None => self.door.open(client, self.timeout_ms).await.map(Some),
        }
    }

    /// Tells whether the owner has a session for the next operation.
    pub(super) fn has_session(&self) -> bool {
        self.session.is_some()
    }

    /// Takes the session away from the owner, so that [`Owner::settle`] does not close it.
    pub(super) fn take_session(&mut self) -> Option<Session> {
        self.session.take()
    }

    /// Gives the session back, for the next operation.
    pub(crate) fn keep(&mut self, session: Session) {
        self.session = Some(session);
    }

    /// Gives the session back after an operation. Drops it if it has ended. After an operation of
    /// unknown outcome, a later step closes it. Returns false in both cases: the worker must forget
    /// the locks of the session.
    pub(crate) fn after(&mut self, session: Session, answer: &Answer, client: &mut Client) -> bool {
        if client.take_crashed() {
            self.to_close.push(session);
            return false;
        }
        let ended = is_over(answer);
        if !ended {
            self.session = Some(session);
        }
        !ended
    }

    /// Closes all sessions of the owner, so that it has no locks and no places in queues.
    ///
    /// # Errors
    /// When a session was not closed within a minute.
    pub(crate) async fn settle(mut self, client: &mut Client) -> Result<(), String> {
        self.to_close.extend(self.session.take());
        let deadline = Instant::now() + SETTLE_MAX;
        while let Some(session) = self.to_close.last() {
            if close(session, client).await {
                self.to_close.pop();
            } else if Instant::now() > deadline {
                return Err(format!("session {} could not be closed", session.id));
            } else {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }

    /// Gives the session back after an operation that was sent several times. After a refusal or an
    /// unknown outcome the session is closed in a later step, because the refusal may mean that it
    /// has ended. Returns false then.
    pub(crate) fn after_tries(&mut self, session: Session, answer: &Answer, client: &mut Client) -> bool {
        let doubtful = client.take_crashed() || !answer.is_ok();
        if doubtful {
            self.to_close.push(session);
        } else {
            self.session = Some(session);
        }
        !doubtful
    }
}

/// Records a `close` of the session. Returns true if the answer shows that the session is over.
async fn close(session: &Session, client: &mut Client) -> bool {
    let value = json!({"owner": session.id});
    client.invoke("close", value.clone());
    let answer = session.close(client).await;
    client.end_as(&answer, "close", value);
    client.take_crashed();
    answer.is_ok() || is_over(&answer)
}
