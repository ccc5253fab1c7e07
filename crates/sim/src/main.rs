//! Program `sim`. `cargo run --release -p sim -- --seeds 0..1000` runs a range of seeds; `--seed N`
//! runs one seed and prints every event.

use std::ops::Range;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use sim::cluster::{Outcome, Plan, changes_members, run};
use sim::counts::Counts;
use sim::trace::Detail;
use znode::{LEVEL_MAX, LEVEL_MIN};

/// Number of seeds from which on missing coverage is a failure. That many runs together must write,
/// send and install snapshots, purge logs, and change members in every way.
const ENOUGH_SEEDS: u64 = 100;

/// Runs simulated clusters, one for each seed (the start of a run's random numbers), and checks
/// invariants.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Seeds to run: `from..to`.
    #[arg(long, value_parser = seeds, default_value = "0..100", conflicts_with = "seed")]
    seeds: Range<u64>,
    /// One seed, with every event printed.
    #[arg(long)]
    seed: Option<u64>,
    /// Runs only the seeds in which an operator changes the members of the cluster.
    #[arg(long)]
    members: bool,
    /// Goes on after a seed that failed.
    #[arg(long)]
    keep_going: bool,
    /// Runs every seed twice and compares the traces.
    #[arg(long)]
    twice: bool,
    /// Prints the log lines of the nodes; only with `--seed`.
    #[arg(long)]
    logs: bool,
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("write it as from..to")?;
    let number = |text: &str| text.parse().map_err(|_| format!("{text:?} is no number"));
    Ok(number(from)?..number(to)?)
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.logs {
        let level = tracing_subscriber::EnvFilter::new("replica=debug,storage=debug,openraft=info");
        tracing_subscriber::fmt().with_env_filter(level).without_time().with_writer(std::io::stdout).init();
    }
    match args.seed {
        Some(seed) => one(Plan { seed, detail: Detail::All }),
        None => many(&args),
    }
}

fn one(plan: Plan) -> ExitCode {
    let outcome = run(plan);
    let Outcome { seed, hash, events, simulated_ms, counts, .. } = &outcome;
    println!("seed {seed}: trace {hash:016x}, {events} events, {simulated_ms} ms, {}", counts.told());
    match outcome.failure {
        None => ExitCode::SUCCESS,
        Some(failure) => {
            println!("FAILED: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn many(args: &Args) -> ExitCode {
    let began = Instant::now();
    let mut total = Total::default();
    for seed in args.seeds.clone().filter(|seed| !args.members || changes_members(*seed)) {
        let plan = Plan { seed, detail: Detail::Hash };
        let outcome = run(plan);
        total.add(&outcome);
        if args.twice && run(plan).hash != outcome.hash {
            println!("seed {seed} had two different traces");
            total.failed.push(seed);
        }
        if let Some(failure) = &outcome.failure {
            total.failed.push(seed);
            report(plan, failure);
            if !args.keep_going {
                break;
            }
        }
        if total.seeds.is_multiple_of(100) {
            total.print(began);
        }
    }
    total.print(began);
    if !total.failed.is_empty() {
        println!("failed seeds: {:?}", total.failed);
        return ExitCode::FAILURE;
    }
    // A few seeds alone may lack some coverage.
    match total.counts.is_vacuous().filter(|_| total.seeds >= ENOUGH_SEEDS) {
        Some(why) => {
            println!("vacuous: {why}");
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}

/// Plays a failed seed again, to print its last events.
fn report(plan: Plan, failure: &str) {
    let again = run(Plan { detail: Detail::Last, ..plan });
    again.last.iter().for_each(|line| println!("{line}"));
    println!("seed {} FAILED at {} ms: {failure}", plan.seed, again.simulated_ms);
    if again.failure.as_deref() != Some(failure) {
        println!("it did not fail alike a second time: {:?}", again.failure);
    }
    let features = if LEVEL_MAX > LEVEL_MIN { "--features next-level " } else { "" };
    println!("replay: cargo run --release -p sim {features}-- --seed {}", plan.seed);
}

#[derive(Default)]
struct Total {
    seeds: u64,
    simulated_ms: u64,
    counts: Counts,
    failed: Vec<u64>,
}

impl Total {
    fn add(&mut self, outcome: &Outcome) {
        self.seeds += 1;
        self.simulated_ms += outcome.simulated_ms;
        self.counts.merge(&outcome.counts, false);
    }

    fn print(&self, began: Instant) {
        let rate = self.seeds as f64 / began.elapsed().as_secs_f64();
        let hours = self.simulated_ms as f64 / 3_600_000.0;
        let (seeds, failed, counts) = (self.seeds, self.failed.len(), self.counts.told());
        println!("{seeds} seeds, {rate:.1} seeds/s, {hours:.2} simulated hours, {failed} failed; {counts}");
    }
}
