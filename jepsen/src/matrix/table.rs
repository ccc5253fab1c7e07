//! What came of the runs so far: `matrix.json` for programs, `matrix.md` for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use jepsen::verdict::Validity;
use serde::{Deserialize, Serialize};

use crate::args::Common;
use crate::word;

/// Which run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cell {
    /// The workload.
    pub(crate) workload: String,
    /// The faults, `a+b` for both in one run.
    pub(crate) nemesis: String,
}

/// What came of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    #[serde(flatten)]
    pub(crate) cell: Cell,
    pub(crate) valid: Validity,
    pub(crate) ok: u64,
    pub(crate) fail: u64,
    pub(crate) info: u64,
    /// How often each fault was made.
    pub(crate) faults: BTreeMap<String, u64>,
    pub(crate) seed: u64,
    pub(crate) command: String,
    /// What was found, or why nothing can be said.
    pub(crate) why: Vec<String>,
    /// Where everything lies.
    pub(crate) dir: PathBuf,
    /// How long the whole of it took.
    pub(crate) seconds: u64,
}

impl Row {
    /// One line for people.
    pub(crate) fn told(&self) -> String {
        let (workload, nemesis) = (&self.cell.workload, &self.cell.nemesis);
        let why: String = self.why.iter().map(|why| format!("; {why}")).collect();
        let made: u64 = self.faults.values().sum();
        format!(
            "{workload} under {nemesis}: {} ({} ok, {made} faults, seed {}){why}",
            word(self.valid),
            self.ok,
            self.seed
        )
    }
}

/// All rows, and the settings that they share.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Table {
    /// What belongs to every run's command line.
    settings: String,
    /// The first run's seed; those behind it count up.
    pub(crate) seed: u64,
    runs: Vec<Row>,
    #[serde(skip)]
    store: PathBuf,
}

impl Table {
    /// An empty one.
    pub(crate) fn new(common: &Common, seed: u64) -> Table {
        Table { settings: settings(common), seed, runs: Vec::new(), store: common.store.clone() }
    }

    /// The one that the store has, without what nobody could judge.
    pub(crate) fn resume(common: &Common, seed: u64) -> Result<Table, String> {
        let path = common.store.join("matrix.json");
        let text = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut table: Table = serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        if table.settings != settings(common) {
            return Err(format!("{} is of other settings: {}", path.display(), table.settings));
        }
        table.runs.retain(|row| row.valid != Validity::Unknown);
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
        self.runs.iter().map(|row| row.valid).max().unwrap_or(Validity::Unknown)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.store.join("matrix.json")
    }

    /// Writes both files.
    pub(crate) fn write(&self) -> Result<(), String> {
        let json = serde_json::to_string_pretty(self).map_err(|error| error.to_string())? + "\n";
        replace(&self.path(), &json)?;
        replace(&self.store.join("matrix.md"), &self.markdown())
    }

    /// The table for people.
    pub(crate) fn markdown(&self) -> String {
        let count = |valid| self.runs.iter().filter(|row| row.valid == valid).count();
        let sum = |of: fn(&Row) -> u64| -> u64 { self.runs.iter().map(of).sum() };
        let mut text = format!(
            "{} runs: {} valid, {} INVALID, {} unknown; {} ok operations, {} faults. Each: `jepsen test --workload W --nemesis N --seed S {}`\n\n",
            self.runs.len(),
            count(Validity::Valid),
            count(Validity::Invalid),
            count(Validity::Unknown),
            sum(|row| row.ok),
            sum(|row| row.faults.values().sum()),
            self.settings
        );
        text.push_str("| workload | nemesis | verdict | ok | fail | info | faults | seed | |\n|---|---|---|---|---|---|---|---|---|\n");
        let mut rows: Vec<&Row> = self.runs.iter().collect();
        rows.sort_by_key(|row| &row.cell.workload);
        for row in rows {
            let Row { cell: Cell { workload, nemesis }, ok, fail, info, seed, .. } = row;
            let faults: u64 = row.faults.values().sum();
            let (verdict, why) = (word(row.valid), row.why.join("; ").replace('|', "/"));
            let _ = writeln!(
                text,
                "| {workload} | {nemesis} | {verdict} | {ok} | {fail} | {info} | {faults} | {seed} | {why} |"
            );
        }
        text
    }
}

/// Whole or not at all: a matrix that is cut off must be readable.
fn replace(path: &Path, text: &str) -> Result<(), String> {
    let next = path.with_extension("next");
    let written = std::fs::write(&next, text).and_then(|()| std::fs::rename(&next, path));
    written.map_err(|error| format!("{}: {error}", path.display()))
}

/// What every command line has.
fn settings(common: &Common) -> String {
    let (time, calm, fault) = (common.time.as_millis(), common.calm.as_millis(), common.fault.as_millis());
    let mut text = format!(
        "--nodes {} --time {time}ms --concurrency {} --rate {} --calm {calm}ms --fault {fault}ms --network {} --door {} --snapshots {}",
        common.nodes, common.concurrency, common.rate, common.network, common.door, common.snapshots
    );
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
        Row {
            cell: Cell { workload: workload.into(), nemesis: "kill+pause".into() },
            valid,
            ok: 10,
            fail: 2,
            info: 1,
            faults: [("kill".to_owned(), 3), ("pause".to_owned(), 2)].into(),
            seed: 7,
            command: String::new(),
            why: vec!["stale-read".into(), "a|b".into()],
            dir: PathBuf::new(),
            seconds: 60,
        }
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
        assert_eq!(line, "| lock | kill+pause | INVALID | 10 | 2 | 1 | 5 | 7 | stale-read; a/b |");
    }

    #[test]
    fn nothing_run_proves_nothing() {
        assert_eq!(Table::new(&common(Path::new("s"), "60s"), 1).worst(), Validity::Unknown);
    }
}
