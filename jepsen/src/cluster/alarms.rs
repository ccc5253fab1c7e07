//! Search for lines of a node's log that show a bug.

/// Source files that may panic when a process ends because its disk or its memory failed: sled
/// (docs/storage-trouble.md), openraft after its task has ended, and the standard library when a
/// thread has no memory for its signal stack.
const AT_AN_END: [&str; 3] = ["/sled-0.", "/raft_inner.rs", "/stack_overflow.rs"];

/// Returns the lines that show a bug, at most 20. `excused` is the number of times that the process
/// ended because of a broken disk or a lack of memory; for each, one panic in [`AT_AN_END`] is left
/// out.
pub(super) fn alarms(log: &str, excused: usize) -> Vec<&str> {
    let mut excused = excused;
    let alarm = |line: &&str| {
        let panicked = line.contains("panicked at");
        let ends = panicked && excused > 0 && AT_AN_END.iter().any(|place| line.contains(place));
        excused -= usize::from(ends);
        !ends && (panicked || line.contains("assertion"))
    };
    log.lines().filter(alarm).take(20).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_alarm_but_for_one_at_each_excused_end() {
        let log =
            "x\nthread 'a' panicked at /registry/sled-0.34.7/src/b.rs:1:2:\nthread 'c' panicked at crates/d.rs:3:4:\n";
        assert_eq!([0, 1, 2].map(|ended| alarms(log, ended).len()), [2, 1, 1]);
        assert_eq!(alarms(&log.repeat(2), 1).len(), 3);
    }
}
