//! Check of the operation `again`, an acquire at the end of a run, when no fault is under way: each
//! lock that the run has used must be granted once more.

use crate::history::Operation;
use crate::verdict::Verdict;

/// Reports each lock that could not be acquired once more at the end of the run, by the operation
/// `again`. Makes a valid verdict unknown when the history has no such operation.
pub(super) fn check(operations: &[Operation], verdict: &mut Verdict) {
    let asked: Vec<&Operation> = operations.iter().filter(|operation| operation.f == "again").collect();
    for operation in asked.iter().filter(|operation| !operation.is_ok()) {
        let lock = operation.text("lock").unwrap_or("a multi-lock");
        let why = operation.error.as_deref().unwrap_or_default();
        verdict.found(
            "not-granted-again",
            format!("{lock}: no client acquires it in the calm at the end: {why}"),
            &[operation],
        );
    }
    verdict.figure("granted-again", asked.iter().filter(|operation| operation.is_ok()).count());
    if asked.is_empty() {
        verdict.doubt("no lock was asked for in the calm at the end");
    }
}
