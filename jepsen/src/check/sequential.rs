//! Checker of the workloads `sequential` and `exactly-once`: sequence numbers are unique and rise,
//! and each acknowledged create, set and acquire was applied exactly once.

use std::collections::BTreeMap;

use serde_json::Value;

use super::ends::Ends;
use super::grouped;
use super::order::{self, Numbered};
use crate::history::{Kind, Operation};
use crate::verdict::Verdict;

/// Judges sequential creates: their numbers are unique and rise in real time, and the children at
/// the end are the acknowledged ones.
pub(super) fn check_sequential(operations: &[Operation]) -> Verdict {
    let mut verdict = Verdict::default();
    check_creates(operations, &mut verdict);
    order::check_zxids(operations, |f| matches!(f, "create" | "delete").then_some(false), &mut verdict);
    verdict
}

/// Judges requests that were sent again with the same key after their answer was lost.
pub(super) fn check_exactly_once(operations: &[Operation]) -> Verdict {
    let mut verdict = Verdict::default();
    check_creates(operations, &mut verdict);
    check_counters(operations, &mut verdict);
    check_cycles(operations, &mut verdict);
    let tries: u64 = operations.iter().filter_map(|operation| operation.number("tries")).sum();
    verdict.figure("tries", tries);
    verdict
}

/// Returns the element (a unique number that the client chose) and the sequence number of a child
/// named `e<element>-<ten digits>`.
fn parse_name(name: &str) -> Option<(u64, u64)> {
    let (element, number) = name.strip_prefix('e')?.split_once('-')?;
    Some((element.parse().ok()?, number.parse().ok()?))
}

fn check_creates(operations: &[Operation], verdict: &mut Verdict) {
    let changes = operations.iter().filter(|operation| matches!(operation.f.as_str(), "create" | "delete"));
    let mut children = 0;
    for (parent, operations_of) in grouped(changes.map(|change| (change.text("parent").unwrap_or_default(), change))) {
        let mut numbers: BTreeMap<u64, &Operation> = BTreeMap::new();
        let mut rising = Vec::new();
        for operation in operations_of.iter().filter(|op| op.f == "create" && op.is_ok()) {
            let Some(number) = operation.number("number") else { continue };
            if let Some(other) = numbers.insert(number, operation) {
                let detail = format!("{parent}: number {number} was given twice");
                verdict.found("number-given-twice", detail, &[other, operation]);
            }
            rising.push(Numbered::of(operation, number, false));
        }
        order::check_rising("falling-number", "sequence number", &rising, verdict);
        let is_list = |op: &&Operation| op.f == "list" && op.is_ok() && op.text("parent") == Some(parent);
        match operations.iter().rev().find(is_list) {
            Some(list) => children += check_children(parent, &operations_of, list, verdict),
            None => verdict.doubt(format!("{parent}: the children were not listed at the end")),
        }
    }
    verdict.figure("children", children);
}

/// Compares the creates below a parent with its children at the end. Returns the number of elements
/// that have a child.
fn check_children(parent: &str, operations: &[&Operation], list: &Operation, verdict: &mut Verdict) -> usize {
    let names = list.result.get("names").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let there = grouped(names.filter_map(parse_name));
    let deletes: BTreeMap<u64, &Operation> =
        operations.iter().filter(|op| op.f == "delete").filter_map(|op| Some((op.number("element")?, *op))).collect();
    let mut known = BTreeMap::new();
    for create in operations.iter().filter(|op| op.f == "create") {
        let Some(element) = create.number("element") else { continue };
        known.insert(element, *create);
        let numbers = there.get(&element).map_or(&[][..], Vec::as_slice);
        let delete = deletes.get(&element).copied();
        if numbers.len() > 1 {
            let detail = format!("{parent}: one create made {} children, {numbers:?}", numbers.len());
            verdict.found("duplicated-create", detail, &[create, list]);
        }
        match (create.outcome, numbers, delete.map(|op| op.outcome)) {
            (Kind::Ok, [], None | Some(Kind::Fail)) => {
                let detail = format!("{parent}: the child of element {element} is gone");
                verdict.found("lost-create", detail, &[create, list]);
            }
            (Kind::Ok, [number, ..], _) if create.number("number") != Some(*number) => {
                let detail = format!("{parent}: the answer named another child than {number}");
                verdict.found("wrong-answer", detail, &[create, list]);
            }
            (_, [_, ..], Some(Kind::Ok)) => {
                let detail = format!("{parent}: the deleted child of element {element} is there");
                verdict.found("lost-delete", detail, &[create, delete.unwrap_or(create), list]);
            }
            (Kind::Fail, [_, ..], _) => {
                let detail = format!("{parent}: the refused child of element {element} is there");
                verdict.found("refused-but-there", detail, &[create, list]);
            }
            _ => {}
        }
    }
    for element in there.keys().filter(|element| !known.contains_key(element)) {
        verdict.found("child-from-nowhere", format!("{parent}: no client created element {element}"), &[list]);
    }
    there.len()
}

/// Checks counters. A counter is a znode's version: it begins at 0, and every `add` sets the znode
/// once.
fn check_counters(operations: &[Operation], verdict: &mut Verdict) {
    let adds = operations.iter().filter(|operation| operation.f == "add");
    let mut acknowledged = 0;
    for (counter, adds) in grouped(adds.map(|add| (add.text("counter").unwrap_or_default(), add))) {
        let is_count = |op: &&Operation| op.f == "count" && op.is_ok() && op.text("counter") == Some(counter);
        let count = operations.iter().rev().find(is_count);
        check_versions(counter, &adds, count, verdict);
        let sure = adds.iter().filter(|add| add.is_ok()).count();
        acknowledged += sure;
        let Some(count) = count else {
            verdict.doubt(format!("{counter}: the version was not read at the end"));
            continue;
        };
        let version = count.number("version").unwrap_or(0) as usize;
        let possible = adds.iter().filter(|add| add.is_possible()).count();
        if version < sure || version > possible {
            let kind = if version < sure { "lost-update" } else { "applied-twice" };
            let detail = format!("{counter}: {sure} sets acknowledged, {possible} possible, version {version}");
            verdict.found(kind, detail, &[count]);
        }
    }
    verdict.figure("adds", acknowledged);
}

/// Checks that a counter's versions are unique and rise in real time, and that no version is higher
/// than the number of sets that had begun before its answer.
///
/// The check of the counter's final version is weaker, because any set of unknown outcome can hide
/// a set that was applied twice.
fn check_versions(counter: &str, adds: &[&Operation], count: Option<&Operation>, verdict: &mut Verdict) {
    let mut versions: BTreeMap<u64, &Operation> = BTreeMap::new();
    let mut rising = Vec::new();
    let begun: Vec<u64> = adds.iter().filter(|add| add.is_possible()).map(|add| add.call).collect();
    let mut answered: Vec<u64> = adds.iter().filter(|add| add.is_ok()).map(|add| add.complete).collect();
    answered.sort_unstable();
    let mut surplus = None;
    for add in adds.iter().copied().filter(|add| add.is_ok()) {
        let Some(version) = add.number("version") else { continue };
        if let Some(other) = versions.insert(version, add) {
            verdict.found("version-given-twice", format!("{counter}: version {version}"), &[other, add]);
        }
        rising.push(Numbered::of(add, version, false));
        let possible = begun.partition_point(|call| *call < add.complete) as u64;
        let sure = answered.partition_point(|complete| *complete < add.call) as u64 + 1;
        if version < sure {
            let detail = format!("{counter}: {sure} sets acknowledged, version {version}");
            verdict.found("lost-update", detail, &[add]);
        }
        if version > possible {
            surplus.get_or_insert((add, version, possible));
        }
    }
    // After one surplus set all later versions are too high, so only the first is reported.
    if let Some((add, version, possible)) = surplus {
        let detail = format!("{counter}: {possible} sets had begun when version {version} was answered");
        verdict.found("applied-twice", detail, &[add]);
    }
    let last = count.and_then(|operation| Some((operation, operation.number("version")?)));
    rising.extend(last.map(|(operation, number)| Numbered::of(operation, number, true)));
    order::check_rising("falling-version", &format!("{counter}: version"), &rising, verdict);
}

/// Checks that an acquire that was sent several times counts as one hold, and that a release that
/// was sent several times gets the answer of its first application.
fn check_cycles(operations: &[Operation], verdict: &mut Verdict) {
    let lost = Ends::new(operations).lost;
    let acquires = operations.iter().filter(|operation| operation.f == "acquire" && operation.is_ok());
    verdict.figure("acquires", acquires.count());
    for operation in operations {
        let owner = operation.number("owner").unwrap_or(0);
        if operation.error.as_deref() == Some("idempotency-key-reused") {
            verdict.found(
                "taken-for-another",
                format!("session {owner}: the repeated request was refused"),
                &[operation],
            );
        }
        match operation.f.as_str() {
            "acquire" if operation.is_ok() && operation.number("holds").is_some_and(|holds| holds != 1) => {
                verdict.found("counted-twice", format!("session {owner} holds more than once"), &[operation]);
            }
            "release" if operation.is_ok() && operation.number("holds").is_some_and(|holds| holds != 0) => {
                verdict.found("counted-twice", format!("session {owner} holds after its release"), &[operation]);
            }
            "release" if operation.error.as_deref() == Some("ticket-gone") => {
                let told = lost.get(&owner).is_some_and(|op| op.error.as_deref() == Some("session-expired"));
                if !told {
                    let detail = format!("session {owner}: the release was not answered as it was the first time");
                    verdict.found("not-answered-again", detail, &[operation]);
                }
            }
            _ => {}
        }
    }
}
