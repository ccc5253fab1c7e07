//! Figures of one workload over several rounds: median and spread.

use std::time::Duration;

/// What one round measured.
#[derive(Default)]
pub(crate) struct Round {
    /// Latency of every operation.
    pub(crate) latencies: Vec<Duration>,
    /// How long the round took.
    pub(crate) elapsed: Duration,
    /// Operations that failed, by message of the first one.
    pub(crate) errors: usize,
    /// The first failure.
    pub(crate) first_error: Option<String>,
}

impl Round {
    /// Takes in what another client measured in the same round.
    pub(crate) fn merge(&mut self, other: Round) {
        self.latencies.extend(other.latencies);
        self.elapsed = self.elapsed.max(other.elapsed);
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
    }

    fn per_second(&self) -> f64 {
        self.latencies.len() as f64 / self.elapsed.as_secs_f64().max(f64::EPSILON)
    }

    /// The latency that a share `p` (0 to 1) of the operations did not exceed.
    fn percentile_us(&self, p: f64) -> f64 {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        let rank = ((sorted.len() as f64 * p).ceil() as usize).clamp(1, sorted.len().max(1)) - 1;
        sorted.get(rank).map_or(0.0, |latency| latency.as_secs_f64() * 1e6)
    }
}

/// The head of the table that [`row`] fills.
pub(crate) const HEAD: &str = "\
| workload | clients | ops/s median (min-max) | p50 us | p99 us | errors |
|---|---|---|---|---|---|";

/// One line of the table: medians over the rounds.
pub(crate) fn row(workload: &str, clients: usize, rounds: &[Round]) -> String {
    let rates = sorted(rounds.iter().map(Round::per_second));
    let p50 = sorted(rounds.iter().map(|round| round.percentile_us(0.50)));
    let p99 = sorted(rounds.iter().map(|round| round.percentile_us(0.99)));
    let errors: usize = rounds.iter().map(|round| round.errors).sum();
    format!(
        "| {workload} | {clients} | {:.0} ({:.0}-{:.0}) | {:.0} | {:.0} | {errors} |",
        median(&rates),
        rates.first().copied().unwrap_or_default(),
        rates.last().copied().unwrap_or_default(),
        median(&p50),
        median(&p99),
    )
}

fn sorted(figures: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_unstable_by(f64::total_cmp);
    figures
}

/// The middle of sorted figures, the upper one of two.
fn median(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_ranks_of_the_sorted_latencies() {
        let latencies = (1..=100).rev().map(Duration::from_micros).collect();
        let round = Round { latencies, elapsed: Duration::from_secs(2), ..Round::default() };
        assert_eq!(round.percentile_us(0.50).round(), 50.0);
        assert_eq!(round.percentile_us(0.99).round(), 99.0);
        assert_eq!(round.per_second(), 50.0);
        assert_eq!(Round::default().percentile_us(0.5), 0.0);
    }
}
