//! What is written for people: a page, made without anything from elsewhere.

mod page;

use std::io;
use std::path::Path;

use crate::history::{Entry, Process};
use crate::runner::Results;

/// A stretch of time in which something was broken.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Window {
    pub(crate) from_s: f64,
    pub(crate) to_s: f64,
    pub(crate) name: String,
}

/// Writes `results.json` and `timeline.html`.
///
/// # Errors
/// When a file cannot be written.
pub fn write(dir: &Path, results: &Results, entries: &[Entry]) -> io::Result<()> {
    let json = serde_json::to_string_pretty(results).map_err(io::Error::other)?;
    std::fs::write(dir.join("results.json"), json + "\n")?;
    std::fs::write(dir.join("timeline.html"), page::timeline(results, entries))
}

/// Seconds of a time in a history.
pub(crate) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// When what was broken: from a `start-...` of the nemesis to the next `heal`.
pub(crate) fn windows(entries: &[Entry]) -> Vec<Window> {
    let mut windows = Vec::new();
    let mut open: Vec<(f64, String)> = Vec::new();
    let end = entries.last().map_or(0.0, |entry| seconds(entry.time));
    for entry in entries.iter().filter(|entry| matches!(entry.process, Process::Nemesis(_))) {
        let at = seconds(entry.time);
        match entry.f.strip_prefix("start-") {
            Some(name) => open.push((at, name.to_owned())),
            None if !entry.f.ends_with("heal") => {}
            None => windows.extend(open.drain(..).map(|(from_s, name)| Window { from_s, to_s: at, name })),
        }
    }
    windows.extend(open.into_iter().map(|(from_s, name)| Window { from_s, to_s: end, name }));
    windows
}
