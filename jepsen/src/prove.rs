//! `jepsen prove`: a zlock with a bug must be found to have it.
//!
//! Every proof is an ordinary `jepsen test`, run by this same program as anybody would run it,
//! against a zlock that has a bug planted by `ZLOCK_PLANT`. Before that, the same run without the
//! bug must be valid: what is found is the bug, and not the build.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::process::Command;

use crate::args::Prove;
use crate::{harness_failed, say};

/// A bug, and what is meant to find it.
struct Proof {
    bug: &'static str,
    workload: &'static str,
    nemesis: &'static str,
    /// Steps a second.
    rate: &'static str,
    /// Snapshots every few hundred entries, and a log that is purged behind them.
    snapshots: bool,
}

/// Runs without the bug until one of them can be judged.
const CONTROLS_MAX: u64 = 3;

const fn proof(bug: &'static str, workload: &'static str, nemesis: &'static str) -> Proof {
    Proof { bug, workload, nemesis, rate: "100", snapshots: false }
}

const fn with_snapshots(bug: &'static str, workload: &'static str, nemesis: &'static str) -> Proof {
    Proof { snapshots: true, ..proof(bug, workload, nemesis) }
}

const PROOFS: &[Proof] = &[
    // What was acknowledged must be read after the power comes back.
    proof("ack-before-fsync", "register", "power-loss"),
    // A node finds half a snapshot after it, and calls its data damaged.
    with_snapshots("snapshot-not-synced", "register", "power-loss"),
    // A majority that has forgotten elects one that knows nothing.
    proof("wiped-node-votes", "register", "wipe,kill"),
    // A leader that is cut off goes on answering, while the others elect and write.
    proof("reads-without-quorum", "register", "isolate-leader"),
    // It hears no heartbeats while it is cut off, and has the sessions expired when it is back.
    proof("deposed-expiry", "ephemeral", "isolate-leader"),
    // A change in the moment between look and watch is told to nobody.
    Proof { rate: "300", ..proof("watch-after-look", "watch", "kill") },
    // Its observers are told who led, and clients that wait whether they lead.
    proof("reads-without-quorum", "election", "isolate-leader"),
    // Who asks for two or three permits holds more than the semaphore knows.
    proof("one-permit-less", "semaphore", "none"),
    // Another client holds the last lock of a multi-lock at the same time.
    proof("shared-part", "multi-lock", "none"),
    // Two that became writers hold at the same time.
    proof("upgrade-reads", "upgrade", "none"),
    // A writer behind an upgrade holds with a smaller token than the one before.
    proof("token-falls", "upgrade", "none"),
    // A holder that does not listen goes on for longer than it may.
    proof("late-deadline", "revoke", "none"),
    // A client that waits holds, and is not told; nobody else gets the lock.
    proof("lost-grant", "lock", "none"),
    proof("lost-grant", "queue", "none"),
    Proof { rate: "1000", ..proof("rarely-lost-grant", "lock", "none") },
    // The next one holds before the delay of a holder that is gone has passed.
    proof("lock-delay-ignored", "lock-delay", "none"),
    // Who watches children hears of none that come or go.
    proof("children-changed-dropped", "watch", "none"),
    // A deposed leader reads behind answers that were held back.
    Proof { rate: "300", ..proof("reads-by-old-answers", "register", "held-answers") },
    // A retry after a node came back by snapshot is done twice, or the nodes differ.
    with_snapshots("replies-lost-in-snapshot", "exactly-once", "wipe"),
];

/// What came of one run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Judged {
    Valid,
    Invalid,
    Unknown,
}

/// Runs all proofs and prints a table.
pub(crate) async fn run(prove: &Prove) -> ExitCode {
    if let Some(unknown) = prove.bugs.iter().find(|name| PROOFS.iter().all(|proof| proof.bug != *name)) {
        return harness_failed(&format!("no proof is about a bug called `{unknown}`"));
    }
    let wanted = |proof: &&Proof| prove.bugs.is_empty() || prove.bugs.iter().any(|name| name == proof.bug);
    let first_seed = prove.seed.unwrap_or_else(|| fastrand::u64(1..1_000_000_000));
    let mut table = String::from(
        "| bug | workload | nemesis | without it | found after | runs | as | seed |\n|---|---|---|---|---|---|---|---|\n",
    );
    let mut all_found = true;
    for proof in PROOFS.iter().filter(wanted) {
        match one(prove, proof, first_seed).await {
            Ok((row, found)) => {
                say(&row);
                all_found &= found;
                let _ = writeln!(table, "{row}");
            }
            Err(why) => return harness_failed(&why),
        }
    }
    say(&table);
    if all_found { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// The row of the table, and whether the bug was found as it should be.
async fn one(prove: &Prove, proof: &Proof, first_seed: u64) -> Result<(String, bool), String> {
    let Proof { bug, workload, nemesis, .. } = proof;
    say(&format!("{bug}: first without it"));
    let control = control(prove, proof, first_seed).await?;
    let began = Instant::now();
    let mut seed = first_seed;
    loop {
        let left = prove.within.saturating_sub(began.elapsed());
        say(&format!("{bug}: seed {seed}, {} s left", left.as_secs()));
        let judged = test(prove, proof, seed, true, left).await?;
        let took = began.elapsed().as_secs();
        if judged == Judged::Invalid {
            let kinds = kinds_found(&prove.store.join(workload).join("latest/results.json"))?;
            let row = format!(
                "| {bug} | {workload} | {nemesis} | {control} | {took} s | {} | {kinds} | {seed} |",
                seed - first_seed + 1
            );
            return Ok((row, control == "valid"));
        }
        if began.elapsed() >= prove.within {
            return Ok((
                format!(
                    "| {bug} | {workload} | {nemesis} | {control} | NOT FOUND in {took} s | {} | | |",
                    seed - first_seed + 1
                ),
                false,
            ));
        }
        seed += 1;
    }
}

/// What is said without the bug. Unless it is valid, finding something with the bug proves nothing.
async fn control(prove: &Prove, proof: &Proof, first_seed: u64) -> Result<&'static str, String> {
    let Proof { workload, nemesis, .. } = proof;
    for seed in first_seed..first_seed + CONTROLS_MAX {
        match test(prove, proof, seed, false, Duration::MAX).await? {
            Judged::Valid => return Ok("valid"),
            Judged::Invalid => {
                let store = prove.store.display();
                return Err(format!("{workload} under {nemesis} is invalid without a bug: see {store}"));
            }
            Judged::Unknown => {}
        }
    }
    Ok("unknown")
}

/// One `jepsen test`. One that takes longer than `within` is ended and says nothing.
async fn test(prove: &Prove, proof: &Proof, seed: u64, planted: bool, within: Duration) -> Result<Judged, String> {
    let own = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    let mut command = Command::new(own);
    command.args(["test", "--workload", proof.workload, "--nemesis", proof.nemesis, "--rate", proof.rate]);
    command.args(["--snapshots", if proof.snapshots { "small" } else { "large" }]);
    command.args(["--calm", "3s", "--fault", "5s", "--time", &format!("{}s", prove.time.as_secs())]);
    command.args(["--seed", &seed.to_string()]).arg("--zlock").arg(&prove.zlock).arg("--store").arg(&prove.store);
    command.env_remove("ZLOCK_PLANT");
    if planted {
        command.env("ZLOCK_PLANT", proof.bug);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("jepsen test: {error}"))?;
    let Some(pid) = child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw) else {
        return Err("jepsen test ended at once".into());
    };
    let mut stderr = child.stderr.take();
    let told = async {
        let mut text = Vec::new();
        if let Some(stderr) = &mut stderr {
            let _ = tokio::io::AsyncReadExt::read_to_end(stderr, &mut text).await;
        }
        String::from_utf8_lossy(&text).into_owned()
    };
    let ended = tokio::time::timeout(within, async { tokio::join!(told, child.wait()) }).await;
    let (told, status) = match ended {
        Ok((told, status)) => (told, status.map_err(|error| format!("jepsen test: {error}"))?),
        Err(_) => {
            // It takes its nodes, mounts and namespaces with it.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
            let _ = child.wait().await;
            return Ok(Judged::Unknown);
        }
    };
    match status.code() {
        Some(0) => Ok(Judged::Valid),
        Some(1) => Ok(Judged::Invalid),
        Some(2) => {
            // A cluster that is too broken to go on is no verdict.
            told.lines().filter(|line| line.contains("cannot tell") || line.contains("failed:")).for_each(say);
            Ok(Judged::Unknown)
        }
        _ => Err(format!("jepsen test ended with {status}:\n{told}")),
    }
}

/// The kinds of findings of a run.
fn kinds_found(results: &Path) -> Result<String, String> {
    let text = std::fs::read(results).map_err(|error| format!("{}: {error}", results.display()))?;
    let results: Value = serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", results.display()))?;
    let mut kinds = BTreeSet::new();
    for verdict in ["checker", "convergence"] {
        let findings = results[verdict]["findings"].as_array().into_iter().flatten();
        kinds.extend(findings.filter_map(|finding| finding["kind"].as_str()));
    }
    if results["alarms"].as_array().is_some_and(|alarms| !alarms.is_empty()) {
        kinds.insert("panic of a node");
    }
    Ok(kinds.into_iter().collect::<Vec<_>>().join(", "))
}
