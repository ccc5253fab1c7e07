//! Checker of the workloads `lock`, `reentrant-lock` and `rw-lock`: each lock is a linearizable
//! mutex, reentrant mutex or read/write lock.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::ends::{self, Ends};
use super::holds::{self, Clock};
use crate::history::Operation;
use crate::models::{LockModel, LockOp};
use crate::verdict::Verdict;
use crate::wgl::{self, Call, Model};

/// Largest number of configurations (sets of applied operations, with the model's state) that one
/// search may visit.
const CONFIGURATIONS_MAX: usize = 200_000;
/// Number of operations that the report shows before the operation at which the search for an order
/// failed.
const SHOWN_BEFORE: usize = 8;

/// Judges mutexes, reentrant mutexes and read/write locks.
pub(super) fn check(operations: &[Operation], model: LockModel) -> Verdict {
    let mut verdict = Verdict::default();
    let holds = holds::lasting(operations);
    // A reentrant holder gives back one hold at a time. Only the search can tell which release
    // gives back its last hold.
    if !model.reentrant {
        holds::check_room("two-holders", &holds, Clock::History, &mut verdict);
    }
    holds::check_own_tokens(&holds, &mut verdict);
    ends::check_kept(operations, &mut verdict);
    verdict.figure("grants", holds.len());
    let ends = Ends::new(operations);
    verdict.figure("sessions-lost", ends.lost.len());
    for (lock, part) in partition(operations) {
        let (subjects, calls) = calls(&part, &ends, model);
        search(lock, &model, &calls, &subjects, &mut verdict);
    }
    verdict
}

/// Returns the operations on one lock that affect the [`LockModel`], and the [`Call`] of the model
/// for each, in the same order.
fn calls<'a>(part: &[&'a Operation], ends: &Ends<'a>, model: LockModel) -> (Vec<&'a Operation>, Vec<Call<LockOp>>) {
    let mut subjects: Vec<&'a Operation> = Vec::new();
    let mut calls = Vec::new();
    let mut owners = BTreeSet::new();
    let last_of_use = last_of_use(part);
    for operation in part {
        let Some(owner) = operation.number("owner") else { continue };
        let answered = operation.result.get("holds").and_then(Value::as_u64).filter(|_| model.reentrant);
        let op = match operation.f.as_str() {
            "acquire" if !operation.is_ok() && last_of_use.get(&owner).is_none_or(|last| *last < operation.call) => {
                None
            }
            "acquire" if operation.text("mode") == Some("read") => Some(LockOp::Read(owner)),
            "acquire" => Some(LockOp::Acquire(owner, answered)),
            "release" => Some(LockOp::Release(owner, answered)),
            "close" if operation.is_ok() => Some(LockOp::Close(owner)),
            "close" => Some(unsure_end(model, owner)),
            _ => None,
        };
        if operation.is_possible()
            && let Some(op) = op
        {
            calls.push(Call { op, call: operation.call, complete: operation.is_ok().then_some(operation.complete) });
            subjects.push(operation);
            owners.insert(owner);
        }
    }
    // A lost session may have ended at any time since its last success.
    for (owner, lost) in ends.lost.iter().filter(|(owner, _)| owners.contains(owner)) {
        let begin = subjects.iter().filter(|op| op.number("owner") == Some(*owner)).map(|op| op.call).min();
        let op = unsure_end(model, *owner);
        let from = ends.over_from(*owner).or(begin).unwrap_or(lost.call);
        calls.push(Call { op, call: from, complete: None });
        subjects.push(lost);
    }
    (subjects, spread(calls))
}

/// Returns, for each owner, the index of the last answer that shows the owner as the holder.
///
/// A later acquire of unknown outcome need not be searched. It can only keep other clients out: if
/// an order with the acquire is possible, so is the order without it.
fn last_of_use(operations: &[&Operation]) -> BTreeMap<u64, u64> {
    let mut last = BTreeMap::new();
    for operation in operations.iter().filter(|operation| operation.is_ok() && operation.f != "close") {
        if let Some(owner) = operation.number("owner") {
            let last = last.entry(owner).or_insert(0);
            *last = operation.complete.max(*last);
        }
    }
    last
}

/// Returns the model's operation for an uncertain end of a session: the session was lost, or the
/// outcome of its close is unknown.
///
/// For a lock that is not reentrant, this is a release without a known answer: it has the same
/// effect as a close, because the owner has at most one hold. Equal operations make the search
/// shorter, because the search tries them only once.
fn unsure_end(model: LockModel, owner: u64) -> LockOp {
    if model.reentrant { LockOp::Close(owner) } else { LockOp::Release(owner, None) }
}

/// Doubles all times. If two calls have the same time, the later call in the list is moved behind
/// the other. Equal times come from the ends that [`calls`] adds for lost sessions.
fn spread(calls: Vec<Call<LockOp>>) -> Vec<Call<LockOp>> {
    let mut taken = BTreeSet::new();
    let spread = |call: Call<LockOp>| {
        let at = if taken.insert(call.call) { call.call * 2 } else { call.call * 2 + 1 };
        Call { call: at, complete: call.complete.map(|complete| complete * 2), ..call }
    };
    calls.into_iter().map(spread).collect()
}

/// Groups the operations by lock. A `close` belongs to every lock that its session asked for.
fn partition(operations: &[Operation]) -> BTreeMap<&str, Vec<&Operation>> {
    let mut locks: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
    let mut of_owner: BTreeMap<u64, BTreeSet<&str>> = BTreeMap::new();
    for operation in operations {
        let Some(owner) = operation.number("owner") else { continue };
        match operation.text("lock") {
            Some(lock) => {
                locks.entry(lock).or_default().push(operation);
                of_owner.entry(owner).or_default().insert(lock);
            }
            None => {
                for lock in of_owner.get(&owner).into_iter().flatten() {
                    locks.entry(lock).or_default().push(operation);
                }
            }
        }
    }
    locks
}

/// Judges by search whether an object with the name `what` is linearizable. `subjects` are the
/// operations of the calls.
pub(super) fn search<M: Model>(
    what: &str,
    model: &M,
    calls: &[Call<M::Op>],
    subjects: &[&Operation],
    verdict: &mut Verdict,
) {
    match wgl::check(model, calls, CONFIGURATIONS_MAX) {
        wgl::Verdict::Linearizable => {}
        wgl::Verdict::NotLinearizable { explained, stuck_at } => {
            let before = explained.len().saturating_sub(SHOWN_BEFORE);
            let part: Vec<&Operation> = explained[before..].iter().chain([&stuck_at]).map(|i| subjects[*i]).collect();
            verdict.found("not-linearizable", format!("{what} is not linearizable"), &part);
        }
        wgl::Verdict::Unknown { configurations } => {
            verdict.doubt(format!("{what}: gave up after {configurations} configurations"));
        }
    }
}
