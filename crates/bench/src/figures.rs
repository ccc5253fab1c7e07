//! Figures of measured rounds: rates, percentiles of latency, and the spread over several rounds.

use std::time::{Duration, Instant};

/// Start and latency of one operation.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    /// Moment just before the request was sent.
    pub(crate) began: Instant,
    /// Time from `began` until the answer was received.
    pub(crate) latency: Duration,
}

/// Measurements of one round, which is a load on one system for some seconds.
#[derive(Default)]
pub(crate) struct Round {
    /// Operations that began while the round was measured, including those that ended later. If
    /// these were left out, a server that hangs at the end would look fast.
    pub(crate) samples: Vec<Sample>,
    /// Number of operations that ended while the round was measured.
    pub(crate) operations: usize,
    /// Length of the measured time.
    pub(crate) elapsed: Duration,
    /// Processor time of all servers in the measured time.
    pub(crate) server_cpu: Duration,
    /// Processor time of the load generator in the measured time.
    pub(crate) client_cpu: Duration,
    /// Number of clients that failed.
    pub(crate) errors: usize,
    /// The first failure; `None` if no client failed.
    pub(crate) first_error: Option<String>,
}

impl Round {
    /// Adds the measurements of another client of the same round.
    pub(crate) fn merge(&mut self, other: Round) {
        self.samples.extend(other.samples);
        self.operations += other.operations;
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
    }

    /// Computes the rate, percentiles of latency and processor times from the measurements.
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

/// Sorted latencies.
pub(crate) struct Ranks(Vec<Duration>);

impl Ranks {
    /// Sorts latencies.
    pub(crate) fn of(latencies: impl Iterator<Item = Duration>) -> Ranks {
        let mut sorted: Vec<Duration> = latencies.collect();
        sorted.sort_unstable();
        Ranks(sorted)
    }

    /// Number of latencies.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the latency in microseconds that a share `p` of the operations does not exceed, by
    /// nearest rank without interpolation; 0 if there are no latencies.
    pub(crate) fn at_us(&self, p: f64) -> f64 {
        let rank = ((self.0.len() as f64 * p).ceil() as usize).max(1) - 1;
        self.0.get(rank).map_or(0.0, |latency| latency.as_secs_f64() * 1e6)
    }
}

/// Rate, latencies and processor times of one round, which is a load on one system for some
/// seconds.
#[derive(Clone, Copy, Debug, Default, serde::Deserialize, serde::Serialize)]
pub(crate) struct Figures {
    pub(crate) per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) max_us: f64,
    /// Processor time of all servers for each operation, in microseconds.
    pub(crate) server_cpu_us: f64,
    /// Processor time of the load generator for each operation, in microseconds.
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
    /// Returns the spread of all finite figures. The median of an even number is the mean of the
    /// two in the middle.
    pub(crate) fn of(figures: impl Iterator<Item = f64>) -> Spread {
        let mut sorted: Vec<f64> = figures.filter(|figure| figure.is_finite()).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else { return Spread::default() };
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Spread { median, min, max }
    }

    /// Formats a ratio, for example `2.10 (1.95-2.30)`; `-` if there is nothing to compare.
    pub(crate) fn ratio(self) -> String {
        if self.max == 0.0 { "-".to_owned() } else { format!("{:.2} ({:.2}-{:.2})", self.median, self.min, self.max) }
    }

    /// Formats the spread with one decimal below 100 and none above. Equal figures are shown as
    /// one.
    pub(crate) fn short(self) -> String {
        let digits = if self.max >= 100.0 { 0 } else { 1 };
        if self.min == self.max {
            return format!("{:.digits$}", self.median);
        }
        format!("{:.digits$} ({:.digits$}-{:.digits$})", self.median, self.min, self.max)
    }

    /// Formats the spread without decimals, for example `1200 (1100-1300)`.
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
