//! Limit on log lines that could come often, for example because of a caller that is no member: at
//! most one line in [`PAUSE`], which has the number of occurrences since the line before.

use std::time::Duration;

use tokio::time::Instant;

use crate::mutex::Mutex;

/// Shortest time between two log lines.
const PAUSE: Duration = Duration::from_secs(10);

/// Counter of occurrences of one kind, which tells when to log them.
#[derive(Debug, Default)]
pub struct Seldom {
    told: Mutex<(Option<Instant>, u64)>,
}

impl Seldom {
    /// Counts one more occurrence. Returns the number since the last log line if a line is to be
    /// written now, and otherwise `None`.
    pub fn note(&self, now: Instant) -> Option<u64> {
        let mut told = self.told.lock();
        told.1 += 1;
        if told.0.is_some_and(|at| now < at + PAUSE) {
            return None;
        }
        let count = std::mem::take(&mut told.1);
        told.0 = Some(now);
        Some(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_often_is_told_of_now_and_then_and_counted() {
        let (seldom, now) = (Seldom::default(), Instant::now());
        assert_eq!([now, now, now].map(|at| seldom.note(at)), [Some(1), None, None]);
        assert_eq!([now + PAUSE, now + PAUSE].map(|at| seldom.note(at)), [Some(3), None]);
    }
}
