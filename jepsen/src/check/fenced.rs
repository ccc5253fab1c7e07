//! Checker of the workload `fenced-lock`: tokens rise, and a write is accepted only with the
//! highest token so far. Clients write to znodes and to a resource outside of zlock.

use std::collections::BTreeMap;

use super::{holds, set};
use crate::history::Operation;
use crate::verdict::Verdict;

/// Judges the workload `fenced-lock`: tokens rise from grant to grant, old tokens are refused, and
/// no acknowledged write is lost. Holders write to znodes (with the header `If-Lock`) and to a
/// resource outside of zlock.
pub(super) fn check(operations: &[Operation]) -> Verdict {
    let mut verdict = Verdict::default();
    let holds = holds::lasting(operations);
    holds::check_own_tokens(&holds, &mut verdict);
    verdict.figure("grants", holds.len());
    check_updates(operations, &mut verdict);
    verdict
}

/// Judges writes under a lock: to a znode (`append`, read at the end by `read-all`), or to a
/// resource outside of zlock (`use`, read at the end by `resource-read`). No write may be lost, and
/// no write with an older token accepted.
pub(super) fn check_updates(operations: &[Operation], verdict: &mut Verdict) {
    for (f, last_f, name) in [("append", "read-all", "znode"), ("use", "resource-read", "resource")] {
        let mut added: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
        for operation in operations.iter().filter(|operation| operation.f == f) {
            added.entry(operation.text("lock").unwrap_or_default()).or_default().push(operation);
        }
        if added.is_empty() {
            continue;
        }
        let mut kept = 0;
        for (lock, additions) in added {
            let is_last = |operation: &&Operation| operation.f == last_f && operation.text("lock") == Some(lock);
            let Some(last) = operations.iter().rev().filter(|operation| operation.is_ok()).find(is_last) else {
                verdict.doubt(format!("{lock}: the {name} was not read at the end"));
                continue;
            };
            kept += set::check(&format!("{name} of {lock}"), &additions, last, verdict);
        }
        verdict.figure(&format!("{name}-updates-kept"), kept);
    }
    check_accepted(operations, "append", "version", verdict);
    check_accepted(operations, "use", "seq", verdict);
    let stale = |f: &str| operations.iter().filter(|op| op.f == f && op.error.as_deref().is_some_and(is_stale)).count();
    verdict.figure("old-tokens-refused", stale("use") + stale("append") + stale("resource-check"));
}

fn is_stale(error: &str) -> bool {
    matches!(error, "stale-token" | "lock-not-held")
}

/// Checks that the tokens of accepted writes never fall, in the order in which the znode or
/// resource counted the writes. The parameter `f` names the write operation. The parameter `count`
/// names the field of its answer with the count.
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
