//! One run of the matrix, in a separate process, so that its failure does not end the other runs.

use std::fs::File;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use jepsen::cluster::disk;
use jepsen::report::Results;
use jepsen::store;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::timeout;

use super::Planned;
use super::table::Row;

/// Longest time for a run to end its nodes and remove its networks after it was told to stop.
const END_MAX: Duration = Duration::from_secs(20);

/// Makes the planned run in a process of its own, and returns its row of the table. The run is
/// stopped when it takes longer than `limit`, or when `stopped` becomes true.
pub(super) async fn run(planned: Planned, limit: Duration, stopped: watch::Receiver<bool>) -> Row {
    let Planned { nemesis, options } = planned;
    let result = match store::new_run(&options.common.store, options.workload.name()) {
        Ok(dir) => supervise(&options.arguments(), &dir, limit, stopped).await,
        Err(error) => Err(format!("the store: {error}")),
    };
    Row { nemesis, results: result.unwrap_or_else(|why| Results::lost(&options, why)) }
}

async fn supervise(
    arguments: &[String],
    dir: &Path,
    limit: Duration,
    mut stopped: watch::Receiver<bool>,
) -> Result<Results, String> {
    let failed = |error: std::io::Error| format!("the run could not be started: {error}");
    let log = File::create(dir.join("harness.log")).map_err(failed)?;
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(arguments).arg("--supervised").arg(dir).stdin(Stdio::piped());
    command.stdout(log.try_clone().map_err(failed)?).stderr(log).process_group(0).kill_on_drop(true);
    let mut child = command.spawn().map_err(failed)?;
    // Taken out because `Child::wait` closes stdin, and a supervised run ends when stdin ends.
    let stdin = child.stdin.take();
    let ended = tokio::select! {
        ended = timeout(limit, child.wait()) => ended.map_err(|_| format!("cut off after {} s", limit.as_secs())),
        _ = stopped.wait_for(|stop| *stop) => Err("interrupted".to_owned()),
    };
    match ended {
        Ok(Ok(status)) => read(dir, status),
        Ok(Err(error)) => Err(format!("the run was lost: {error}")),
        Err(why) => {
            drop(stdin);
            cut(&mut child, dir).await;
            Err(why)
        }
    }
}

/// Waits for a run to clean up after its stdin was closed, and kills it if it takes too long.
async fn cut(child: &mut Child, dir: &Path) {
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if timeout(END_MAX, child.wait()).await.is_ok() {
        return;
    }
    // A node that is paused by SIGSTOP cannot notice that its stdin has ended.
    if let Some(group) = group {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait().await;
    disk::unmount_below(dir);
}

/// Reads the results that the run has written. Without results, the error says how the run ended.
fn read(dir: &Path, status: ExitStatus) -> Result<Results, String> {
    if let Ok(bytes) = std::fs::read(dir.join("results.json")) {
        return serde_json::from_slice(&bytes).map_err(|error| format!("results.json: {error}"));
    }
    let log = std::fs::read_to_string(dir.join("harness.log")).unwrap_or_default();
    let last = log.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    Err(format!("{status}: {last}"))
}
