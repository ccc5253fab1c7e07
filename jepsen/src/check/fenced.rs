//! `fenced-lock` and `unguarded-lock`: what a lock with tokens can promise, and what one without
//! cannot.

use std::collections::BTreeMap;

use super::{holds, set};
use crate::history::Operation;
use crate::verdict::Verdict;

/// Judges the guarded workload: tokens rise, the resource took no old token, and nothing
/// acknowledged was lost, at the resource or in znodes written under `If-Lock`.
pub(super) fn check_fenced(operations: &[Operation]) -> Verdict {
    let mut verdict = check(operations, true);
    check_accepted(operations, "use", "seq", &mut verdict);
    verdict
}

/// Counts what the same workload loses without the guard. Tokens must rise all the same; lost
/// updates are figures.
pub(super) fn check_unguarded(operations: &[Operation]) -> Verdict {
    let mut verdict = check(operations, false);
    let figure = |name: &str| verdict.figures.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0);
    let (kept, lost) = (
        figure("znode-updates-kept") + figure("resource-updates-kept"),
        figure("znode-updates-lost") + figure("resource-updates-lost"),
    );
    if kept > 100 && lost == 0 {
        verdict.doubt("nothing was lost without the guard: the pauses were too weak to prove anything about it");
    }
    verdict
}

fn check(operations: &[Operation], guarded: bool) -> Verdict {
    let mut verdict = Verdict::default();
    let holds = holds::lasting(operations);
    holds::check_own_tokens(&holds, &mut verdict);
    verdict.figure("grants", holds.len());
    check_updates(operations, guarded, &mut verdict);
    verdict
}

/// Judges the znode that is written under a lock, `append` and at the end `read-all`: no write is
/// lost, and none is taken under an older token.
pub(super) fn check_znode(operations: &[Operation], verdict: &mut Verdict) {
    check_updates(operations, true, verdict);
}

/// What was acknowledged, at the resource or in znodes, is there at the end; without the guard what
/// is lost is counted only.
fn check_updates(operations: &[Operation], guarded: bool, verdict: &mut Verdict) {
    for (f, last_f, name) in [("append", "read-all", "znode"), ("use", "resource-read", "resource")] {
        let mut added: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
        for operation in operations.iter().filter(|operation| operation.f == f) {
            added.entry(operation.text("lock").unwrap_or_default()).or_default().push(operation);
        }
        if added.is_empty() {
            continue;
        }
        let (mut lost, mut kept) = (0, 0);
        for (lock, additions) in added {
            let is_last = |operation: &&Operation| operation.f == last_f && operation.text("lock") == Some(lock);
            let Some(last) = operations.iter().rev().filter(|operation| operation.is_ok()).find(is_last) else {
                verdict.doubt(format!("{lock}: the {name} was not read at the end"));
                continue;
            };
            let figures = set::check(&format!("{name} of {lock}"), &additions, last, guarded, verdict);
            lost += figures.lost;
            kept += figures.kept;
        }
        verdict.figure(&format!("{name}-updates-kept"), kept);
        verdict.figure(&format!("{name}-updates-lost"), lost);
    }
    if guarded {
        check_accepted(operations, "append", "version", verdict);
    }
    let stale = |f: &str| operations.iter().filter(|op| op.f == f && op.error.as_deref().is_some_and(is_stale)).count();
    verdict.figure("old-tokens-refused", stale("use") + stale("append") + stale("resource-check"));
}

fn is_stale(error: &str) -> bool {
    matches!(error, "stale-token" | "lock-not-held")
}

/// What is guarded counts its writes: the field `count` of an acknowledged `f`. In that order
/// accepted tokens never fall.
fn check_accepted(operations: &[Operation], f: &str, count: &str, verdict: &mut Verdict) {
    let mut accepted: BTreeMap<&str, Vec<(u64, u64, &Operation)>> = BTreeMap::new();
    for operation in operations.iter().filter(|operation| operation.f == f && operation.is_ok()) {
        if let (Some(lock), Some(seq), Some(token)) =
            (operation.text("lock"), operation.number(count), operation.number("token"))
        {
            accepted.entry(lock).or_default().push((seq, token, operation));
        }
    }
    for (lock, mut accepted) in accepted {
        accepted.sort_by_key(|(seq, ..)| *seq);
        for pair in accepted.windows(2) {
            let ((_, before, first), (_, after, second)) = (pair[0], pair[1]);
            if after < before {
                let detail = format!("{lock}: {f} was accepted with token {after} after token {before}");
                verdict.found("old-token-accepted", detail, &[first, second]);
            }
        }
    }
}
