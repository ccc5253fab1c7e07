//! Checker of the workload `mixed`: readers, writers, permits and multi-locks (several locks, all
//! or none) on the same locks, and upgrades from reading to writing without another writer in
//! between.

use serde_json::{Value, json};

use super::ends::Ends;
use super::holds::{self, Clock};
use super::{fenced, in_time, queue, waits};
use crate::history::Operation;
use crate::verdict::Verdict;

/// Judges these operations in one history:
///
/// * `enqueue`, `await` and `release` of one lock, to read, to write or for `permits` of `limit`
/// * `enqueue`, `await` and `release` of several locks: the field `locks` has the path, the mode
///   and (while the locks are held) the token of each
/// * `upgrade` of a reader to a writer, with a unique number in the field `upgrade` that all later
///   operations of this writer repeat
/// * `downgrade` of a writer to a reader, which must be granted at once
/// * `append` of an element to the list that was read before the upgrade
/// * `look`, which reads the queue
pub(super) fn check(operations: &[Operation]) -> Verdict {
    let mut verdict = Verdict::default();
    check_whole(operations, &mut verdict);
    let parts = split(operations);
    let lasting = queue::check_lasting(&parts, &mut verdict);
    holds::check_tokens(&lasting, &mut verdict);
    let holds = holds::check_proven(&parts, &mut verdict);
    queue::check_places(&parts, false, &mut verdict);
    waits::check_looks(&parts, &holds, &waits::waits(&parts), &mut verdict);
    fenced::check_updates(operations, &mut verdict);
    check_one_at_a_time(operations, &mut verdict);
    check_refusals(operations, &mut verdict);
    check_downgrades(operations, &mut verdict);
    in_time::check_again(operations, &mut verdict);
    let leases = lasting.iter().filter(|hold| hold.grant.number("permits").is_some()).count();
    verdict.figure("leases", leases);
    verdict.figure("locks-granted", lasting.len());
    verdict
}

/// Checks that no two sessions hold one lock as writers at the same time after an upgrade from
/// reading to writing.
fn check_one_at_a_time(operations: &[Operation], verdict: &mut Verdict) {
    for clock in [Clock::History, Clock::Log] {
        let upgrades = holds::proven_by("upgrade", operations, clock);
        holds::check_room("two-upgrades", &upgrades, clock, verdict);
    }
    let held = |op: &&Operation| op.number("upgrade").is_some() && op.number("token").is_some() && op.f != "append";
    let granted = |op: &&Operation| matches!(op.f.as_str(), "upgrade" | "await") && op.is_ok();
    verdict.figure("upgrades", operations.iter().filter(granted).filter(held).count());
}

/// Checks that an upgrade was refused as a conflict only while another client's upgrade of the same
/// lock may have been waiting, or holding the lock.
fn check_refusals(operations: &[Operation], verdict: &mut Verdict) {
    let upgrades: Vec<&Operation> = operations.iter().filter(|operation| operation.f == "upgrade").collect();
    let ends = Ends::new(operations);
    let mut refused = 0;
    for refusal in upgrades.iter().filter(|operation| operation.error.as_deref() == Some("upgrade-conflict")) {
        refused += 1;
        let (lock, owner) = (refusal.text("lock"), refusal.number("owner"));
        // The other upgrade is over only if an acknowledged operation ended it before the refused
        // one was sent. A lost session or an operation of unknown outcome may have ended it later.
        let over = |other: &Operation| {
            let owner = other.number("owner").unwrap_or(0);
            let end = ends.first_after(owner, lock.unwrap_or_default(), Some("write"), other.call);
            end.is_some_and(|end| end.is_ok() && end.complete < refusal.call)
        };
        let in_the_way = |other: &&&Operation| {
            other.text("lock") == lock
                && other.number("owner") != owner
                && other.is_possible()
                && other.call < refusal.complete
                && !over(other)
        };
        if !upgrades.iter().any(|other| in_the_way(&other)) {
            let detail = format!("{}: no other ticket was being upgraded", lock.unwrap_or_default());
            verdict.found("refused-alone", detail, &[refusal]);
        }
    }
    verdict.figure("second-upgrades-refused", refused);
}

/// Checks that a downgrade is granted at once, even if other clients wait.
fn check_downgrades(operations: &[Operation], verdict: &mut Verdict) {
    let downgrades = operations.iter().filter(|operation| operation.f == "downgrade" && operation.is_ok());
    let mut count = 0;
    for downgrade in downgrades {
        count += 1;
        if downgrade.number("token").is_none() {
            let detail = format!("{}: the writer does not read at once", downgrade.text("lock").unwrap_or_default());
            verdict.found("downgrade-waits", detail, &[downgrade]);
        }
    }
    verdict.figure("downgrades", count);
}

fn locks(value: &Value) -> impl Iterator<Item = &Value> {
    value.get("locks").and_then(Value::as_array).into_iter().flatten()
}

/// Checks that an answer has tokens for all the locks that were asked for, or for none of them.
fn check_whole(operations: &[Operation], verdict: &mut Verdict) {
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
fn split(operations: &[Operation]) -> Vec<Operation> {
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
