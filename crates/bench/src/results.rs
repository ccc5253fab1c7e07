//! Measurements of one run, as `results.json` keeps them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::figures::{Figures, Spread};
use crate::limits::Limit;
use crate::scenario::{Figure, Scenario};
use crate::system::{Kind, Named as _};
use crate::workload::Workload;

const FILE: &str = "results.json";

/// Results of one run. The lines (results of a workload) and outcomes (results of a scenario) are
/// in the order in which the report shows them.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) run: Run,
    pub(crate) lines: Vec<Line>,
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) failures: Vec<Failure>,
}

/// Circumstances of one run of the program.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Run {
    /// Begin of the run, in UTC.
    pub(crate) began: String,
    /// Version of the source by `git describe`.
    pub(crate) commit: String,
    pub(crate) cpus: usize,
    pub(crate) kernel: String,
    /// Load average of the last minute, before the run and at its end.
    pub(crate) load_average: [f64; 2],
    /// Factor of the scenarios' sizes; 1 for full sizes.
    pub(crate) scale: f64,
    /// Length of one round of steady load in seconds.
    pub(crate) seconds: f64,
    pub(crate) limits: Vec<Limit>,
}

/// Results of one workload with one number of clients, on all systems.
#[derive(Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) workload: Workload,
    pub(crate) clients: usize,
    pub(crate) rounds: BTreeMap<Kind, Vec<Figures>>,
}

impl Line {
    /// Returns the spread of a figure over a system's rounds; `None` without rounds.
    pub(crate) fn spread(&self, kind: Kind, figure: impl Fn(&Figures) -> f64) -> Option<Spread> {
        Some(Spread::of(self.rounds.get(&kind)?.iter().map(figure)))
    }

    /// Returns the spread of the ratios between two systems' rounds of equal index; `None` if a
    /// system has no rounds. Rounds of equal index ran right after each other: a system that fails
    /// a round runs no further rounds of this line.
    pub(crate) fn ratio(&self, own: Kind, peer: Kind, figure: impl Fn(&Figures, &Figures) -> f64) -> Option<Spread> {
        let (own, peer) = (self.rounds.get(&own)?, self.rounds.get(&peer)?);
        Some(Spread::of(own.iter().zip(peer).map(|(own, peer)| figure(own, peer))))
    }
}

/// Results for one figure of a scenario, on all systems.
#[derive(Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) scenario: Scenario,
    pub(crate) name: String,
    /// Size at which the figure was measured, for example a number of waiters; `None` in a scenario
    /// of one size.
    pub(crate) size: Option<usize>,
    pub(crate) unit: String,
    pub(crate) rounds: BTreeMap<Kind, Vec<f64>>,
}

/// Part of a run: one workload with one number of clients, or one scenario.
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
            Part::Scenario(scenario) => scenario.name(),
        }
    }
}

/// Failure of one part of a run on one system. Rounds that ended before the failure are kept.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) part: Part,
    pub(crate) system: Kind,
    pub(crate) reason: String,
}

impl Failure {
    /// Returns the failure as one line of a Markdown list. Line breaks in a server's message are
    /// replaced, because they would end the list.
    pub(crate) fn row(&self) -> String {
        let reason = self.reason.split_whitespace().collect::<Vec<_>>().join(" ");
        format!("* failed: {} on {}: {reason}", self.part.name(), self.system.name())
    }
}

impl Results {
    /// Writes the results to `out`.
    pub(crate) fn store(&self, out: &Path) -> Result<(), Error> {
        fs::create_dir_all(out)?;
        let mut text = serde_json::to_vec_pretty(self).map_err(std::io::Error::from)?;
        text.push(b'\n');
        // The file is renamed, so that it is complete whenever this program ends.
        let whole = out.join(format!("{FILE}.new"));
        fs::write(&whole, text)?;
        Ok(fs::rename(whole, out.join(FILE))?)
    }

    /// Adds the figures of one round of a workload on one system.
    pub(crate) fn add_round(&mut self, workload: Workload, clients: usize, kind: Kind, figures: Figures) {
        let is_its = |line: &Line| (line.workload, line.clients) == (workload, clients);
        let at = self.lines.iter().position(is_its).unwrap_or_else(|| {
            self.lines.push(Line { workload, clients, rounds: BTreeMap::new() });
            self.lines.len() - 1
        });
        self.lines[at].rounds.entry(kind).or_default().push(figures);
    }

    /// Adds the figures of one round of a scenario on one system.
    pub(crate) fn add_figures(&mut self, scenario: Scenario, kind: Kind, figures: Vec<Figure>) {
        for Figure { name, size, unit, value } in figures {
            let is_same =
                |outcome: &&mut Outcome| (outcome.scenario, outcome.size, &outcome.name) == (scenario, size, &name);
            if let Some(outcome) = self.outcomes.iter_mut().find(is_same) {
                outcome.rounds.entry(kind).or_default().push(value);
                continue;
            }
            let rounds = BTreeMap::from([(kind, vec![value])]);
            self.outcomes.push(Outcome { scenario, name, size, unit: unit.to_owned(), rounds });
        }
    }

    /// Notes the failure of a part of the run, so that other parts can go on. Returns the failure
    /// as a line for the report.
    pub(crate) fn fail(&mut self, part: Part, system: Kind, reason: String) -> String {
        let failure = Failure { part, system, reason };
        let row = failure.row();
        self.failures.push(failure);
        row
    }

    /// Number of clients and of parts that failed.
    pub(crate) fn errors(&self) -> usize {
        let rounds = self.lines.iter().flat_map(|line| line.rounds.values().flatten());
        rounds.map(|figures| figures.errors).sum::<usize>() + self.failures.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_that_failed_is_compared_in_the_rounds_that_it_has() {
        let figures = |per_second| Figures { per_second, ..Figures::default() };
        let mut results = Results::default();
        for (kind, rate) in [(Kind::Etcd, 900.0), (Kind::Etcd, 1_100.0), (Kind::ZlockZk, 1_800.0)] {
            results.add_round(Workload::Write, 64, kind, figures(rate));
        }
        results.fail(Part::Load { workload: Workload::Write, clients: 64 }, Kind::ZlockZk, "no answer".into());
        let line = &results.lines[0];
        assert_eq!(line.spread(Kind::Etcd, |figures| figures.per_second).unwrap().median, 1_000.0);
        let ratio = line.ratio(Kind::ZlockZk, Kind::Etcd, |own, peer| own.per_second / peer.per_second).unwrap();
        assert_eq!((ratio.min, ratio.max), (2.0, 2.0));
        assert!(line.ratio(Kind::ZlockRest, Kind::Etcd, |own, _| own.per_second).is_none());
        assert_eq!((results.lines.len(), results.errors()), (1, 1));
    }

    #[test]
    fn figures_of_one_name_and_size_are_rounds_of_one_outcome() {
        let figure = |size, value| vec![Figure { name: "writes".into(), size: Some(size), unit: "1/s", value }];
        let mut results = Results::default();
        for (size, value) in [(1, 10.0), (10, 5.0), (1, 12.0)] {
            results.add_figures(Scenario::GrowthWaiters, Kind::ZlockRest, figure(size, value));
        }
        let rounds: Vec<_> =
            results.outcomes.iter().map(|one| (one.size, one.rounds[&Kind::ZlockRest].clone())).collect();
        assert_eq!(rounds, [(Some(1), vec![10.0, 12.0]), (Some(10), vec![5.0])]);
        let out = tempfile::tempdir().unwrap();
        results.store(out.path()).unwrap();
        let stored: Results = serde_json::from_slice(&fs::read(out.path().join(FILE)).unwrap()).unwrap();
        assert_eq!(stored.outcomes.len(), 2);
    }
}
