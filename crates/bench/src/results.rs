//! What was measured, as `results.json` keeps it: of one run, or of several that replaced each other's parts.

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

    /// One system against another, round by round; `None` when one of them has no rounds. A system whose round failed
    /// has none after it, so that the rounds of one place are always of one time.
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

    /// What could not be measured: kept, and the others go on.
    pub(crate) fn fail(&mut self, part: Part, system: Kind, reason: String) {
        let run = self.number();
        self.failures.push(Failure { run, part, system, reason });
        self.failures.sort_by_key(|failure| failure.part);
    }

    /// How many clients failed, and how many parts of systems.
    pub(crate) fn errors(&self) -> usize {
        self.lines.iter().flat_map(|line| line.rounds.values().flatten()).map(|figures| figures.errors).sum::<usize>()
            + self.failures.len()
    }

    fn number(&self) -> usize {
        self.runs.last().map_or(0, |run| run.number)
    }
}
