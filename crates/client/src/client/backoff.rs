//! Pauses between two tries of a call.

use std::time::Duration;

/// Exponential backoff with full jitter: each pause is a random fraction of a bound that doubles,
/// so that clients whose calls failed at the same time do not retry at the same time.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    bound: Duration,
    max: Duration,
}

impl Backoff {
    pub(crate) fn new(first: Duration, max: Duration) -> Backoff {
        Backoff { bound: first.min(max), max }
    }

    /// Returns the next pause. `fraction` is a random number from 0 to 1.
    pub(crate) fn next(&mut self, fraction: f64) -> Duration {
        let pause = self.bound.mul_f64(fraction.clamp(0.0, 1.0));
        self.bound = self.bound.saturating_mul(2).min(self.max);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_doubles_up_to_its_maximum() {
        let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(100));
        let pauses: Vec<u128> = (0..5).map(|_| backoff.next(1.0).as_millis()).collect();
        assert_eq!(pauses, [20, 40, 80, 100, 100]);
    }

    #[test]
    fn the_pause_is_the_given_part_of_the_bound() {
        let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(100));
        assert_eq!(backoff.next(0.0), Duration::ZERO);
        assert_eq!(backoff.next(0.25), Duration::from_millis(10));
        assert_eq!(backoff.next(7.0), Duration::from_millis(80), "a fraction is at most one");
    }

    #[test]
    fn a_first_pause_above_the_maximum_is_cut() {
        let mut backoff = Backoff::new(Duration::from_secs(9), Duration::from_secs(1));
        assert_eq!(backoff.next(1.0), Duration::from_secs(1));
    }
}
