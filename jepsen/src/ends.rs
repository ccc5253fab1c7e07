//! Why nodes ended, what their disks lost, and which snapshots there were: what a run is told apart
//! from its history.

use std::collections::{BTreeMap, BTreeSet};

use power_disk::Cut;

use crate::cluster::disk::{self, Losses};
use crate::cluster::{Ended, Node};
use crate::verdict::Verdict;

/// A node that ends has to have a reason: a broken disk is one.
pub(crate) fn judge(ends: &[Ended], verdict: &mut Verdict) {
    let mut times = BTreeMap::<u64, u64>::new();
    for end in ends.iter().filter(|end| !end.for_its_disk) {
        *times.entry(end.node).or_default() += 1;
    }
    for (node, times) in times {
        // The first tells most.
        let Some(end) = ends.iter().find(|end| end.node == node && !end.for_its_disk) else { continue };
        let detail = format!("node {node} ended unexpectedly ({times}x): {}", end.how);
        verdict.found_outside("node-ended", detail, end.last_lines.clone());
    }
    let for_disks = ends.iter().filter(|end| end.for_its_disk).count();
    if for_disks > 0 {
        verdict.figure("ended-for-their-disk", for_disks);
    }
    let refused = ends.iter().filter(|end| end.refused_damage).count();
    if refused > 0 {
        verdict.figure("refused-damaged-data", refused);
    }
}

/// How many losses of power there were, by what, and how many nodes refused their data after one.
pub(crate) fn judge_losses(losses: Losses, ends: &[Ended], verdict: &mut Verdict) {
    let refused: BTreeSet<u64> = ends.iter().filter(|end| end.says_damaged()).map(|end| end.node).collect();
    verdict.figure("node-power-losses", losses.nodes);
    verdict.figure("refusals-after-power-loss", refused.len());
    verdict.figure("power-lost-by", disk::power_lost_by());
    if power_disk::available().is_err() {
        return;
    }
    let Cut { pages_kept, pages_lost, names_kept, names_lost } = losses.cut;
    verdict.figure("unsynced-pages", format!("{pages_kept} kept, {pages_lost} lost"));
    verdict.figure("unsynced-names", format!("{names_kept} kept, {names_lost} lost"));
    if pages_lost + names_lost == 0 {
        verdict.doubt("no loss of power has lost anything".to_owned());
    }
}

/// Snapshots, as the nodes' logs tell: figure and message.
const SNAPSHOTS: [(&str, &str); 3] = [
    ("snapshots-built", "snapshot built"),
    ("snapshots-sent", "snapshot sent"),
    ("snapshots-installed", "snapshot installed"),
];

/// How many snapshots were built, sent and installed.
pub(crate) fn count_snapshots(nodes: &[Node], verdict: &mut Verdict) {
    for (name, message) in SNAPSHOTS {
        verdict.figure(name, nodes.iter().map(|node| node.told(message)).sum::<u64>());
    }
}

/// A run that was to cut the power among snapshots, and had none, has shown nothing about them.
pub(crate) fn judge_snapshots(settings: &str, verdict: &mut Verdict) {
    let built = verdict.figures.get("snapshots-built").and_then(serde_json::Value::as_u64).unwrap_or(0);
    if settings.contains("snapshot_log_entries") && built == 0 {
        verdict.doubt("snapshot_log_entries is set, and no snapshot was built".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Validity;

    #[test]
    fn a_node_that_ends_without_a_reason_makes_a_run_invalid() {
        let end = |for_its_disk| Ended {
            node: 2,
            how: "exit status: 3".into(),
            for_its_disk,
            refused_damage: false,
            last_lines: vec!["x".into()],
        };
        let mut verdict = Verdict::default();
        judge(&[end(true)], &mut verdict);
        assert_eq!(verdict.valid, Validity::Valid);
        judge(&[end(true), end(false), end(false)], &mut verdict);
        assert_eq!((verdict.valid, verdict.finding_count), (Validity::Invalid, 1));
        let finding = &verdict.findings[0];
        assert_eq!((finding.kind.as_str(), finding.part.as_slice()), ("node-ended", &["x".to_owned()][..]));
    }

    #[test]
    fn a_run_that_was_to_have_snapshots_and_had_none_is_unknown() {
        let judged = |settings: &str, built: u64| {
            let mut verdict = Verdict::default();
            verdict.figure("snapshots-built", built);
            judge_snapshots(settings, &mut verdict);
            verdict.valid
        };
        assert_eq!(judged("snapshot_log_entries = 200", 0), Validity::Unknown);
        assert_eq!(judged("snapshot_log_entries = 200", 1), Validity::Valid);
        assert_eq!(judged("", 0), Validity::Valid);
    }
}
