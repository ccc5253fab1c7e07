//! Counts of what runs came to, by name.

use std::collections::BTreeMap;

use znode::{LEVEL_MAX, LEVEL_MIN, Zxid};

use crate::machine::Node;

/// Writes that clients were told of.
pub const ACKNOWLEDGED: &str = "writes acknowledged";
/// Grants that clients waited for when everything was mended, and were told of in time.
pub const GRANTS: &str = "grants in the calm";
/// Faults that were injected, with the disks that failed.
pub const FAULTS: &str = "faults";

/// Of snapshots: written by a node of its own state, sent to a follower, taken over from a leader.
const SNAPSHOTS: [&str; 3] = ["snapshots built", "snapshots sent", "snapshots installed"];
const PURGED: &str = "logs purged";
/// All that many runs must have seen.
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
/// The same in builds that know two levels.
const NAMES_OF_LEVELS: [&str; 4] =
    ["programs upgraded", "programs downgraded", "programs turned away", "levels raised"];

/// How often each thing was seen, and in how many runs.
#[derive(Clone, Debug, Default)]
pub struct Counts(BTreeMap<&'static str, [u64; 2]>);

impl Counts {
    /// Sees something in one run.
    pub(crate) fn note(&mut self, name: &'static str, times: u64) {
        if times > 0 {
            let [sum, runs] = self.0.entry(name).or_default();
            (*sum, *runs) = (*sum + times, 1);
        }
    }

    /// Adds another part of one run, or another run.
    pub fn merge(&mut self, other: &Counts, of_same_run: bool) {
        for (name, [times, in_runs]) in &other.0 {
            let [sum, runs] = self.0.entry(name).or_default();
            (*sum, *runs) = (*sum + times, if of_same_run { 1 } else { *runs + in_runs });
        }
    }

    /// How often that was seen.
    pub fn of(&self, name: &str) -> u64 {
        self.0.get(name).map_or(0, |[sum, _]| *sum)
    }

    /// All of them in words.
    pub fn told(&self) -> String {
        let each = Counts::names().map(|name| match self.0.get(name) {
            Some([sum, runs]) => format!("{name} {sum} (in {runs})"),
            None => format!("{name} 0"),
        });
        each.collect::<Vec<_>>().join(", ")
    }

    /// Why these runs prove little: something was seen in none of them.
    pub fn is_vacuous(&self) -> Option<String> {
        let missing: Vec<&str> = Counts::names().filter(|name| self.of(name) == 0).collect();
        (!missing.is_empty()).then(|| format!("no run saw {}", missing.join(", ")))
    }

    fn names() -> impl Iterator<Item = &'static str> {
        NAMES.into_iter().chain(NAMES_OF_LEVELS).take(if LEVEL_MAX > LEVEL_MIN { usize::MAX } else { NAMES.len() })
    }
}

/// One node, as it was looked at last.
#[derive(Default)]
struct Seen {
    boot: u64,
    snapshots: [u64; 3],
    purged: Zxid,
}

/// Watches the nodes of one run.
#[derive(Default)]
pub(crate) struct Watcher {
    seen: BTreeMap<u64, Seen>,
    pub(crate) counts: Counts,
}

impl Watcher {
    /// Looks at all nodes. To be called in each step.
    pub(crate) fn look(&mut self, nodes: &[Node]) {
        for node in nodes {
            let Some(status) = &node.status else { continue };
            let (boot, purged) = (node.boots, status.purged);
            let seen = self.seen.entry(node.id).or_default();
            if seen.boot != boot {
                *seen = Seen { boot, purged, ..Seen::default() };
            }
            let counts = status.counts;
            let snapshots = [counts.snapshots_built, status.snapshots_sent, counts.snapshots_installed];
            for at in 0..SNAPSHOTS.len() {
                self.counts.note(SNAPSHOTS[at], snapshots[at].saturating_sub(seen.snapshots[at]));
            }
            self.counts.note(PURGED, u64::from(purged > seen.purged));
            *seen = Seen { boot, snapshots, purged };
        }
    }
}
