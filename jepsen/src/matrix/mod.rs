//! The command `jepsen all`: runs every workload under every fault and writes a table.

mod one;
mod table;

use std::time::{Duration, Instant};

use jepsen::check::Workload;
use jepsen::cluster::NetworkKind;
use jepsen::needs;
use jepsen::nemesis::Fault;
use jepsen::options::Options;
use jepsen::verdict::Validity;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::args::{self, All};
use crate::say;

use table::Table;

/// Faults that `jepsen all` leaves out unless `--nemeses` names them: the parts of `partition`,
/// which runs as a whole, `stop`, and faults that need an operator or `--peer-tls`.
const LEFT_OUT: [&str; 10] =
    ["halves", "isolate-leader", "ring", "one-way", "stop", "transfer", "upgrade", "members", "restore", "rotation"];

/// One run that is still to be made.
pub(crate) struct Planned {
    nemesis: String,
    options: Options,
}

/// Makes the planned runs of the matrix (workloads by faults). The verdict is the worst of all
/// runs.
pub(crate) async fn run(all: &All) -> Result<Validity, String> {
    let (mut table, seed) = (Table::new(&all.common), args::seed(&all.common));
    let planned = prepare(all, seed)?;
    let (count, path) = (planned.len(), all.common.store.join("matrix.md"));
    say(&format!("{count} runs, {} at a time; seed {seed}; {}", all.parallel, path.display()));
    let grace = all.common.time.saturating_add(all.grace);
    let done = run_all(planned, &mut table, all.parallel as usize, grace).await;
    table.write()?;
    say(&table.markdown());
    done.map(|()| table.worst())
}

/// Returns all runs. Options that cannot work are refused here, before the first run.
fn prepare(all: &All, seed: u64) -> Result<Vec<Planned>, String> {
    std::fs::create_dir_all(&all.common.store).map_err(|error| format!("the store: {error}"))?;
    let mut planned = Vec::new();
    for ((workload, nemesis), seed) in cells(all).into_iter().zip(seed..) {
        let parts: Vec<String> = nemesis.split('+').map(str::to_owned).collect();
        let options = all.common.options(workload, args::faults(&parts)?, seed)?;
        options.check()?;
        planned.push(Planned { nemesis, options });
    }
    let mut asked: Vec<(&[Fault], NetworkKind)> =
        planned.iter().map(|planned| (planned.options.faults.as_slice(), planned.options.network)).collect();
    asked.sort_unstable();
    asked.dedup();
    for (faults, network) in asked {
        needs::check(faults, network).map_err(|why| format!("{why}. Leave it out with --nemeses"))?;
    }
    Ok(planned)
}

/// Returns workload and nemesis of every run. All workloads run under one nemesis before the next,
/// so that a nemesis that breaks everything shows early.
fn cells(all: &All) -> Vec<(Workload, String)> {
    let door = all.common.door;
    let every = || Workload::all().filter(|workload| door.has(*workload)).collect();
    let workloads: Vec<Workload> = if all.workloads.is_empty() { every() } else { all.workloads.clone() };
    let nemeses = if all.nemeses.is_empty() { nemeses() } else { all.nemeses.clone() };
    let mut cells = Vec::new();
    for _ in 0..all.rounds {
        for nemesis in &nemeses {
            cells.extend(workloads.iter().map(|workload| (*workload, nemesis.clone())));
        }
    }
    cells
}

/// Returns the names of the runs that are made without `--nemeses`: `none`, each fault that is not
/// in [`LEFT_OUT`] by itself, and one run with three faults.
fn nemeses() -> Vec<String> {
    let alone = Fault::all().map(Fault::name).filter(|name| !LEFT_OUT.contains(name));
    let all = ["none", "partition"].into_iter().chain(alone).chain(["kill+pause-leader+partition"]);
    all.map(str::to_owned).collect()
}

async fn run_all(planned: Vec<Planned>, table: &mut Table, parallel: usize, limit: Duration) -> Result<(), String> {
    let (count, began) = (planned.len(), Instant::now());
    let (stop, stopped) = watch::channel(false);
    let (mut running, mut queue, mut done) = (JoinSet::new(), planned.into_iter(), 0);
    let interrupted = crate::told_to_stop(false);
    tokio::pin!(interrupted);
    loop {
        while running.len() < parallel
            && let Some(planned) = queue.next()
        {
            running.spawn(one::run(planned, limit, stopped.clone()));
        }
        let row = tokio::select! {
            joined = running.join_next() => match joined {
                Some(row) => row.map_err(|error| format!("a run: {error}"))?,
                None => return Ok(()),
            },
            () = &mut interrupted => {
                stop.send_replace(true);
                while running.join_next().await.is_some() {}
                return Err("interrupted".into());
            }
        };
        done += 1;
        let left = began.elapsed().mul_f64((count - done) as f64 / done as f64).as_secs().div_ceil(60);
        say(&format!("[{done}/{count}, {left} min left] {}", row.told()));
        table.add(row);
        // The table is written after every run, because a matrix takes hours and may be cut off.
        table.write()?;
    }
}
