//! How long a session is safe: arithmetic on moments, no clock and no task.

use std::time::Duration;

use crate::client::clock::Moment;

/// How a session is, as far as its client can know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// A heartbeat was answered lately.
    Connected,
    /// No heartbeat was answered for half of the time that the session is safe. It still holds what
    /// it holds.
    Suspended,
    /// The session has ended, or may have: the client's own deadline has passed, or the cluster
    /// said so. Everything that was held in it is lost. Final: the next write opens another
    /// session.
    Lost,
    /// The client closed it. Final.
    Closed,
}

impl SessionState {
    /// Whether what was held in the session may be another client's by now.
    pub fn is_final(self) -> bool {
        matches!(self, SessionState::Lost | SessionState::Closed)
    }
}

/// What the answered heartbeats promise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    heard: Moment,
    safe_until: Moment,
}

impl Life {
    /// The answer to a request that was sent at `sent` said that the session is safe for so long
    /// from then.
    pub(crate) fn new(sent: Moment, safe_for: Duration) -> Life {
        Life { heard: sent, safe_until: sent.after(safe_for) }
    }

    /// Another answer. One that was overtaken by a later one changes nothing.
    pub(crate) fn heard(&mut self, sent: Moment, safe_for: Duration) {
        if sent.after(safe_for) > self.safe_until {
            *self = Life::new(sent, safe_for);
        }
    }

    pub(crate) fn safe_until(&self) -> Moment {
        self.safe_until
    }

    /// The state at a moment, unless the session has ended before.
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
        // Sent at 1 s, and answered whenever: the answer says 10 s.
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
