//! Time for which a session cannot expire. This module only computes with given times: it reads no
//! clock and starts no task.

use std::time::Duration;

use crate::client::clock::Moment;

/// State of a session, as far as its client can know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// A heartbeat was answered recently.
    Connected,
    /// No heartbeat was answered for half of the time after which the session counts as lost. The
    /// session still holds its locks and znodes.
    Suspended,
    /// The session has ended, or may have ended: the client's own deadline has passed, or the
    /// cluster reported the end. All locks and ephemeral znodes of the session are lost. This state
    /// is final: the next write opens another session.
    Lost,
    /// The client closed the session. This state is final.
    Closed,
}

impl SessionState {
    /// Tells whether the state never changes again. The session's locks may then belong to another
    /// client.
    pub fn is_final(self) -> bool {
        matches!(self, SessionState::Lost | SessionState::Closed)
    }
}

/// Time until which the session cannot expire, computed from its answered heartbeats.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    heard: Moment,
    safe_until: Moment,
}

impl Life {
    /// Starts from the answer to a request that was sent at `sent`: the session cannot expire for
    /// `safe_for` from `sent` on.
    pub(crate) fn new(sent: Moment, safe_for: Duration) -> Life {
        Life { heard: sent, safe_until: sent.after(safe_for) }
    }

    /// Notes the answer to another request. Keeps the later of the old and the new deadline.
    pub(crate) fn heard(&mut self, sent: Moment, safe_for: Duration) {
        if sent.after(safe_for) > self.safe_until {
            *self = Life::new(sent, safe_for);
        }
    }

    pub(crate) fn safe_until(&self) -> Moment {
        self.safe_until
    }

    /// Returns the state at a moment, for a session that has not ended.
    pub(crate) fn at(&self, now: Moment) -> SessionState {
        if now >= self.safe_until {
            SessionState::Lost
        } else if now.until(self.safe_until) < self.heard.until(self.safe_until) / 2 {
            SessionState::Suspended
        } else {
            SessionState::Connected
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Moment {
        Moment::ZERO.after(Duration::from_millis(ms))
    }

    #[track_caller]
    fn check(life: &Life, ms: u64, expected: SessionState) {
        assert_eq!(life.at(at_ms(ms)), expected, "at {ms} ms");
    }

    #[test]
    fn the_deadline_counts_from_the_sending() {
        // Sent at 1 s; the time of the answer does not matter. The answer promises 10 s.
        let life = Life::new(at_ms(1_000), Duration::from_secs(10));
        check(&life, 1_000, SessionState::Connected);
        check(&life, 6_000, SessionState::Connected);
        check(&life, 6_001, SessionState::Suspended);
        check(&life, 10_999, SessionState::Suspended);
        check(&life, 11_000, SessionState::Lost);
    }

    #[test]
    fn an_answer_moves_the_deadline_and_an_overtaken_one_does_not() {
        let mut life = Life::new(at_ms(0), Duration::from_secs(10));
        life.heard(at_ms(4_000), Duration::from_secs(10));
        assert_eq!(life.safe_until(), at_ms(14_000));
        life.heard(at_ms(2_000), Duration::from_secs(10));
        assert_eq!(life.safe_until(), at_ms(14_000));
        check(&life, 8_999, SessionState::Connected);
    }

    #[test]
    fn an_answer_that_promises_nothing_changes_nothing() {
        let mut life = Life::new(at_ms(0), Duration::from_secs(10));
        life.heard(at_ms(9_000), Duration::ZERO);
        assert_eq!(life.safe_until(), at_ms(10_000));
    }
}
