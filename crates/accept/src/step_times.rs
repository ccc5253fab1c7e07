//! Counts of long steps on the threads that doors share with Raft. A step is one turn of a
//! connection, or other work of a door up to its next yield.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bounds by which long steps are counted: a step counts for the longest bound that it exceeds.
pub const LONG_STEPS: [Duration; 4] =
    [Duration::from_micros(200), Duration::from_millis(1), Duration::from_millis(5), Duration::from_millis(20)];

/// Steps of all doors of this process.
static TIMES: StepTimes = StepTimes::new();

/// Counts of long steps.
#[derive(Debug)]
pub struct StepTimes {
    /// Steps by the longest of [`LONG_STEPS`] that they exceeded.
    long: [AtomicU64; LONG_STEPS.len()],
    /// The time of all long steps, in nanoseconds.
    total: AtomicU64,
    /// The longest step, in nanoseconds.
    longest: AtomicU64,
}

impl StepTimes {
    const fn new() -> StepTimes {
        let long = [const { AtomicU64::new(0) }; LONG_STEPS.len()];
        StepTimes { long, total: AtomicU64::new(0), longest: AtomicU64::new(0) }
    }

    /// Returns the counts of this process.
    pub fn of_this_process() -> &'static StepTimes {
        &TIMES
    }

    /// Returns the number of steps that took longer than each of [`LONG_STEPS`], but not longer
    /// than the next.
    pub fn long(&self) -> [u64; LONG_STEPS.len()] {
        std::array::from_fn(|at| self.long[at].load(Ordering::Relaxed))
    }

    /// The time of all long steps together.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.total.load(Ordering::Relaxed))
    }

    /// The longest step.
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest.load(Ordering::Relaxed))
    }

    /// Counts a step. Short ones cost no more than four comparisons.
    pub fn count(&self, time: Duration) {
        let Some(at) = LONG_STEPS.iter().rposition(|bound| time > *bound) else { return };
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.long[at].fetch_add(1, Ordering::Relaxed);
        self.total.fetch_add(nanos, Ordering::Relaxed);
        self.longest.fetch_max(nanos, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_count_by_what_they_are_longer_than() {
        let times = StepTimes::new();
        for us in [100, 200, 300, 6_000] {
            times.count(Duration::from_micros(us));
        }
        assert_eq!(times.long(), [1, 0, 1, 0]);
        assert_eq!((times.total(), times.longest()), (Duration::from_micros(6_300), Duration::from_millis(6)));
    }
}
