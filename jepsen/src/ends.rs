//! Judgement of node processes that ended unexpectedly, which the history does not contain.

use std::collections::BTreeMap;

use crate::cluster::Ended;
use crate::verdict::Verdict;

/// Reports each node whose process ended without an excuse. The excuses are a disk that the nemesis
/// broke and memory that the nemesis limited.
pub(crate) fn judge(ends: &[Ended], verdict: &mut Verdict) {
    let mut times = BTreeMap::<u64, u64>::new();
    for end in ends.iter().filter(|end| !end.is_excused()) {
        *times.entry(end.node).or_default() += 1;
    }
    for (node, times) in times {
        // Only a node's first end is shown; the other ones are counted.
        let Some(end) = ends.iter().find(|end| end.node == node && !end.is_excused()) else { continue };
        let detail = format!("node {node} ended unexpectedly ({times}x): {}", end.how);
        verdict.found_outside("node-ended", detail, end.last_lines.clone());
    }
    let count = |of: fn(&&Ended) -> bool| ends.iter().filter(of).count();
    let counts = [
        ("ended-for-their-disk", count(|end| end.for_its_disk)),
        ("ended-for-their-memory", count(|end| end.for_its_memory)),
        ("refused-damaged-data", count(|end| end.refused_damage)),
    ];
    for (name, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
        verdict.figure(name, count);
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
            for_its_memory: false,
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
}
