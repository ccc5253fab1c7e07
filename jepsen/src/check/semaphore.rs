//! Checker of the workload `semaphore`: never more permits are held than the semaphore has, and
//! permits are granted in the order of the queue.

use std::collections::BTreeMap;

use super::{again, holds, queue, waits};
use crate::history::Operation;
use crate::verdict::Verdict;

/// Judges `enqueue` and `await` for `permits` of `limit` (answered with a token when granted),
/// `release`, `look`, and `acquire`, which asks for another limit than the semaphore has. Permits
/// must stay within the limit and be granted in the order of the queue.
pub(super) fn check(operations: &[Operation]) -> Verdict {
    let mut verdict = Verdict::default();
    let lasting = queue::check_lasting(operations, &mut verdict);
    holds::check_own_tokens(&lasting, &mut verdict);
    verdict.figure("grants", lasting.len());
    let holds = holds::check_proven(operations, &mut verdict);
    let waits = waits::waits(operations);
    verdict.figure("waits", waits.len());
    waits::check_order(&waits, &holds, &mut verdict);
    waits::check_looks(operations, &holds, &waits, &mut verdict);
    check_limits(operations, &mut verdict);
    again::check(operations, &mut verdict);
    verdict
}

/// Checks that a semaphore keeps the limit of its first acquire: a request with another limit is
/// refused, and a request with that limit is not refused.
fn check_limits(operations: &[Operation], verdict: &mut Verdict) {
    let asks = |operation: &&Operation| matches!(operation.f.as_str(), "acquire" | "enqueue" | "again");
    let mut taken: BTreeMap<&str, (u64, &Operation)> = BTreeMap::new();
    for operation in operations.iter().filter(asks).filter(|operation| operation.is_ok()) {
        let (Some(lock), Some(limit)) = (operation.text("lock"), operation.number("limit")) else { continue };
        let (first, by) = taken.entry(lock).or_insert((limit, operation));
        if *first != limit {
            let detail = format!("{lock}: it has a limit of {first}, and of {limit}");
            verdict.found("two-limits", detail, &[by, operation]);
        }
    }
    let mut refused = 0;
    let is_refused = |operation: &&Operation| operation.error.as_deref() == Some("permits-max-differs");
    for operation in operations.iter().filter(asks).filter(is_refused) {
        refused += 1;
        let (Some(lock), Some(limit)) = (operation.text("lock"), operation.number("limit")) else { continue };
        if let Some((_, by)) = taken.get(lock).filter(|(taken, _)| *taken == limit) {
            let detail = format!("{lock}: its own limit of {limit} was refused");
            verdict.found("limit-forgotten", detail, &[by, operation]);
        }
    }
    verdict.figure("other-limits-refused", refused);
}
