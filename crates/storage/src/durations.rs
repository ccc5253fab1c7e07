//! Histogram of durations, for monitoring.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Upper bounds of histogram buckets for work that a client waits for: from 0.1 ms to 10 s.
pub const WORK: &[Duration] = &[
    Duration::from_micros(100),
    Duration::from_micros(250),
    Duration::from_micros(500),
    ms(1),
    Duration::from_micros(2_500),
    ms(5),
    ms(10),
    ms(25),
    ms(50),
    ms(100),
    ms(250),
    ms(500),
    ms(1_000),
    ms(2_500),
    ms(10_000),
];

/// Upper bounds of histogram buckets for the times that a client waits for a lock or holds it: from
/// 1 ms to 1 hour.
pub const TENURE: &[Duration] = &[
    ms(1),
    ms(10),
    ms(100),
    ms(1_000),
    ms(5_000),
    ms(10_000),
    ms(30_000),
    ms(60_000),
    ms(300_000),
    ms(1_800_000),
    ms(3_600_000),
];

/// Histogram of durations: one counter for each bucket, one for longer durations, and the sum.
#[derive(Debug)]
pub struct Durations {
    bounds: &'static [Duration],
    counts: Box<[AtomicU64]>,
    /// Sum of all durations, in nanoseconds.
    nanos: AtomicU64,
}

impl Durations {
    /// Returns an empty histogram. `bounds` are the upper bounds of its buckets, ascending.
    pub fn new(bounds: &'static [Duration]) -> Durations {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Durations { bounds, counts, nanos: AtomicU64::new(0) }
    }

    /// Counts a duration.
    pub fn note(&self, duration: Duration) {
        let bucket = self.bounds.partition_point(|bound| *bound < duration);
        self.counts[bucket].fetch_add(1, Relaxed);
        self.nanos.fetch_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Returns for each bucket its upper bound and the number of durations up to the bound, and at
    /// the end the number of all durations, with `None` as the bound.
    pub fn buckets(&self) -> Vec<(Option<Duration>, u64)> {
        let bounds = self.bounds.iter().copied().map(Some).chain([None]);
        let counts = self.counts.iter().map(|count| count.load(Relaxed));
        let sums = counts.scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        bounds.zip(sums).collect()
    }

    /// Sum of all durations.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_in_each_bucket_up_to_whose_bound_it_is() {
        static BOUNDS: &[Duration] = &[ms(1), ms(10)];
        let durations = Durations::new(BOUNDS);
        for duration in [0, 1, 2, 10, 11, 4_000] {
            durations.note(ms(duration));
        }
        assert_eq!(durations.buckets(), [(Some(ms(1)), 2), (Some(ms(10)), 4), (None, 6)]);
        assert_eq!(durations.sum(), ms(4_024));
    }

    #[test]
    fn bounds_ascend() {
        assert!(WORK.is_sorted() && TENURE.is_sorted());
    }
}
