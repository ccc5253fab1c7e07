//! Table of the runs so far, which `matrix.md` has.

use jepsen::options::{Common, quoted};
use jepsen::report::Results;
use jepsen::verdict::Validity;

/// Results of one run.
pub(crate) struct Row {
    /// The faults, `a+b` for both in one run.
    pub(crate) nemesis: String,
    pub(crate) results: Results,
}

impl Row {
    fn faults(&self) -> u64 {
        self.results.faults.values().sum()
    }

    /// Returns the row of the run in the Markdown table.
    pub(crate) fn told(&self) -> String {
        let (nemesis, Results { workload, ok, fail, info, seed, .. }) = (&self.nemesis, &self.results);
        let (verdict, why) = (self.results.valid.word(), self.results.why().join("; ").replace('|', "/"));
        let faults = self.faults();
        format!("| {workload} | {nemesis} | {verdict} | {ok} | {fail} | {info} | {faults} | {seed} | {why} |")
    }
}

/// All rows, and the options that they share.
pub(crate) struct Table {
    common: Common,
    runs: Vec<Row>,
}

impl Table {
    /// Returns an empty table.
    pub(crate) fn new(common: &Common) -> Table {
        Table { common: common.clone(), runs: Vec::new() }
    }

    pub(crate) fn add(&mut self, row: Row) {
        self.runs.push(row);
    }

    pub(crate) fn worst(&self) -> Validity {
        self.runs.iter().map(|row| row.results.valid).max().unwrap_or(Validity::Unknown)
    }

    /// Writes `matrix.md`. The file is replaced atomically, so that the table can be read after an
    /// interruption.
    pub(crate) fn write(&self) -> Result<(), String> {
        let path = self.common.store.join("matrix.md");
        let next = path.with_extension("next");
        let written = std::fs::write(&next, self.markdown()).and_then(|()| std::fs::rename(&next, &path));
        written.map_err(|error| format!("{}: {error}", path.display()))
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
            quoted(self.common.arguments())
        );
        text.push_str("| workload | nemesis | verdict | ok | fail | info | faults | seed | |\n|---|---|---|---|---|---|---|---|---|\n");
        let mut rows: Vec<&Row> = self.runs.iter().collect();
        rows.sort_by_key(|row| &row.results.workload);
        rows.iter().for_each(|row| text.push_str(&(row.told() + "\n")));
        text
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Args, Command};

    fn common() -> Common {
        match Args::parse_from(["jepsen", "all"]).command {
            Command::All(all) => all.common,
            other => panic!("{other:?}"),
        }
    }

    fn row(workload: &str, valid: Validity) -> Row {
        let faults = [("kill".to_owned(), 3), ("pause".to_owned(), 2)].into();
        let alarms = vec!["panicked".into(), "a|b".into()];
        let results = Results { valid, ok: 10, fail: 2, info: 1, seed: 7, faults, alarms, ..Results::default() };
        Row { nemesis: "kill+pause".into(), results: Results { workload: workload.into(), ..results } }
    }

    #[test]
    fn every_run_is_a_line_for_people() {
        let mut table = Table::new(&common());
        table.add(row("lock", Validity::Invalid));
        let text = table.markdown();
        assert!(text.starts_with("1 runs: 0 valid, 1 INVALID, 0 unknown; 10 ok operations, 5 faults."), "{text}");
        let line = text.lines().last().unwrap();
        assert_eq!(line, "| lock | kill+pause | INVALID | 10 | 2 | 1 | 5 | 7 | panicked; a/b |");
    }

    #[test]
    fn nothing_run_proves_nothing() {
        assert_eq!(Table::new(&common()).worst(), Validity::Unknown);
    }
}
