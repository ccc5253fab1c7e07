//! Latencies of honest clients with and without hostile traffic.
//!
//! Each kind of traffic gets a fresh cluster of three nodes, so that no kind suffers from an
//! earlier one. The honest clients come from one address of this machine and the hostile ones from
//! another, because servers limit each address. Hostile clients run on a separate thread.

mod attack;
mod honest;
mod http;
mod kind;
mod peer;
mod probe;
mod wire;

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::ValueEnum as _;

use self::attack::{Tally, Target};
use self::honest::Honest;
use self::kind::Kind;
use self::probe::Seen;
use crate::error::Error;
use crate::system::{Cluster, Named as _, Program};

/// Columns of the table that [`run`] prints: a row for each kind of hostile traffic.
const COLUMNS: [&str; 16] = [
    "traffic",
    "p50 without, ms",
    "p99",
    "p50 with, ms",
    "p99",
    "ratio of p99",
    "longest, ms",
    "honest errors",
    "elections",
    "longest probe, ms",
    "most memory, MB",
    "longest step, ms",
    "hostile sent",
    "done",
    "refused",
    "broken",
];
/// Highest permitted ratio of honest clients' 99th percentile latency with hostile traffic to that
/// without.
const RATIO_MAX: f64 = 5.0;
/// Bound in milliseconds on honest clients' 99th percentile latency with hostile traffic.
/// [`RATIO_MAX`] applies only to latencies above this bound.
const P99_MAX_MS: f64 = 100.0;
/// Longest time that a probe (a request to `/livez` during the traffic) may take.
const PROBE_MAX: Duration = Duration::from_secs(1);

/// Options of `bench hostile`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kinds of hostile traffic. The default is all kinds.
    #[arg(long, value_delimiter = ',')]
    kinds: Vec<Kind>,
    /// Seconds for which honest clients are measured, once without and once with each kind of
    /// traffic.
    #[arg(long, default_value_t = 15.0)]
    seconds: f64,
    /// Operations that each of the 16 honest clients begins in a second, without waiting for the
    /// end of the previous operation.
    #[arg(long, default_value_t = 10.0)]
    rate: f64,
    /// Number of IP addresses from which the hostile clients connect.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    addresses: u8,
    /// Fails if a 99th percentile is more than five times as long with hostile traffic as without,
    /// if an operation of an honest client failed, or if there was no hostile traffic.
    #[arg(long)]
    check: bool,
}

/// Measurements of honest clients without and with one kind of hostile traffic.
struct Row {
    kind: Kind,
    without: Honest,
    with: Honest,
    /// Number by which the Raft term rose during the measurements; `None` when no node answers any
    /// more.
    elections: Option<u64>,
    seen: Seen,
    tally: Arc<Tally>,
}

impl Row {
    /// Returns descriptions of the problems that the measurements show. With `check`, slow answers,
    /// failed operations of honest clients and missing traffic are problems, too.
    fn wrong(&self, check: bool) -> Vec<&'static str> {
        let [sent, ..] = self.tally.counts();
        let reasons = [
            (self.elections.is_none(), "no node answers any more"),
            (self.elections.is_some_and(|elections| elections > 0), "another leader was elected"),
            (check && sent == 0, "the hostile clients sent nothing: this measures no traffic"),
            (check && self.is_slow(), "the 99th percentile is above 100 ms and more than five times as long"),
            (check && self.seen.longest > PROBE_MAX, "a probe took more than a second"),
            (check && self.with.errors > 0, "operations of honest clients failed"),
        ];
        reasons.into_iter().filter_map(|(wrong, why)| wrong.then_some(why)).collect()
    }

    fn is_slow(&self) -> bool {
        self.with.p99_ms() > P99_MAX_MS && self.ratio() > RATIO_MAX
    }

    fn ratio(&self) -> f64 {
        self.with.p99_ms() / self.without.p99_ms().max(0.001)
    }
}

/// Measures all kinds of hostile traffic and prints a table. Returns the number of kinds with a
/// problem.
pub(crate) async fn run(args: Args) -> Result<usize, Error> {
    attack::allow_many_files()?;
    let kinds = if args.kinds.is_empty() { Kind::value_variants().to_vec() } else { args.kinds.clone() };
    let mut failed = 0;
    println!("| {} |", COLUMNS.join(" | "));
    println!("{}|", "|---".repeat(COLUMNS.len()));
    for kind in kinds {
        match one(&args, kind).await {
            Ok(row) => {
                print(&row);
                let wrong = row.wrong(args.check);
                wrong.iter().for_each(|why| eprintln!("{}: {why}", kind.name()));
                failed += usize::from(!wrong.is_empty());
            }
            Err(error) => {
                eprintln!("{}: {error}", kind.name());
                failed += 1;
            }
        }
    }
    Ok(failed)
}

fn print(row: &Row) {
    let (without, with) = (&row.without, &row.with);
    let [sent, done, refused, broken] = row.tally.counts();
    println!(
        "| {} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {:.0} | {} | {} | {:.0} | {} | {:.2} | {sent} | {done} | {refused} | {broken} |",
        row.kind.name(),
        without.p50_ms(),
        without.p99_ms(),
        with.p50_ms(),
        with.p99_ms(),
        row.ratio(),
        with.longest_ms(),
        with.errors,
        row.elections.map_or_else(|| "no answer".to_owned(), |elections| elections.to_string()),
        row.seen.longest.as_secs_f64() * 1e3,
        row.seen.memory_bytes / 1_000_000,
        row.seen.step_s * 1e3,
    );
}

async fn one(args: &Args, kind: Kind) -> Result<Row, Error> {
    let cluster = Cluster::start(Program::Zlock, 3, kind.needs_peer_tls()).await?;
    let target = Target::of(&cluster, 1 + kind as u8, args.addresses).await?;
    let began = Instant::now();
    kind.load(&target).await?;
    eprintln!("{}: loaded in {:.0} s", kind.name(), began.elapsed().as_secs_f64());
    let pace = Duration::from_secs_f64(1.0 / args.rate.max(0.1));
    let length = Duration::from_secs_f64(args.seconds);
    let without = honest::measure(&cluster, length, pace).await?;
    let before = cluster.term().await;
    let tally = Arc::new(Tally::default());
    let attacking = kind.begin(target, length, Arc::clone(&tally)).await;
    let until = tokio::time::Instant::now() + length;
    let (with, seen) = tokio::join!(honest::measure(&cluster, length, pace), probe::look(&cluster, until));
    attacking.end()?;
    let after = cluster.term().await;
    let elections = before.zip(after).map(|(before, after)| after.saturating_sub(before));
    Ok(Row { kind, without, with: with?, elections, seen, tally })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_that_did_nothing_is_a_failure_of_the_check() {
        let honest = || Honest::of(std::iter::once(Duration::from_millis(1)), 0);
        let row = |sent: u64, elections| {
            let tally = Arc::new(Tally::default());
            tally.sent(sent);
            let seen = Seen::default();
            Row { kind: Kind::ChunkedBodies, without: honest(), with: honest(), elections, seen, tally }
        };
        assert_eq!(row(0, Some(0)).wrong(true), ["the hostile clients sent nothing: this measures no traffic"]);
        assert!(row(0, Some(0)).wrong(false).is_empty() && row(1, Some(0)).wrong(true).is_empty());
        assert_eq!(row(1, Some(1)).wrong(false), ["another leader was elected"]);
        assert_eq!(row(1, None).wrong(false), ["no node answers any more"]);
    }

    #[test]
    fn a_failed_honest_operation_is_a_failure_of_the_check() {
        let honest = |errors| Honest::of(std::iter::once(Duration::from_millis(1)), errors);
        let tally = Arc::new(Tally::default());
        tally.sent(1);
        let (without, with, seen) = (honest(0), honest(1), Seen::default());
        let row = Row { kind: Kind::ChunkedBodies, without, with, elections: Some(0), seen, tally };
        assert_eq!(row.wrong(true), ["operations of honest clients failed"]);
        assert!(row.wrong(false).is_empty());
    }
}
