//! Results of a run, and their report for people.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::nemesis::Injected;
use crate::options::Options;
use crate::verdict::{Validity, Verdict};

/// Results of a run, as `results.json` has them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Verdict of the whole run.
    pub valid: Validity,
    /// Name of the workload.
    pub workload: String,
    /// Command that repeats the run.
    pub command: String,
    /// Seed of the run's random choices.
    pub seed: u64,
    /// Operations that happened.
    pub ok: u64,
    /// Operations that did not happen.
    pub fail: u64,
    /// Operations of unknown outcome.
    pub info: u64,
    /// Number of times that each fault was made.
    pub faults: Injected,
    /// Verdict of the workload's checkers.
    pub checker: Verdict,
    /// Verdict on the cluster: whether all nodes came to the same state, and whether each process
    /// end of a node is explained by a fault.
    pub convergence: Verdict,
    /// Lines of the nodes' logs that show a bug: panics and failed assertions.
    pub alarms: Vec<String>,
    /// Time that the checkers took, in milliseconds.
    pub check_ms: u64,
    /// Directory with all files of the run.
    pub dir: PathBuf,
}

impl Results {
    /// Returns results with an unknown verdict, for a run that could not be judged because of
    /// `why`.
    pub fn lost(options: &Options, why: String) -> Results {
        let (workload, command) = (options.workload.name().to_owned(), options.command());
        let (valid, seed) = (Validity::Unknown, options.seed);
        let mut lost = Results { valid, workload, command, seed, ..Results::default() };
        lost.checker.doubt(why);
        lost
    }

    /// Returns why the run is not valid: log lines that show a bug, kinds of findings (broken
    /// promises), and reasons for an unknown verdict.
    pub fn why(&self) -> Vec<String> {
        let mut why = self.alarms.clone();
        for verdict in [&self.checker, &self.convergence] {
            why.extend(verdict.findings.iter().map(|finding| finding.kind.clone()));
            why.extend_from_slice(&verdict.doubts);
        }
        why.dedup();
        why
    }
}

/// Writes `results.json` and `report.txt`.
///
/// # Errors
/// When a file cannot be written.
pub fn write(dir: &Path, results: &Results) -> io::Result<()> {
    let json = serde_json::to_string_pretty(results).map_err(io::Error::other)?;
    std::fs::write(dir.join("results.json"), json + "\n")?;
    std::fs::write(dir.join("report.txt"), told(results))
}

/// Returns the results of a run in lines for people.
pub fn told(results: &Results) -> String {
    let mut text = verdict_told("checker", &results.checker) + &verdict_told("convergence", &results.convergence);
    for alarm in &results.alarms {
        let _ = writeln!(text, "alarm: {alarm}");
    }
    let faults: Vec<String> = results.faults.iter().map(|(name, count)| format!("{name} {count}")).collect();
    let faults = if faults.is_empty() { "none".to_owned() } else { faults.join(", ") };
    let Results { workload, valid, command, ok, fail, info, dir, .. } = results;
    let _ = writeln!(text, "faults: {faults}");
    let _ = writeln!(text, "{command}");
    let _ = writeln!(text, "{ok} ok, {fail} fail, {info} info; see {}", dir.display());
    let _ = writeln!(text, "{workload}: {}", valid.word());
    text
}

/// Returns the verdict of one checker in lines for people.
pub fn verdict_told(name: &str, verdict: &Verdict) -> String {
    let mut text = String::new();
    for finding in &verdict.findings {
        let _ = writeln!(text, "{name}: {}: {}", finding.kind, finding.detail);
        finding.part.iter().for_each(|line| _ = writeln!(text, "    {line}"));
    }
    if verdict.finding_count > verdict.findings.len() {
        let _ = writeln!(text, "{name}: {} findings in all", verdict.finding_count);
    }
    verdict.doubts.iter().for_each(|doubt| _ = writeln!(text, "{name}: cannot tell: {doubt}"));
    verdict.figures.iter().for_each(|(figure, value)| _ = writeln!(text, "{name}: {figure} {value}"));
    text
}
