//! Check that a polling watcher is told of a change in time. The workload `watch` promises this for
//! times without a fault.
//!
//! A poll without events waits for one. So a watcher that polls all the time is told of a change
//! soon after its acknowledgement, by the poll that was under way or by the next poll.

use std::collections::BTreeMap;

use super::calm::Calm;
use super::in_time::GRANT_MAX_NS;
use crate::history::{Entry, Operation};
use crate::verdict::Verdict;

/// Time within which a watcher must be told of a change. It equals the time limit of a grant, for
/// the reasons given at [`GRANT_MAX_NS`].
const TOLD_MAX_NS: u64 = GRANT_MAX_NS;

/// Checks that a poll tells each watcher of every acknowledged change (`write`, `create`, `delete`)
/// within [`TOLD_MAX_NS`]. Times near a fault are not judged.
pub(super) fn check(entries: &[Entry], operations: &[Operation], verdict: &mut Verdict) {
    let calm = Calm::new(entries, operations);
    let mut polls: BTreeMap<u64, Vec<&Operation>> = BTreeMap::new();
    for poll in operations.iter().filter(|operation| operation.f == "poll") {
        if let Some(watcher) = poll.number("watcher") {
            polls.entry(watcher).or_default().push(poll);
        }
    }
    let is_change = |op: &&Operation| op.is_ok() && matches!(op.f.as_str(), "write" | "create" | "delete");
    let (mut told, mut slowest_ns) = (0, 0);
    for change in operations.iter().filter(is_change) {
        let Some(zxid) = change.zxid else { continue };
        for (watcher, polls) in &polls {
            match judge(change.time.1, zxid, polls, &calm) {
                Some(Judged::InTime { took_ns }) => {
                    told += 1;
                    slowest_ns = took_ns.max(slowest_ns);
                }
                Some(Judged::Late { due, poll }) => {
                    let after_ms = (poll.time.1 - due) / 1_000_000;
                    let detail = format!("watcher {watcher} asked, and was not told of {zxid} in {after_ms} ms");
                    verdict.found("late-event", detail, &[change, poll]);
                }
                None => {}
            }
        }
    }
    verdict.figure("told-in-time", told);
    verdict.figure("slowest-event-ms", slowest_ns / 1_000_000);
}

enum Judged<'a> {
    /// A poll told the watcher of the change after `took_ns`.
    InTime { took_ns: u64 },
    /// The poll that should have told the watcher of the change ended too late. `due` is the first
    /// time at which the change had been acknowledged and the watcher was polling.
    Late { due: u64, poll: &'a Operation },
}

/// Judges the polls of a watcher against a change that was acknowledged at time `at`. Returns
/// `None` when the watcher already knew of the change, did not poll, or the time was not calm (see
/// [`Calm`]).
fn judge<'a>(at: u64, zxid: u64, polls: &[&'a Operation], calm: &Calm) -> Option<Judged<'a>> {
    let first = polls.partition_point(|poll| poll.time.1 <= at);
    let due = polls.get(first)?.time.0.max(at);
    if !calm.covers(due, due + TOLD_MAX_NS) {
        return None;
    }
    for poll in &polls[first..] {
        let (call, end) = poll.time;
        if poll.argument.get("since").and_then(serde_json::Value::as_u64).is_none_or(|since| zxid <= since) {
            return None;
        }
        let tells = poll.is_ok() && poll.number("upto").is_some_and(|upto| zxid <= upto);
        // A client may rest between polls. If it sent the poll that tells of the change later than
        // `due`, the time counts from then.
        let took_ns = end - if tells { due.max(call) } else { due };
        if took_ns > TOLD_MAX_NS {
            return Some(Judged::Late { due, poll });
        }
        if tells {
            return Some(Judged::InTime { took_ns: end - due });
        }
    }
    None
}
