//! Tests with random histories of registers: the checker agrees with a plain search through all
//! orders, wrong answers that a test writes into a history are found, and histories as long as
//! those of real runs are decided fast.

use std::time::{Duration, Instant};

use jepsen::check::{Workload, check_operations};
use jepsen::history::{Kind, Operation};
use jepsen::models::{RegisterModel, RegisterOp};
use jepsen::wgl::{self, Call, Model, Verdict};
use serde_json::json;

/// Returns a history of a correct register: every operation takes effect between its call and its
/// return.
fn history(rng: &mut fastrand::Rng, ops: usize, processes: u64, info_percent: u8) -> Vec<Call<RegisterOp>> {
    let mut now = 0;
    let mut open: Vec<(u64, u64, u64)> = Vec::new();
    let mut moments: Vec<(u64, u64, u64)> = Vec::new();
    let mut free: Vec<u64> = (0..processes).collect();
    while moments.len() + open.len() < ops {
        now += 1;
        let start = !free.is_empty() && (open.is_empty() || rng.bool());
        if start {
            open.push((free.swap_remove(rng.usize(..free.len())), now, 0));
        } else {
            let (process, call, _) = open.swap_remove(rng.usize(..open.len()));
            moments.push((call, rng.u64(call..now), now));
            free.push(process);
        }
    }
    moments.sort_by_key(|(call, at, _)| (*at, *call));
    let mut value = None;
    let mut next = 0;
    let mut calls = Vec::new();
    for (call, _, complete) in moments {
        next += 1;
        let known = rng.u8(..100) >= info_percent;
        let op = match (rng.u8(..3), value) {
            (0, _) => RegisterOp::Read(value),
            (1, Some(old)) => RegisterOp::Cas(old, next),
            _ => RegisterOp::Write(next),
        };
        let happens = known || rng.bool();
        if let (RegisterOp::Write(new) | RegisterOp::Cas(_, new), true) = (&op, happens) {
            value = Some(*new);
        }
        if known || !matches!(op, RegisterOp::Read(_)) {
            calls.push(Call { op, call: call * 2, complete: known.then_some(complete * 2 + 1) });
        }
    }
    calls
}

/// Plants a fault: changes the answer of one read to a value that another operation wrote.
fn plant(rng: &mut fastrand::Rng, calls: &mut [Call<RegisterOp>]) {
    let reads: Vec<usize> = (0..calls.len()).filter(|i| matches!(calls[*i].op, RegisterOp::Read(_))).collect();
    let values: Vec<i64> = calls
        .iter()
        .filter_map(|call| match call.op {
            RegisterOp::Write(value) | RegisterOp::Cas(_, value) => Some(value),
            RegisterOp::Read(_) => None,
        })
        .collect();
    if let (Some(read), Some(value)) = (rng.choice(reads), rng.choice(values)) {
        calls[read].op = RegisterOp::Read(Some(value));
    }
}

/// Tells whether the checker of the workload `register` finds that these operations on one key are
/// not linearizable.
#[track_caller]
fn is_wrong(calls: &[Call<RegisterOp>]) -> bool {
    let operation = |call: &Call<RegisterOp>| {
        let (f, argument, result) = match call.op {
            RegisterOp::Read(value) => ("read", json!(["k", null]), json!(["k", value])),
            RegisterOp::Write(value) => ("write", json!(["k", value]), json!(["k", value])),
            RegisterOp::Cas(old, new) => ("cas", json!(["k", [old, new]]), json!(["k", [old, new]])),
        };
        Operation {
            process: call.call,
            f: f.into(),
            argument,
            outcome: if call.complete.is_some() { Kind::Ok } else { Kind::Info },
            result,
            call: call.call,
            complete: call.complete.unwrap_or(u64::MAX),
            time: (call.call, call.complete.unwrap_or(u64::MAX)),
            error: None,
            zxid: None,
        }
    };
    let verdict = check_operations(Workload::Register, &calls.iter().map(operation).collect::<Vec<_>>());
    assert!(!verdict.doubts.iter().any(|doubt| doubt.contains("gave up")), "{:?}", verdict.doubts);
    verdict.has("not-linearizable")
}

/// Tells by a plain search through all orders whether one explains all answers. `taken` has a bit
/// for each operation that the order has already.
fn has_order(calls: &[Call<RegisterOp>], taken: u32, state: Option<i64>) -> bool {
    let left = |i: &usize| taken & (1 << i) == 0;
    let first_return = (0..calls.len()).filter(left).filter_map(|i| calls[i].complete).min();
    let Some(first_return) = first_return else { return true };
    (0..calls.len()).filter(left).filter(|i| calls[*i].call < first_return).any(|i| {
        let after = RegisterModel.step(&state, &calls[i].op);
        after.is_some_and(|after| has_order(calls, taken | 1 << i, after))
    })
}

#[test]
fn the_checker_agrees_with_a_search_through_all_orders() {
    let mut wrong = 0;
    for seed in 0..800 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut calls = history(&mut rng, 10, 3, 15);
        if seed % 2 == 0 {
            plant(&mut rng, &mut calls);
        }
        let is_wrong = is_wrong(&calls);
        assert_eq!(is_wrong, !has_order(&calls, 0, None), "seed {seed}: {calls:#?}");
        assert!(!is_wrong || seed % 2 == 0, "seed {seed}: a real register's history was refused");
        wrong += u64::from(is_wrong);
    }
    assert!(wrong > 150, "only {wrong} of the planted faults changed the verdict");
}

/// A run of ten clients has five keys at a time, and about two thousand operations on each.
#[test]
fn histories_as_long_as_in_real_runs_are_decided_in_seconds() {
    let began = Instant::now();
    for seed in 0..4 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut calls = history(&mut rng, 2_000, 6, 10);
        assert!(!is_wrong(&calls), "seed {seed}");
        // The last read is changed to answer the first value, which was overwritten long before.
        let first = calls.iter().find_map(|call| match call.op {
            RegisterOp::Write(value) if call.complete.is_some() => Some(value),
            _ => None,
        });
        let last = calls.iter().rposition(|call| matches!(call.op, RegisterOp::Read(_))).unwrap();
        calls[last].op = RegisterOp::Read(first);
        assert!(is_wrong(&calls), "seed {seed}: a stale read was missed");
    }
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[test]
fn the_search_gives_up_on_what_it_cannot_decide_instead_of_guessing() {
    let began = Instant::now();
    let mut rng = fastrand::Rng::with_seed(3);
    let mut calls = history(&mut rng, 10_000, 20, 10);
    let last = calls.iter().rposition(|call| matches!(call.op, RegisterOp::Read(_))).unwrap();
    calls[last].op = RegisterOp::Read(Some(-1));
    assert!(!matches!(wgl::check(&RegisterModel, &calls, 3_000), Verdict::Linearizable));
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}
