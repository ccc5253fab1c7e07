//! Checker of the workload `register`: every key is a linearizable register.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{grouped, lock, order};
use crate::history::Operation;
use crate::models::{RegisterModel, RegisterOp};
use crate::verdict::Verdict;
use crate::wgl::Call;

/// Judges reads, writes and compare-and-sets of many keys, each key by itself: linearizability is
/// compositional.
pub(super) fn check(operations: &[Operation]) -> Verdict {
    let mut verdict = Verdict::default();
    for operation in operations.iter().filter(|operation| operation.argument.get(0).is_none()) {
        verdict.doubt(format!("an operation without a key: {}", operation.describe()));
    }
    let keys =
        grouped(operations.iter().filter_map(|operation| Some((operation.argument.get(0)?.to_string(), operation))));
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

fn check_key(key: &str, operations: &[&Operation], verdict: &mut Verdict) {
    for operation in operations.iter().filter(|operation| operation.error.as_deref() == Some("no-node")) {
        verdict.found("lost-create", format!("key {key}: the created znode is gone"), &[operation]);
    }
    let (subjects, calls) = calls(key, operations, verdict);
    lock::search(&format!("key {key}"), &RegisterModel, &calls, &subjects, verdict);
}

/// Returns the operations on one key that affect a register, and the [`Call`] of the register's
/// model for each, in the same order. Leaves out each write of unknown outcome whose value no
/// operation saw: an order with the write is still an order without it.
fn calls<'a>(
    key: &str,
    operations: &[&'a Operation],
    verdict: &mut Verdict,
) -> (Vec<&'a Operation>, Vec<Call<RegisterOp>>) {
    let mut part = Vec::new();
    let mut seen = BTreeSet::new();
    for operation in operations.iter().copied().filter(|operation| operation.is_possible()) {
        match op(operation) {
            // A read without an answer says nothing.
            Some(RegisterOp::Read(_)) if !operation.is_ok() => {}
            Some(op) => {
                if let RegisterOp::Read(Some(value)) | RegisterOp::Cas(value, _) = op {
                    seen.insert(value);
                }
                let complete = operation.is_ok().then_some(operation.complete);
                part.push((operation, Call { op, call: operation.call, complete }));
            }
            None => verdict.doubt(format!("key {key}: not understood: {}", operation.describe())),
        }
    }
    let is_needed = |(_, call): &(&Operation, Call<RegisterOp>)| match call.op {
        RegisterOp::Write(value) | RegisterOp::Cas(_, value) => call.complete.is_some() || seen.contains(&value),
        RegisterOp::Read(_) => true,
    };
    part.into_iter().filter(is_needed).unzip()
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
