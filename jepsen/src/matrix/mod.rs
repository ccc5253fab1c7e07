//! The command `jepsen all`: runs every workload under every fault and writes a table.

mod one;
mod table;

use std::time::{Duration, Instant};

use jepsen::check::Workload;
use jepsen::cluster::NetworkKind;
use jepsen::needs;
use jepsen::nemesis::Fault;
use jepsen::runner::Options;
use jepsen::verdict::Validity;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::args::{self, All};
use crate::say;

use table::{Cell, Table};

/// Faults that `jepsen all` leaves out unless `--nemeses` names them: the parts of `partition`,
/// which runs as a whole, `stop`, and faults that need an operator or `--peer-tls`.
const LEFT_OUT: [&str; 10] =
    ["halves", "isolate-leader", "ring", "one-way", "stop", "transfer", "upgrade", "members", "restore", "rotation"];

/// One run that is still to be made.
pub(crate) struct Planned {
    cell: Cell,
    options: Options,
}

/// Makes the planned runs of the matrix (workloads by faults). The verdict is the worst of all
/// runs.
pub(crate) async fn run(all: &All) -> Result<Validity, String> {
    let (mut table, planned) = prepare(all, all.common.seed())?;
    let grace = all.common.time.saturating_add(all.grace);
    let done = run_all(planned, &mut table, all.parallel as usize, grace).await;
    table.write()?;
    say(&table.markdown());
    done.map(|()| table.worst())
}

/// Returns the table of earlier runs, and the runs that the table lacks. Options that cannot work
/// are refused here, before the first run.
fn prepare(all: &All, seed: u64) -> Result<(Table, Vec<Planned>), String> {
    std::fs::create_dir_all(&all.common.store).map_err(|error| format!("the store: {error}"))?;
    let mut planned = Vec::new();
    for (i, (workload, cell)) in cells(all).into_iter().enumerate() {
        let parts: Vec<String> = cell.nemesis.split('+').map(str::to_owned).collect();
        let options = all.common.options(workload, args::faults(&parts)?, seed + i as u64)?;
        needs::check_options(&options)?;
        planned.push(Planned { cell, options });
    }
    let mut asked: Vec<(&[Fault], NetworkKind)> =
        planned.iter().map(|planned| (planned.options.faults.as_slice(), planned.options.network)).collect();
    asked.sort_unstable();
    asked.dedup();
    for (faults, network) in asked {
        needs::check(faults, network).map_err(|why| format!("{why}. Leave it out with --nemeses"))?;
    }
    let table = if all.resume { Table::resume(&all.common, seed)? } else { Table::new(&all.common, seed) };
    planned.retain(|planned| !table.has(&planned.cell));
    Ok((table, planned))
}

/// Returns workload and nemesis of every run. All workloads run under one nemesis before the next,
/// so that a nemesis that breaks everything shows early.
fn cells(all: &All) -> Vec<(Workload, Cell)> {
    let door = all.common.door;
    let every = || Workload::all().filter(|workload| door.has(*workload)).collect();
    let workloads: Vec<Workload> = if all.workloads.is_empty() { every() } else { all.workloads.clone() };
    let nemeses = if all.nemeses.is_empty() { nemeses() } else { all.nemeses.clone() };
    let mut cells = Vec::new();
    for round in 0..all.rounds {
        for nemesis in &nemeses {
            let cell = |workload: &Workload| Cell { workload: workload.name().into(), nemesis: nemesis.clone(), round };
            cells.extend(workloads.iter().map(|workload| (*workload, cell(workload))));
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
    say(&format!("{count} runs, {parallel} at a time; seed {}; {}", table.seed, table.path().display()));
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
                // Runs that were cut off are not in the table, so that they are made when the
                // matrix is resumed.
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
