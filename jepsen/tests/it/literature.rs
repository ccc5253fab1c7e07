//! Tests that histories from the literature are judged as their authors say.

use std::collections::VecDeque;

use jepsen::check::{Workload, check_operations};
use jepsen::history::{Kind, Operation};
use jepsen::models::{LockModel, LockOp, RegisterModel, RegisterOp};
use jepsen::verdict::Validity;
use jepsen::wgl::{self, Call, Model, Verdict};
use serde_json::{Value, json};

/// Model of a FIFO queue, as Herlihy and Wing specify it.
struct Fifo;

#[derive(Clone, Debug, PartialEq)]
enum FifoOp {
    Enqueue(char),
    Dequeue(char),
}

impl Model for Fifo {
    type State = VecDeque<char>;
    type Op = FifoOp;

    fn initial(&self) -> VecDeque<char> {
        VecDeque::new()
    }

    fn step(&self, state: &VecDeque<char>, op: &FifoOp) -> Option<VecDeque<char>> {
        let mut after = state.clone();
        match op {
            FifoOp::Enqueue(item) => after.push_back(*item),
            FifoOp::Dequeue(item) => {
                after.pop_front().filter(|first| first == item)?;
            }
        }
        Some(after)
    }
}

fn call<O>(op: O, call: u64, complete: u64) -> Call<O> {
    Call { op, call, complete: Some(complete) }
}

#[track_caller]
fn judge<M: Model>(model: &M, calls: &[Call<M::Op>], good: bool) {
    let verdict = wgl::check(model, calls, 10_000);
    assert_eq!(verdict == Verdict::Linearizable, good, "{verdict:?}");
    assert!(!matches!(verdict, Verdict::Unknown { .. }));
}

/// Herlihy and Wing, "Linearizability: A Correctness Condition for Concurrent Objects", 1990, the
/// queue histories H1 to H4.
#[test]
fn herlihy_and_wing_queues() {
    use FifoOp::{Dequeue, Enqueue};
    let h1 = [
        call(Enqueue('x'), 0, 2),
        call(Enqueue('y'), 1, 3),
        call(Dequeue('x'), 4, 5),
        call(Dequeue('y'), 6, 7),
        Call { op: Enqueue('z'), call: 8, complete: None },
    ];
    judge(&Fifo, &h1, true);
    let h2 = [call(Enqueue('x'), 0, 1), call(Enqueue('y'), 2, 4), call(Dequeue('y'), 3, 5)];
    judge(&Fifo, &h2, false);
    let h3 = [Call { op: Enqueue('x'), call: 0, complete: None }, call(Dequeue('x'), 1, 2)];
    judge(&Fifo, &h3, true);
    let h4 = [call(Enqueue('x'), 0, 2), call(Enqueue('y'), 1, 3), call(Dequeue('y'), 4, 6), call(Dequeue('y'), 5, 7)];
    judge(&Fifo, &h4, false);
}

/// Lamport, "On Interprocess Communication", 1986: while a write is under way, a regular register
/// may show the new value and then the old one. An atomic register may not.
#[test]
fn lamport_new_old_inversion() {
    use RegisterOp::{Read, Write};
    let history = |first, second| {
        [call(Write(1), 0, 1), call(Write(2), 2, 9), call(Read(Some(first)), 3, 4), call(Read(Some(second)), 5, 6)]
    };
    for (first, second, good) in [(1, 1, true), (1, 2, true), (2, 2, true), (2, 1, false)] {
        judge(&RegisterModel, &history(first, second), good);
    }
}

/// Kingsbury, "Jepsen: etcd and Consul", 2014: a deposed leader answered reads from its own memory.
#[test]
fn a_deposed_leader_serves_a_stale_read() {
    use RegisterOp::{Cas, Read, Write};
    let history = |answer| {
        [
            call(Write(2), 0, 1),
            call(Cas(2, 4), 2, 3),
            Call { op: Cas(4, 0), call: 4, complete: None },
            call(Read(Some(answer)), 5, 6),
        ]
    };
    for (answer, good) in [(4, true), (0, true), (2, false)] {
        judge(&RegisterModel, &history(answer), good);
    }
}

/// etcd-io/etcd issue 11456: a waiter was told that it held the lock although its lease had run
/// out, while the next waiter held it.
#[test]
fn a_waiter_whose_lease_ran_out_is_no_holder() {
    use LockOp::{Acquire, Close, Release};
    let taken_twice = [
        call(Acquire(1, None), 0, 1),
        call(Acquire(2, None), 2, 9),
        call(Acquire(3, None), 3, 8),
        call(Close(2), 4, 5),
        call(Release(1, None), 6, 7),
        call(Release(3, None), 10, 11),
    ];
    judge(&LockModel { reentrant: false }, &taken_twice, false);
    let refused: Vec<_> = taken_twice.into_iter().filter(|call| !matches!(call.op, Acquire(2, _))).collect();
    judge(&LockModel { reentrant: false }, &refused, true);
}

fn done(index: u64, f: &str, result: Value, outcome: Kind, error: Option<&str>) -> Operation {
    Operation {
        process: index,
        f: f.into(),
        argument: result.clone(),
        outcome,
        result,
        call: index * 2,
        complete: index * 2 + 1,
        time: (index, index),
        error: error.map(str::to_owned),
        zxid: None,
    }
}

/// Kleppmann, "How to do distributed locking", 2016: client 1 is paused with token 33, client 2
/// writes with token 34, and then client 1 writes. The storage has to refuse it.
#[test]
fn kleppmann_fencing() {
    let history = |late: Kind| {
        let late_write = json!({"lock": "l", "token": 33, "element": 1, "seq": 2});
        let there = if late == Kind::Ok { json!([1, 2]) } else { json!([2]) };
        [
            done(0, "acquire", json!({"lock": "l", "owner": 1, "token": 33}), Kind::Ok, None),
            done(1, "acquire", json!({"lock": "l", "owner": 2, "token": 34}), Kind::Ok, None),
            done(2, "use", json!({"lock": "l", "token": 34, "element": 2, "seq": 1}), Kind::Ok, None),
            done(3, "use", late_write, late, (late == Kind::Fail).then_some("stale-token")),
            done(4, "resource-read", json!({"lock": "l", "elements": there}), Kind::Ok, None),
        ]
    };
    assert_eq!(check_operations(Workload::FencedLock, &history(Kind::Fail)).valid, Validity::Valid);
    let verdict = check_operations(Workload::FencedLock, &history(Kind::Ok));
    assert!(verdict.has("old-token-accepted"), "{verdict:#?}");
}
