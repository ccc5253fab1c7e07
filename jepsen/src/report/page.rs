//! The page of a run: the verdict, the findings, and who did what when.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{seconds, windows};
use crate::history::{self, Entry, Kind, Operation};
use crate::runner::Results;
use crate::verdict::{Finding, Validity, Verdict};

/// Operations in the timeline; more would make the page too heavy to open.
const OPERATIONS_MAX: usize = 1_500;
/// Pixels for a millisecond when there is room.
const PX_PER_MS: f64 = 0.4;
const COLUMN_PX: usize = 130;

const STYLE: &str = "body{font-family:sans-serif;margin:1.5em;color:#222}pre{background:#f4f4f4;padding:.6em;white-space:pre-wrap;overflow-wrap:anywhere}\
.valid{color:#2a7d2a}.invalid{color:#b3261e}.unknown{color:#a86500}#t{position:relative;margin-top:2em}\
.o{position:absolute;width:120px;min-height:13px;overflow:hidden;font-size:10px;line-height:13px;border-radius:2px;padding:0 3px;box-sizing:border-box;white-space:nowrap}\
.o:hover{overflow:visible;z-index:9;min-width:max-content;outline:1px solid #222}\
.w{position:absolute;left:0;background:rgba(90,110,200,.16);font-size:10px;color:#446;pointer-events:none}\
table{border-collapse:collapse}td,th{padding:.2em .8em .2em 0;text-align:left;vertical-align:top}";

/// The page.
pub(crate) fn timeline(results: &Results, entries: &[Entry]) -> String {
    let (class, word) = match results.valid {
        Validity::Valid => ("valid", "valid"),
        Validity::Invalid => ("invalid", "INVALID"),
        Validity::Unknown => ("unknown", "unknown"),
    };
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}: {word}</title><style>{STYLE}</style></head><body>\n<h1>{0}: <span class=\"{class}\">{word}</span></h1>\n",
        results.workload
    );
    let mut put = |text: std::fmt::Arguments<'_>| page.write_fmt(text).expect("writing to a string");
    put(format_args!("<pre>{}</pre>\n<table>", escape(&results.command)));
    let faults: Vec<String> = results.faults.iter().map(|(name, count)| format!("{name} {count}")).collect();
    let rows = [
        ("operations", format!("{} ok, {} fail, {} info", results.ok, results.fail, results.info)),
        ("faults", if faults.is_empty() { "none".to_owned() } else { faults.join(", ") }),
        ("partitions by", results.partitions_by.to_owned()),
        ("figures", figures(&results.checker)),
        (
            "convergence",
            format!(
                "{} {}",
                match results.convergence.valid {
                    Validity::Valid => "same state on all nodes:",
                    Validity::Unknown => "not known:",
                    Validity::Invalid => "NOT as it should be, see below:",
                },
                figures(&results.convergence)
            ),
        ),
        ("checked in", format!("{} ms", results.check_ms)),
    ];
    for (name, value) in rows {
        put(format_args!("<tr><th>{name}</th><td>{}</td></tr>", escape(&value)));
    }
    put(format_args!("</table>\n"));
    for (title, verdict) in [("Findings", &results.checker), ("Convergence", &results.convergence)] {
        if verdict.valid != Validity::Valid {
            put(format_args!("<h2>{title} ({} in all)</h2>\n", verdict.finding_count));
            verdict.findings.iter().for_each(|finding| put(format_args!("{}", shown(finding))));
            verdict.doubts.iter().for_each(|doubt| put(format_args!("<p>Doubt: {}</p>\n", escape(doubt))));
        }
    }
    for alarm in &results.alarms {
        put(format_args!("<pre>{}</pre>\n", escape(alarm)));
    }
    page.push_str(&lanes(results, entries));
    page.push_str("</body></html>\n");
    page
}

/// Replaces what has a meaning in markup.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The colours that Jepsen uses.
fn colour(kind: Kind) -> &'static str {
    match kind {
        Kind::Ok => "#5baf5b",
        Kind::Info | Kind::Invoke => "#f0a830",
        Kind::Fail => "#d9607f",
    }
}

fn figures(verdict: &Verdict) -> String {
    let figures: Vec<String> = verdict.figures.iter().map(|(name, value)| format!("{name} {value}")).collect();
    figures.join(", ")
}

fn shown(finding: &Finding) -> String {
    let part = escape(&finding.part.join("\n"));
    format!("<h3>{}</h3><p>{}</p><pre>{part}</pre>\n", escape(&finding.kind), escape(&finding.detail))
}

/// Where the first finding is: the timeline begins a little before it.
fn interesting(results: &Results) -> Option<u64> {
    let line = results.checker.findings.first()?.part.first()?;
    line.strip_prefix('[')?.split("..").next()?.parse().ok()
}

/// Operations as boxes: time runs down, each client slot has a column.
fn lanes(results: &Results, entries: &[Entry]) -> String {
    let operations = history::operations(entries).unwrap_or_default();
    let first = interesting(results).map_or(0, |call| operations.partition_point(|op| op.call + 300 < call));
    let part: Vec<&Operation> = operations.iter().skip(first).take(OPERATIONS_MAX).collect();
    let (Some(begin), Some(last)) = (part.first(), part.last()) else { return String::new() };
    let (from_ns, to_ns) = (begin.time.0, last.time.0 + 500_000_000);
    let px = |ns: u64| (ns.clamp(from_ns, to_ns) - from_ns) as f64 / 1e6 * PX_PER_MS;
    let mut html = format!(
        "<h2>Who did what when</h2><p>Operations {} to {} of {}. Time runs down; hover for the whole text.</p><div id=\"t\" style=\"height:{:.0}px\">\n",
        first,
        first + part.len(),
        operations.len(),
        px(to_ns) + 40.0
    );
    let slots = slots(&part);
    let width = (slots.values().max().copied().unwrap_or(0) + 1) * COLUMN_PX;
    for window in windows(entries) {
        let (from, to) = (px((window.from_s * 1e9) as u64), px((window.to_s * 1e9) as u64));
        if to > from {
            let name = escape(&window.name);
            let _ = writeln!(
                html,
                "<div class=\"w\" style=\"top:{from:.0}px;height:{:.0}px;width:{width}px\">{name}</div>",
                to - from
            );
        }
    }
    for (i, operation) in part.iter().enumerate() {
        let (top, bottom) = (px(operation.time.0), px(operation.time.1));
        let left = slots.get(&i).copied().unwrap_or(0) * COLUMN_PX;
        let text = format!("{} {} {}", operation.process, operation.f, short(operation));
        let _ = writeln!(
            html,
            "<div class=\"o\" style=\"top:{top:.0}px;left:{left}px;height:{:.0}px;background:{}\" title=\"{}\">{}</div>",
            (bottom - top).max(13.0),
            colour(operation.outcome),
            escape(&format!("{:.3} s {}", seconds(operation.time.0), operation.describe())),
            escape(&text)
        );
    }
    html.push_str("</div>\n");
    html
}

fn short(operation: &Operation) -> String {
    if operation.is_ok() && !operation.result.is_null() {
        operation.result.to_string()
    } else {
        operation.argument.to_string()
    }
}

/// The column of each operation: the first that is free.
fn slots(part: &[&Operation]) -> BTreeMap<usize, usize> {
    // A box is at least as high as its text.
    let height_ns = (14.0 / PX_PER_MS * 1e6) as u64;
    let mut busy: Vec<u64> = Vec::new();
    let mut slots = BTreeMap::new();
    for (i, operation) in part.iter().enumerate() {
        let until = operation.time.1.max(operation.time.0 + height_ns);
        let slot = busy.iter().position(|free_at| *free_at <= operation.time.0).unwrap_or(busy.len());
        if slot == busy.len() {
            busy.push(until);
        } else {
            busy[slot] = until;
        }
        slots.insert(i, slot);
    }
    slots
}
