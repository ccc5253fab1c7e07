//! Counts of long steps on the runtime threads that a node's servers for clients share with Raft. A
//! step is the time for which a task of such a server runs without yielding its thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Lower bounds of the classes of long steps (a step is the time for which a connection's task runs
/// without yielding). A step belongs to the class with the longest bound that it exceeds.
pub const LONG_STEPS: [Duration; 4] =
    [Duration::from_micros(200), Duration::from_millis(1), Duration::from_millis(5), Duration::from_millis(20)];

/// Counts of long steps for all servers of this process.
static TIMES: StepTimes = StepTimes::new();

/// Number and durations of long steps, in which a connection's task ran without yielding its thread
/// for longer than the first bound in [`LONG_STEPS`].
#[derive(Debug)]
pub struct StepTimes {
    /// Number of steps in each class of duration, with the lower bounds in [`LONG_STEPS`].
    long: [AtomicU64; LONG_STEPS.len()],
    /// Sum of the durations of all long steps, in nanoseconds.
    total: AtomicU64,
    /// Duration of the longest step, in nanoseconds; 0 if no step was long.
    longest: AtomicU64,
}

impl StepTimes {
    const fn new() -> StepTimes {
        let long = [const { AtomicU64::new(0) }; LONG_STEPS.len()];
        StepTimes { long, total: AtomicU64::new(0), longest: AtomicU64::new(0) }
    }

    /// Returns the counts of long steps in this process.
    pub fn of_this_process() -> &'static StepTimes {
        &TIMES
    }

    /// Returns the number of steps in each class: longer than its bound in [`LONG_STEPS`], but not
    /// longer than the next bound.
    pub fn long(&self) -> [u64; LONG_STEPS.len()] {
        std::array::from_fn(|at| self.long[at].load(Ordering::Relaxed))
    }

    /// Sum of the durations of all long steps since the process started.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.total.load(Ordering::Relaxed))
    }

    /// Duration of the longest step since the process started; zero if no step was long.
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest.load(Ordering::Relaxed))
    }

    /// Counts a step that took `time`, if it is long. For a short step this costs only four
    /// comparisons.
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
