//! Checkers of the workloads `lock-delay` and `restore`. A lock-delay is the time for which a lock
//! stays blocked after its holder's session has expired; meanwhile no other session may hold the
//! lock.

use std::collections::BTreeMap;

use super::{holds, in_time};
use crate::history::{Entry, Operation, Process};
use crate::verdict::Verdict;

/// Nanoseconds in a millisecond.
const MS: u64 = 1_000_000;
/// Tolerance for the end of a lock-delay, because the log counts whole milliseconds of the leader's
/// wall clock.
const ROUNDING_NS: u64 = 5 * MS;

/// Checks that a lock has one holder at a time, that tokens rise, and that each lock can be
/// acquired at the end of the run. [`check_delays`] judges the delays.
pub(super) fn check(operations: &[Operation]) -> Verdict {
    let mut verdict = Verdict::default();
    let lasting = holds::lasting(operations);
    holds::check_proven(operations, &mut verdict);
    holds::check_own_tokens(&lasting, &mut verdict);
    in_time::check_again(operations, &mut verdict);
    verdict.figure("grants", lasting.len());
    verdict
}

/// Checks delays. A lock that was not released stays with its holder until the session expires, and
/// then stays blocked for its `delay_ms`. A session must not expire within `safe_for_ms` after an
/// `open` or `keepalive`. The leader measures delays by its wall clock, so a run in which clocks
/// were set is not judged.
pub(super) fn check_delays(entries: &[Entry], operations: &[Operation], verdict: &mut Verdict) {
    let clocks = |entry: &Entry| matches!(entry.process, Process::Nemesis(_)) && entry.f.contains("clock");
    if entries.iter().any(clocks) {
        verdict.figure("delays-kept", "not judged: wall clocks were set");
        return;
    }
    let safe = safe_until(operations);
    let lasting = holds::lasting(operations);
    let mut kept = 0;
    for (lock, holds) in holds::by_lock(&lasting) {
        // Only holds that no operation ended are judged. Others have two operations in `shown`.
        for hold in holds.iter().filter(|hold| hold.shown.len() == 1) {
            let delay_ms = hold.grant.number("delay_ms").unwrap_or(0);
            let Some((safe_ns, promise)) = safe.get(&hold.owner) else { continue };
            let later = holds.iter().filter(|other| other.owner != hold.owner && other.token > hold.token);
            let Some(next) = later.min_by_key(|other| other.grant.time.1) else { continue };
            let over = safe_ns + delay_ms * MS;
            if next.grant.time.1 + ROUNDING_NS < over {
                let early_ms = (over - next.grant.time.1) / MS;
                let detail = format!(
                    "{lock}: session {} holds it {early_ms} ms before the lock-delay of session {} can be over",
                    next.owner, hold.owner
                );
                verdict.found("granted-in-delay", detail, &[hold.grant, promise, next.grant]);
            } else {
                kept += u64::from(delay_ms > 0);
            }
        }
    }
    verdict.figure("delays-kept", kept);
}

/// Returns the time on the harness's clock before which each session must not expire, and the
/// operation that was answered with that promise.
fn safe_until(operations: &[Operation]) -> BTreeMap<u64, (u64, &Operation)> {
    let mut safe: BTreeMap<u64, (u64, &Operation)> = BTreeMap::new();
    for operation in operations.iter().filter(|operation| operation.is_ok()) {
        let (Some(owner), Some(safe_for_ms)) = (operation.number("owner"), operation.number("safe_for_ms")) else {
            continue;
        };
        let until = operation.time.0 + safe_for_ms * MS;
        if safe.get(&owner).is_none_or(|(before, _)| *before < until) {
            safe.insert(owner, (until, operation));
        }
    }
    safe
}

/// Name of the history entry that the nemesis writes when all nodes are down and have new data from
/// a backup.
const RESTORED: &str = "start-restore";

/// Judges operations after a restore in sessions that were opened before this restore. If the run
/// has restores, and the cluster refused none of these operations, the verdict is unknown.
pub(super) fn check_restores(entries: &[Entry], operations: &[Operation], verdict: &mut Verdict) {
    let is_restore = |entry: &&Entry| matches!(entry.process, Process::Nemesis(_)) && entry.f == RESTORED;
    let restores: Vec<u64> = entries.iter().filter(is_restore).map(|entry| entry.index).collect();
    let mut opened: BTreeMap<u64, &Operation> = BTreeMap::new();
    let (mut old, mut refused) = (0, 0);
    for operation in operations.iter().filter(|operation| operation.f != "abandon") {
        let Some(owner) = operation.number("owner") else { continue };
        let first = *opened.entry(owner).or_insert(operation);
        let Some(restore) = restores.iter().find(|at| first.complete < **at && **at < operation.call) else { continue };
        old += 1;
        refused += u64::from(operation.error.as_deref() == Some("session-expired"));
        if operation.is_ok() {
            let detail = format!("session {owner} is from before the restore at entry {restore}");
            verdict.found("old-session-served", detail, &[first, operation]);
        }
    }
    if !restores.is_empty() && refused == 0 {
        verdict.doubt("no client used a session from before a restore".to_owned());
    }
    verdict.figure("restores", restores.len());
    verdict.figure("old-sessions-used", old);
    verdict.figure("old-sessions-refused", refused);
}
