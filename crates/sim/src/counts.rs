//! Counts of events in runs, by name. They show how much the runs have covered.

use std::collections::BTreeMap;

use znode::{LEVEL_MAX, LEVEL_MIN, Zxid};

use crate::machine::Node;

/// Name of the count of acknowledged writes.
pub const ACKNOWLEDGED: &str = "writes acknowledged";
/// Name of the count of lock grants in the calm, the time after the repair of all faults. A grant
/// counts only if the waiting client learned of it in time.
pub const GRANTS: &str = "grants in the calm";
/// Name of the count of injected faults, failed disks included.
pub const FAULTS: &str = "faults";

/// Names of the counts of snapshots: written by a node, sent to a follower, installed from a
/// leader.
const SNAPSHOTS: [&str; 3] = ["snapshots built", "snapshots sent", "snapshots installed"];
const PURGED: &str = "logs purged";
/// Names of the counts that must be above zero after many runs.
const NAMES: [&str; 14] = [
    "entries",
    ACKNOWLEDGED,
    GRANTS,
    FAULTS,
    "disks failed",
    SNAPSHOTS[0],
    SNAPSHOTS[1],
    SNAPSHOTS[2],
    PURGED,
    "members added",
    "members promoted",
    "members replaced",
    "members removed",
    "leaders transferred",
];
/// Names of further counts that must be above zero, in builds that know two format levels.
const NAMES_OF_LEVELS: [&str; 4] =
    ["programs upgraded", "programs downgraded", "programs turned away", "levels raised"];

/// Sum of each count over all runs, and the number of runs in which it was above zero.
#[derive(Clone, Debug, Default)]
pub struct Counts(BTreeMap<&'static str, [u64; 2]>);

impl Counts {
    /// Adds `times` to a count of one run.
    pub(crate) fn note(&mut self, name: &'static str, times: u64) {
        if times > 0 {
            let [sum, runs] = self.0.entry(name).or_default();
            (*sum, *runs) = (*sum + times, 1);
        }
    }

    /// Adds all counts of `other`. With `of_same_run`, both counts belong to one run, so the number
    /// of runs stays at one. Otherwise the numbers of runs are added as well.
    pub fn merge(&mut self, other: &Counts, of_same_run: bool) {
        for (name, [times, in_runs]) in &other.0 {
            let [sum, runs] = self.0.entry(name).or_default();
            (*sum, *runs) = (*sum + times, if of_same_run { 1 } else { *runs + in_runs });
        }
    }

    /// The sum of a count; 0 if nothing was counted.
    pub fn of(&self, name: &str) -> u64 {
        self.0.get(name).map_or(0, |[sum, _]| *sum)
    }

    /// All counts in one line of text.
    pub fn told(&self) -> String {
        let each = Counts::names().map(|name| match self.0.get(name) {
            Some([sum, runs]) => format!("{name} {sum} (in {runs})"),
            None => format!("{name} 0"),
        });
        each.collect::<Vec<_>>().join(", ")
    }

    /// Names of the counts that are zero, in words; `None` if every count is above zero.
    pub fn is_vacuous(&self) -> Option<String> {
        let missing: Vec<&str> = Counts::names().filter(|name| self.of(name) == 0).collect();
        (!missing.is_empty()).then(|| format!("no run saw {}", missing.join(", ")))
    }

    fn names() -> impl Iterator<Item = &'static str> {
        NAMES.into_iter().chain(NAMES_OF_LEVELS).take(if LEVEL_MAX > LEVEL_MIN { usize::MAX } else { NAMES.len() })
    }
}

/// Status numbers of one node at the last call of [`Watcher::look`].
#[derive(Default)]
struct Seen {
    boot: u64,
    snapshots: [u64; 3],
    purged: Zxid,
}

/// Watcher that counts snapshots and purges of all nodes of a run.
#[derive(Default)]
pub(crate) struct Watcher {
    seen: BTreeMap<u64, Seen>,
    pub(crate) counts: Counts,
}

impl Watcher {
    /// Counts what has changed at the nodes since the last look. Call it in each step.
    pub(crate) fn look(&mut self, nodes: &[Node]) {
        for node in nodes {
            let Some(status) = &node.status else { continue };
            let (boot, purged) = (node.boots, status.purged);
            let seen = self.seen.entry(node.id).or_default();
            if seen.boot != boot {
                *seen = Seen { boot, purged, ..Seen::default() };
            }
            let counts = status.counts;
            let snapshots = [counts.snapshots_built, status.peers.snapshots_sent, counts.snapshots_installed];
            for at in 0..SNAPSHOTS.len() {
                self.counts.note(SNAPSHOTS[at], snapshots[at].saturating_sub(seen.snapshots[at]));
            }
            self.counts.note(PURGED, u64::from(purged > seen.purged));
            *seen = Seen { boot, snapshots, purged };
        }
    }
}
