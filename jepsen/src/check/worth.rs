//! Minimum contents of a history. A check that had nothing to judge finds nothing wrong, so such a
//! verdict becomes unknown.

use serde_json::Value;

use super::Workload;
use crate::history::Operation;
use crate::verdict::Verdict;

/// Makes a valid verdict unknown when acknowledged operations that are judged by zxid have no zxid.
pub(super) fn check_zxids(workload: Workload, operations: &[Operation], verdict: &mut Verdict) {
    let judged =
        operations.iter().filter(|operation| operation.is_ok() && workload.row().by_zxid.contains(&&*operation.f));
    let (with, without): (Vec<_>, Vec<_>) = judged.partition(|operation| operation.zxid.is_some());
    if let Some(first) = without.first() {
        let (count, all) = (without.len(), with.len() + without.len());
        verdict.doubt(format!("{count} of {all} answers have no zxid to judge them by: {}", first.describe()));
    }
}

/// Makes a valid verdict unknown when it lacks a count that the workload needs, such as `grants`:
/// then nothing was judged. Called for whole runs only, because a part of a run may lack grants.
pub fn check_worth(workload: Workload, verdict: &mut Verdict) {
    let in_time = ["granted-in-time"].into_iter().filter(|_| workload.has_locks());
    // The figure is missing over ZooKeeper's protocol, which has no requests that wait.
    let waits = ["waits-ended"].into_iter().filter(|name| verdict.figures.contains_key(*name));
    let needed: Vec<&str> = workload.row().needed.iter().copied().chain(in_time).chain(waits).collect();
    for name in needed {
        // A figure that is a text is accepted: it says why nothing was judged.
        let judged = |figure: &Value| figure.is_string() || figure.as_u64().is_some_and(|count| count > 0);
        if !verdict.figures.get(name).is_some_and(judged) {
            verdict.doubt(format!("nothing was judged: {name} 0"));
        }
    }
}
