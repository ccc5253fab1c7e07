//! Checks of multi-locks, which are several locks acquired at once, all or none.

use serde_json::{Value, json};

use crate::history::Operation;
use crate::verdict::Verdict;

fn locks(value: &Value) -> impl Iterator<Item = &Value> {
    value.get("locks").and_then(Value::as_array).into_iter().flatten()
}

/// Checks that an answer has tokens for all the locks that were asked for, or for none of them.
pub(super) fn check_whole(operations: &[Operation], verdict: &mut Verdict) {
    let mut granted = [0, 0];
    for operation in operations.iter().filter(|operation| operation.is_ok()) {
        let names = |value| locks(value).filter_map(|part: &Value| part["lock"].as_str()).collect::<Vec<_>>();
        let (asked, answered) = (names(&operation.argument), names(&operation.result));
        if asked.is_empty() {
            continue;
        }
        let tokens = locks(&operation.result).filter(|part| part["token"].is_u64()).count();
        let told = operation.result.is_object();
        if told && (asked != answered || !(tokens == 0 || tokens == asked.len())) {
            let detail = format!("{tokens} of {} locks are held: {}", asked.len(), asked.join(", "));
            verdict.found("partly-held", detail, &[operation]);
        }
        if tokens > 0 && matches!(operation.f.as_str(), "enqueue" | "await") {
            granted[usize::from(operation.text("policy") == Some("backfill"))] += 1;
        }
    }
    verdict.figure("granted-strict", granted[0]);
    verdict.figure("granted-backfill", granted[1]);
}

/// Splits operations on several locks into one operation for each lock.
pub(super) fn split(operations: &[Operation]) -> Vec<Operation> {
    let mut parts = Vec::new();
    for operation in operations {
        let mut of = locks(&operation.result).chain(locks(&operation.argument)).peekable();
        if of.peek().is_none() {
            parts.push(operation.clone());
            continue;
        }
        let mut seen: Vec<&str> = Vec::new();
        for part in of {
            let Some(lock) = part["lock"].as_str().filter(|lock| !seen.contains(lock)) else { continue };
            seen.push(lock);
            let with = |value: &Value| {
                let mut one = json!({"owner": value["owner"], "policy": value["policy"]});
                ["lock", "mode", "token", "permits", "limit"].iter().for_each(|name| one[*name] = part[*name].clone());
                one
            };
            let mut one = Operation { argument: with(&operation.argument), ..operation.clone() };
            if operation.result.is_object() {
                one.result = with(&operation.result);
            }
            parts.push(one);
        }
    }
    parts
}
