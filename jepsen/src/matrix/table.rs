//! Table of the runs so far: `matrix.json` for programs, `matrix.md` for people.

use std::path::{Path, PathBuf};

use jepsen::runner::Results;
use jepsen::verdict::Validity;
use serde::{Deserialize, Serialize};

use crate::args::Common;

/// Cell of the matrix: the workload, faults and round of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cell {
    /// The workload.
    pub(crate) workload: String,
    /// The faults, `a+b` for both in one run.
    pub(crate) nemesis: String,
    /// Number of earlier runs with the same workload and faults.
    pub(crate) round: u64,
}

/// Results of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) cell: Cell,
    pub(crate) results: Results,
}

impl Row {
    fn faults(&self) -> u64 {
        self.results.faults.values().sum()
    }

    /// Returns the row of the run in the Markdown table.
    pub(crate) fn told(&self) -> String {
        let (Cell { workload, nemesis, .. }, Results { ok, fail, info, seed, .. }) = (&self.cell, &self.results);
        let (verdict, why) = (self.results.valid.word(), self.results.why().join("; ").replace('|', "/"));
        let faults = self.faults();
        format!("| {workload} | {nemesis} | {verdict} | {ok} | {fail} | {info} | {faults} | {seed} | {why} |")
    }
}

/// All rows, and the settings that they share.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Table {
    /// Part of the command line that all runs share.
    settings: String,
    /// The first run's seed. Each later run has the next number.
    pub(crate) seed: u64,
    runs: Vec<Row>,
    #[serde(skip)]
    store: PathBuf,
}

impl Table {
    /// Returns an empty table.
    pub(crate) fn new(common: &Common, seed: u64) -> Table {
        Table { settings: settings(common), seed, runs: Vec::new(), store: common.store.clone() }
    }

    /// Reads the table from the store, for `--resume`. Runs of unknown verdict are left out,
    /// because they are to be repeated.
    pub(crate) fn resume(common: &Common, seed: u64) -> Result<Table, String> {
        let path = common.store.join("matrix.json");
        let text = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut table: Table = serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        if table.settings != settings(common) {
            return Err(format!("{} is of other settings: {}", path.display(), table.settings));
        }
        table.runs.retain(|row| row.results.valid != Validity::Unknown);
        table.store.clone_from(&common.store);
        table.seed = seed;
        Ok(table)
    }

    pub(crate) fn has(&self, cell: &Cell) -> bool {
        self.runs.iter().any(|row| row.cell == *cell)
    }

    pub(crate) fn add(&mut self, row: Row) {
        self.runs.push(row);
    }

    pub(crate) fn worst(&self) -> Validity {
        self.runs.iter().map(|row| row.results.valid).max().unwrap_or(Validity::Unknown)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.store.join("matrix.json")
    }

    /// Writes `matrix.json` and `matrix.md`.
    pub(crate) fn write(&self) -> Result<(), String> {
        let json = serde_json::to_string_pretty(self).map_err(|error| error.to_string())? + "\n";
        replace(&self.path(), &json)?;
        replace(&self.store.join("matrix.md"), &self.markdown())
    }

    /// Returns the table in Markdown.
    pub(crate) fn markdown(&self) -> String {
        let count = |valid| self.runs.iter().filter(|row| row.results.valid == valid).count();
        let sum = |of: fn(&Row) -> u64| -> u64 { self.runs.iter().map(of).sum() };
        let mut text = format!(
            "{} runs: {} valid, {} INVALID, {} unknown; {} ok operations, {} faults. Each: `jepsen test --workload W --nemesis N --seed S {}`\n\n",
            self.runs.len(),
            count(Validity::Valid),
            count(Validity::Invalid),
            count(Validity::Unknown),
            sum(|row| row.results.ok),
            sum(Row::faults),
            self.settings
        );
        text.push_str("| workload | nemesis | verdict | ok | fail | info | faults | seed | |\n|---|---|---|---|---|---|---|---|---|\n");
        let mut rows: Vec<&Row> = self.runs.iter().collect();
        rows.sort_by_key(|row| &row.cell.workload);
        rows.iter().for_each(|row| text.push_str(&(row.told() + "\n")));
        text
    }
}

/// Replaces a file atomically, so that the table can be read after an interruption.
fn replace(path: &Path, text: &str) -> Result<(), String> {
    let next = path.with_extension("next");
    let written = std::fs::write(&next, text).and_then(|()| std::fs::rename(&next, path));
    written.map_err(|error| format!("{}: {error}", path.display()))
}

/// The part of the command line that all runs share.
fn settings(common: &Common) -> String {
    let (time, calm, fault) = (common.time.as_millis(), common.calm.as_millis(), common.fault.as_millis());
    let mut text = format!(
        "--nodes {} --time {time}ms --concurrency {} --rate {} --calm {calm}ms --fault {fault}ms --door {} --snapshots {}",
        common.nodes,
        common.concurrency,
        common.rate,
        common.door.name(),
        common.snapshots
    );
    common.network.iter().for_each(|network| text.push_str(&format!(" --network {}", network.name())));
    common.set.iter().for_each(|setting| text.push_str(&format!(" --set '{setting}'")));
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Args, Command};

    fn common(store: &Path, time: &str) -> Common {
        let store = store.to_str().unwrap();
        match Args::parse_from(["jepsen", "all", "--store", store, "--time", time]).command {
            Command::All(all) => all.common,
            other => panic!("{other:?}"),
        }
    }

    fn row(workload: &str, valid: Validity) -> Row {
        let faults = [("kill".to_owned(), 3), ("pause".to_owned(), 2)].into();
        let alarms = vec!["panicked".into(), "a|b".into()];
        let results = Results { valid, ok: 10, fail: 2, info: 1, seed: 7, faults, alarms, ..Results::default() };
        Row { cell: Cell { workload: workload.into(), nemesis: "kill+pause".into(), round: 0 }, results }
    }

    #[test]
    fn a_matrix_goes_on_without_what_nobody_could_judge() {
        let dir = tempfile::tempdir().unwrap();
        let mut table = Table::new(&common(dir.path(), "60s"), 1);
        table.add(row("lock", Validity::Valid));
        table.add(row("queue", Validity::Unknown));
        table.add(row("watch", Validity::Invalid));
        assert_eq!(table.worst(), Validity::Invalid);
        table.write().unwrap();
        let resumed = Table::resume(&common(dir.path(), "60s"), 2).unwrap();
        assert_eq!(resumed.runs, [row("lock", Validity::Valid), row("watch", Validity::Invalid)]);
        assert!(resumed.has(&row("lock", Validity::Valid).cell) && !resumed.has(&row("queue", Validity::Valid).cell));
        let refused = Table::resume(&common(dir.path(), "30s"), 2).unwrap_err();
        assert!(refused.contains("other settings"), "{refused}");
    }

    #[test]
    fn every_run_is_a_line_for_people() {
        let mut table = Table::new(&common(Path::new("s"), "60s"), 1);
        table.add(row("lock", Validity::Invalid));
        let text = table.markdown();
        assert!(text.starts_with("1 runs: 0 valid, 1 INVALID, 0 unknown; 10 ok operations, 5 faults."), "{text}");
        let line = text.lines().last().unwrap();
        assert_eq!(line, "| lock | kill+pause | INVALID | 10 | 2 | 1 | 5 | 7 | panicked; a/b |");
    }

    #[test]
    fn nothing_run_proves_nothing() {
        assert_eq!(Table::new(&common(Path::new("s"), "60s"), 1).worst(), Validity::Unknown);
    }
}
