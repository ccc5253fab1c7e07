//! `jepsen power`: the power of nodes goes a thousand times, and no acknowledged write may be lost,
//! nor any node refuse its disk.
//!
//! One ordinary run after the other under the nemesis `power-loss`, each with the next seed, with
//! snapshots so often that the power goes while one is written or sent.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use jepsen::check::Workload;
use jepsen::cluster::NetworkKind;
use jepsen::cluster::disk::power_lost_by;
use jepsen::history::{self, Kind, Process};
use jepsen::nemesis::{Fault, Pace};
use jepsen::runner::{Door, Options, Results};
use jepsen::verdict::Validity;

use crate::args::{Power, workload};
use crate::{exit_code, harness_failed, run_shown, say, show, word};

/// Clients write for so long before the power goes: time for a snapshot or two.
const CALM: Duration = Duration::from_millis(800);
/// Nodes are without power for so long, more or less.
const DARK: Duration = Duration::from_millis(200);
/// The key for entries that stay in the log behind a snapshot.
const ENTRIES_KEPT: &str = "log_entries_kept";
const NODES: u64 = 3;
const CLIENTS: usize = 10;
/// Operations that change nothing.
const READS: [&str; 2] = ["read", "list"];

/// Sums over runs.
#[derive(Default)]
struct Sum {
    runs: u64,
    losses: u64,
    refusals: u64,
    writes: u64,
    broken: usize,
    /// Built, sent, installed, and in the making when the power went.
    snapshots: [u64; 4],
    /// Runs that were not valid: seed, workload, verdict, directory.
    bad: Vec<(u64, &'static str, Validity, PathBuf)>,
}

/// Runs until the power of nodes went often enough, and prints the sum.
pub(crate) async fn run(power: &Power) -> ExitCode {
    let workloads = match power.workloads.iter().map(|name| workload(name)).collect::<Result<Vec<Workload>, String>>() {
        Ok(workloads) if !workloads.is_empty() => workloads,
        Ok(_) => return harness_failed("--workloads names none"),
        Err(why) => return harness_failed(&why),
    };
    let first = power.seed.unwrap_or_else(|| fastrand::u64(1..1_000_000_000));
    say(&format!("power is lost by {}", power_lost_by()));
    let mut sum = Sum::default();
    while sum.losses < power.losses {
        let seed = first + sum.runs;
        let options = options(power, workloads[(sum.runs % workloads.len() as u64) as usize], seed);
        let results = match run_shown(&options, false).await {
            Ok(results) => results,
            Err(why) => return harness_failed(&format!("seed {seed}: {why}")),
        };
        match sum.add(&results) {
            Ok(0) => return harness_failed(&format!("seed {seed}: the power never went: give it more --time")),
            Ok(_) => {}
            Err(why) => return harness_failed(&format!("seed {seed}: {why}")),
        }
    }
    sum.tell();
    exit_code(sum.bad.iter().map(|(_, _, valid, _)| *valid).max().unwrap_or(Validity::Valid))
}

fn options(power: &Power, workload: Workload, seed: u64) -> Options {
    let mut settings = vec![format!("snapshot_log_entries = {}", power.snapshot_every)];
    // A leader that keeps the whole log never sends a snapshot.
    if !power.set.iter().any(|line| line.starts_with(ENTRIES_KEPT)) {
        settings.push(format!("{ENTRIES_KEPT} = {}", power.snapshot_every / 2));
    }
    settings.extend_from_slice(&power.set);
    Options {
        workload,
        door: Door::Http,
        faults: vec![Fault::PowerLoss],
        nodes: NODES,
        time: power.time,
        concurrency: CLIENTS,
        rate: power.rate,
        seed,
        store: power.store.clone(),
        dir: None,
        zlock: power.zlock.clone(),
        zlock_next: None,
        replay: None,
        endpoints: Vec::new(),
        pace: Pace { calm: CALM, fault: DARK },
        settings: settings.join("\n"),
        network: NetworkKind::best(false),
        ballast: power.ballast,
        negative: false,
    }
}

impl Sum {
    /// Takes in a run; gives how often the power went in it.
    fn add(&mut self, results: &Results) -> Result<u64, String> {
        let figure =
            |name: &str| results.convergence.figures.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0);
        let (losses, refusals) = (figure("node-power-losses"), figure("refusals-after-power-loss"));
        let snapshots =
            ["snapshots-built", "snapshots-sent", "snapshots-installed", "power-lost-among-snapshots"].map(figure);
        let (writes, broken) = (acknowledged_writes(&results.dir)?, results.checker.finding_count);
        if results.valid != Validity::Valid {
            show(results);
            self.bad.push((results.seed, results.workload, results.valid, results.dir.clone()));
        }
        self.runs += 1;
        self.losses += losses;
        self.refusals += refusals;
        self.writes += writes;
        self.broken += broken;
        for (sum, count) in self.snapshots.iter_mut().zip(snapshots) {
            *sum += count;
        }
        let (seed, workload, valid) = (results.seed, results.workload, word(results.valid));
        say(&format!(
            "seed {seed} {workload}: {losses} losses, {refusals} refusals, {writes} acknowledged writes, {broken} findings: {valid}; \
             {} losses in all",
            self.losses
        ));
        Ok(losses)
    }

    fn tell(&self) {
        let Sum { runs, losses, refusals, writes, broken, snapshots, bad } = self;
        let [built, sent, installed, among] = snapshots;
        for (seed, workload, valid, dir) in bad {
            say(&format!("seed {seed} {workload}: {}; see {}", word(*valid), dir.display()));
        }
        say(&format!("{built} snapshots built, {sent} sent, {installed} installed; {among} losses among snapshots"));
        let bad = bad.len();
        say(&format!(
            "{losses} node power losses in {runs} runs: {refusals} refusals, {writes} acknowledged writes, {broken} findings of lost or \
             wrong ones, {bad} runs not valid"
        ));
    }
}

fn acknowledged_writes(dir: &Path) -> Result<u64, String> {
    let text = std::fs::read_to_string(dir.join("history.jsonl")).map_err(|error| format!("the history: {error}"))?;
    let entries = history::read_jsonl(&text)?;
    let is_write = |entry: &&history::Entry| {
        entry.kind == Kind::Ok && matches!(entry.process, Process::Client(_)) && !READS.contains(&entry.f.as_str())
    };
    Ok(entries.iter().filter(is_write).count() as u64)
}
