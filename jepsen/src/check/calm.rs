//! The times in which nothing is broken and the cluster shows that it works: only then can a
//! checker say that something came late.

use crate::history::{Entry, Operation, Process};

/// Time after the last mend in which a cluster may still be busy with the damage: three of the
/// shortest session timeouts (2 s), in which nodes start, elect and catch up, and lost sessions
/// expire.
pub const SETTLE_NS: u64 = 6_000_000_000;
/// All the time that is judged the cluster must have shown that a quorum is there, by a write in
/// each of so many nanoseconds.
const WORKS_NS: u64 = 500_000_000;

/// Functions that are acknowledged only when a quorum has the entry.
const WRITES: [&str; 10] =
    ["pulse", "acquire", "enqueue", "upgrade", "downgrade", "release", "close", "append", "proclaim", "revoke"];

/// The calm of a history, in nanoseconds since the run began.
pub(super) struct Calm {
    windows: Vec<(u64, u64)>,
    /// Beginnings and ends of acknowledged writes.
    writes: Vec<(u64, u64)>,
    /// Nodes and when they answered something.
    answers: Vec<(u64, u64)>,
}

impl Calm {
    pub(super) fn new(entries: &[Entry], operations: &[Operation]) -> Calm {
        let is_write = |op: &&Operation| op.is_ok() && WRITES.contains(&op.f.as_str());
        let mut writes: Vec<(u64, u64)> = operations.iter().filter(is_write).map(|op| op.time).collect();
        writes.sort_unstable();
        let answered = entries.iter().filter(|entry| entry.kind == crate::history::Kind::Ok);
        let mut answers: Vec<(u64, u64)> = answered.filter_map(|entry| Some((entry.node?, entry.time))).collect();
        answers.sort_unstable();
        Calm { windows: windows(entries), writes, answers }
    }

    /// The beginning of the calm that there is at a time.
    pub(super) fn since(&self, at: u64) -> Option<u64> {
        self.windows.iter().find(|(from, to)| *from <= at && at <= *to).map(|(from, _)| *from)
    }

    /// Tells whether nothing was broken between two times, and a quorum was there.
    pub(super) fn covers(&self, from: u64, to: u64) -> bool {
        let calm = self.windows.iter().any(|(begin, end)| *begin <= from && to <= *end);
        calm && steps(from, to).all(|step| self.works(step))
    }

    /// Tells whether the node answered others between two times.
    pub(super) fn answers(&self, node: u64, from: u64, to: u64) -> bool {
        steps(from, to).all(|step| {
            let first = self.answers.partition_point(|answer| *answer < (node, step));
            self.answers.get(first).is_some_and(|(its, at)| *its == node && *at <= step + WORKS_NS)
        })
    }

    fn works(&self, step: u64) -> bool {
        let first = self.writes.partition_point(|(call, _)| *call < step);
        let begun = self.writes[first..].iter().take_while(|(call, _)| *call < step + WORKS_NS);
        begun.into_iter().any(|(_, end)| *end <= step + WORKS_NS)
    }
}

/// The whole steps from then to then.
fn steps(from: u64, to: u64) -> impl Iterator<Item = u64> {
    (0..to.saturating_sub(from) / WORKS_NS).map(move |step| from + step * WORKS_NS)
}

/// The calm times: from the beginning, or so long after a mend, to the next fault. Where the run
/// waited for the nodes after a mend, it is counted from when they were all ready.
fn windows(entries: &[Entry]) -> Vec<(u64, u64)> {
    let end = entries.last().map_or(0, |entry| entry.time);
    let mut windows = Vec::new();
    let mut calm = Some(0);
    for entry in entries.iter().filter(|entry| matches!(entry.process, Process::Nemesis(_))) {
        match entry.f.as_str() {
            // A mend without damage changes nothing.
            "heal" | "final-heal" | "recovered" if calm.is_some() && !has_ended(&entry.value) => {}
            "heal" | "final-heal" | "recovered" => {
                windows.extend(calm.take().map(|from| (from, entry.time)));
                calm = (!waits_for_nodes(&entry.value)).then_some(entry.time + SETTLE_NS);
            }
            // A fault begins, or has begun.
            _ => windows.extend(calm.take().map(|from| (from, entry.time))),
        }
    }
    windows.extend(calm.map(|from| (from, end)));
    windows.retain(|(from, to)| from <= to);
    windows
}

/// Tells whether a mend is followed by `recovered`.
fn waits_for_nodes(value: &serde_json::Value) -> bool {
    value["waits_for_nodes"] == true
}

/// Tells whether a node was found to have ended by itself.
fn has_ended(value: &serde_json::Value) -> bool {
    value["ended_by_themselves"].as_array().is_some_and(|ended| !ended.is_empty())
}
