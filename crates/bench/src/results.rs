//! What was measured, as `results.json` keeps it: of one run, or of several that replaced each
//! other's parts.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::figures::{Figures, Spread};
use crate::limits::Limit;
use crate::scenario::{Figure, Scenario};
use crate::system::Kind;
use crate::workload::Workload;

const FILE: &str = "results.json";

/// Everything. Lines and outcomes stand in the order of the tables.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Results {
    /// In order of their numbers; only those that something else here is of.
    pub(crate) runs: Vec<Run>,
    pub(crate) lines: Vec<Line>,
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) failures: Vec<Failure>,
}

/// One start of the program.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) number: usize,
    /// When it began, in UTC.
    pub(crate) began: String,
    /// What git calls the source.
    pub(crate) commit: String,
    pub(crate) cpus: usize,
    pub(crate) kernel: String,
    /// Of the last minute before it began and before it ended.
    pub(crate) load_average: [f64; 2],
    /// What the sizes of scenarios were multiplied with.
    pub(crate) scale: f64,
    /// Length of one round of steady load.
    pub(crate) seconds: f64,
    pub(crate) limits: Vec<Limit>,
}

/// One workload with one number of clients, on all systems.
#[derive(Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) run: usize,
    pub(crate) workload: Workload,
    pub(crate) clients: usize,
    pub(crate) rounds: BTreeMap<Kind, Vec<Figures>>,
}

impl Line {
    /// The spread of a figure over a system's rounds.
    pub(crate) fn spread(&self, kind: Kind, figure: impl Fn(&Figures) -> f64) -> Option<Spread> {
        Some(Spread::of(self.rounds.get(&kind)?.iter().map(figure)))
    }

    /// One system against another, round by round; `None` when one of them has no rounds. A system
    /// whose round failed has none after it, so that the rounds of one place are always of one
    /// time.
    pub(crate) fn ratio(&self, own: Kind, peer: Kind, figure: impl Fn(&Figures, &Figures) -> f64) -> Option<Spread> {
        let (own, peer) = (self.rounds.get(&own)?, self.rounds.get(&peer)?);
        Some(Spread::of(own.iter().zip(peer).map(|(own, peer)| figure(own, peer))))
    }
}

/// One figure of a scenario, on all systems.
#[derive(Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) run: usize,
    pub(crate) scenario: Scenario,
    pub(crate) name: String,
    /// How many there were of what grows.
    pub(crate) size: Option<usize>,
    pub(crate) unit: String,
    pub(crate) rounds: BTreeMap<Kind, Vec<f64>>,
}

/// What is measured, and replaced, as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Part {
    Load { workload: Workload, clients: usize },
    Scenario(Scenario),
}

impl Part {
    /// The name in messages.
    pub(crate) fn name(self) -> String {
        match self {
            Part::Load { workload, clients } => format!("{} x{clients}", workload.name()),
            Part::Scenario(scenario) => scenario.name().to_owned(),
        }
    }
}

/// What could not be measured, wholly or in part.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) run: usize,
    pub(crate) part: Part,
    pub(crate) system: Kind,
    pub(crate) reason: String,
}

impl Failure {
    /// What failed, in one line: whatever a server said must not end the list.
    pub(crate) fn row(&self) -> String {
        let reason = self.reason.split_whitespace().collect::<Vec<_>>().join(" ");
        format!("* failed: {} on {}: {reason}", self.part.name(), self.system.name())
    }
}

impl Results {
    /// Reads what an earlier run left in `out`; nothing when there was none.
    pub(crate) fn load(out: &Path) -> Result<Results, Error> {
        let path = out.join(FILE);
        if !path.exists() {
            return Ok(Results::default());
        }
        let unreadable = |error| {
            let path = path.display();
            Error::Absent(format!("{path} is not of this program's making ({error}): remove it, or take another --out"))
        };
        serde_json::from_slice(&fs::read(&path)?).map_err(unreadable)
    }

    /// Writes them to `out`.
    pub(crate) fn store(&self, out: &Path) -> Result<(), Error> {
        fs::create_dir_all(out)?;
        let mut text = serde_json::to_vec_pretty(self).map_err(std::io::Error::from)?;
        text.push(b'\n');
        // Renamed, so that whatever ends this program leaves a whole file.
        let whole = out.join(format!("{FILE}.new"));
        fs::write(&whole, text)?;
        Ok(fs::rename(whole, out.join(FILE))?)
    }

    /// A new run: what is measured from now on is of it. The answer is its number.
    pub(crate) fn begin_run(&mut self, run: Run) -> usize {
        let number = self.runs.last().map_or(1, |run| run.number + 1);
        self.runs.push(Run { number, ..run });
        number
    }

    /// The run that goes on.
    pub(crate) fn last_run(&mut self) -> Option<&mut Run> {
        self.runs.last_mut()
    }

    /// A run by its number.
    pub(crate) fn run(&self, number: usize) -> Option<&Run> {
        self.runs.iter().find(|run| run.number == number)
    }

    /// Forgets what was measured of a part before: it is measured again.
    pub(crate) fn begin_part(&mut self, part: Part) {
        match part {
            Part::Load { workload, clients } => {
                self.lines.retain(|line| (line.workload, line.clients) != (workload, clients));
                let run = self.number();
                self.lines.push(Line { run, workload, clients, rounds: BTreeMap::new() });
                self.lines.sort_by_key(|line| (line.workload, line.clients));
            }
            Part::Scenario(scenario) => self.outcomes.retain(|outcome| outcome.scenario != scenario),
        }
        self.failures.retain(|failure| failure.part != part);
        let last = self.number();
        let (lines, outcomes, failures) = (&self.lines, &self.outcomes, &self.failures);
        self.runs.retain(|run| {
            run.number == last
                || lines.iter().any(|line| line.run == run.number)
                || outcomes.iter().any(|outcome| outcome.run == run.number)
                || failures.iter().any(|failure| failure.run == run.number)
        });
    }

    /// Takes in a round of steady load, whose line was begun.
    pub(crate) fn add_round(&mut self, workload: Workload, clients: usize, kind: Kind, figures: Figures) {
        let line = self.lines.iter_mut().find(|line| (line.workload, line.clients) == (workload, clients));
        line.expect("the line was begun").rounds.entry(kind).or_default().push(figures);
    }

    /// Takes in a round of a scenario.
    pub(crate) fn add_figures(&mut self, scenario: Scenario, kind: Kind, figures: Vec<Figure>) {
        let run = self.number();
        for Figure { name, size, unit, value } in figures {
            let is_same =
                |outcome: &&mut Outcome| (outcome.scenario, outcome.size, &outcome.name) == (scenario, size, &name);
            if let Some(outcome) = self.outcomes.iter_mut().find(is_same) {
                outcome.rounds.entry(kind).or_default().push(value);
                continue;
            }
            let rounds = BTreeMap::from([(kind, vec![value])]);
            self.outcomes.push(Outcome { run, scenario, name, size, unit: unit.to_owned(), rounds });
        }
        self.outcomes.sort_by_key(|outcome| (outcome.scenario, outcome.size));
    }

    /// What could not be measured: kept, and the others go on. The answer is its line in the list.
    pub(crate) fn fail(&mut self, part: Part, system: Kind, reason: String) -> String {
        let run = self.number();
        let failure = Failure { run, part, system, reason };
        let row = failure.row();
        self.failures.push(failure);
        self.failures.sort_by_key(|failure| failure.part);
        row
    }

    /// How many clients failed, and how many parts of systems.
    pub(crate) fn errors(&self) -> usize {
        self.runs.iter().map(|run| self.errors_of(run.number)).sum()
    }

    /// The same of what the run that goes on has measured.
    pub(crate) fn errors_of_last_run(&self) -> usize {
        self.errors_of(self.number())
    }

    fn errors_of(&self, run: usize) -> usize {
        let lines = self.lines.iter().filter(|line| line.run == run);
        let clients: usize = lines.flat_map(|line| line.rounds.values().flatten()).map(|figures| figures.errors).sum();
        clients + self.failures.iter().filter(|failure| failure.run == run).count()
    }

    fn number(&self) -> usize {
        self.runs.last().map_or(0, |run| run.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(per_second: f64) -> Figures {
        Figures { per_second, ..Figures::default() }
    }

    fn figure(name: &str, value: f64) -> Figure {
        Figure { name: name.into(), size: None, unit: "ms", value }
    }

    const WRITE: Part = Part::Load { workload: Workload::Write, clients: 64 };
    const FAN_OUT: Part = Part::Scenario(Scenario::FanOut);
    const KILLED: Part = Part::Scenario(Scenario::LeaderKilled);

    /// One run that measured writes and two scenarios, one of which failed on etcd.
    fn first() -> Results {
        let mut results = Results::default();
        results.begin_run(Run::default());
        results.begin_part(WRITE);
        for rate in [900.0, 1100.0] {
            results.add_round(Workload::Write, 64, Kind::Etcd, figures(rate));
        }
        results.begin_part(KILLED);
        results.add_figures(Scenario::LeaderKilled, Kind::Etcd, vec![figure("served", 3_000.0)]);
        results.begin_part(FAN_OUT);
        results.add_figures(Scenario::FanOut, Kind::ZlockZk, vec![figure("half", 4.0), figure("last", 9.0)]);
        results.fail(FAN_OUT, Kind::Etcd, "no answer".into());
        results
    }

    fn stored_and_loaded(results: &Results) -> Results {
        let out = tempfile::tempdir().unwrap();
        results.store(out.path()).unwrap();
        Results::load(out.path()).unwrap()
    }

    #[test]
    fn what_is_measured_again_replaces_its_part_and_nothing_else() {
        let mut results = stored_and_loaded(&first());
        results.begin_run(Run::default());
        assert_eq!((results.errors(), results.errors_of_last_run()), (1, 0));
        results.begin_part(FAN_OUT);
        results.add_figures(Scenario::FanOut, Kind::ZlockZk, vec![figure("last", 8.0)]);
        results.add_figures(Scenario::FanOut, Kind::Etcd, vec![figure("last", 20.0)]);
        let results = stored_and_loaded(&results);
        let outcomes: Vec<_> =
            results.outcomes.iter().map(|one| (one.run, one.scenario, one.name.as_str(), one.rounds.clone())).collect();
        let last = BTreeMap::from([(Kind::ZlockZk, vec![8.0]), (Kind::Etcd, vec![20.0])]);
        let served = BTreeMap::from([(Kind::Etcd, vec![3_000.0])]);
        let expected = [(2, Scenario::FanOut, "last", last), (1, Scenario::LeaderKilled, "served", served)];
        assert_eq!(outcomes, expected);
        assert_eq!(results.lines[0].spread(Kind::Etcd, |figures| figures.per_second).unwrap().median, 1000.0);
        assert!(results.failures.is_empty(), "{:?}", results.failures);
        assert_eq!(results.runs.iter().map(|run| run.number).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn a_run_is_forgotten_with_its_last_part() {
        let mut results = first();
        results.begin_run(Run::default());
        for part in [WRITE, KILLED] {
            results.begin_part(part);
            assert_eq!(results.runs.len(), 2, "its fan-out is still there");
        }
        results.begin_part(FAN_OUT);
        assert_eq!(results.runs.iter().map(|run| run.number).collect::<Vec<_>>(), [2]);
        assert_eq!((results.errors(), results.lines.len()), (0, 1));
        assert!(results.lines[0].rounds.is_empty());
    }

    #[test]
    fn lines_and_outcomes_stand_in_the_order_of_the_tables_whenever_they_were_measured() {
        let mut results = first();
        for (workload, clients) in [(Workload::HandOff, 32), (Workload::Write, 1), (Workload::Create, 1)] {
            results.begin_part(Part::Load { workload, clients });
        }
        let lines: Vec<_> = results.lines.iter().map(|line| (line.workload, line.clients)).collect();
        let expected = [(Workload::Create, 1), (Workload::Write, 1), (Workload::Write, 64), (Workload::HandOff, 32)];
        assert_eq!(lines, expected);
        let sizes = |size| vec![Figure { size: Some(size), ..figure("writes", 1.0) }];
        for size in [10, 1] {
            results.add_figures(Scenario::GrowthWaiters, Kind::ZlockRest, sizes(size));
        }
        results.add_figures(Scenario::GrowthZnodes, Kind::ZlockZk, sizes(1));
        let outcomes: Vec<_> = results.outcomes.iter().map(|one| (one.scenario, one.size)).collect();
        let growth = [(Scenario::GrowthZnodes, 1), (Scenario::GrowthWaiters, 1), (Scenario::GrowthWaiters, 10)];
        assert_eq!(outcomes[3..], growth.map(|(scenario, size)| (scenario, Some(size))));
    }

    #[test]
    fn a_system_that_failed_is_compared_in_the_rounds_that_it_has() {
        let mut results = first();
        results.add_round(Workload::Write, 64, Kind::ZlockZk, figures(1800.0));
        let line = &results.lines[0];
        let ratio = line.ratio(Kind::ZlockZk, Kind::Etcd, |own, peer| own.per_second / peer.per_second).unwrap();
        assert_eq!((ratio.min, ratio.max), (2.0, 2.0));
        assert!(line.ratio(Kind::ZlockRest, Kind::Etcd, |own, _| own.per_second).is_none());
    }

    #[test]
    fn results_of_another_program_are_refused_and_left_alone() {
        let out = tempfile::tempdir().unwrap();
        assert!(Results::load(out.path()).unwrap().lines.is_empty());
        fs::write(out.path().join(FILE), "{\"lines\":7}").unwrap();
        assert!(matches!(Results::load(out.path()), Err(Error::Absent(text)) if text.contains("another --out")));
        assert_eq!(fs::read_to_string(out.path().join(FILE)).unwrap(), "{\"lines\":7}");
    }
}
