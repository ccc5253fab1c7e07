//! Calm times: intervals without a fault, in which acknowledged writes show that the cluster works.
//! A checker may call an answer late only in a calm time.

use crate::history::{Entry, Operation, Process};

/// Time that a cluster gets to recover after a fault is mended: three times the shortest session
/// timeout (2 s), in which nodes start, elect and catch up, and lost sessions expire.
pub const SETTLE_NS: u64 = 6_000_000_000;
/// Length of the intervals into which [`Calm`] divides a span of time. In each interval
/// [`Calm::covers`] requires an acknowledged write, which shows that there is a quorum.
pub(super) const WORKS_NS: u64 = 500_000_000;

/// Operations that are acknowledged only when a quorum has their log entry.
const WRITES: [&str; 10] =
    ["pulse", "acquire", "enqueue", "upgrade", "downgrade", "release", "close", "append", "proclaim", "revoke"];

/// Calm times of a history: intervals without a fault. All times are nanoseconds since the run
/// began.
pub(super) struct Calm {
    windows: Vec<(u64, u64)>,
    writes: Writes,
    /// Node and time of each answer.
    answers: Vec<(u64, u64)>,
}

impl Calm {
    pub(super) fn new(entries: &[Entry], operations: &[Operation]) -> Calm {
        let answered = entries.iter().filter(|entry| entry.kind == crate::history::Kind::Ok);
        let mut answers: Vec<(u64, u64)> = answered.filter_map(|entry| Some((entry.node?, entry.time))).collect();
        answers.sort_unstable();
        Calm { windows: windows(entries), writes: Writes::new(operations, &WRITES), answers }
    }

    /// Returns the beginning of the calm time (interval without a fault) that contains `at`; `None`
    /// if no calm time does.
    pub(super) fn since(&self, at: u64) -> Option<u64> {
        self.windows.iter().find(|(from, to)| *from <= at && at <= *to).map(|(from, _)| *from)
    }

    /// Tells whether one calm time (interval without a fault) contains both moments, and whether a
    /// write was acknowledged in each interval of [`WORKS_NS`] between them, so that there was a
    /// quorum.
    pub(super) fn covers(&self, from: u64, to: u64) -> bool {
        let calm = self.windows.iter().any(|(begin, end)| *begin <= from && to <= *end);
        calm && steps(from, to).all(|step| self.writes.fall_into(step))
    }

    /// Tells whether the node answered a request in each interval of [`WORKS_NS`] between two
    /// moments.
    pub(super) fn answers(&self, node: u64, from: u64, to: u64) -> bool {
        steps(from, to).all(|step| {
            let first = self.answers.partition_point(|answer| *answer < (node, step));
            self.answers.get(first).is_some_and(|(its, at)| *its == node && *at <= step + WORKS_NS)
        })
    }
}

/// Times of invocation and completion of acknowledged writes, in order.
pub(super) struct Writes(Vec<(u64, u64)>);

impl Writes {
    /// Collects the acknowledged operations with these names.
    pub(super) fn new(operations: &[Operation], names: &[&str]) -> Writes {
        let is_write = |op: &&Operation| op.is_ok() && names.contains(&op.f.as_str());
        let mut times: Vec<(u64, u64)> = operations.iter().filter(is_write).map(|op| op.time).collect();
        times.sort_unstable();
        Writes(times)
    }

    /// Tells whether a write began and ended in the interval of [`WORKS_NS`] from this moment on.
    pub(super) fn fall_into(&self, step: u64) -> bool {
        let first = self.0.partition_point(|(call, _)| *call < step);
        let mut begun = self.0[first..].iter().take_while(|(call, _)| *call < step + WORKS_NS);
        begun.any(|(_, end)| *end <= step + WORKS_NS)
    }
}

/// Returns the beginning of each interval of [`WORKS_NS`] that lies wholly between two times.
fn steps(from: u64, to: u64) -> impl Iterator<Item = u64> {
    (0..to.saturating_sub(from) / WORKS_NS).map(move |step| from + step * WORKS_NS)
}

/// Returns the calm times, each up to the next fault. The first begins with the run, the others
/// [`SETTLE_NS`] after a mend (the history entry `heal` or `final-heal`). If the run then waited
/// for the nodes, the calm time begins [`SETTLE_NS`] after all nodes were ready.
fn windows(entries: &[Entry]) -> Vec<(u64, u64)> {
    let end = entries.last().map_or(0, |entry| entry.time);
    let mut windows = Vec::new();
    let mut calm = Some(0);
    for entry in entries.iter().filter(|entry| matches!(entry.process, Process::Nemesis(_))) {
        match entry.f.as_str() {
            // A mend while nothing is broken does not end the calm.
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

/// Tells by the value of the history entry `heal` or `final-heal` whether the run then waited until
/// all nodes were ready (entry `recovered`).
fn waits_for_nodes(value: &serde_json::Value) -> bool {
    value["waits_for_nodes"] == true
}

/// Tells by the value of the history entry `heal` or `final-heal` whether the process of a node had
/// ended unexpectedly before it.
fn has_ended(value: &serde_json::Value) -> bool {
    value["ended_by_themselves"].as_array().is_some_and(|ended| !ended.is_empty())
}
