//! The comparison: all systems up, one under load at a time, in turn within every round.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::limits;
use crate::report::{Line, Report};
use crate::scenario::{Scenario, Size};
use crate::system::{Cluster, Kind, Program};
use crate::workload::{self, Load, Workload};

/// What to compare.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The systems. One that is not installed is an error that says how to install it.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Kind::ZlockRest, Kind::ZlockZk, Kind::Zookeeper, Kind::Etcd, Kind::Redis])]
    systems: Vec<Kind>,
    /// What the clients do.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Workload::Create, Workload::Write, Workload::LocalGet, Workload::LinearizableGet, Workload::LockCycle, Workload::HandOff])]
    workloads: Vec<Workload>,
    /// What is no steady load.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Scenario::FanOut, Scenario::LeaderKilled, Scenario::LeaderHung, Scenario::IdleSessions, Scenario::Million, Scenario::Growth])]
    scenarios: Vec<Scenario>,
    /// No steady load: only scenarios.
    #[arg(long)]
    no_workloads: bool,
    /// No scenarios: only steady load.
    #[arg(long)]
    no_scenarios: bool,
    /// Rounds of the two scenarios that want a cluster of their own.
    #[arg(long, default_value_t = 1)]
    rounds_alone: usize,
    /// Sessions of `idle-sessions`.
    #[arg(long, default_value_t = 10_000)]
    sessions: usize,
    /// Znodes of `million`.
    #[arg(long, default_value_t = 1_000_000)]
    znodes: usize,
    /// Numbers of clients, for every workload; without it, each has its own.
    #[arg(long, value_delimiter = ',')]
    clients: Vec<usize>,
    /// Length of one round of one system in seconds.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Rounds for each line: each goes through all systems.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Length of the load that each system gets before anything is measured, for compilers that learn as they run.
    #[arg(long, default_value_t = 6.0)]
    warm_up: f64,
    /// Where the servers' data go; it must be on a disk for syncs to mean anything. The default is the directory for
    /// temporary files.
    #[arg(long)]
    data: Option<PathBuf>,
    /// Where results.json, results.md and the plots go.
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
    /// A page whose measured part, between two marks, is replaced at the end.
    #[arg(long)]
    page: Option<PathBuf>,
}

/// Measures everything. The answer is how many clients failed.
pub(crate) async fn run(mut args: Args) -> Result<usize, Error> {
    if args.no_workloads {
        args.workloads.clear();
    }
    if args.no_scenarios {
        args.scenarios.clear();
    }
    let started = Instant::now();
    eprintln!("measuring the machine's limits");
    let mut report = Report::new(&args.systems, limits::measure(&data_dir(&args))?);
    println!("{}", report.limits());
    let mut clusters = start(&args).await?;
    if !args.workloads.is_empty() {
        warm_up(&args, &clusters).await?;
    }
    for &workload in &args.workloads {
        for clients in client_counts(&args, workload) {
            let line = line(&args, &clusters, workload, clients, started).await?;
            println!("{}", line.table());
            report.lines.push(line);
            report.store(&args.out)?;
        }
    }
    for &scenario in args.scenarios.iter().filter(|scenario| !scenario.is_alone()) {
        run_scenario(&args, scenario, &mut clusters, &mut report).await?;
    }
    clusters.clear();
    for &scenario in args.scenarios.iter().filter(|scenario| scenario.is_alone()) {
        run_scenario(&args, scenario, &mut clusters, &mut report).await?;
    }
    println!("{}", report.ratios());
    if let Some(page) = &args.page {
        report.write_page(page, &args.out)?;
    }
    println!("stored in {}, {:.0} s", args.out.display(), started.elapsed().as_secs_f64());
    Ok(report.errors())
}

/// Starts every program that a system needs.
async fn start(args: &Args) -> Result<Vec<Cluster>, Error> {
    let data = data_dir(args);
    let mut clusters: Vec<Cluster> = Vec::new();
    for kind in &args.systems {
        if clusters.iter().any(|cluster| cluster.program == kind.program()) {
            continue;
        }
        let nodes = if kind.program() == Program::Redis { 1 } else { 3 };
        eprintln!("starting {:?}", kind.program());
        clusters.push(Cluster::start(kind.program(), nodes, &data).await?);
    }
    Ok(clusters)
}

fn cluster_of(clusters: &[Cluster], kind: Kind) -> &Cluster {
    clusters.iter().find(|cluster| cluster.program == kind.program()).expect("every system's program was started")
}

async fn warm_up(args: &Args, clusters: &[Cluster]) -> Result<(), Error> {
    for &kind in &args.systems {
        eprintln!("warming up {}", kind.name());
        for workload in [Workload::Write, Workload::LocalGet, Workload::LockCycle] {
            let length = Duration::from_secs_f64(args.warm_up / 3.0);
            let load = Load { workload, clients: 64, length, first_node: 0 };
            workload::round(cluster_of(clusters, kind), kind, load).await?;
        }
    }
    Ok(())
}

fn client_counts(args: &Args, workload: Workload) -> Vec<usize> {
    if !args.clients.is_empty() {
        return args.clients.clone();
    }
    match workload {
        Workload::Create | Workload::Write => vec![1, 16, 64, 256],
        Workload::LocalGet | Workload::LinearizableGet => vec![64],
        Workload::LockCycle => vec![1, 64, 256],
        Workload::HandOff => vec![32, 256],
    }
}

async fn line(
    args: &Args,
    clusters: &[Cluster],
    workload: Workload,
    clients: usize,
    started: Instant,
) -> Result<Line, Error> {
    let mut line = Line::new(workload.name(), clients);
    let systems: Vec<Kind> = args.systems.iter().copied().filter(|kind| workload.runs_on(*kind)).collect();
    for number in 0..args.rounds {
        // Each round begins with another system, so that none always runs behind the same one.
        for turn in 0..systems.len() {
            let kind = systems[(turn + number) % systems.len()];
            let length = Duration::from_secs_f64(args.seconds);
            let load = Load { workload, clients, length, first_node: number };
            let round = workload::round(cluster_of(clusters, kind), kind, load).await?;
            if let Some(error) = &round.first_error {
                eprintln!("bench: {} on {}: {error}", workload.name(), kind.name());
            }
            let figures = round.figures();
            eprintln!(
                "{:4.0} s  {} x{clients} round {}/{}  {}: {:.0}/s, p50 {:.0} us",
                started.elapsed().as_secs_f64(),
                workload.name(),
                number + 1,
                args.rounds,
                kind.name(),
                figures.per_second,
                figures.p50_us
            );
            line.rounds.entry(kind).or_default().push(figures);
        }
    }
    Ok(line)
}

/// All rounds of a scenario, on the shared clusters or on fresh ones.
async fn run_scenario(
    args: &Args,
    scenario: Scenario,
    clusters: &mut [Cluster],
    report: &mut Report,
) -> Result<(), Error> {
    let systems: Vec<Kind> = args.systems.iter().copied().filter(|kind| scenario.runs_on(*kind)).collect();
    let rounds = if scenario.is_alone() { args.rounds_alone } else { args.rounds };
    let size = Size { sessions: args.sessions, znodes: args.znodes };
    for round in 0..rounds {
        for turn in 0..systems.len() {
            let kind = systems[(turn + round) % systems.len()];
            let figures = if scenario.is_alone() {
                scenario.run_alone(kind, &data_dir(args), size).await
            } else {
                let cluster = clusters.iter_mut().find(|cluster| cluster.program == kind.program());
                scenario.run(cluster.expect("every system's program was started"), kind).await
            };
            match figures {
                Ok(figures) => report.add(scenario.name(), kind, figures),
                Err(error) => report.fail(scenario.name(), kind, &error),
            }
            report.store(&args.out)?;
        }
    }
    println!("{}", report.scenario_table(scenario.name()));
    Ok(())
}

fn data_dir(args: &Args) -> PathBuf {
    args.data.clone().unwrap_or_else(std::env::temp_dir)
}
