//! Checker of the workload `fenced-lock`: tokens rise, and a write is accepted only with the
//! highest token so far. Clients write to znodes and to a resource outside of zlock.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{grouped, holds};
use crate::history::{Kind, Operation};
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
        let writes = operations.iter().filter(|operation| operation.f == f);
        let added = grouped(writes.map(|write| (write.text("lock").unwrap_or_default(), write)));
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
            kept += check_elements(&format!("{name} of {lock}"), &additions, last, verdict);
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
    let accepted = operations.iter().filter(|operation| operation.f == f && operation.is_ok());
    let numbered =
        |op| -> Option<_> { Some((Operation::text(op, "lock")?, (op.number(count)?, op.number("token")?, op))) };
    for (lock, mut accepted) in grouped(accepted.filter_map(numbered)) {
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

/// Compares additions with the elements in the final read `last`. Returns the number of
/// acknowledged additions whose element is in the read.
fn check_elements(what: &str, additions: &[&Operation], last: &Operation, verdict: &mut Verdict) -> usize {
    let mut kept = 0;
    let mut there: BTreeMap<u64, usize> = BTreeMap::new();
    let elements = last.result.get("elements").and_then(Value::as_array);
    for element in elements.into_iter().flatten().filter_map(Value::as_u64) {
        *there.entry(element).or_default() += 1;
    }
    let mut known = BTreeMap::new();
    for addition in additions {
        let Some(element) = addition.number("element") else { continue };
        known.insert(element, *addition);
        let count = there.get(&element).copied().unwrap_or(0);
        if count > 1 {
            verdict.found("duplicated", format!("{what}: {element} is there {count} times"), &[addition, last]);
        }
        match (addition.outcome, count) {
            (Kind::Ok, 0) => {
                let detail = format!("{what}: {element} was acknowledged and is not there");
                verdict.found("lost-update", detail, &[addition, last]);
            }
            (Kind::Ok, _) => kept += 1,
            (Kind::Fail, 1..) => {
                let detail = format!("{what}: {element} was refused and is there");
                verdict.found("refused-but-there", detail, &[addition, last]);
            }
            _ => {}
        }
    }
    for element in there.keys().filter(|element| !known.contains_key(element)) {
        verdict.found("element-from-nowhere", format!("{what}: no client added {element}"), &[last]);
    }
    kept
}
