//! Computation of the times at which the watchdog acts. Reads no clock.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Action on the command before the lock can be lost (`--on-loss`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum OnLoss {
    /// Sends SIGTERM and, after the grace period of `--grace`, SIGKILL.
    Term,
    /// Sends SIGKILL.
    Kill,
    /// Prints a message, and the command runs on.
    Warn,
}

impl OnLoss {
    /// Names of the actions on the command line.
    pub(super) const NAMES: [&str; 3] = ["term", "kill", "warn"];

    pub(super) fn parse(text: &str) -> OnLoss {
        match text {
            "kill" => OnLoss::Kill,
            "warn" => OnLoss::Warn,
            _ => OnLoss::Term,
        }
    }
}

/// Times of the actions, relative to the time at which the lock can be lost.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) on_loss: OnLoss,
    /// Grace period: the time between SIGTERM and SIGKILL.
    pub(super) grace: Duration,
    /// Time between SIGKILL and the time at which the lock can be lost. It allows for delays of the
    /// watchdog on a slow machine.
    pub(super) margin: Duration,
}

impl Plan {
    /// Default grace period between SIGTERM and SIGKILL. A short session timeout shortens it.
    const GRACE: Duration = Duration::from_secs(2);

    /// Makes a plan for a session with this timeout. A grace period above [`Plan::grace_max`] is
    /// shortened to it; the caller has already told the user.
    pub(super) fn new(on_loss: OnLoss, grace: Option<Duration>, timeout: Duration) -> Plan {
        let margin = (timeout / 50).max(Duration::from_millis(50));
        let grace = grace.unwrap_or(Plan::GRACE).min(Plan::grace_max(timeout));
        let grace = if on_loss == OnLoss::Term { grace } else { Duration::ZERO };
        Plan { on_loss, grace, margin }
    }

    /// Returns the longest grace period for a session with this timeout: a quarter of it, as
    /// heartbeats need the remaining time.
    pub(super) fn grace_max(timeout: Duration) -> Duration {
        timeout / 4
    }
}

/// Action on the command that is due at a given time, in increasing severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// Nothing is due.
    Wait,
    /// SIGTERM is due. Only with [`OnLoss::Term`].
    Ask,
    /// SIGKILL is due, or the message of `--on-loss warn`.
    End,
}

/// Time at which a command must have ended. Times are durations since the machine was started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    plan: Plan,
    /// Time up to which the lock cannot be lost.
    until: Duration,
    /// Time at which the loss of the lock became known; `None` before.
    lost_at: Option<Duration>,
}

impl Deadline {
    pub(super) fn new(plan: Plan, until: Duration) -> Deadline {
        Deadline { plan, until, lost_at: None }
    }

    /// Extends the time up to which the lock cannot be lost to `until`. An earlier time is ignored.
    pub(super) fn extend(&mut self, until: Duration) {
        self.until = self.until.max(until);
    }

    /// Notes that the lock is lost, or that the supervisor (the `zlock lock` process that holds the
    /// session) has ended and so cannot extend the deadline.
    pub(super) fn lose(&mut self, now: Duration) {
        self.lost_at.get_or_insert(now);
    }

    pub(super) fn step(&self, now: Duration) -> Step {
        let end = self.until.saturating_sub(self.plan.margin);
        let ask = end.saturating_sub(self.plan.grace);
        // After a known loss, SIGTERM is due at once, and SIGKILL after the grace period or at the
        // deadline, whichever is first.
        let (ask, end) = match self.lost_at {
            Some(lost) => (ask.min(lost), end.min(lost + self.plan.grace)),
            None => (ask, end),
        };
        if now >= end {
            Step::End
        } else if now >= ask {
            Step::Ask
        } else {
            Step::Wait
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[track_caller]
    fn check(deadline: &Deadline, now_ms: u32, expected: Step) {
        assert_eq!(deadline.step(MS * now_ms), expected, "at {now_ms} ms");
    }

    #[test]
    fn a_command_is_asked_then_ended_before_the_lock_may_be_lost() {
        let plan = Plan::new(OnLoss::Term, None, MS * 10_000);
        let mut deadline = Deadline::new(plan, MS * 10_000);
        check(&deadline, 7_799, Step::Wait);
        check(&deadline, 7_800, Step::Ask);
        check(&deadline, 9_799, Step::Ask);
        check(&deadline, 9_800, Step::End);
        deadline.extend(MS * 12_000);
        check(&deadline, 9_799, Step::Wait);
        deadline.extend(MS * 11_000);
        check(&deadline, 9_799, Step::Wait);
    }

    #[test]
    fn with_kill_there_is_no_asking() {
        let deadline = Deadline::new(Plan::new(OnLoss::Kill, None, MS * 10_000), MS * 10_000);
        check(&deadline, 9_799, Step::Wait);
        check(&deadline, 9_800, Step::End);
    }

    #[test]
    fn what_is_lost_is_asked_at_once_and_never_ended_later_than_without() {
        let plan = Plan::new(OnLoss::Term, None, MS * 10_000);
        let mut deadline = Deadline::new(plan, MS * 10_000);
        deadline.lose(MS * 3_000);
        check(&deadline, 3_000, Step::Ask);
        check(&deadline, 4_999, Step::Ask);
        check(&deadline, 5_000, Step::End);
        let mut deadline = Deadline::new(plan, MS * 10_000);
        deadline.lose(MS * 9_000);
        check(&deadline, 9_800, Step::End);
    }

    #[test]
    fn the_grace_is_a_quarter_of_the_timeout_at_most() {
        let plan = Plan::new(OnLoss::Term, Some(MS * 60_000), MS * 2_000);
        assert_eq!((plan.grace, plan.margin), (MS * 500, MS * 50));
    }
}
