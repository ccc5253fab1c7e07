//! Checker of the workload `session`: a client that sends the last zxid it saw never reads an older
//! state, at any node.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::history::Operation;
use crate::verdict::Verdict;

/// Checks that zxids never fall for a client, and that each `local-read` returns the newest `write`
/// up to the zxid of its answer. The answer has the `element` that was read, and `mzxid`, the zxid
/// of the write of this element.
pub(super) fn check(operations: &[Operation]) -> Verdict {
    let mut verdict = Verdict::default();
    let mut writes: BTreeMap<&str, BTreeMap<u64, &Operation>> = BTreeMap::new();
    let is_write = |operation: &&Operation| operation.f == "write" && operation.is_ok();
    for write in operations.iter().filter(is_write) {
        if let (Some(key), Some(zxid)) = (write.text("key"), write.zxid) {
            writes.entry(key).or_default().insert(zxid, write);
        }
    }
    let mut seen: BTreeMap<(&str, u64), (&Value, &Operation)> = BTreeMap::new();
    let mut highest: BTreeMap<u64, (u64, &Operation)> = BTreeMap::new();
    let mut reads = 0;
    for operation in operations.iter().filter(|operation| operation.is_ok()) {
        let Some(zxid) = operation.zxid else { continue };
        if operation.f == "local-read" {
            reads += 1;
            check_read(operation, zxid, &writes, &mut verdict);
            if let (Some(key), Some(mzxid), Some(element)) =
                (operation.text("key"), operation.number("mzxid"), operation.result.get("element"))
            {
                let (other, first) = *seen.entry((key, mzxid)).or_insert((element, operation));
                if other != element {
                    let detail = format!("{key}: two values at {mzxid}, {other} and {element}");
                    verdict.found("nodes-differ", detail, &[first, operation]);
                }
            }
        }
        // The operations of one process come one after the other, so their zxids must not fall.
        if let Some((before, earlier)) = highest.insert(operation.process, (zxid, operation))
            && zxid < before
        {
            let detail = format!("process {} went back from {before} to {zxid}", operation.process);
            verdict.found("goes-back", detail, &[earlier, operation]);
        }
    }
    verdict.figure("local-reads", reads);
    verdict.figure("writes", operations.iter().filter(is_write).count());
    verdict
}

fn check_read(read: &Operation, zxid: u64, writes: &BTreeMap<&str, BTreeMap<u64, &Operation>>, verdict: &mut Verdict) {
    let min_zxid = read.argument.get("min_zxid").and_then(Value::as_u64).unwrap_or(0);
    if zxid < min_zxid {
        let detail = format!("at least {min_zxid} was asked for and {zxid} answered");
        verdict.found("older-than-asked", detail, &[read]);
    }
    let (Some(key), Some(mzxid)) = (read.text("key"), read.number("mzxid")) else { return };
    if mzxid > zxid {
        verdict.found("from-the-future", format!("{key}: {mzxid} in the state of {zxid}"), &[read]);
        return;
    }
    let Some(writes) = writes.get(key) else { return };
    if let Some((at, missed)) = writes.range(..=zxid).next_back().filter(|(at, _)| **at > mzxid) {
        let detail = format!("{key}: the state of {zxid} has {mzxid} and not the write at {at}");
        verdict.found("stale-read", detail, &[missed, read]);
    }
    if let Some(write) = writes.get(&mzxid)
        && write.field("element") != read.result.get("element")
    {
        verdict.found("wrong-value", format!("{key}: another value than was written at {mzxid}"), &[write, read]);
    }
}
