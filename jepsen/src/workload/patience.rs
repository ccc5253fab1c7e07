//! Time limit for repeated reads at the end of a run.

use std::time::Duration;

use tokio::time::Instant;

use crate::answer::Answer;

/// Longest time for which one read is repeated, as in [`crate::client::Client::insist`].
const TRIED_MAX: Duration = Duration::from_secs(60);
/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(50);

/// Deadline for the tries of one read of the final state. Each try is a separate operation of the
/// history.
pub(super) struct Patience {
    deadline: Instant,
}

impl Patience {
    pub(super) fn new() -> Patience {
        Patience { deadline: Instant::now() + TRIED_MAX }
    }

    /// Waits before the next try, after a failed one. `what` names what is read.
    ///
    /// # Errors
    /// The error of the failed try, if the deadline is over.
    pub(super) async fn after(&self, what: &str, answer: &Answer) -> Result<(), String> {
        if Instant::now() > self.deadline {
            return Err(format!("{what} was not read at the end: {}", answer.error.as_deref().unwrap_or_default()));
        }
        tokio::time::sleep(PAUSE).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::http::NoAnswer;

    use crate::answer::{Effect, judge};

    #[tokio::test]
    async fn a_read_that_is_never_answered_is_told_of() {
        let answer = judge(Effect::Read, Err(NoAnswer::TimedOut), 1);
        assert_eq!(Patience::new().after("key 0-1", &answer).await, Ok(()));
        let over = Patience { deadline: Instant::now().checked_sub(PAUSE).expect("the machine runs for longer") };
        let told = "key 0-1 was not read at the end: timed-out";
        assert_eq!(over.after("key 0-1", &answer).await, Err(told.to_owned()));
    }
}
