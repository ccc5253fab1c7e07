//! Comparison of the elements that clients added to a set with the elements at the end of the run.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::history::{Kind, Operation};
use crate::verdict::Verdict;

/// Returns the elements of a final read.
pub(super) fn elements(operation: &Operation) -> Vec<u64> {
    let items = operation.result.get("elements").and_then(Value::as_array);
    items.into_iter().flatten().filter_map(Value::as_u64).collect()
}

/// Compares additions with the elements in the final read `last`. Returns the number of
/// acknowledged additions whose element is in the read.
pub(super) fn check(what: &str, additions: &[&Operation], last: &Operation, verdict: &mut Verdict) -> usize {
    let mut kept = 0;
    let mut there: BTreeMap<u64, usize> = BTreeMap::new();
    for element in elements(last) {
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
