//! Tests that kill the process at every failpoint and at random, or let every failpoint fail.

use storage::FAILPOINTS;

use crate::harness::{data_dir_in_memory, rounds, seeded};
use crate::workload::{Run, Told};

/// Failpoints in the code for a node that has lost its snapshot; `lost_state.rs` tests them.
const GIVING_UP: [&str; 3] = ["meta.rejoining", "log.given-up", "log.replaced"];

#[test]
fn what_was_acknowledged_survives_a_kill_at_every_failpoint() {
    for &failpoint in FAILPOINTS {
        let (_parent, dir) = data_dir_in_memory();
        let mut told = Told::default();
        if GIVING_UP.contains(&failpoint) {
            continue;
        }
        for nth in [1, 3] {
            let run = Run { cycles: 3, kill_at: Some((failpoint, nth)), ..Run::default() };
            let ended = run.spawn(&dir).watch(&mut told, usize::MAX);
            assert!(!ended.ok || nth > 1, "{failpoint} was never passed");
            told.check(&dir, &format!("killed at pass {nth} of {failpoint}"));
        }
        // The node can write again after the kill.
        let ended = Run { cycles: 1, ..Run::default() }.spawn(&dir).watch(&mut told, usize::MAX);
        assert!(ended.ok, "{failpoint}: {ended:?}");
        told.check(&dir, failpoint);
    }
}

#[test]
fn what_was_acknowledged_survives_kills_at_random() {
    let (seed, mut rng) = seeded();
    let (_parent, dir) = data_dir_in_memory();
    let mut told = Told::default();
    let kills = rounds(40, 100);
    for kill in 0..kills {
        let run = Run { cycles: 1_000, ..Run::default() };
        run.spawn(&dir).watch(&mut told, rng.usize(1..30));
        told.check(&dir, &format!("seed {seed}, kill {kill}"));
    }
    assert!(told.facts > kills * 10, "{} facts", told.facts);
}

/// Expected behaviour of the child process after one injected error.
#[derive(Clone, Copy, PartialEq)]
enum Expect {
    /// The storage does not open.
    Refused,
    /// The operation fails, and so does every later one.
    Final,
    /// Only this operation fails, and the node goes on: no data of the operation is on disk yet, or
    /// a peer sent wrong data.
    Error,
}

#[test]
fn an_error_at_any_failpoint_is_final_and_loses_nothing() {
    for &failpoint in FAILPOINTS {
        let (nth, fresh, expect) = match failpoint {
            "meta.create" | "meta.created" | "meta.log-begun" => (1, true, Expect::Refused),
            "record.written" | "record.renamed" => (1, true, Expect::Refused),
            // Fails at the second pass, as the first belongs to opening.
            "log.flushed" => (2, false, Expect::Final),
            "db.copy" => (1, false, Expect::Refused),
            // Marks that are set only once, so the directory must be new.
            "meta.joined" | "meta.founding" => (1, true, Expect::Final),
            "snapshot.begin" | "snapshot.manifest" => (1, false, Expect::Error),
            "receive.begin" | "receive.verify" | "receive.verified" => (1, false, Expect::Error),
            _ => (1, false, Expect::Final),
        };
        if !GIVING_UP.contains(&failpoint) {
            check_error((failpoint, nth), fresh, expect);
        }
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
    };
    assert!(ended.stderr.contains(wanted), "{fail_at:?}: {wanted:?} was expected of {ended:?}");
    told.check(&dir, fail_at.0);
}
