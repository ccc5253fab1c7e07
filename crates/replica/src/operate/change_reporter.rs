//! Limit on the log lines about a value that changes often: a change is logged only when the value
//! has settled.

use std::time::Duration;

use tokio::time::Instant;

/// Number of log lines with the shortest settling time (time for which a change must last before it
/// is logged). From then on the settling time doubles with each line.
const FREE: u32 = 6;
/// Time without a log line after which the count of lines begins at 0 again.
const CALM: Duration = Duration::from_secs(300);
/// Longest settling time: time for which a change must last before it is logged.
const LASTS_MAX: Duration = Duration::from_secs(10);
/// Settling time (time for which a change must last before it is logged) with which the doubling
/// begins, unless the shortest settling time of the reporter is longer.
const LASTS_STEP: Duration = Duration::from_millis(250);

/// Decides when to log a change of a value that is read periodically.
#[derive(Debug)]
pub(crate) struct ChangeReporter<T> {
    told: T,
    seen: T,
    since: Instant,
    /// Time for which a change must last before it is logged, as long as `lines` is less than
    /// [`FREE`].
    lasts: Duration,
    /// Number of log lines since the last time of [`CALM`] without a line.
    lines: u32,
    last: Option<Instant>,
}

impl<T: Clone + PartialEq> ChangeReporter<T> {
    /// Makes a reporter that takes `first` as logged. `lasts` is the shortest time for which a
    /// change must last before it is logged.
    pub(crate) fn new(first: T, lasts: Duration, now: Instant) -> ChangeReporter<T> {
        ChangeReporter { told: first.clone(), seen: first, since: now, lasts, lines: 0, last: None }
    }

    /// Takes the present value. If it is to be logged as a change now, returns the value that was
    /// logged before.
    pub(crate) fn look(&mut self, seen: T, now: Instant) -> Option<T> {
        if seen != self.seen {
            self.seen = seen;
            self.since = now;
        }
        if self.last.is_none_or(|last| now - last >= CALM) {
            self.lines = 0;
        }
        if self.seen == self.told || now - self.since < self.settling_time() {
            return None;
        }
        self.lines += 1;
        self.last = Some(now);
        Some(std::mem::replace(&mut self.told, self.seen.clone()))
    }

    /// The value that was logged last.
    pub(crate) fn told(&self) -> &T {
        &self.told
    }

    fn settling_time(&self) -> Duration {
        match self.lines.checked_sub(FREE) {
            None => self.lasts,
            Some(over) => (LASTS_STEP.max(self.lasts) * 2_u32.pow(over.min(6))).min(LASTS_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_change_is_told_once_when_it_has_settled() {
        let start = Instant::now();
        let mut told = ChangeReporter::new('a', MS * 100, start);
        let mut look = |ms: u32, seen| told.look(seen, start + MS * ms);
        assert_eq!([look(0, 'a'), look(10, 'b'), look(50, 'a'), look(200, 'a')], [None; 4], "it was short");
        assert_eq!([look(300, 'b'), look(399, 'b'), look(400, 'b'), look(500, 'b')], [None, None, Some('a'), None]);
        assert_eq!([look(600, 'c'), look(700, 'c'), look(900, 'c')], [None, Some('b'), None]);
    }

    #[test]
    fn what_changes_without_end_has_few_lines_and_the_last_one_is_true() {
        let start = Instant::now();
        let mut told = ChangeReporter::new(0, Duration::ZERO, start);
        // The value changes 20 times a second for a minute, and stays for a while each fifth
        // second.
        let seen = |at: u32| if at / 20 % 5 == 4 { at / 100 } else { at };
        let lines = (0..1_200).filter(|at| told.look(seen(*at), start + MS * 50 * *at).is_some()).count();
        assert!((FREE as usize..=FREE as usize + 20).contains(&lines), "{lines} lines");
        assert!(told.look(9_999, start + MS * 60_000).is_none());
        assert!(told.look(9_999, start + MS * 60_000 + LASTS_MAX).is_some());
        assert_eq!(*told.told(), 9_999);
        // After a calm time, a change is logged at once.
        assert!(told.look(1, start + MS * 60_000 + LASTS_MAX + CALM).is_some());
    }
}
