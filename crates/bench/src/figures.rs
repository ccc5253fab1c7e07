//! Figures of rounds: median and spread, and ratios of rounds that were next to each other.

use std::time::{Duration, Instant};

/// One operation.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    /// Moment just before the request was sent.
    pub(crate) began: Instant,
    /// Time from then until the answer was there.
    pub(crate) latency: Duration,
}

/// Measurements of one round.
#[derive(Default)]
pub(crate) struct Round {
    /// The operations that began while it was measured. One that ended later counts: its latency
    /// would be missed else, just when the server stood still at the end.
    pub(crate) samples: Vec<Sample>,
    /// Number of operations that ended while the round was measured.
    pub(crate) operations: usize,
    /// Length of the measured time.
    pub(crate) elapsed: Duration,
    /// Processor time of all servers in that time.
    pub(crate) server_cpu: Duration,
    /// Processor time of the generator in that time.
    pub(crate) client_cpu: Duration,
    /// Clients that failed.
    pub(crate) errors: usize,
    /// The first failure.
    pub(crate) first_error: Option<String>,
}

impl Round {
    /// Takes in what another client measured in the same round.
    pub(crate) fn merge(&mut self, other: Round) {
        self.samples.extend(other.samples);
        self.operations += other.operations;
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
    }

    /// The round's figures.
    pub(crate) fn figures(&self) -> Figures {
        let ranks = Ranks::of(self.samples.iter().map(|sample| sample.latency));
        let operations = self.operations.max(1) as f64;
        Figures {
            per_second: self.operations as f64 / self.elapsed.as_secs_f64().max(f64::EPSILON),
            p50_us: ranks.at_us(0.50),
            p99_us: ranks.at_us(0.99),
            max_us: ranks.at_us(1.0),
            server_cpu_us: self.server_cpu.as_secs_f64() * 1e6 / operations,
            client_cpu_us: self.client_cpu.as_secs_f64() * 1e6 / operations,
            errors: self.errors,
        }
    }
}

/// Latencies in order.
pub(crate) struct Ranks(Vec<Duration>);

impl Ranks {
    /// The ranks of latencies in any order.
    pub(crate) fn of(latencies: impl Iterator<Item = Duration>) -> Ranks {
        let mut sorted: Vec<Duration> = latencies.collect();
        sorted.sort_unstable();
        Ranks(sorted)
    }

    /// Number of latencies.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The latency that a share `p` of them does not exceed, in microseconds: the nearest rank,
    /// nothing interpolated. 0 when there are none.
    pub(crate) fn at_us(&self, p: f64) -> f64 {
        let rank = ((self.0.len() as f64 * p).ceil() as usize).max(1) - 1;
        self.0.get(rank).map_or(0.0, |latency| latency.as_secs_f64() * 1e6)
    }
}

/// One round in numbers.
#[derive(Clone, Copy, Debug, Default, serde::Deserialize, serde::Serialize)]
pub(crate) struct Figures {
    pub(crate) per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) max_us: f64,
    /// Processor time of all servers for each operation.
    pub(crate) server_cpu_us: f64,
    /// Processor time of the generator for each operation.
    pub(crate) client_cpu_us: f64,
    pub(crate) errors: usize,
}

/// The median of several figures, with the lowest and the highest.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// The spread of figures in any order. The median of an even number is the mean of the two in
    /// the middle.
    pub(crate) fn of(figures: impl Iterator<Item = f64>) -> Spread {
        let mut sorted: Vec<f64> = figures.filter(|figure| figure.is_finite()).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else { return Spread::default() };
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Spread { median, min, max }
    }

    /// `2.10 (1.95-2.30)`; `-` when there was nothing to divide.
    pub(crate) fn ratio(self) -> String {
        if self.max == 0.0 { "-".to_owned() } else { format!("{:.2} ({:.2}-{:.2})", self.median, self.min, self.max) }
    }

    /// The spread with as many digits as the size deserves; only the figure when all rounds are
    /// one.
    pub(crate) fn short(self) -> String {
        let digits = if self.max >= 100.0 { 0 } else { 1 };
        if self.min == self.max {
            return format!("{:.digits$}", self.median);
        }
        format!("{:.digits$} ({:.digits$}-{:.digits$})", self.median, self.min, self.max)
    }

    /// `1200 (1100-1300)`.
    pub(crate) fn whole(self) -> String {
        format!("{:.0} ({:.0}-{:.0})", self.median, self.min, self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_ranks_of_the_sorted_latencies() {
        let began = Instant::now();
        let samples = (1..=100).rev().map(|us| Sample { began, latency: Duration::from_micros(us) }).collect();
        let second = Duration::from_secs(1);
        let round = Round { samples, operations: 100, elapsed: 2 * second, server_cpu: second, ..Round::default() };
        let figures = round.figures();
        assert_eq!((figures.p50_us.round(), figures.p99_us.round(), figures.max_us.round()), (50.0, 99.0, 100.0));
        assert_eq!((figures.per_second, figures.server_cpu_us.round()), (50.0, 10_000.0));
        assert_eq!(Round::default().figures().p50_us, 0.0);
    }

    #[test]
    fn a_spread_is_the_median_between_the_extremes() {
        let spread = Spread::of([3.0, 1.0, f64::INFINITY, 2.0].into_iter());
        assert_eq!((spread.median, spread.min, spread.max), (2.0, 1.0, 3.0));
        assert_eq!(Spread::of([1.0, 2.0].into_iter()).median, 1.5);
        assert_eq!(Spread::default().ratio(), "-");
    }
}
