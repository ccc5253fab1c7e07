//! Tests with random histories of registers: two checkers agree, wrong answers that a test writes
//! into a history are found, and long histories are decided fast.

use std::time::{Duration, Instant};

use jepsen::check::zones::{ZoneVerdict, decide};
use jepsen::models::{RegisterModel, RegisterOp};
use jepsen::wgl::{self, Call, Verdict};

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

#[test]
fn zones_and_search_agree() {
    let mut wrong = 0;
    for seed in 0..800 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut calls = history(&mut rng, 24, 4, 15);
        if seed % 2 == 0 {
            plant(&mut rng, &mut calls);
        }
        let fast = decide(&calls);
        let slow = wgl::check(&RegisterModel, &calls, 500_000);
        match slow {
            Verdict::Linearizable => assert_eq!(fast, ZoneVerdict::Linearizable, "seed {seed}: {calls:#?}"),
            Verdict::NotLinearizable { .. } => {
                wrong += 1;
                assert!(matches!(fast, ZoneVerdict::NotLinearizable { .. }), "seed {seed}: {calls:#?}");
                assert_ne!(seed % 2, 1, "seed {seed}: a real register's history was refused");
            }
            Verdict::Unknown { .. } => panic!("seed {seed}: gave up on 24 operations"),
        }
    }
    assert!(wrong > 150, "only {wrong} of the planted faults changed the verdict");
}

#[test]
fn ten_thousand_operations_of_twenty_processes_are_decided_in_seconds() {
    let began = Instant::now();
    let mut rng = fastrand::Rng::with_seed(7);
    let calls = history(&mut rng, 10_000, 20, 10);
    assert_eq!(decide(&calls), ZoneVerdict::Linearizable);
    let mut stale = calls;
    // The last read is changed to answer the first value, which was overwritten long before.
    let first = stale.iter().find_map(|call| match call.op {
        RegisterOp::Write(value) if call.complete.is_some() => Some(value),
        _ => None,
    });
    let last = stale.iter().rposition(|call| matches!(call.op, RegisterOp::Read(_))).unwrap();
    stale[last].op = RegisterOp::Read(first);
    let ZoneVerdict::NotLinearizable { kind, part } = decide(&stale) else { panic!("a stale read was missed") };
    assert_eq!(kind, "stale-read");
    assert!(part.len() <= 6 && part.contains(&last), "{part:?}");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
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
