//! `jepsen all`: every workload under every fault, and a table.

use std::fmt::Write as _;
use std::process::ExitCode;

use jepsen::check::Workload;
use jepsen::nemesis::Fault;
use jepsen::runner::Results;
use jepsen::verdict::Validity;

use crate::args::{self, All};
use crate::{exit_code, harness_failed, run_shown, say, show, word};

/// What is run when nothing is named: each fault that needs nothing but this machine.
const NEMESES: [&str; 11] = [
    "none",
    "kill",
    "kill-leader",
    "kill-majority",
    "kill-all",
    "pause",
    "pause-leader",
    "partition",
    "slow",
    "loss",
    "wipe",
];

/// Runs the matrix. The exit code is the worst of all runs.
pub(crate) async fn run(all: &All) -> ExitCode {
    let plan = match plan(all) {
        Ok(plan) => plan,
        Err(why) => return harness_failed(&why),
    };
    let seed = all.common.seed();
    let mut table = String::from(
        "| workload | nemesis | ok | fail | info | faults | verdict | seed |\n|---|---|---|---|---|---|---|---|\n",
    );
    let mut worst = Validity::Valid;
    let count = plan.len();
    for (i, (workload, name, faults)) in plan.into_iter().enumerate() {
        let seed = seed + i as u64;
        say(&format!("run {} of {count}", i + 1));
        let options = match all.common.options(workload, faults, seed) {
            Ok(options) => options,
            Err(why) => return harness_failed(&why),
        };
        let row = match run_shown(&options).await {
            Ok(results) => {
                show(&results);
                worst = worst.max(results.valid);
                row(&results, &name)
            }
            Err(why) if why == "interrupted" => return harness_failed(&why),
            Err(why) => {
                worst = worst.max(Validity::Unknown);
                format!("| {} | {name} | | | | | harness failed: {why} | {seed} |", workload.name())
            }
        };
        let _ = writeln!(table, "{row}");
        // Written after every run: a matrix takes hours, and a part of it is worth something.
        if let Err(error) = std::fs::write(all.common.store.join("matrix.md"), &table) {
            say(&format!("the table could not be written: {error}"));
        }
    }
    say(&table);
    exit_code(worst)
}

fn row(results: &Results, name: &str) -> String {
    let injected: u64 = results.faults.values().sum();
    format!(
        "| {} | {name} | {} | {} | {} | {injected} | {} | {} |",
        results.workload,
        results.ok,
        results.fail,
        results.info,
        word(results.valid),
        results.seed
    )
}

/// Workload, name of the nemesis and its faults, for every run.
fn plan(all: &All) -> Result<Vec<(Workload, String, Vec<Fault>)>, String> {
    let mut workloads = all.workloads.iter().map(|name| args::workload(name)).collect::<Result<Vec<_>, _>>()?;
    if workloads.is_empty() {
        workloads = Workload::ALL.to_vec();
    }
    let mut names = all.nemeses.clone();
    if names.is_empty() {
        names = NEMESES.map(str::to_owned).to_vec();
        if jepsen::store::faketime().is_ok() {
            names.push("clock".into());
        }
        if jepsen::cluster::disk::available() {
            names.extend(["disk-full".into(), "fsync".into(), "power-loss".into()]);
        }
    }
    let mut plan = Vec::new();
    for workload in workloads {
        for name in &names {
            let parts: Vec<String> = name.split('+').map(str::to_owned).collect();
            plan.push((workload, name.clone(), args::faults(&parts)?));
        }
    }
    Ok(plan)
}
