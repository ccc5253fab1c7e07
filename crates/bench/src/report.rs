//! Tables of [`Results`] for people.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::error::Error;
use crate::figures::{Figures, Spread};
use crate::results::{Failure, Line, Outcome, Results, Run};
use crate::scenario::Scenario;
use crate::system::{Kind, Named as _};
use crate::workload::Workload;

const LINE_HEAD: &str = "\
| workload | clients | system | operations a second, median (min-max) | p50, us | p99, us | max, us | server CPU of an operation, us | client CPU of an operation, us | failed clients |
|---|---|---|---|---|---|---|---|---|---|
";
const RATIO_HEAD: &str = "\
| workload | clients | zlock over HTTP (rest) or ZooKeeper's protocol (zk) | other system | operations a second: zlock / other, median (min-max) | p50: other / zlock | p99: other / zlock | server CPU per operation: zlock / other |
|---|---|---|---|---|---|---|---|
";
const SCENARIO_HEAD: &str = "\
| scenario | size | figure, median (min-max) of the rounds | unit | zlock-rest | zlock-zk | zookeeper | etcd |
|---|---|---|---|---|---|---|---|
";
const SHARE_HEAD: &str = "\
| workload | clients | limit of the machine, entries a second | zlock-rest, share of the limit | zlock-zk, share of the limit | zookeeper, share of the limit | etcd, share of the limit |
|---|---|---|---|---|---|---|
";
/// Systems that are replicated, which Redis is not.
const REPLICATED: [Kind; 4] = [Kind::ZlockRest, Kind::ZlockZk, Kind::Zookeeper, Kind::Etcd];
const OWN: [Kind; 2] = [Kind::ZlockRest, Kind::ZlockZk];
const PEERS: [Kind; 3] = [Kind::Zookeeper, Kind::Etcd, Kind::Redis];

const BEGIN: &str = "<!-- measured: begin -->";
const END: &str = "<!-- measured: end -->";

/// Writes the tables into the page, in place of the text between the HTML comments `BEGIN` and
/// `END`. Without a page, writes them to `results.md` in `out`.
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

/// Returns the page with `measured` between `BEGIN` and `END`; `None` if the page lacks one of
/// them.
fn replaced(page: &str, measured: &str) -> Option<String> {
    let (head, rest) = page.split_once(BEGIN)?;
    let (_, tail) = rest.split_once(END)?;
    Some(format!("{head}{BEGIN}\n{measured}{END}{tail}"))
}

/// Returns all tables of a run.
fn measured(results: &Results) -> String {
    let parts = [
        run(results),
        limits(results),
        shares(results),
        with_head(LINE_HEAD, results.lines.iter().flat_map(line_rows)),
        ratios(results),
        with_head(SCENARIO_HEAD, results.outcomes.iter().map(outcome_row)),
        with_head("", results.failures.iter().map(Failure::row)),
    ];
    parts.concat()
}

/// Returns a table with a blank line behind it; empty without rows.
fn with_head(head: &str, rows: impl Iterator<Item = String>) -> String {
    let rows: Vec<String> = rows.collect();
    if rows.is_empty() { String::new() } else { format!("{head}{}\n\n", rows.join("\n")) }
}

fn run(results: &Results) -> String {
    let Run { began, commit, cpus, kernel, load_average: [before, after], scale, seconds, .. } = &results.run;
    let mut text = format!(
        "Run of {began} UTC, commit {commit}, {cpus} cores, Linux {kernel}, rounds of {seconds} s; load average {before:.2} \
         before and {after:.2} at the end."
    );
    if *scale < 1.0 {
        let _ = write!(text, " **Sizes of scenarios are {scale} of the full ones.**");
    }
    format!("{text}\n\nFailed clients and parts: {}.\n\n", results.errors())
}

/// Returns the table of the machine's limits.
pub(crate) fn limits(results: &Results) -> String {
    let rows = results.run.limits.iter().map(|limit| format!("| {} | {:.0} |", limit.name, limit.per_second));
    with_head("| limit of this machine | a second |\n|---|---|\n", rows)
}

/// Number of log entries that one operation of a workload needs; `None` for reads and hand-offs,
/// which [`shares`] leaves out.
fn entries(workload: Workload) -> Option<f64> {
    match workload {
        Workload::Create | Workload::Write => Some(1.0),
        Workload::LockCycle => Some(2.0),
        Workload::LocalGet | Workload::LinearizableGet | Workload::HandOff => None,
    }
}

/// Returns the table of shares: the rate of each system as a part of the rate at which the machine
/// can replicate batches with one entry for each client.
fn shares(results: &Results) -> String {
    let row = |line: &Line| {
        let entries = entries(line.workload)?;
        let limit = results.run.limits.iter().find(|limit| limit.batch == Some(line.clients))?.per_second;
        let share = |kind: Kind| match line.spread(kind, |figures| figures.per_second) {
            Some(rate) => format!("{:.1} %", 100.0 * rate.median * entries / limit),
            None => "-".to_owned(),
        };
        let shares = REPLICATED.map(share).join(" | ");
        Some(format!("| {} | {} | {limit:.0} | {shares} |", line.workload.name(), line.clients))
    };
    with_head(SHARE_HEAD, results.lines.iter().filter_map(row))
}

/// Returns the table rows of one [`Line`] (a workload with one number of clients): a row for each
/// system.
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

/// Returns the table of ratios: zlock's figures, by protocol, in relation to those of ZooKeeper,
/// etcd and Redis.
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

/// Returns the table of one scenario's figures.
pub(crate) fn scenario_table(results: &Results, scenario: Scenario) -> String {
    let rows = results.outcomes.iter().filter(|outcome| outcome.scenario == scenario).map(outcome_row);
    with_head(SCENARIO_HEAD, rows)
}

fn outcome_row(outcome: &Outcome) -> String {
    let figure = |kind: Kind| {
        let rounds = outcome.rounds.get(&kind);
        rounds.map_or("-".to_owned(), |rounds| Spread::of(rounds.iter().copied()).short())
    };
    let (figures, size) =
        (REPLICATED.map(figure).join(" | "), outcome.size.map_or(String::new(), |size| size.to_string()));
    format!("| {} | {size} | {} | {} | {figures} |", outcome.scenario.name(), outcome.name, outcome.unit)
}

#[cfg(test)]
mod tests;
