//! Comparison of the systems. All of them run at the same time, and in each round the systems get
//! the load one after the other. A failure of one system is reported, and the comparison continues.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use clap::ValueEnum as _;

use crate::clusters::Clusters;
use crate::error::Error;
use crate::figures::Figures;
use crate::limits;
use crate::report;
use crate::results::{Part, Results, Run};
use crate::scenario::{Scale, Scenario};
use crate::system::{Kind, Named as _};
use crate::workload::{self, Load, Workload};

/// Options of `bench compare`. Without --workloads and --scenarios it measures all of both, else
/// only those that these options name.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Systems to measure. The run reports a system that does not start, with what to install, and
    /// continues with the other systems.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Kind::value_variants().to_vec())]
    systems: Vec<Kind>,
    /// Workloads: steady loads of one kind of operation.
    #[arg(long, value_enum, value_delimiter = ',')]
    workloads: Vec<Workload>,
    /// Scenarios: measurements other than a steady load.
    #[arg(long, value_enum, value_delimiter = ',')]
    scenarios: Vec<Scenario>,
    /// Factor for the sizes of scenarios (numbers of watchers, sessions, znodes, waiters); use 0.01
    /// for a quick run.
    #[arg(long, default_value_t = Scale::FULL, value_parser = Scale::parse)]
    scale: Scale,
    /// Numbers of clients, for every workload. The default depends on the workload.
    #[arg(long, value_delimiter = ',')]
    clients: Vec<usize>,
    /// Length of each system's load in one round, in seconds.
    #[arg(long, default_value_t = 2.5)]
    seconds: f64,
    /// Number of rounds of each workload and scenario; a round goes through all systems. A scenario
    /// that needs a new cluster has one round.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Length in seconds of the load on each system before the first measurement, so that
    /// just-in-time compilers have compiled the system's code.
    #[arg(long, default_value_t = 6.0)]
    warm_up: f64,
    /// Directory for results.json, and without --page for results.md.
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
    /// File of a page in which the results replace the part between two marks.
    #[arg(long)]
    page: Option<PathBuf>,
}

/// Time beyond a round's length for clients to connect and to finish their last operation.
const ROUND_OVERTIME: Duration = Duration::from_secs(60);

/// Runs the comparison. Returns the number of failed clients plus the number of failed parts; a
/// part is a workload or a scenario on one system.
pub(crate) async fn run(args: Args) -> Result<usize, Error> {
    let all = args.workloads.is_empty() && args.scenarios.is_empty();
    let workloads = if all { Workload::value_variants().to_vec() } else { args.workloads.clone() };
    let scenarios = if all { Scenario::value_variants().to_vec() } else { args.scenarios.clone() };
    let load_average = load_average();
    eprintln!("measuring the machine's limits");
    let run = Run {
        began: said("date", &["-u", "+%F %R"]),
        commit: said("git", &["describe", "--always", "--dirty"]),
        cpus: std::thread::available_parallelism().map_or(0, usize::from),
        kernel: said("uname", &["-r"]),
        load_average: [load_average; 2],
        scale: args.scale.factor(),
        seconds: args.seconds,
        limits: limits::measure()?,
    };
    let results = Results { run, ..Results::default() };
    let clusters = Clusters::new(&args.systems, Duration::from_secs_f64(args.warm_up));
    let mut comparison = Comparison { args, results, clusters, started: Instant::now() };
    println!("{}", report::limits(&comparison.results));
    comparison.run(&workloads, &scenarios).await?;
    println!("{}", report::ratios(&comparison.results));
    let (out, seconds) = (comparison.args.out.display(), comparison.started.elapsed().as_secs_f64());
    println!("stored in {out}, {seconds:.0} s");
    Ok(comparison.results.errors())
}

/// Returns the output of a program; empty if the program cannot be run.
fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or(String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|minute| minute.parse().ok()).unwrap_or_default()
}

fn client_counts(chosen: &[usize], workload: Workload) -> Vec<usize> {
    if !chosen.is_empty() {
        return chosen.to_vec();
    }
    match workload {
        Workload::Create => vec![1, 64],
        Workload::Write => vec![1, 16, 64, 256],
        Workload::LocalGet | Workload::LinearizableGet => vec![64],
        Workload::LockCycle => vec![1, 64, 256],
        Workload::HandOff => vec![32, 256],
    }
}

/// A comparison under way.
struct Comparison {
    args: Args,
    results: Results,
    clusters: Clusters,
    started: Instant,
}

impl Comparison {
    async fn run(&mut self, workloads: &[Workload], scenarios: &[Scenario]) -> Result<(), Error> {
        let (alone, shared): (Vec<Scenario>, Vec<Scenario>) = scenarios.iter().partition(|one| one.is_alone());
        if !(workloads.is_empty() && shared.is_empty()) {
            for kind in self.args.systems.clone() {
                // The error is dropped here, because each part that the system misses reports it.
                let _ = self.clusters.get(kind).await;
            }
        }
        for &workload in workloads {
            for clients in client_counts(&self.args.clients, workload) {
                self.line(workload, clients).await?;
            }
        }
        for scenario in shared {
            self.scenario(scenario).await?;
        }
        self.clusters.clear();
        for scenario in alone {
            self.scenario(scenario).await?;
        }
        Ok(())
    }

    /// Runs all rounds of a workload with one number of clients. A system that fails takes no part
    /// in the later rounds.
    async fn line(&mut self, workload: Workload, clients: usize) -> Result<(), Error> {
        let part = Part::Load { workload, clients };
        let mut systems: Vec<Kind> = self.args.systems.clone();
        systems.retain(|kind| workload.runs_on(*kind));
        for number in 0..self.args.rounds {
            for kind in in_turn(&systems, number) {
                let length = Duration::from_secs_f64(self.args.seconds);
                let load = Load { workload, clients, length, first_node: number };
                match self.round(kind, load).await {
                    Ok(figures) => {
                        let name = format!("{} round {}/{}", part.name(), number + 1, self.args.rounds);
                        self.tell(&format!(
                            "{name}  {}: {:.0}/s, p50 {:.0} us",
                            kind.name(),
                            figures.per_second,
                            figures.p50_us
                        ));
                        self.results.add_round(workload, clients, kind, figures);
                    }
                    Err(error) => {
                        systems.retain(|other| *other != kind);
                        self.fail(part, kind, &error);
                    }
                }
            }
            self.store()?;
        }
        let line = self.results.lines.iter().find(|line| (line.workload, line.clients) == (workload, clients));
        println!("{}", line.map(report::line_rows).unwrap_or_default().join("\n"));
        Ok(())
    }

    async fn round(&mut self, kind: Kind, load: Load) -> Result<Figures, Error> {
        let cluster = self.clusters.get(kind).await?;
        let round = within(load.length + ROUND_OVERTIME, workload::round(cluster, kind, load)).await?;
        if let Some(error) = &round.first_error {
            eprintln!("bench: {} on {}: {error}", load.workload.name(), kind.name());
            if round.operations == 0 {
                return Err(Error::Answer(error.clone()));
            }
        }
        Ok(round.figures())
    }

    /// Runs all rounds of a scenario, on the shared clusters or on fresh ones. If a round fails,
    /// the figures that it measured before the failure are kept.
    async fn scenario(&mut self, scenario: Scenario) -> Result<(), Error> {
        let part = Part::Scenario(scenario);
        let mut systems: Vec<Kind> = self.args.systems.clone();
        systems.retain(|kind| scenario.runs_on(*kind));
        let rounds = if scenario.is_alone() { 1 } else { self.args.rounds };
        for round in 0..rounds {
            for kind in in_turn(&systems, round) {
                self.tell(&format!("{} on {} begins", part.name(), kind.name()));
                let mut figures = Vec::new();
                let done = if scenario.is_alone() {
                    let running = scenario.run_alone(kind, self.args.scale, &mut figures);
                    within(scenario.time_limit(), running).await
                } else {
                    match self.clusters.get(kind).await {
                        Ok(cluster) => {
                            let running = scenario.run(cluster, kind, self.args.scale, &mut figures);
                            within(scenario.time_limit(), running).await
                        }
                        Err(error) => Err(error),
                    }
                };
                for figure in &figures {
                    self.tell(&format!("{}  {}: {figure}", part.name(), kind.name()));
                }
                self.results.add_figures(scenario, kind, figures);
                if let Err(error) = done {
                    systems.retain(|other| *other != kind);
                    self.fail(part, kind, &error);
                }
                self.store()?;
            }
        }
        println!("{}", report::scenario_table(&self.results, scenario));
        Ok(())
    }

    fn fail(&mut self, part: Part, kind: Kind, error: &Error) {
        self.clusters.discard(kind);
        eprintln!("bench: {}", self.results.fail(part, kind, error.to_string()));
    }

    fn tell(&self, what: &str) {
        eprintln!("{:4.0} s  {what}", self.started.elapsed().as_secs_f64());
    }

    /// Writes all result files. Called after each round, so that a crash of this program loses no
    /// earlier measurement.
    fn store(&mut self) -> Result<(), Error> {
        self.results.run.load_average[1] = load_average();
        self.results.store(&self.args.out)?;
        report::write(&self.results, &self.args.out, self.args.page.as_deref())
    }
}

/// Returns the systems in the order in which a round measures them. Each round begins with another
/// system, so that no system always comes first.
fn in_turn(systems: &[Kind], round: usize) -> Vec<Kind> {
    let mut turn = systems.to_vec();
    turn.rotate_left(round % systems.len().max(1));
    turn
}

async fn within<T>(limit: Duration, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let late = |_| Error::Answer(format!("not done within {} s", limit.as_secs()));
    tokio::time::timeout(limit, work).await.map_err(late)?
}
