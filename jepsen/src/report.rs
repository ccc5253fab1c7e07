//! Report for people: a text with the verdict first, then the history around the first finding
//! (broken promise).

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use crate::history::{Entry, Process};
use crate::runner::Results;
use crate::verdict::Verdict;

/// Largest number of history entries in `report.txt`.
const ENTRIES_MAX: usize = 3_000;
/// Number of history entries in `report.txt` before the first finding (broken promise).
const ENTRIES_BEFORE: u64 = 300;

/// Writes `results.json` and `report.txt`.
///
/// # Errors
/// When a file cannot be written.
pub fn write(dir: &Path, results: &Results, entries: &[Entry]) -> io::Result<()> {
    let json = serde_json::to_string_pretty(results).map_err(io::Error::other)?;
    std::fs::write(dir.join("results.json"), json + "\n")?;
    std::fs::write(dir.join("report.txt"), format!("{}\n{}", told(results), history(results, entries)))
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

/// Returns a line for each entry: time, index, process, and request or answer.
fn history(results: &Results, entries: &[Entry]) -> String {
    let first = results.checker.findings.first().and_then(|finding| finding.part.first());
    // A line of a finding begins with the index of the invocation.
    let first = first.and_then(|line| line.strip_prefix('[')?.split("..").next()?.parse().ok()).unwrap_or(0_u64);
    let mut text = String::new();
    for entry in entries.iter().skip_while(|entry| entry.index + ENTRIES_BEFORE < first).take(ENTRIES_MAX) {
        let process = match entry.process {
            Process::Client(process) => process.to_string(),
            Process::Nemesis(_) => "nemesis".to_owned(),
        };
        let (at, error) = (entry.time as f64 / 1e9, entry.error.as_deref().unwrap_or_default());
        let Entry { index, kind, f, value, .. } = entry;
        let _ = writeln!(text, "{at:9.3} s [{index}] {process:>7} {kind:?} {f} {value} {error}");
    }
    text
}
