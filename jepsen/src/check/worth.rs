//! What a history must have for its verdict to mean something: a check that judged nothing has
//! found nothing wrong.

use serde_json::Value;

use super::Workload;
use crate::history::Operation;
use crate::verdict::Verdict;

/// Takes in turns, waits, grants and what is done under them by where they are in the log.
const LOCKS: [&str; 6] = ["acquire", "again", "await", "enqueue", "look", "release"];

/// The functions whose acknowledged operations are judged by their zxid. One without it would be
/// left out of the judgment.
fn judged_by_zxid(workload: Workload, f: &str) -> bool {
    match workload {
        Workload::Register => matches!(f, "read" | "write" | "cas"),
        Workload::Sequential => matches!(f, "create" | "delete"),
        Workload::Watch => matches!(f, "create" | "write" | "delete"),
        Workload::Multi => matches!(f, "transfer" | "read"),
        Workload::Session => matches!(f, "write" | "local-read"),
        Workload::Semaphore | Workload::MultiLock => LOCKS.contains(&f),
        Workload::Election => LOCKS.contains(&f) || matches!(f, "append" | "observe" | "proclaim"),
        Workload::Upgrade => LOCKS.contains(&f) || matches!(f, "append" | "downgrade" | "upgrade"),
        Workload::Mixed => LOCKS.contains(&f) || matches!(f, "downgrade" | "upgrade"),
        Workload::Revoke => LOCKS.contains(&f) || matches!(f, "append" | "listen" | "revoke"),
        // By the clients' clock and by what answers say, no more.
        Workload::Lock
        | Workload::FencedLock
        | Workload::UnguardedLock
        | Workload::ReentrantLock
        | Workload::RwLock
        | Workload::Queue
        | Workload::LockDelay
        | Workload::Ephemeral
        | Workload::ExactlyOnce => false,
    }
}

/// The figures of which none is zero after a run in which every part of the promise was judged.
fn needed(workload: Workload) -> &'static [&'static str] {
    match workload {
        Workload::Register => &["keys", "zxids-in-order"],
        Workload::Lock | Workload::ReentrantLock | Workload::RwLock | Workload::Queue => &["grants"],
        Workload::FencedLock => &["grants", "resource-updates-kept", "znode-updates-kept"],
        Workload::UnguardedLock => &["grants"],
        Workload::Sequential => &["children", "zxids-in-order"],
        Workload::Ephemeral => &["ephemerals", "looks", "sessions"],
        Workload::Watch => &["events", "watchers"],
        Workload::Multi => &["transfers", "zxids-in-order"],
        Workload::Session => &["local-reads", "writes"],
        Workload::ExactlyOnce => &["acquires", "adds", "children"],
        Workload::Semaphore => &["grants", "looks", "waits"],
        Workload::MultiLock => &["locks-granted", "locks-waited-for", "looks"],
        Workload::Election => &["leaders", "observations", "proclamations", "znode-updates-kept"],
        Workload::Upgrade => &["downgrades", "looks", "upgrades", "znode-updates-kept"],
        Workload::Mixed => &["downgrades", "granted-backfill", "granted-strict", "leases", "looks", "upgrades"],
        Workload::LockDelay => &["delays-kept", "grants"],
        Workload::Revoke => &["grants", "revocations", "znode-updates-kept"],
    }
}

/// Doubts when acknowledged operations have no zxid although they are judged by it.
pub(super) fn check_zxids(workload: Workload, operations: &[Operation], verdict: &mut Verdict) {
    let judged = operations.iter().filter(|operation| operation.is_ok() && judged_by_zxid(workload, &operation.f));
    let (with, without): (Vec<_>, Vec<_>) = judged.partition(|operation| operation.zxid.is_some());
    if let Some(first) = without.first() {
        let (count, all) = (without.len(), with.len() + without.len());
        verdict.doubt(format!("{count} of {all} answers have no zxid to judge them by: {}", first.describe()));
    }
}

/// Doubts when a run has nothing of what its workload is about. A part of a run may well have none.
pub fn check_worth(workload: Workload, verdict: &mut Verdict) {
    let in_time: &[&str] = match workload {
        Workload::Watch => &["told-in-time"],
        workload if workload.has_locks() => &["granted-in-time"],
        _ => &[],
    };
    // Over ZooKeeper's protocol no node is asked to wait.
    let waits = ["waits-ended"].into_iter().filter(|name| verdict.figures.contains_key(*name));
    let needed: Vec<&str> = needed(workload).iter().chain(in_time).copied().chain(waits).collect();
    for name in needed {
        // A text says why it was not judged.
        let judged = |figure: &Value| figure.is_string() || figure.as_u64().is_some_and(|count| count > 0);
        if !verdict.figures.get(name).is_some_and(judged) {
            verdict.doubt(format!("nothing was judged: {name} 0"));
        }
    }
}
