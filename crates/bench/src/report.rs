//! Tables for people, of what [`Results`] has.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::error::Error;
use crate::figures::{Figures, Spread};
use crate::results::{Failure, Line, Outcome, Part, Results, Run};
use crate::scenario::Scenario;
use crate::system::Kind;
use crate::workload::Workload;

const LINE_HEAD: &str = "\
| workload | clients | system | ops/s median (min-max) | p50 us | p99 us | max us | server CPU us/op | client CPU us/op | errors |
|---|---|---|---|---|---|---|---|---|---|
";
const RATIO_HEAD: &str = "\
| workload | clients | zlock's door | peer | ops/s, times | p50, times lower | p99, times lower | server CPU per operation, part of the peer's |
|---|---|---|---|---|---|---|---|
";
const SCENARIO_HEAD: &str = "\
| scenario | what | unit | zlock-rest | zlock-zk | zookeeper | etcd |
|---|---|---|---|---|---|---|
";
const SHARE_HEAD: &str = "\
| workload | clients | limit, entries a second | zlock-rest | zlock-zk | zookeeper | etcd |
|---|---|---|---|---|---|---|
";
/// What is replicated. Redis is not.
const REPLICATED: [Kind; 4] = [Kind::ZlockRest, Kind::ZlockZk, Kind::Zookeeper, Kind::Etcd];
const OWN: [Kind; 2] = [Kind::ZlockRest, Kind::ZlockZk];
const PEERS: [Kind; 3] = [Kind::Zookeeper, Kind::Etcd, Kind::Redis];

const BEGIN: &str = "<!-- measured: begin -->";
const END: &str = "<!-- measured: end -->";

/// Writes the text into the page, in place of what it has between the marks; without a page to
/// `results.md` in `out`.
pub(crate) fn write(results: &Results, out: &Path, page: Option<&Path>) -> Result<(), Error> {
    let Some(page) = page else {
        fs::create_dir_all(out)?;
        return Ok(fs::write(out.join("results.md"), measured(results))?);
    };
    let text = fs::read_to_string(page)?;
    let text =
        replaced(&text, &measured(results)).ok_or_else(|| Error::Absent(format!("{} has no marks", page.display())))?;
    Ok(fs::write(page, text)?)
}

/// A page with other text between its marks; `None` when it has none.
fn replaced(page: &str, measured: &str) -> Option<String> {
    let (head, rest) = page.split_once(BEGIN)?;
    let (_, tail) = rest.split_once(END)?;
    Some(format!("{head}{BEGIN}\n{measured}{END}{tail}"))
}

/// All that there is to show.
fn measured(results: &Results) -> String {
    let parts = [
        runs(results),
        limits(results),
        shares(results),
        with_head(LINE_HEAD, results.lines.iter().flat_map(line_rows)),
        ratios(results),
        with_head(SCENARIO_HEAD, results.outcomes.iter().filter(|outcome| outcome.size.is_none()).map(outcome_row)),
        growths(results),
        with_head("", results.failures.iter().map(Failure::row)),
    ];
    parts.concat()
}

/// Nothing without rows; else a paragraph of its own.
fn with_head(head: &str, rows: impl Iterator<Item = String>) -> String {
    let rows: Vec<String> = rows.collect();
    if rows.is_empty() { String::new() } else { format!("{head}{}\n\n", rows.join("\n")) }
}

fn runs(results: &Results) -> String {
    let row = |run: &Run| {
        let Run { number, began, commit, cpus, kernel, load_average: [before, after], scale, seconds, .. } = run;
        let mut text = format!(
            "Run {number}: {began} UTC, commit {commit}, {cpus} cores, Linux {kernel}, rounds of {seconds} s; load average \
             {before:.2} before and {after:.2} at the end."
        );
        if *scale < 1.0 {
            let _ = write!(text, " **Sizes of scenarios are {scale} of the full ones.**");
        }
        if results.runs.len() > 1 {
            let _ = write!(text, " Of it: {}.", parts_of(results, *number).join(", "));
        }
        text
    };
    let runs: Vec<String> = results.runs.iter().map(row).collect();
    format!("{}\n\nFailed clients and parts: {}.\n\n", runs.join("\n\n"), results.errors())
}

fn parts_of(results: &Results, run: usize) -> Vec<String> {
    let lines = results.lines.iter().filter(|line| line.run == run);
    let lines = lines.map(|line| Part::Load { workload: line.workload, clients: line.clients });
    let outcomes = results.outcomes.iter().filter(|outcome| outcome.run == run);
    let outcomes = outcomes.map(|outcome| Part::Scenario(outcome.scenario));
    let failures = results.failures.iter().filter(|failure| failure.run == run).map(|failure| failure.part);
    let parts: BTreeSet<Part> = lines.chain(outcomes).chain(failures).collect();
    parts.into_iter().map(Part::name).collect()
}

/// The machine's limits, of each run that something here can be compared with.
pub(crate) fn limits(results: &Results) -> String {
    let of_run = |run: &Run| {
        let rows = run.limits.iter().map(|limit| format!("| {} | {:.0} |", limit.name, limit.per_second));
        with_head(&format!("| limit of this machine in run {} | a second |\n|---|---|\n", run.number), rows)
    };
    results.runs.iter().map(of_run).collect()
}

/// How many entries of the log an operation of a workload is.
fn entries(workload: Workload) -> Option<f64> {
    match workload {
        Workload::Create | Workload::Write => Some(1.0),
        Workload::LockCycle => Some(2.0),
        Workload::LocalGet | Workload::LinearizableGet | Workload::HandOff => None,
    }
}

/// What each system reaches of what the machine can replicate in batches of as many entries as
/// there are clients.
fn shares(results: &Results) -> String {
    let row = |line: &Line| {
        let entries = entries(line.workload)?;
        let limits = &results.run(line.run)?.limits;
        let limit = limits.iter().find(|limit| limit.batch == Some(line.clients))?.per_second;
        let share = |kind: Kind| match line.spread(kind, |figures| figures.per_second) {
            Some(rate) => format!("{:.1} %", 100.0 * rate.median * entries / limit),
            None => "-".to_owned(),
        };
        let shares = REPLICATED.map(share).join(" | ");
        Some(format!("| {} | {} | {limit:.0} | {shares} |", line.workload.name(), line.clients))
    };
    with_head(SHARE_HEAD, results.lines.iter().filter_map(row))
}

/// The rows of one line, a system each.
pub(crate) fn line_rows(line: &Line) -> Vec<String> {
    let row = |(kind, rounds): (&Kind, &Vec<Figures>)| {
        let spread = |figure: fn(&Figures) -> f64| Spread::of(rounds.iter().map(figure));
        format!(
            "| {} | {} | {} | {} | {:.0} | {:.0} | {:.0} | {:.1} | {:.1} | {} |",
            line.workload.name(),
            line.clients,
            kind.name(),
            spread(|figures| figures.per_second).whole(),
            spread(|figures| figures.p50_us).median,
            spread(|figures| figures.p99_us).median,
            spread(|figures| figures.max_us).max,
            spread(|figures| figures.server_cpu_us).median,
            spread(|figures| figures.client_cpu_us).median,
            rounds.iter().map(|figures| figures.errors).sum::<usize>(),
        )
    };
    line.rounds.iter().map(row).collect()
}

/// The table of ratios: each of zlock's doors to each peer.
pub(crate) fn ratios(results: &Results) -> String {
    let pairs = OWN.iter().flat_map(|own| PEERS.map(|peer| (*own, peer)));
    let rows = results.lines.iter().flat_map(|line| pairs.clone().filter_map(|(own, peer)| ratio_row(line, own, peer)));
    with_head(RATIO_HEAD, rows)
}

fn ratio_row(line: &Line, own: Kind, peer: Kind) -> Option<String> {
    let rate = line.ratio(own, peer, |own, peer| own.per_second / peer.per_second)?;
    // A round without any operation has no latency.
    let times = |peer: f64, own: f64| if peer > 0.0 { peer / own } else { f64::NAN };
    let p50 = line.ratio(own, peer, |own, peer| times(peer.p50_us, own.p50_us))?;
    let p99 = line.ratio(own, peer, |own, peer| times(peer.p99_us, own.p99_us))?;
    let cpu = line.ratio(own, peer, |own, peer| own.server_cpu_us / peer.server_cpu_us)?;
    let figures = [rate, p50, p99, cpu].map(Spread::ratio).join(" | ");
    Some(format!("| {} | {} | {} | {} | {figures} |", line.workload.name(), line.clients, own.name(), peer.name()))
}

/// The figures of one scenario.
pub(crate) fn scenario_table(results: &Results, scenario: Scenario) -> String {
    match scenario.grows() {
        Some(what) => growth(results, scenario, what),
        None => {
            let rows = results.outcomes.iter().filter(|outcome| outcome.scenario == scenario).map(outcome_row);
            with_head(SCENARIO_HEAD, rows)
        }
    }
}

fn outcome_row(outcome: &Outcome) -> String {
    let figures = REPLICATED.map(|kind| figure(outcome, kind)).join(" | ");
    format!("| {} | {} | {} | {figures} |", outcome.scenario.name(), outcome.name, outcome.unit)
}

fn figure(outcome: &Outcome, kind: Kind) -> String {
    outcome.rounds.get(&kind).map_or("-".to_owned(), |rounds| Spread::of(rounds.iter().copied()).short())
}

fn growths(results: &Results) -> String {
    let scenarios: BTreeSet<Scenario> = results.outcomes.iter().map(|outcome| outcome.scenario).collect();
    let growing = scenarios.into_iter().filter_map(|scenario| Some((scenario, scenario.grows()?)));
    growing.map(|(scenario, what)| growth(results, scenario, what)).collect()
}

/// A row for each size, a column for each figure.
fn growth(results: &Results, scenario: Scenario, what: &str) -> String {
    let outcomes: Vec<&Outcome> = results.outcomes.iter().filter(|outcome| outcome.scenario == scenario).collect();
    let mut columns: Vec<(&str, &str)> = Vec::new();
    for outcome in &outcomes {
        let column = (outcome.name.as_str(), outcome.unit.as_str());
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    let titles: Vec<String> = columns.iter().map(|(name, unit)| format!("{name}, {unit}")).collect();
    let head = format!("| {what} | system | {} |\n|---|---|{}\n", titles.join(" | "), "---|".repeat(columns.len()));
    let rows: BTreeSet<(Option<usize>, Kind)> =
        outcomes.iter().flat_map(|outcome| outcome.rounds.keys().map(|kind| (outcome.size, *kind))).collect();
    let row = |(size, kind): (Option<usize>, Kind)| {
        let cell = |(name, _): &(&str, &str)| {
            let found = outcomes.iter().find(|outcome| outcome.size == size && outcome.name == *name);
            found.map_or("-".to_owned(), |outcome| figure(outcome, kind))
        };
        let cells: Vec<String> = columns.iter().map(cell).collect();
        format!("| {} | {} | {} |", size.unwrap_or(0), kind.name(), cells.join(" | "))
    };
    with_head(&head, rows.into_iter().map(row))
}

#[cfg(test)]
mod tests;
