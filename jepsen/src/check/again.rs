//! In the calm at the end every lock must be granted again: `again`, once for each lock.

use crate::history::Operation;
use crate::verdict::Verdict;

/// Finds locks that nobody could have any more. A run in which nobody asked proves nothing about
/// it.
pub(super) fn check(operations: &[Operation], verdict: &mut Verdict) {
    let asked: Vec<&Operation> = operations.iter().filter(|operation| operation.f == "again").collect();
    for operation in asked.iter().filter(|operation| !operation.is_ok()) {
        let lock = operation.text("lock").unwrap_or("a multi-lock");
        let why = operation.error.as_deref().unwrap_or_default();
        verdict.found(
            "not-granted-again",
            format!("{lock}: nobody gets it in the calm at the end: {why}"),
            &[operation],
        );
    }
    verdict.figure("granted-again", asked.iter().filter(|operation| operation.is_ok()).count());
    if asked.is_empty() {
        verdict.doubt("no lock was asked for in the calm at the end");
    }
}
