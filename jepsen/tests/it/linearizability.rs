//! Tests of the search for linearizability, on correct and wrong histories that are written by
//! hand.

use jepsen::models::{LockModel, LockOp, RegisterModel, RegisterOp};
use jepsen::wgl::{Call, Verdict, check};

use LockOp::{Acquire, Release};
use RegisterOp::{Cas, Read, Write};

fn call<O>(op: O, call: u64, complete: u64) -> Call<O> {
    Call { op, call, complete: Some(complete) }
}

fn unknown<O>(op: O, call: u64) -> Call<O> {
    Call { op, call, complete: None }
}

#[track_caller]
fn register(calls: &[Call<RegisterOp>], good: bool) {
    let verdict = check(&RegisterModel, calls, 100_000);
    assert_eq!(verdict == Verdict::Linearizable, good, "{verdict:?}");
    assert!(!matches!(verdict, Verdict::Unknown { .. }));
}

#[test]
fn a_read_concurrent_with_a_write_may_see_either_value() {
    register(&[call(Write(1), 0, 1), call(Write(2), 2, 5), call(Read(Some(1)), 3, 4)], true);
    register(&[call(Write(1), 0, 1), call(Write(2), 2, 5), call(Read(Some(2)), 3, 4)], true);
}

#[test]
fn a_stale_read_is_found() {
    register(&[call(Write(1), 0, 1), call(Write(2), 2, 3), call(Read(Some(1)), 4, 5)], false);
}

#[test]
fn a_value_may_not_come_back_after_it_was_seen_to_be_gone() {
    let calls = [call(Write(1), 0, 1), call(Write(2), 2, 9), call(Read(Some(2)), 3, 4), call(Read(Some(1)), 5, 6)];
    register(&calls, false);
}

#[test]
fn a_lost_acknowledged_write_is_found() {
    register(&[call(Write(7), 0, 1), call(Read(None), 2, 3)], false);
}

#[test]
fn an_unknown_write_may_take_effect_late_or_never() {
    register(&[unknown(Write(1), 0), call(Read(None), 1, 2), call(Read(Some(1)), 3, 4)], true);
    register(&[unknown(Write(1), 0), call(Read(None), 1, 2), call(Read(None), 3, 4)], true);
    register(&[unknown(Write(1), 0), call(Read(Some(1)), 1, 2), call(Read(None), 3, 4)], false);
}

#[test]
fn a_compare_and_set_needs_its_old_value() {
    register(&[call(Write(1), 0, 1), call(Cas(1, 2), 2, 3), call(Read(Some(2)), 4, 5)], true);
    register(&[call(Write(1), 0, 1), call(Cas(3, 2), 2, 3)], false);
}

#[test]
fn the_operation_without_a_place_is_named() {
    let calls = [call(Write(1), 0, 1), call(Write(2), 2, 3), call(Read(Some(1)), 4, 5), call(Write(3), 6, 7)];
    let Verdict::NotLinearizable { explained, stuck_at } = check(&RegisterModel, &calls, 1000) else {
        panic!("a stale read must be found");
    };
    assert_eq!((explained, stuck_at), (vec![0, 1], 2));
}

#[test]
fn two_holders_are_found() {
    let two = [call(Acquire(1, None), 0, 1), call(Acquire(2, None), 2, 3), call(Release(1, None), 4, 5)];
    assert!(matches!(check(&LockModel { reentrant: false }, &two, 1000), Verdict::NotLinearizable { .. }));
    let handed_over = [call(Acquire(1, None), 0, 1), call(Acquire(2, None), 2, 5), call(Release(1, None), 3, 4)];
    assert_eq!(check(&LockModel { reentrant: false }, &handed_over, 1000), Verdict::Linearizable);
}

#[test]
fn at_its_bound_the_search_says_that_it_does_not_know() {
    let mut calls: Vec<_> = (0..40).map(|i| unknown(Write(i), i as u64)).collect();
    calls.push(call(Read(Some(-1)), 100, 101));
    assert!(matches!(check(&RegisterModel, &calls, 10_000), Verdict::Unknown { .. }));
}
