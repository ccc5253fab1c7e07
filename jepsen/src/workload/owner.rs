//! A worker's session, from one operation to the next.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::door::{Door, is_over};
use crate::answer::Answer;
use crate::client::{Client, Session};

/// Longer than any fault lasts: these sessions are not meant to end by themselves.
pub(super) const SESSION_TIMEOUT_MS: u64 = 60_000;
/// Longest time for closing sessions when everything is mended.
const SETTLE_MAX: Duration = Duration::from_secs(60);

/// Owner of locks: one session at a time.
pub(super) struct Owner {
    door: Door,
    timeout_ms: u64,
    session: Option<Session>,
    /// Sessions in which something of unknown outcome was done: closing them ends the doubt.
    to_close: Vec<Session>,
}

impl Default for Owner {
    fn default() -> Owner {
        Owner::new(Door::Http)
    }
}

impl Owner {
    /// An owner whose sessions live for so long without a heartbeat.
    pub(super) fn with_timeout(timeout_ms: u64) -> Owner {
        Owner { timeout_ms, ..Owner::default() }
    }
}

impl Owner {
    /// An owner whose sessions are opened at this door.
    pub(super) fn new(door: Door) -> Owner {
        Owner { door, timeout_ms: SESSION_TIMEOUT_MS, session: None, to_close: Vec::new() }
    }

    /// The session to act in. `None` when this step went into closing one that is in doubt.
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

    /// Takes the session out of the owner's hands: it is not closed.
    pub(super) fn take_session(&mut self) -> Option<Session> {
        self.session.take()
    }

    /// Keeps the session: nothing was done in it.
    pub(crate) fn keep(&mut self, session: Session) {
        self.session = Some(session);
    }

    /// Keeps the session, or leaves it when it ended or holds something unknown. False when it is
    /// left: what was held in it is held no more, or will not be.
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

    /// Goes on as [`Owner::after`] does, after operations that are tried until they are answered: a
    /// refusal may mean that the session has ended, and closing it finds out.
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

/// Closes a session of which something is not known. True when that is over.
async fn close(session: &Session, client: &mut Client) -> bool {
    let value = json!({"owner": session.id});
    client.invoke("close", value.clone());
    let answer = session.close(client).await;
    client.end_as(&answer, "close", value);
    client.take_crashed();
    answer.is_ok() || is_over(&answer)
}
