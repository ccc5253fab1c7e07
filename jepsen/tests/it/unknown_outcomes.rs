//! Tests that histories of locks with many operations of unknown outcome are decided, with the same
//! verdict as by a search of all orders.

use jepsen::check::{Workload, check_operations};
use jepsen::history::{Kind, Operation};
use jepsen::models::{LockModel, LockOp};
use jepsen::verdict::Validity;
use jepsen::wgl::{self, Call, Model, Verdict};
use serde_json::{Value, json};

/// Number of random histories.
const SEEDS: u64 = 8_000;

/// Returns an operation; its outcome is unknown if `complete` is `None`.
fn operation(f: &str, value: Value, call: u64, complete: Option<u64>) -> Operation {
    Operation {
        process: call,
        f: f.into(),
        argument: value.clone(),
        outcome: if complete.is_some() { Kind::Ok } else { Kind::Info },
        result: value,
        call,
        complete: complete.unwrap_or(u64::MAX),
        time: (call, complete.unwrap_or(call)),
        error: None,
        zxid: None,
    }
}

/// Tells whether some order of the calls explains every answer, by trying every order and every
/// subset of the calls of unknown outcome.
fn some_order<M: Model>(model: &M, calls: &[Call<M::Op>], state: &M::State, taken: u32) -> bool {
    let left = || (0..calls.len()).filter(|i| taken & (1 << i) == 0);
    let Some(by) = left().filter_map(|i| calls[i].complete).min() else { return true };
    left().filter(|i| calls[*i].call < by).any(|i| {
        let after = model.step(state, &calls[i].op);
        after.is_some_and(|after| some_order(model, calls, &after, taken | (1 << i)))
    })
}

/// Returns random operations of a few owners: function, owner, index of the call, index of the
/// return (`None` if unknown), and a number for the answer.
fn at_random(rng: &mut fastrand::Rng) -> Vec<(&'static str, u64, u64, Option<u64>, u64)> {
    let len = rng.usize(3..9);
    let owners = rng.u64(2..4);
    let known = rng.u8(30..80);
    let mut times: Vec<u64> = (0..2 * len as u64).collect();
    // Neighbouring times are swapped, so that some operations overlap, but most come one after the
    // other.
    for _ in 0..2 * len {
        let at = rng.usize(1..2 * len);
        times.swap(at - 1, at);
    }
    let operation = |times: &[u64]| {
        let f = ["acquire", "acquire", "acquire", "release", "close"][rng.usize(..5)];
        let complete = (rng.u8(..100) < known).then_some(times[0].max(times[1]));
        (f, rng.u64(..owners), times[0].min(times[1]), complete, rng.u64(..2))
    };
    let mut operations: Vec<_> = times.chunks(2).map(operation).collect();
    operations.sort_by_key(|(_, _, call, ..)| *call);
    operations
}

/// Checks that [`wgl::check`], the checker of the workload (which leaves out useless operations)
/// and [`some_order`] agree. Returns whether an order exists.
#[track_caller]
fn agree<M: Model>(workload: Workload, model: &M, calls: &[Call<M::Op>], operations: &[Operation]) -> bool {
    let possible = some_order(model, calls, &model.initial(), 0);
    let search = wgl::check(model, calls, 100_000);
    assert_eq!(search == Verdict::Linearizable, possible, "{search:?}: {operations:#?}");
    let verdict = check_operations(workload, operations);
    assert_ne!(verdict.has("not-linearizable"), possible, "{verdict:#?}: {operations:#?}");
    possible
}

#[test]
fn the_search_the_checker_and_every_order_agree() {
    let mut possible = [0u64; 3];
    for seed in 0..SEEDS {
        let mut rng = fastrand::Rng::with_seed(seed);
        let drawn = at_random(&mut rng);
        let operations = |fields: &dyn Fn(&str, u64) -> Value| {
            let operation = |(f, owner, call, complete, number): &(&str, u64, u64, Option<u64>, u64)| {
                let mut value = json!({"lock": "l", "owner": owner});
                if let (Some(value), Some(fields)) = (value.as_object_mut(), fields(f, *number).as_object()) {
                    value.extend(fields.clone());
                }
                operation(f, value, *call, *complete)
            };
            drawn.iter().map(operation).collect::<Vec<Operation>>()
        };

        let calls: Vec<Call<LockOp>> = drawn
            .iter()
            .map(|(f, owner, call, complete, _)| {
                let op = match *f {
                    "acquire" => LockOp::Acquire(*owner, None),
                    "release" => LockOp::Release(*owner, None),
                    _ => LockOp::Close(*owner),
                };
                Call { op, call: *call, complete: *complete }
            })
            .collect();
        possible[0] +=
            u64::from(agree(Workload::Lock, &LockModel { reentrant: false }, &calls, &operations(&|_, _| json!({}))));

        let calls: Vec<Call<LockOp>> = drawn
            .iter()
            .map(|(f, owner, call, complete, number)| {
                let op = match *f {
                    "acquire" => LockOp::Acquire(*owner, Some(*number + 1)),
                    "release" => LockOp::Release(*owner, Some(*number)),
                    _ => LockOp::Close(*owner),
                };
                Call { op, call: *call, complete: *complete }
            })
            .collect();
        let operations_counted = operations(&|f, number| json!({"holds": number + u64::from(f == "acquire")}));
        possible[1] +=
            u64::from(agree(Workload::ReentrantLock, &LockModel { reentrant: true }, &calls, &operations_counted));

        let mode = |number: u64| if number == 0 { "write" } else { "read" };
        let calls: Vec<Call<LockOp>> = drawn
            .iter()
            .map(|(f, owner, call, complete, number)| {
                let op = match (*f, mode(*number)) {
                    ("acquire", "read") => LockOp::Read(*owner),
                    ("acquire", _) => LockOp::Acquire(*owner, None),
                    ("release", _) => LockOp::Release(*owner, None),
                    _ => LockOp::Close(*owner),
                };
                Call { op, call: *call, complete: *complete }
            })
            .collect();
        let operations_with_modes = operations(&|_, number| json!({"mode": mode(number)}));
        possible[2] +=
            u64::from(agree(Workload::RwLock, &LockModel { reentrant: false }, &calls, &operations_with_modes));
    }
    for possible in possible {
        assert!(
            (SEEDS / 10..SEEDS * 9 / 10).contains(&possible),
            "{possible} of {SEEDS} have an order: nothing was compared"
        );
    }
}

/// Returns operations on a correct mutex whose clients sometimes get no answer to an acquire, to a
/// release, or to the close that follows.
fn of_a_mutex(rng: &mut fastrand::Rng, rounds: usize, waiting_max: usize) -> Vec<Operation> {
    let mut now = 0;
    let mut tick = || {
        now += 1;
        now
    };
    let (mut owner, mut token) = (0, 0);
    let mut operations = Vec::new();
    let mut waiting: Vec<(u64, u64)> = Vec::new();
    for _ in 0..rounds {
        while waiting.len() < waiting_max {
            owner += 1;
            waiting.push((owner, tick()));
        }
        let of = |owner: u64| json!({"lock": "l", "owner": owner});
        let (owner, asked) = waiting.remove(rng.usize(..waiting.len()));
        token += 1;
        if rng.u8(..100) < 10 {
            // Acquire and close have no answer. Both were applied or neither, so the lock is free.
            operations.push(operation("acquire", of(owner), asked, None));
            operations.push(operation("close", json!({"owner": owner}), tick(), None));
            continue;
        }
        let granted = json!({"lock": "l", "owner": owner, "token": token});
        operations.push(operation("acquire", granted, asked, Some(tick())));
        let (released, heard) = (tick(), rng.u8(..100) >= 25);
        operations.push(operation("release", of(owner), released, heard.then(&mut tick)));
        if !heard {
            operations.push(operation("close", json!({"owner": owner}), tick(), None));
        }
    }
    operations.sort_by_key(|operation| operation.call);
    operations
}

#[test]
fn hundreds_of_unknown_outcomes_are_decided() {
    for workload in [Workload::Lock, Workload::RwLock] {
        for seed in 0..20 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut operations = of_a_mutex(&mut rng, 400, 8);
            let unknown = operations.iter().filter(|operation| !operation.is_ok()).count();
            assert!(unknown > 200, "only {unknown}");
            let verdict = check_operations(workload, &operations);
            assert_eq!(verdict.valid, Validity::Valid, "seed {seed}: {verdict:#?}");

            // Session 0 releases a lock that it never acquired, which no order explains.
            let last =
                operations.iter().map(|operation| operation.call.max(operation.time.1)).max().unwrap_or_default();
            let nobody = json!({"lock": "l", "owner": 0});
            operations.push(operation("release", nobody, last + 1, Some(last + 2)));
            let verdict = check_operations(workload, &operations);
            assert!(verdict.has("not-linearizable"), "seed {seed}: {verdict:#?}");
        }
    }
}
