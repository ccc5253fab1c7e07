//! The program `jepsen` with its commands `test`, `check` and `all`.

mod args;
mod matrix;

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;
use jepsen::check::{self, Workload};
use jepsen::history::{self, Entry};
use jepsen::options::Options;
use jepsen::replay;
use jepsen::report;
use jepsen::runner::{self, Progress};
use jepsen::verdict::Validity;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use args::{Args, Command};

fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return harness_failed(&error.to_string()),
    };
    let judged = match args.command {
        Command::Test(test) => {
            test.options().and_then(|options| runtime.block_on(run_one(&options, test.supervised.is_some())))
        }
        Command::Check { dir, workload } => check_stored(&dir, workload),
        Command::All(all) => runtime.block_on(matrix::run(&all)),
    };
    let code = judged.map_or_else(|why| harness_failed(&why), exit_code);
    // Dropping the tasks that still run also ends their nodes, mounts and network namespaces.
    runtime.shutdown_timeout(Duration::from_secs(5));
    code
}

/// Returns the exit code for a verdict: 0 for valid, 1 for invalid, 2 for unknown.
fn exit_code(valid: Validity) -> ExitCode {
    match valid {
        Validity::Valid => ExitCode::SUCCESS,
        Validity::Invalid => ExitCode::from(1),
        Validity::Unknown => ExitCode::from(2),
    }
}

fn harness_failed(why: &str) -> ExitCode {
    say(&format!("the harness failed: {why}"));
    ExitCode::from(2)
}

fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn show_progress(progress: Progress, of_s: u64, terminal: bool) {
    let seconds = progress.elapsed.as_secs();
    let counts = progress.counts;
    let rate = counts.ok / seconds.max(1);
    let line = format!("{seconds}/{of_s} s  ok {}  fail {}  info {}  {rate} ok/s", counts.ok, counts.fail, counts.info);
    if terminal {
        let _ = write!(std::io::stderr(), "\r{line}    ");
    } else if seconds.is_multiple_of(10) {
        say(&line);
    }
}

/// Makes one run and shows its progress. Ctrl-C and SIGTERM end the run and its nodes. A supervised
/// run (one that `jepsen all` started) also ends when its stdin ends.
async fn run_one(options: &Options, supervised: bool) -> Result<Validity, String> {
    say(&options.command());
    let (of_s, terminal) = (options.common.time.as_secs(), std::io::stderr().is_terminal());
    let results = tokio::select! {
        results = runner::run(options, move |progress| show_progress(progress, of_s, terminal)) => results,
        () = told_to_stop(supervised) => Err("interrupted".into()),
    };
    if terminal {
        say("");
    }
    let results = results?;
    say(report::told(&results).trim_end());
    Ok(results.valid)
}

async fn told_to_stop(supervised: bool) {
    let mut terminate = signal(SignalKind::terminate()).expect("the runtime has signals");
    // A separate thread reads stdin. It is not joined, because a blocked read cannot be ended.
    let (ended, stdin_ended) = oneshot::channel();
    if supervised {
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            let _ = ended.send(());
        });
    }
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
        _ = stdin_ended, if supervised => {}
    }
}

/// Judges a stored history again. Without a given workload, `results.json` names it.
fn check_stored(dir: &Path, workload: Option<Workload>) -> Result<Validity, String> {
    let (workload, entries) = stored(dir, workload)?;
    let facts = replay::stored(dir)?;
    let mut verdict = check::check(workload, &entries);
    replay::judge(workload, &entries, &facts, &mut verdict);
    check::check_worth(workload, &mut verdict);
    say(report::verdict_told("checker", &verdict).trim_end());
    say(&format!("{}: {} entries: {}", workload.name(), entries.len(), verdict.valid.word()));
    Ok(verdict.valid)
}

/// Reads the history of a run and finds its workload.
fn stored(dir: &Path, workload: Option<Workload>) -> Result<(Workload, Vec<Entry>), String> {
    let path = dir.join("history.jsonl");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let workload = workload.or_else(|| stored_workload(dir)).ok_or("of which workload is this? Say --workload")?;
    Ok((workload, history::read_jsonl(&text)?))
}

fn stored_workload(dir: &Path) -> Option<Workload> {
    let results = std::fs::read(dir.join("results.json")).ok()?;
    let results: serde_json::Value = serde_json::from_slice(&results).ok()?;
    Workload::from_name(results["workload"].as_str()?)
}
