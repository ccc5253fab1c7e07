//! Coverage: faults by role of the node and by phase, and the numbers of snapshots that were
//! written, sent and installed, and of purged logs.

use std::collections::{BTreeMap, BTreeSet};

use replica::{Readiness, Role};
use znode::Zxid;

use crate::machine::Node;

/// Time for which a phase lasts after it was last seen.
const RECENT_MS: u64 = 50;

/// Present activity of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The cluster is not founded yet.
    Founding,
    /// No node leads.
    Electing,
    /// A node hands leadership over or shuts down.
    Stopping,
    /// The node has just installed a snapshot.
    Installing,
    /// The node has just written a snapshot.
    Building,
    /// The node has just purged its log.
    Purging,
    /// The node is behind.
    CatchingUp,
    /// Entries are committed.
    Writing,
    /// The node does nothing of all that.
    Idle,
}

impl Phase {
    /// All phases.
    pub const ALL: [Phase; 9] = [
        Phase::Founding,
        Phase::Electing,
        Phase::Stopping,
        Phase::Installing,
        Phase::Building,
        Phase::Purging,
        Phase::CatchingUp,
        Phase::Writing,
        Phase::Idle,
    ];

    fn name(self) -> &'static str {
        match self {
            Phase::Founding => "founding",
            Phase::Electing => "electing",
            Phase::Stopping => "stopping",
            Phase::Installing => "installing a snapshot",
            Phase::Building => "building a snapshot",
            Phase::Purging => "purging",
            Phase::CatchingUp => "catching up",
            Phase::Writing => "writing",
            Phase::Idle => "idle",
        }
    }
}

/// Numbers of operations on snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshots {
    /// Snapshots that a node wrote of its own state.
    pub built: u64,
    /// Snapshots that were sent to a follower.
    pub sent: u64,
    /// Snapshots that were installed from a leader.
    pub installed: u64,
    /// Purges of a log.
    pub purged: u64,
}

impl Snapshots {
    fn each(&self) -> [u64; 4] {
        [self.built, self.sent, self.installed, self.purged]
    }

    fn plus(&mut self, other: Snapshots) {
        self.built += other.built;
        self.sent += other.sent;
        self.installed += other.installed;
        self.purged += other.purged;
    }
}

/// Numbers of changes of the members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Nodes that became members.
    pub added: u64,
    /// Members that became voters, without those that replaced a voter.
    pub promoted: u64,
    /// Voters that were replaced by another member.
    pub replaced: u64,
    /// Members that were removed.
    pub removed: u64,
    /// Leadership transfers that were ordered and done.
    pub transferred: u64,
}

impl Changes {
    fn each(&self) -> [u64; 5] {
        [self.added, self.promoted, self.replaced, self.removed, self.transferred]
    }

    /// Counts the change from a membership with the sets of voters `before` to one with `now`.
    pub(crate) fn note(&mut self, before: &[BTreeSet<u64>], now: &[BTreeSet<u64>]) {
        match (before, now) {
            ([before], [now]) => self.promoted += now.difference(before).count() as u64,
            ([_, _], [_]) => self.replaced += 1,
            _ => {}
        }
    }

    fn plus(&mut self, other: Changes) {
        self.added += other.added;
        self.promoted += other.promoted;
        self.replaced += other.replaced;
        self.removed += other.removed;
        self.transferred += other.transferred;
    }
}

/// A node at the last look.
#[derive(Default)]
struct Seen {
    boot: u64,
    now: Snapshots,
    purged: Zxid,
    committed: Zxid,
    /// Times at which the node last built, installed, purged and committed.
    at_ms: [Option<u64>; 4],
}

/// Coverage of one or more runs.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    hits: BTreeMap<(&'static str, &'static str, Phase), u64>,
    /// Operations on snapshots in all nodes.
    pub snapshots: Snapshots,
    /// Changes of the members.
    pub changes: Changes,
    /// Numbers of runs with each operation, in the order of [`Snapshots`].
    runs_with: [u64; 4],
}

impl Coverage {
    /// Adds the coverage of another run.
    pub fn add(&mut self, other: &Coverage) {
        for (hit, count) in &other.hits {
            *self.hits.entry(*hit).or_default() += count;
        }
        self.snapshots.plus(other.snapshots);
        self.changes.plus(other.changes);
        for (runs, count) in self.runs_with.iter_mut().zip(other.snapshots.each()) {
            *runs += u64::from(count > 0);
        }
    }

    /// The reason for which these runs prove little: an operation on snapshots or a change of
    /// members that happened in none of them.
    pub fn is_vacuous(&self) -> Option<String> {
        let names = ["was built", "was sent", "was installed", "purged a log"];
        let missing = names.iter().zip(self.snapshots.each()).filter(|(_, count)| *count == 0);
        let missing: Vec<&str> = missing.map(|(name, _)| *name).collect();
        let names = ["added", "promoted", "replaced", "removed", "asked to lead"];
        let changes = names.iter().zip(self.changes.each()).filter(|(_, count)| *count == 0);
        let changes: Vec<&str> = changes.map(|(name, _)| *name).collect();
        match () {
            () if !missing.is_empty() => Some(format!("in no run a snapshot {}", missing.join(", "))),
            () if !changes.is_empty() => Some(format!("in no run a member was {}", changes.join(", "))),
            () => None,
        }
    }

    /// Returns one line about changes of the members.
    pub fn changes_told(&self) -> String {
        let [added, promoted, replaced, removed, transferred] = self.changes.each();
        format!(
            "members: {added} added, {promoted} promoted, {replaced} replaced, {removed} removed; leadership transferred \
             {transferred} times"
        )
    }

    /// Returns one line about snapshots.
    pub fn told(&self) -> String {
        let Snapshots { built, sent, installed, purged } = self.snapshots;
        let [with_built, with_sent, with_installed, with_purged] = self.runs_with;
        format!(
            "snapshots: {built} built (in {with_built} seeds), {sent} sent ({with_sent}), {installed} installed \
             ({with_installed}); logs purged {purged} times ({with_purged})"
        )
    }

    /// Returns a table of combinations that were hit, and a list of those that were not.
    pub fn table(&self) -> String {
        let rows: BTreeSet<(&str, &str)> = self.hits.keys().map(|(fault, role, _)| (*fault, *role)).collect();
        let heads: Vec<&str> = Phase::ALL.into_iter().map(Phase::name).collect();
        let mut table = format!("| fault | role | {} |\n|---|---|{}\n", heads.join(" | "), "---|".repeat(heads.len()));
        let mut never = Vec::new();
        for (fault, role) in rows {
            let count = |phase: Phase| self.hits.get(&(fault, role, phase)).copied().unwrap_or(0);
            let cells: Vec<String> = Phase::ALL.into_iter().map(|phase| count(phase).to_string()).collect();
            table.push_str(&format!("| {fault} | {role} | {} |\n", cells.join(" | ")));
            let missed = Phase::ALL.into_iter().filter(|phase| count(*phase) == 0);
            never.extend(missed.map(|phase| format!("{fault} of a {role} while {}", phase.name())));
        }
        let hit = self.hits.len();
        format!("{table}\n{hit} combinations were hit, {} never: {}", never.len(), never.join("; "))
    }
}

/// Watcher of the nodes of one run.
#[derive(Default)]
pub(crate) struct Watcher {
    seen: BTreeMap<u64, Seen>,
    pub(crate) coverage: Coverage,
}

impl Watcher {
    /// Looks at all nodes. Must be called in each step.
    pub(crate) fn look(&mut self, nodes: &[Node], now_ms: u64) {
        for node in nodes {
            let Some(status) = &node.status else { continue };
            let seen = self.seen.entry(node.id).or_default();
            if seen.boot != node.boots {
                *seen =
                    Seen { boot: node.boots, purged: status.purged, committed: status.committed, ..Seen::default() };
            }
            let (built, installed) = (status.counts.snapshots_built, status.counts.snapshots_installed);
            let purged = seen.now.purged + u64::from(status.purged > seen.purged);
            let now = Snapshots { built, sent: status.snapshots_sent, installed, purged };
            let news = [
                built > seen.now.built,
                installed > seen.now.installed,
                purged > seen.now.purged,
                status.committed > seen.committed,
            ];
            for (at_ms, _) in seen.at_ms.iter_mut().zip(news).filter(|(_, new)| *new) {
                *at_ms = Some(now_ms);
            }
            let (new, old) = (now.each(), seen.now.each());
            let [built, sent, installed, purged] = [0, 1, 2, 3].map(|at| new[at].saturating_sub(old[at]));
            self.coverage.snapshots.plus(Snapshots { built, sent, installed, purged });
            (seen.now, seen.purged, seen.committed) = (now, status.purged, status.committed);
        }
    }

    /// Counts a fault that strikes a node.
    pub(crate) fn hit(&mut self, fault: &'static str, nodes: &[Node], node: usize, now_ms: u64) {
        let hit = (fault, role(&nodes[node]), self.phase(nodes, node, now_ms));
        *self.coverage.hits.entry(hit).or_default() += 1;
    }

    fn phase(&self, nodes: &[Node], node: usize, now_ms: u64) -> Phase {
        let statuses = || nodes.iter().filter_map(|node| node.status.as_ref());
        if statuses().all(|status| status.cluster.is_none()) {
            return Phase::Founding;
        }
        if nodes.iter().any(Node::is_stopping) {
            return Phase::Stopping;
        }
        if !nodes.iter().any(Node::leads) {
            return Phase::Electing;
        }
        let recent = self.seen.get(&nodes[node].id).map(|seen| seen.at_ms).unwrap_or_default();
        let [built, installed, purged, committed] =
            recent.map(|at_ms| at_ms.is_some_and(|at_ms| at_ms + RECENT_MS >= now_ms));
        let ready = nodes[node].status.as_ref().is_some_and(|status| status.ready == Readiness::Ready);
        match () {
            () if installed => Phase::Installing,
            () if built => Phase::Building,
            () if purged => Phase::Purging,
            () if !ready => Phase::CatchingUp,
            () if committed => Phase::Writing,
            () => Phase::Idle,
        }
    }
}

fn role(node: &Node) -> &'static str {
    match node.status.as_ref().map(|status| status.role) {
        None | Some(Role::Stopped) => "stopped node",
        Some(Role::Leader) => "leader",
        Some(Role::Follower) => "follower",
        Some(Role::Candidate) => "candidate",
        Some(Role::Learner) => "learner",
    }
}
