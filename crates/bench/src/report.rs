//! Tables for people and `results.json` for programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::error::Error;
use crate::figures::{Figures, Spread};
use crate::limits::{self, Limit};
use crate::plot;
use crate::scenario::Figure;
use crate::system::Kind;

const HEAD: &str = "\
| workload | clients | system | ops/s median (min-max) | p50 us | p99 us | max us | server CPU us/op | client CPU us/op | errors |
|---|---|---|---|---|---|---|---|---|---|
";
const RATIO_HEAD: &str = "\
| workload | clients | zlock's door | peer | ops/s, times | p50, times lower | p99, times lower | server CPU per operation, part of the peer's |
|---|---|---|---|---|---|---|---|
";

/// One workload with one number of clients, on all systems.
pub(crate) struct Line {
    pub(crate) workload: &'static str,
    pub(crate) clients: usize,
    pub(crate) rounds: BTreeMap<Kind, Vec<Figures>>,
}

impl Line {
    pub(crate) fn new(workload: &'static str, clients: usize) -> Line {
        Line { workload, clients, rounds: BTreeMap::new() }
    }

    /// The rows of the table.
    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        for (kind, rounds) in &self.rounds {
            let spread = |figure: fn(&Figures) -> f64| Spread::of(rounds.iter().map(figure));
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {:.0} | {:.0} | {:.0} | {:.1} | {:.1} | {} |",
                self.workload,
                self.clients,
                kind.name(),
                spread(|figures| figures.per_second).whole(),
                spread(|figures| figures.p50_us).median,
                spread(|figures| figures.p99_us).median,
                spread(|figures| figures.max_us).max,
                spread(|figures| figures.server_cpu_us).median,
                spread(|figures| figures.client_cpu_us).median,
                rounds.iter().map(|figures| figures.errors).sum::<usize>(),
            );
        }
        text.trim_end().to_owned()
    }

    /// A zlock door against a peer, round by round; `None` when one of them has no rounds.
    fn ratio(&self, own: Kind, peer: Kind, figure: impl Fn(&Figures, &Figures) -> f64) -> Option<Spread> {
        let (own, peer) = (self.rounds.get(&own)?, self.rounds.get(&peer)?);
        Some(Spread::of(own.iter().zip(peer).map(|(own, peer)| figure(own, peer))))
    }

    fn ratio_row(&self, own: Kind, peer: Kind) -> Option<String> {
        let rate = self.ratio(own, peer, |own, peer| own.per_second / peer.per_second)?;
        let p50 = self.ratio(own, peer, |own, peer| peer.p50_us / own.p50_us)?;
        let p99 = self.ratio(own, peer, |own, peer| peer.p99_us / own.p99_us)?;
        let cpu = self.ratio(own, peer, |own, peer| own.server_cpu_us / peer.server_cpu_us)?;
        let figures = [rate, p50, p99, cpu].map(Spread::ratio).join(" | ");
        Some(format!("| {} | {} | {} | {} | {figures} |", self.workload, self.clients, own.name(), peer.name()))
    }

    fn json(&self) -> Value {
        let systems: BTreeMap<&str, &Vec<Figures>> =
            self.rounds.iter().map(|(kind, rounds)| (kind.name(), rounds)).collect();
        json!({ "workload": self.workload, "clients": self.clients, "rounds": systems })
    }
}

/// One figure of a scenario, on all systems.
struct Outcome {
    scenario: &'static str,
    name: &'static str,
    unit: &'static str,
    rounds: BTreeMap<Kind, Vec<f64>>,
}

impl Outcome {
    fn row(&self) -> String {
        let mut text = format!("| {} | {} |", self.name, self.unit);
        for kind in SCENARIO_SYSTEMS {
            let _ = match self.rounds.get(&kind) {
                Some(rounds) => write!(text, " {} |", Spread::of(rounds.iter().copied()).short()),
                None => write!(text, " - |"),
            };
        }
        text
    }

    fn json(&self) -> Value {
        let systems: BTreeMap<&str, &Vec<f64>> =
            self.rounds.iter().map(|(kind, rounds)| (kind.name(), rounds)).collect();
        json!({ "scenario": self.scenario, "name": self.name, "unit": self.unit, "rounds": systems })
    }
}

const SCENARIO_SYSTEMS: [Kind; 4] = [Kind::ZlockRest, Kind::ZlockZk, Kind::Zookeeper, Kind::Etcd];
const SCENARIO_HEAD: &str = "\
| what | unit | zlock-rest | zlock-zk | zookeeper | etcd |
|---|---|---|---|---|---|
";

/// All that was measured so far.
pub(crate) struct Report {
    systems: Vec<Kind>,
    pub(crate) lines: Vec<Line>,
    outcomes: Vec<Outcome>,
    failures: Vec<String>,
    limits: Vec<Limit>,
}

impl Report {
    pub(crate) fn new(systems: &[Kind], limits: Vec<Limit>) -> Report {
        let (lines, outcomes, failures) = (Vec::new(), Vec::new(), Vec::new());
        Report { systems: systems.to_vec(), lines, outcomes, failures, limits }
    }

    /// The machine's limits.
    pub(crate) fn limits(&self) -> String {
        limits::table(&self.limits)
    }

    /// Puts all tables and plots into a page, in place of those that are there.
    pub(crate) fn write_page(&self, page: &Path, out: &Path) -> Result<(), Error> {
        let text = fs::read_to_string(page)?;
        let parts = text.split_once(BEGIN).and_then(|(head, rest)| Some((head, rest.split_once(END)?.1)));
        let (head, tail) = parts.ok_or_else(|| Error::Absent(format!("{} has no marks", page.display())))?;
        let base = page.parent().unwrap_or(Path::new(""));
        let mut measured = format!("{}\n\n{}\n", self.machine_line(), self.limits());
        for (workload, title) in TITLES.iter().filter(|(workload, _)| self.has(workload)) {
            let plot = out.join(format!("{workload}.svg"));
            let _ = write!(measured, "\n![{title}]({})\n", plot.strip_prefix(base).unwrap_or(&plot).display());
        }
        let _ = write!(measured, "\n{}", self.tables());
        Ok(fs::write(page, format!("{head}{BEGIN}\n{measured}{END}{tail}"))?)
    }

    fn has(&self, workload: &str) -> bool {
        self.lines.iter().any(|line| line.workload == workload)
    }

    fn machine_line(&self) -> String {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let cpus = std::thread::available_parallelism().map_or(0, usize::from);
        let load = load.split(' ').next().unwrap_or_default();
        format!("{cpus} cores, Linux {}; load average at the end {load}. Failed: {}.", kernel.trim(), self.errors())
    }

    /// Rates, ratios, scenarios.
    fn tables(&self) -> String {
        let tables: Vec<String> = self.lines.iter().map(Line::table).collect();
        let outcomes: Vec<String> = self.outcomes.iter().map(Outcome::row).collect();
        let failures: Vec<String> = self.failures.iter().map(|failure| format!("* not measured: {failure}")).collect();
        let (lines, ratios) = (tables.join("\n"), self.ratios());
        let (outcomes, failures) = (outcomes.join("\n"), failures.join("\n"));
        format!("{HEAD}{lines}\n\n{ratios}\n\n{SCENARIO_HEAD}{outcomes}\n\n{failures}\n")
    }

    /// Takes in a round of a scenario.
    pub(crate) fn add(&mut self, scenario: &'static str, kind: Kind, figures: Vec<Figure>) {
        for Figure { name, unit, value } in figures {
            eprintln!("        {scenario}  {}: {name}: {value:.1} {unit}", kind.name());
            let found = self.outcomes.iter().position(|outcome| outcome.name == name);
            let place = found.unwrap_or_else(|| {
                self.outcomes.push(Outcome { scenario, name, unit, rounds: BTreeMap::new() });
                self.outcomes.len() - 1
            });
            self.outcomes[place].rounds.entry(kind).or_default().push(value);
        }
    }

    /// A round of a scenario that could not be measured: told and kept, and the others go on.
    pub(crate) fn fail(&mut self, scenario: &'static str, kind: Kind, error: &Error) {
        let failure = format!("{scenario} on {}: {error}", kind.name());
        eprintln!("bench: {failure}");
        self.failures.push(failure);
    }

    /// The figures of one scenario.
    pub(crate) fn scenario_table(&self, scenario: &str) -> String {
        let rows = self.outcomes.iter().filter(|outcome| outcome.scenario == scenario).map(Outcome::row);
        format!("{SCENARIO_HEAD}{}", rows.collect::<Vec<_>>().join("\n"))
    }

    /// How many clients failed.
    pub(crate) fn errors(&self) -> usize {
        self.lines.iter().flat_map(|line| line.rounds.values().flatten()).map(|figures| figures.errors).sum::<usize>()
            + self.failures.len()
    }

    /// The table of ratios: each of zlock's doors to each peer.
    pub(crate) fn ratios(&self) -> String {
        let is_own = |kind: &&Kind| matches!(kind, Kind::ZlockRest | Kind::ZlockZk);
        let mut text = RATIO_HEAD.to_owned();
        for line in &self.lines {
            for own in self.systems.iter().filter(is_own) {
                for peer in self.systems.iter().filter(|kind| !is_own(kind)) {
                    if let Some(row) = line.ratio_row(*own, *peer) {
                        text.push_str(&row);
                        text.push('\n');
                    }
                }
            }
        }
        text.trim_end().to_owned()
    }

    /// Writes all files, over those of the line before.
    pub(crate) fn store(&self, out: &Path) -> Result<(), Error> {
        fs::create_dir_all(out)?;
        let lines: Vec<Value> = self.lines.iter().map(Line::json).collect();
        let outcomes: Vec<Value> = self.outcomes.iter().map(Outcome::json).collect();
        let limits: BTreeMap<&str, f64> =
            self.limits.iter().map(|limit| (limit.name.as_str(), limit.per_second)).collect();
        let machine = json!({
            "cpus": std::thread::available_parallelism().map_or(0, usize::from),
            "kernel": fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim(),
            "load_average": fs::read_to_string("/proc/loadavg").unwrap_or_default().trim(),
        });
        let whole = json!({ "machine": machine, "lines": lines, "limits": limits, "scenarios": outcomes, "failures": self.failures });
        fs::write(out.join("results.json"), serde_json::to_vec_pretty(&whole).map_err(std::io::Error::from)?)?;
        fs::write(out.join("results.md"), format!("{}\n\n{}", self.limits(), self.tables()))?;
        for (workload, title) in TITLES {
            let lines: Vec<&Line> = self.lines.iter().filter(|line| line.workload == workload).collect();
            if !lines.is_empty() {
                fs::write(out.join(format!("{workload}.svg")), plot::bars(title, &groups(&lines)))?;
            }
        }
        Ok(())
    }
}

const BEGIN: &str = "<!-- measured: begin -->";
const END: &str = "<!-- measured: end -->";
const TITLES: [(&str, &str); 5] = [
    ("write", "Writes of 100 bytes a second, by number of clients"),
    ("local-get", "Local reads a second, by number of clients"),
    ("linearizable-get", "Linearizable reads a second, by number of clients"),
    ("lock-cycle", "Locks taken and released a second, by number of clients"),
    ("hand-off", "Hand-offs of one lock a second, by number of clients"),
];

fn groups(lines: &[&Line]) -> Vec<plot::Group> {
    let bar = |(kind, rounds): (&Kind, &Vec<Figures>)| plot::Bar {
        name: kind.name(),
        height: Spread::of(rounds.iter().map(|figures| figures.per_second)),
    };
    let group =
        |line: &&Line| plot::Group { label: line.clients.to_string(), bars: line.rounds.iter().map(bar).collect() };
    lines.iter().map(group).collect()
}
