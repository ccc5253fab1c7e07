//! Checker of the workload `restore`: after a restore from a backup, the cluster must serve no
//! session that was opened before the restore.

use std::collections::BTreeMap;

use crate::history::{Entry, Operation, Process};
use crate::verdict::Verdict;

/// Name of the history entry that the nemesis writes when all nodes are down and have new data from
/// a backup.
const RESTORED: &str = "start-restore";

/// Judges operations after a restore in sessions that were opened before this restore. If the run
/// has restores, and the cluster refused none of these operations, the verdict is unknown.
pub(super) fn check(entries: &[Entry], operations: &[Operation], verdict: &mut Verdict) {
    let is_restore = |entry: &&Entry| matches!(entry.process, Process::Nemesis(_)) && entry.f == RESTORED;
    let restores: Vec<u64> = entries.iter().filter(is_restore).map(|entry| entry.index).collect();
    let mut opened: BTreeMap<u64, &Operation> = BTreeMap::new();
    let (mut old, mut refused) = (0, 0);
    for operation in operations.iter().filter(|operation| operation.f != "abandon") {
        let Some(owner) = operation.number("owner") else { continue };
        let first = *opened.entry(owner).or_insert(operation);
        let Some(restore) = restores.iter().find(|at| first.complete < **at && **at < operation.call) else { continue };
        old += 1;
        refused += u64::from(operation.error.as_deref() == Some("session-expired"));
        if operation.is_ok() {
            let detail = format!("session {owner} is from before the restore at entry {restore}");
            verdict.found("old-session-served", detail, &[first, operation]);
        }
    }
    if !restores.is_empty() && refused == 0 {
        verdict.doubt("no client used a session from before a restore".to_owned());
    }
    verdict.figure("restores", restores.len());
    verdict.figure("old-sessions-used", old);
    verdict.figure("old-sessions-refused", refused);
}
