//! Report of a run for people, as text.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use crate::runner::Results;
use crate::verdict::Verdict;

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
