//! Histogram of durations, for monitoring.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of histogram buckets for work that a client waits for, in seconds.
pub const WORK: &[f64] =
    &[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// Upper bounds of histogram buckets for the times that a client waits for a lock or holds it, in
/// seconds.
pub const TENURE: &[f64] = &[0.001, 0.01, 0.1, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0, 3_600.0];

/// Histogram of durations: one counter for each bucket, one for longer durations, and the sum.
#[derive(Debug)]
pub struct Durations {
    /// Upper bounds of the buckets, in seconds.
    bounds: &'static [f64],
    counts: Box<[AtomicU64]>,
    /// Sum of all durations, in nanoseconds.
    nanos: AtomicU64,
}

impl Durations {
    /// Returns an empty histogram. `bounds` are the upper bounds of its buckets in seconds,
    /// ascending.
    pub fn new(bounds: &'static [f64]) -> Durations {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Durations { bounds, counts, nanos: AtomicU64::new(0) }
    }

    /// Counts a duration.
    pub fn note(&self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = self.bounds.partition_point(|bound| *bound < seconds);
        self.counts[bucket].fetch_add(1, Relaxed);
        self.nanos.fetch_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Returns for each bucket its upper bound in seconds and the number of durations up to the
    /// bound, and at the end the number of all durations, with `None` as the bound.
    pub fn buckets(&self) -> Vec<(Option<f64>, u64)> {
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
        let (durations, ms) = (Durations::new(&[0.001, 0.01]), Duration::from_millis);
        for duration in [0, 1, 2, 10, 11, 4_000] {
            durations.note(ms(duration));
        }
        assert_eq!(durations.buckets(), [(Some(0.001), 2), (Some(0.01), 4), (None, 6)]);
        assert_eq!(durations.sum(), ms(4_024));
    }

    #[test]
    fn bounds_ascend() {
        assert!(WORK.is_sorted() && TENURE.is_sorted());
    }
}
