//! Checker of the workload `register`: every key is a linearizable register.

use std::collections::BTreeMap;

use serde_json::Value;

use super::order;
use super::zones::{self, ZoneVerdict};
use crate::history::Operation;
use crate::models::{RegisterModel, RegisterOp};
use crate::verdict::Verdict;
use crate::wgl::{self, Call};

/// Largest number of configurations (sets of applied operations, with the register's value) that
/// the search of [`second_opinion`] may visit.
const SECOND_OPINION_MAX: usize = 20_000;
/// Largest number of operations on a key for which [`second_opinion`] searches.
const SECOND_OPINION_OPS: usize = 300;

/// Judges reads, writes and compare-and-sets of many keys, each key by itself: linearizability is
/// compositional.
pub(super) fn check(operations: &[Operation]) -> Verdict {
    let mut verdict = Verdict::default();
    for operation in operations.iter().filter(|operation| operation.argument.get(0).is_none()) {
        verdict.doubt(format!("an operation without a key: {}", operation.describe()));
    }
    let keys = by_key(operations);
    verdict.figure("keys", keys.len());
    for (key, operations) in keys {
        check_key(&key, &operations, &mut verdict);
    }
    let is_read = |f: &str| match f {
        "read" => Some(true),
        "write" | "cas" => Some(false),
        _ => None,
    };
    order::check_zxids(operations, is_read, &mut verdict);
    verdict
}

fn by_key(operations: &[Operation]) -> BTreeMap<String, Vec<&Operation>> {
    let mut keys: BTreeMap<String, Vec<&Operation>> = BTreeMap::new();
    for operation in operations {
        if let Some(key) = operation.argument.get(0) {
            keys.entry(key.to_string()).or_default().push(operation);
        }
    }
    keys
}

fn check_key(key: &str, operations: &[&Operation], verdict: &mut Verdict) {
    for operation in operations.iter().filter(|operation| operation.error.as_deref() == Some("no-node")) {
        verdict.found("lost-create", format!("key {key}: the created znode is gone"), &[operation]);
    }
    let (subjects, calls) = calls(key, operations, verdict);
    match zones::decide(&calls) {
        ZoneVerdict::Linearizable => second_opinion(key, &calls, true, verdict),
        ZoneVerdict::NotLinearizable { kind, part } => {
            let part: Vec<&Operation> = part.into_iter().map(|i| subjects[i]).collect();
            verdict.found(kind, format!("key {key} is not linearizable"), &part);
            second_opinion(key, &calls, false, verdict);
        }
        ZoneVerdict::NotApplicable => verdict.doubt(format!("key {key}: a value was written twice")),
    }
}

/// Returns the operations on one key that affect a register, and the [`Call`] of the register's
/// model for each, in the same order.
fn calls<'a>(
    key: &str,
    operations: &[&'a Operation],
    verdict: &mut Verdict,
) -> (Vec<&'a Operation>, Vec<Call<RegisterOp>>) {
    let mut subjects = Vec::new();
    let mut calls = Vec::new();
    for operation in operations.iter().filter(|operation| operation.is_possible()) {
        match op(operation) {
            // A read without an answer says nothing.
            Some(RegisterOp::Read(_)) if !operation.is_ok() => {}
            Some(op) => {
                let complete = operation.is_ok().then_some(operation.complete);
                calls.push(Call { op, call: operation.call, complete });
                subjects.push(*operation);
            }
            None => verdict.doubt(format!("key {key}: not understood: {}", operation.describe())),
        }
    }
    (subjects, calls)
}

/// Checks the verdict `good` of [`zones::decide`] by the search of [`wgl::check`], which shares no
/// code with [`zones::decide`]. Makes a valid verdict unknown if the two disagree.
fn second_opinion(key: &str, calls: &[Call<RegisterOp>], good: bool, verdict: &mut Verdict) {
    if calls.len() > SECOND_OPINION_OPS {
        return;
    }
    let disagrees = match wgl::check(&RegisterModel, calls, SECOND_OPINION_MAX) {
        wgl::Verdict::Linearizable => !good,
        wgl::Verdict::NotLinearizable { .. } => good,
        wgl::Verdict::Unknown { .. } => false,
    };
    if disagrees {
        verdict.doubt(format!("key {key}: the search and the zones disagree; one of the checkers is wrong"));
    }
}

fn op(operation: &Operation) -> Option<RegisterOp> {
    let argument = operation.argument.get(1)?;
    match operation.f.as_str() {
        "read" if !operation.is_ok() => Some(RegisterOp::Read(None)),
        "read" => match operation.result.get(1)? {
            Value::Null => Some(RegisterOp::Read(None)),
            value => Some(RegisterOp::Read(Some(value.as_i64()?))),
        },
        "write" => Some(RegisterOp::Write(argument.as_i64()?)),
        "cas" => Some(RegisterOp::Cas(argument.get(0)?.as_i64()?, argument.get(1)?.as_i64()?)),
        _ => None,
    }
}
