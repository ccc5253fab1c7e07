//! kill -9 at every failpoint and at random, and an error at every failpoint.

use storage::FAILPOINTS;

use crate::harness::data_dir_in_memory;
use crate::workload::{Run, Told};

#[test]
fn what_was_acknowledged_survives_a_kill_at_every_failpoint() {
    for &failpoint in FAILPOINTS {
        let (_parent, dir) = data_dir_in_memory();
        let mut told = Told::default();
        let bloated = failpoint.starts_with("db.");
        if bloated {
            // Something to rebuild.
            assert!(Run { cycles: 1, ..Run::default() }.spawn(&dir).watch(&mut told, usize::MAX).ok);
        }
        for nth in [1, 3] {
            let run = Run { cycles: 3, kill_at: Some((failpoint, nth)), bloated, ..Run::default() };
            let ended = run.spawn(&dir).watch(&mut told, usize::MAX);
            assert!(!ended.ok || nth > 1, "{failpoint} was never passed");
            told.check(&dir, &format!("killed at pass {nth} of {failpoint}"));
        }
        // And it works on.
        let ended = Run { cycles: 1, ..Run::default() }.spawn(&dir).watch(&mut told, usize::MAX);
        assert!(ended.ok, "{failpoint}: {ended:?}");
        told.check(&dir, failpoint);
    }
}

#[test]
fn what_was_acknowledged_survives_a_hundred_kills_at_random() {
    let seed = fastrand::u64(..);
    let mut rng = fastrand::Rng::with_seed(seed);
    let (_parent, dir) = data_dir_in_memory();
    let mut told = Told::default();
    for kill in 0..100 {
        let run = Run { cycles: 1_000, bloated: rng.u8(..) < 25, ..Run::default() };
        run.spawn(&dir).watch(&mut told, rng.usize(1..30));
        told.check(&dir, &format!("seed {seed}, kill {kill}"));
    }
    assert!(told.facts > 1_000, "{} facts", told.facts);
}

/// A rebuilt database begins anew with everything that it counts; the snapshot that it holds keeps its number.
#[test]
fn a_snapshot_that_outlived_a_rebuild_is_not_written_over() {
    let (_parent, dir) = data_dir_in_memory();
    let mut told = Told::default();
    assert!(Run { cycles: 1, ..Run::default() }.spawn(&dir).watch(&mut told, usize::MAX).ok);
    // Each finds its database bloated, makes its first snapshot current, and dies.
    for crash in 0..3 {
        let run = Run { cycles: 1, bloated: true, kill_at: Some(("receive.begin", 1)), ..Run::default() };
        let ended = run.spawn(&dir).watch(&mut told, usize::MAX);
        assert!(ended.stderr.is_empty() && !ended.ok, "crash {crash}: {ended:?}");
        told.check(&dir, &format!("crash {crash}"));
    }
    let ended = Run { cycles: 2, bloated: true, ..Run::default() }.spawn(&dir).watch(&mut told, usize::MAX);
    assert!(ended.ok, "{ended:?}");
    told.check(&dir, "after all crashes");
}

/// What a child makes of the one error that it meets.
#[derive(Clone, Copy, PartialEq)]
enum Expect {
    /// It does not open.
    Refused,
    /// The operation fails, and so does every later one.
    Final,
    /// The operation fails: nothing is on disk yet, or a peer is to blame.
    Error,
    /// Not reached without a rebuild.
    Elsewhere,
}

#[test]
fn an_error_at_any_failpoint_is_final_and_loses_nothing() {
    for &failpoint in FAILPOINTS {
        let (nth, fresh, expect) = match failpoint {
            "meta.create" | "meta.created" | "meta.renamed" | "meta.log-begun" | "db.swap" => {
                (1, true, Expect::Refused)
            }
            // A mark that is set once only.
            "meta.joined" => (1, true, Expect::Final),
            "snapshot.begin" | "snapshot.manifest" => (1, false, Expect::Error),
            "receive.begin" | "receive.verify" | "receive.verified" => (1, false, Expect::Error),
            "db.bloated" | "db.rebuild" | "db.rebuilt" | "db.swapped" => (1, false, Expect::Elsewhere),
            // Past those of opening.
            "db.flush" | "db.fsync" | "db.fsynced" => (9, true, Expect::Final),
            _ => (1, false, Expect::Final),
        };
        if expect != Expect::Elsewhere {
            check_error((failpoint, nth), fresh, expect);
        }
    }
    for failpoint in ["db.flush", "db.fsync", "db.fsynced"] {
        check_error((failpoint, 1), true, Expect::Refused);
    }
}

#[track_caller]
fn check_error(fail_at: (&str, u32), fresh: bool, expect: Expect) {
    let (_parent, dir) = data_dir_in_memory();
    let mut told = Told::default();
    if !fresh {
        assert!(Run { cycles: 1, ..Run::default() }.spawn(&dir).watch(&mut told, usize::MAX).ok);
    }
    let run = Run { cycles: 2, fail_at: Some(fail_at), ..Run::default() };
    let ended = run.spawn(&dir).watch(&mut told, usize::MAX);
    let wanted = match expect {
        Expect::Refused => "refused: ",
        Expect::Final => "refused afterwards: true",
        Expect::Error => "not fatal: ",
        Expect::Elsewhere => unreachable!("not run"),
    };
    assert!(ended.stderr.contains(wanted), "{fail_at:?}: {wanted:?} was expected of {ended:?}");
    told.check(&dir, fail_at.0);
}
