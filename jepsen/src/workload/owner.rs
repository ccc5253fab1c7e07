//! A worker's session, from one operation to the next.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::door::{Door, is_over};
use crate::answer::Answer;
use crate::client::{Client, Session};

/// Timeout of sessions, longer than any fault, so that they do not expire.
pub(super) const SESSION_TIMEOUT_MS: u64 = 60_000;
/// Longest time for closing sessions when everything is mended.
const SETTLE_MAX: Duration = Duration::from_secs(60);

/// Owner of locks: one session at a time.
pub(super) struct Owner {
    door: Door,
    timeout_ms: u64,
    session: Option<Session>,
    /// Sessions in which an outcome is unknown. Closing them ends the doubt.
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
}

impl Owner {
    /// Returns an owner whose sessions are opened at this door.
    pub(super) fn new(door: Door) -> Owner {
        Owner { door, timeout_ms: SESSION_TIMEOUT_MS, session: None, to_close: Vec::new() }
    }

    /// Returns the session to act in. Returns `None` when this step was used to close a doubtful
    /// one.
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

    /// Tells whether there is a session.
    pub(super) fn has_session(&self) -> bool {
        self.session.is_some()
    }

    /// Takes the session from the owner, which will not close it.
    pub(super) fn take_session(&mut self) -> Option<Session> {
        self.session.take()
    }

    /// Keeps the session unchanged.
    pub(crate) fn keep(&mut self, session: Session) {
        self.session = Some(session);
    }

    /// Keeps the session after an operation, or drops it when it has ended or an outcome is
    /// unknown. Returns false if it is dropped: its locks are not held any more, or will not be.
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

    /// Closes all sessions of the owner, so that nothing is held or waits any more.
    ///
    /// # Errors
    /// When a minute was not enough.
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

    /// Goes on as [`Owner::after`] does, after an operation that was retried. After a refusal the
    /// session may have ended as well, so it is closed.
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

/// Closes a doubtful session. Returns true when it is over.
async fn close(session: &Session, client: &mut Client) -> bool {
    let value = json!({"owner": session.id});
    client.invoke("close", value.clone());
    let answer = session.close(client).await;
    client.end_as(&answer, "close", value);
    client.take_crashed();
    answer.is_ok() || is_over(&answer)
}
