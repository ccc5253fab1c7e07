//! Steps of doors on the threads that they share with Raft: those that took long, counted. A step
//! is a turn of a connection, or what a door does beside its connections before others are let in.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Times by which steps are counted: those that took longer than each.
pub const LONG_STEPS: [Duration; 4] =
    [Duration::from_micros(200), Duration::from_millis(1), Duration::from_millis(5), Duration::from_millis(20)];

/// Steps of all doors of this process.
static TIMES: StepTimes =
    StepTimes { long: [const { AtomicU64::new(0) }; LONG_STEPS.len()], longest: AtomicU64::new(0) };

/// Counts of long steps.
#[derive(Debug)]
pub struct StepTimes {
    /// Steps that took longer, by [`LONG_STEPS`].
    long: [AtomicU64; LONG_STEPS.len()],
    /// The longest step, in nanoseconds.
    longest: AtomicU64,
}

impl StepTimes {
    /// Times of this process.
    pub fn of_this_process() -> &'static StepTimes {
        &TIMES
    }

    /// Steps that took longer than each of [`LONG_STEPS`].
    pub fn long(&self) -> [u64; LONG_STEPS.len()] {
        std::array::from_fn(|at| self.long[at].load(Ordering::Relaxed))
    }

    /// The longest step.
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest.load(Ordering::Relaxed))
    }

    /// Counts a step. Short ones cost no more than a comparison.
    pub fn count(&self, time: Duration) {
        if time <= LONG_STEPS[0] {
            return;
        }
        for (count, than) in self.long.iter().zip(LONG_STEPS) {
            count.fetch_add(u64::from(time > than), Ordering::Relaxed);
        }
        self.longest.fetch_max(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_count_by_what_they_are_longer_than() {
        let times = StepTimes { long: Default::default(), longest: AtomicU64::new(0) };
        for us in [100, 200, 300, 6_000] {
            times.count(Duration::from_micros(us));
        }
        assert_eq!((times.long(), times.longest()), ([2, 1, 1, 0], Duration::from_millis(6)));
    }
}
