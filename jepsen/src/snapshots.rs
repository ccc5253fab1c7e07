//! Counts of snapshots and of purged logs in a run, and the check that a run had enough of them.

use std::collections::BTreeMap;

use crate::cluster::Cluster;
use crate::history::{Entry, Process};
use crate::http::{Call, Http};
use crate::verdict::Verdict;

/// Settings for small snapshots: one snapshot every 200 log entries, and only 20 entries before
/// each snapshot are kept in the log.
pub const SMALL: [(&str, &str); 2] = [("disk.snapshot_log_entries", "200"), ("disk.kept_log_entries", "20")];

/// Number of log entries that a node must miss to need a snapshot: meanwhile the other nodes have
/// built two snapshots, and purged some of the missed entries.
const MISSED_MIN: u64 = 400;

/// Faults under which a node misses entries, because it does not run or cannot be reached.
const KEEP_AWAY: [&str; 10] = [
    "kill",
    "kill-leader",
    "stop",
    "stop-leader",
    "pause",
    "pause-leader",
    "halves",
    "isolate-leader",
    "power-loss",
    "wipe",
];

/// Names of the report's counts, each with the text of the nodes' log lines that are counted.
const TOLD: [(&str, &str); 3] = [
    ("snapshots-built", "snapshot built"),
    ("snapshots-sent", "snapshot sent"),
    ("snapshots-installed", "snapshot installed"),
];

/// Name of the report's count of nodes that have purged entries of their log.
const PURGED: &str = "logs-purged";

/// Counts the snapshots that were built, sent and installed, and the nodes that have purged their
/// log.
pub(crate) async fn count(cluster: &Cluster, verdict: &mut Verdict) {
    for (name, message) in TOLD {
        verdict.figure(name, cluster.nodes.iter().map(|node| node.told(message)).sum::<u64>());
    }
    let mut http = Http::new(&cluster.endpoints);
    let mut purged = 0;
    for node in http.members() {
        let answer = http.send(node, Call::get("/metrics")).await;
        purged += u64::from(has_purged(&String::from_utf8_lossy(&answer.body)));
    }
    verdict.figure(PURGED, purged);
}

/// Tells whether a node's metrics say that entries of its log are gone.
fn has_purged(metrics: &str) -> bool {
    let zxid = metrics.lines().find_map(|line| line.strip_prefix("zlock_log_purged_zxid "));
    zxid.is_some_and(|zxid| zxid.trim() != "0")
}

/// Returns the largest number of log entries that were written while one fault of [`KEEP_AWAY`] was
/// under way.
pub(crate) fn missed(entries: &[Entry]) -> u64 {
    let mut longest = 0;
    let mut from: Option<u64> = None;
    let mut last = 0;
    for entry in entries {
        if matches!(entry.process, Process::Nemesis(_)) {
            let kept_away = entry.f.strip_prefix("start-").is_some_and(|fault| KEEP_AWAY.contains(&fault));
            if kept_away {
                from = from.or(Some(last));
            } else if entry.f == "heal" {
                from = None;
            }
        }
        last = entry.zxid.unwrap_or(0).max(last);
        longest = longest.max(from.filter(|from| *from > 0).map_or(0, |from| last - from));
    }
    longest
}

/// Makes a valid verdict unknown when a run was configured for small snapshots and had too few of
/// them. `missed` is the result of [`missed`].
pub(crate) fn judge(settings: &str, missed: u64, verdict: &mut Verdict) {
    if !settings.contains(SMALL[0].0) {
        return;
    }
    let figures: BTreeMap<&str, u64> = [TOLD[0].0, TOLD[1].0, TOLD[2].0, PURGED]
        .into_iter()
        .map(|name| (name, verdict.figures.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0)))
        .collect();
    let needed: &[&str] = match (settings.contains(SMALL[1].0), missed >= MISSED_MIN) {
        (true, true) => &[TOLD[0].0, PURGED, TOLD[1].0, TOLD[2].0],
        (true, false) => &[TOLD[0].0, PURGED],
        (false, _) => &[TOLD[0].0],
    };
    for name in needed.iter().filter(|name| figures[**name] == 0) {
        verdict.doubt(format!("snapshots were to be small: {name} 0"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Kind, NemesisTag};
    use crate::verdict::Validity;

    const KEPT: &str = "disk.snapshot_log_entries = 200\ndisk.kept_log_entries = 20";

    fn judged(settings: &str, built: u64, sent: u64, purged: u64, missed: u64) -> Validity {
        let mut verdict = Verdict::default();
        verdict.figure("snapshots-built", built);
        verdict.figure("snapshots-sent", sent);
        verdict.figure("snapshots-installed", sent);
        verdict.figure("logs-purged", purged);
        judge(settings, missed, &mut verdict);
        verdict.valid
    }

    #[test]
    fn a_run_that_was_to_have_snapshots_and_had_none_is_unknown() {
        assert_eq!(judged(KEPT, 0, 0, 3, 0), Validity::Unknown);
        assert_eq!(judged(KEPT, 9, 0, 0, 0), Validity::Unknown);
        assert_eq!(judged(KEPT, 9, 0, 3, 0), Validity::Valid);
        assert_eq!(judged("", 0, 0, 0, 900), Validity::Valid);
    }

    #[test]
    fn a_run_in_which_a_node_missed_what_others_purged_needs_snapshots_that_were_sent() {
        assert_eq!(judged(KEPT, 9, 0, 3, 400), Validity::Unknown);
        assert_eq!(judged(KEPT, 9, 1, 3, 400), Validity::Valid);
        assert_eq!(judged(KEPT, 9, 0, 3, 399), Validity::Valid);
    }

    #[test]
    fn what_is_missed_is_what_the_log_got_while_a_node_was_away() {
        let entry = |process, f: &str, zxid| Entry {
            index: 0,
            time: 0,
            process,
            kind: Kind::Info,
            f: f.to_owned(),
            value: serde_json::Value::Null,
            error: None,
            node: None,
            zxid,
        };
        let nemesis = Process::Nemesis(NemesisTag::Nemesis);
        let did = |zxid| entry(Process::Client(1), "write", Some(zxid));
        let away = entry(nemesis, "start-kill", None);
        let back = entry(nemesis, "heal", None);
        let slow = entry(nemesis, "start-slow", None);
        assert_eq!(missed(&[did(1_000), away.clone(), did(1_300), did(1_450), back.clone(), did(2_000)]), 450);
        assert_eq!(missed(&[did(1_000), slow, did(2_000), back.clone(), away.clone(), did(2_100), back]), 100);
        assert_eq!(missed(&[away, did(1_000)]), 0);
    }

    #[test]
    fn a_node_has_purged_when_its_metrics_say_up_to_where() {
        assert!(has_purged("# TYPE\nzlock_log_purged_zxid 1795250096\n"));
        assert!(!has_purged("zlock_log_purged_zxid 0\n"));
        assert!(!has_purged(""));
    }
}
