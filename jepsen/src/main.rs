//! `jepsen test`, `jepsen check`, `jepsen export`, `jepsen all`, `jepsen power`.

mod args;
mod matrix;
mod power;

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;
use jepsen::check::{self, Workload};
use jepsen::export;
use jepsen::history::{self, Entry};
use jepsen::replay;
use jepsen::runner::{self, Options, Progress, Results};
use jepsen::verdict::{Validity, Verdict};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use args::{Args, Command};

fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return harness_failed(&error.to_string()),
    };
    let code = match args.command {
        Command::Test(test) => match test.options() {
            Ok(options) => runtime.block_on(run_one(&options, test.supervised.is_some())),
            Err(why) => harness_failed(&why),
        },
        Command::Check { dir, workload } => check_stored(&dir, workload.as_deref()),
        Command::Export { dir, to, workload } => export_stored(&dir, &to, workload.as_deref()),
        Command::All(all) => runtime.block_on(matrix::run(&all)),
        Command::Power(power) => runtime.block_on(power::run(&power)),
        Command::Disk { dir } => match power_disk::serve(&dir, std::io::stdin().lock(), std::io::stdout()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => harness_failed(&format!("the disk at {}: {error}", dir.display())),
        },
    };
    // What still runs is dropped, and nodes, mounts and namespaces go with it.
    runtime.shutdown_timeout(Duration::from_secs(5));
    code
}

/// Valid is 0, invalid is 1, anything else is 2.
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

async fn run_one(options: &Options, supervised: bool) -> ExitCode {
    match run_shown(options, supervised).await {
        Ok(results) => {
            show(&results);
            exit_code(results.valid)
        }
        Err(why) => harness_failed(&why),
    }
}

/// Runs with a progress line. Ctrl-C, SIGTERM, and the end of stdin for one that is supervised, end
/// the nodes and the run.
async fn run_shown(options: &Options, supervised: bool) -> Result<Results, String> {
    say(&jepsen::store::command(options));
    let (of_s, terminal) = (options.time.as_secs(), std::io::stderr().is_terminal());
    let result = tokio::select! {
        result = runner::run(options, move |progress| show_progress(progress, of_s, terminal)) => result,
        () = told_to_stop(supervised) => Err("interrupted".into()),
    };
    if terminal {
        say("");
    }
    result
}

async fn told_to_stop(supervised: bool) {
    let mut terminate = signal(SignalKind::terminate()).expect("the runtime has signals");
    // Read on a thread of its own, which nobody waits for.
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

fn show(results: &Results) {
    for (name, verdict) in [("checker", &results.checker), ("convergence", &results.convergence)] {
        show_verdict(name, verdict);
    }
    for alarm in &results.alarms {
        say(&format!("alarm: {alarm}"));
    }
    let faults: Vec<String> = results.faults.iter().map(|(name, count)| format!("{name} {count}")).collect();
    say(&format!("faults: {}", if faults.is_empty() { "none".to_owned() } else { faults.join(", ") }));
    say(&format!("{} ok, {} fail, {} info; see {}", results.ok, results.fail, results.info, results.dir.display()));
    say(&format!("{}: {}", results.workload, word(results.valid)));
}

fn word(valid: Validity) -> &'static str {
    match valid {
        Validity::Valid => "valid",
        Validity::Invalid => "INVALID",
        Validity::Unknown => "unknown",
    }
}

fn show_verdict(name: &str, verdict: &Verdict) {
    for finding in &verdict.findings {
        say(&format!("{name}: {}: {}", finding.kind, finding.detail));
        finding.part.iter().for_each(|line| say(&format!("    {line}")));
    }
    if verdict.finding_count > verdict.findings.len() {
        say(&format!("{name}: {} findings in all", verdict.finding_count));
    }
    for doubt in &verdict.doubts {
        say(&format!("{name}: cannot tell: {doubt}"));
    }
    for (figure, value) in &verdict.figures {
        say(&format!("{name}: {figure} {value}"));
    }
}

/// Judges a stored history again. The workload is that of `results.json`, or of the directory's
/// parent.
fn check_stored(dir: &Path, workload: Option<&str>) -> ExitCode {
    let (workload, entries) = match stored(dir, workload) {
        Ok(stored) => stored,
        Err(why) => return harness_failed(&why),
    };
    let facts = match replay::stored(dir) {
        Ok(facts) => facts,
        Err(why) => return harness_failed(&why),
    };
    let mut verdict = check::check(workload, &entries);
    replay::judge(workload, &entries, &facts, &mut verdict);
    check::check_worth(workload, &mut verdict);
    show_verdict("checker", &verdict);
    say(&format!("{}: {} entries: {}", workload.name(), entries.len(), word(verdict.valid)));
    exit_code(verdict.valid)
}

/// The history of a run, and its workload.
fn stored(dir: &Path, workload: Option<&str>) -> Result<(Workload, Vec<Entry>), String> {
    let path = dir.join("history.jsonl");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let workload = workload.map_or_else(|| stored_workload(dir), Workload::from_name);
    let workload = workload.ok_or("of which workload is this? Say --workload")?;
    Ok((workload, history::read_jsonl(&text)?))
}

fn export_stored(dir: &Path, to: &Path, workload: Option<&str>) -> ExitCode {
    let written = stored(dir, workload).and_then(|(workload, entries)| {
        let operations = history::operations(&entries).map_err(|why| why.to_string())?;
        export::write(workload, &operations, to).map_err(|error| error.to_string())
    });
    match written {
        Ok(files) => {
            say(&format!("{files} files in {}", to.display()));
            ExitCode::SUCCESS
        }
        Err(why) => harness_failed(&why),
    }
}

fn stored_workload(dir: &Path) -> Option<Workload> {
    let results = std::fs::read(dir.join("results.json")).ok();
    let results: Option<serde_json::Value> = results.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let named = results.as_ref().and_then(|results| results.get("workload")?.as_str());
    let parent = std::fs::canonicalize(dir).ok();
    let parent = parent.as_deref().and_then(Path::parent).and_then(Path::file_name).and_then(|name| name.to_str());
    named.or(parent).and_then(Workload::from_name)
}
