//! Tests of promises that workloads with exclusive locks share, about the locks and about the
//! znodes that the locks guard. The checker of each workload must find a history that breaks a
//! promise.

use crate::written::{bad, doubtful, good};
use jepsen::check::Workload;

/// Workloads with exclusive locks.
const ALONE: [Workload; 3] = [Workload::Mixed, Workload::Election, Workload::Revoke];
/// Workloads of [`ALONE`] whose holders write to a znode.
const GUARDED: [Workload; 3] = [Workload::Election, Workload::Mixed, Workload::Revoke];
/// Workloads of [`ALONE`] in which no waiter is overtaken, so that a token belongs to one session.
const IN_ORDER: [Workload; 2] = [Workload::Election, Workload::Revoke];

/// Last line of a history: the lock is granted once more at the end, when there is no fault.
const AGAIN: &str = r#"9 again {"lock":"l","owner":9} -> ok +"token":20 zxid=20"#;

/// Returns a history in which session 1 holds the lock, and then session 2. `token` and `at` are
/// token and zxid of the second grant, `released` is the zxid of the first release.
fn one_after_the_other(token: u64, at: u64, released: u64) -> String {
    format!(
        r#"
        0 enqueue {{"lock":"l","owner":1}} -> ok +"token":10 zxid=10
        0 release {{"lock":"l","owner":1,"token":10}} -> ok zxid={released}
        1 enqueue {{"lock":"l","owner":2}} -> ok +"token":{token} zxid={at}
        1 release {{"lock":"l","owner":2,"token":{token}}} -> ok zxid=15
        {AGAIN}"#
    )
}

/// Removes the zxids from a history.
fn without_zxids(history: &str) -> String {
    let words = |line: &str| {
        let words = line.split_whitespace().filter(|word| !word.starts_with("zxid="));
        words.collect::<Vec<_>>().join(" ")
    };
    history.lines().map(words).collect::<Vec<_>>().join("\n")
}

#[test]
fn two_holders_in_the_log_are_found() {
    for workload in ALONE {
        good(workload, &one_after_the_other(12, 12, 11));
        bad(workload, "two-holders", &one_after_the_other(12, 12, 14));
    }
}

#[test]
fn two_holders_are_found_when_nobody_knows_how_they_lost_the_lock_or_where_it_was_in_the_log() {
    let history = |second: &str| {
        format!(
            r#"
            0 enqueue {{"lock":"l","owner":1}} -> ok +"token":10 zxid=10
            1 enqueue {{"lock":"l","owner":2}} -> ok {second} zxid=11
            0 await {{"lock":"l","owner":1}} -> ok +"token":10 zxid=12
            1 await {{"lock":"l","owner":2}} -> ok +"token":11 zxid=13
            0 release {{"lock":"l","owner":1,"token":10}} -> fail error=session-expired
            1 release {{"lock":"l","owner":2,"token":11}} -> fail error=session-expired
            {AGAIN}"#
        )
    };
    for workload in ALONE {
        good(workload, &history(""));
        bad(workload, "two-holders", &without_zxids(&history(r#"+"token":11"#)));
    }
}

#[test]
fn tokens_that_fall_are_found() {
    for workload in ALONE {
        bad(workload, "falling-token", &one_after_the_other(9, 12, 11));
    }
}

#[test]
fn tokens_that_fall_in_the_log_are_found_when_both_had_waited() {
    let history = |second: u64| {
        format!(
            r#"
            1 enqueue {{"lock":"l","owner":2,"mode":"write"}} -> ok zxid=5
            2 enqueue {{"lock":"l","owner":3,"mode":"write"}} -> ok zxid=12
            1 await {{"lock":"l","owner":2,"mode":"write"}} -> ok +"token":14 zxid=14
            1 release {{"lock":"l","owner":2,"mode":"write","token":14}} -> ok zxid=15
            2 await {{"lock":"l","owner":3,"mode":"write"}} -> ok +"token":{second} zxid=15
            2 release {{"lock":"l","owner":3,"mode":"write","token":{second}}} -> ok zxid=16
            {AGAIN}"#
        )
    };
    for workload in ALONE {
        good(workload, &history(15));
        bad(workload, "falling-token", &history(12));
    }
}

#[test]
fn a_token_of_two_sessions_is_found() {
    for workload in IN_ORDER {
        bad(workload, "token-given-twice", &one_after_the_other(10, 12, 11));
    }
}

#[test]
fn one_who_holds_before_another_who_came_first_is_found() {
    let history = |third: &str| {
        format!(
            r#"
            0 enqueue {{"lock":"l","owner":1}} -> ok +"token":10 zxid=10
            1 enqueue {{"lock":"l","owner":2}} -> ok zxid=11
            2 enqueue {{"lock":"l","owner":3}} -> ok {third}
            1 await {{"lock":"l","owner":2}} -> ok zxid=14
            0 close {{"owner":1}} -> ok
            1 close {{"owner":2}} -> ok
            2 close {{"owner":3}} -> ok
            {AGAIN}"#
        )
    };
    for workload in IN_ORDER {
        good(workload, &history("zxid=12"));
        bad(workload, "overtaken", &history(r#"+"token":12 zxid=13"#));
    }
}

#[test]
fn a_write_under_the_lock_that_is_lost_or_comes_too_late_is_found() {
    let history = |versions: [u64; 2], there: &str| {
        let [first, second] = versions;
        format!(
            r#"
            0 enqueue {{"lock":"l","owner":1}} -> ok +"token":10 zxid=10
            0 append {{"lock":"l","owner":1,"token":10,"element":1}} -> ok +"version":{first} zxid=11
            0 release {{"lock":"l","owner":1,"token":10}} -> ok zxid=12
            1 enqueue {{"lock":"l","owner":2}} -> ok +"token":13 zxid=13
            1 append {{"lock":"l","owner":2,"token":13,"element":2}} -> ok +"version":{second} zxid=14
            1 release {{"lock":"l","owner":2,"token":13}} -> ok zxid=15
            5 read-all {{"lock":"l"}} -> ok +"elements":{there}
            {AGAIN}"#
        )
    };
    for workload in GUARDED {
        good(workload, &history([1, 2], "[1,2]"));
        bad(workload, "lost-update", &history([1, 2], "[2]"));
        bad(workload, "old-token-accepted", &history([2, 1], "[1,2]"));
    }
}

#[test]
fn one_who_is_left_out_of_the_log_is_in_doubt() {
    for workload in ALONE {
        for line in ["zxid=11", "zxid=12", "zxid=15", "zxid=20"] {
            doubtful(workload, "no zxid to judge them by", &one_after_the_other(12, 12, 11).replace(line, ""));
        }
    }
}
