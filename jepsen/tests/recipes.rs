//! What the recipes promise: a history that keeps a promise is judged good, and the same with the promise broken is found.
//!
//! How histories are written: see `written/mod.rs`.

mod written;

use jepsen::check::Workload;
use jepsen::verdict::Validity;
use written::{bad, good, judge};

#[test]
fn more_permits_than_there_are_are_found() {
    let history = |permits: u64, first: &str, second: &str| {
        format!(
            r#"
            0 enqueue {{"lock":"s","owner":1,"permits":2,"limit":3}} -> ok +"token":10 zxid=10
            1 enqueue {{"lock":"s","owner":2,"permits":{permits},"limit":3}} -> ok +"token":11 zxid=11
            0 {first}
            1 {second}
            9 again {{"lock":"s","owner":9,"permits":3,"limit":3}} -> ok +"token":20 zxid=20"#
        )
    };
    let release = r#"release {"lock":"s","owner":1,"token":10} -> ok zxid=12"#;
    let other = r#"release {"lock":"s","owner":2,"token":11} -> ok zxid=13"#;
    good(Workload::Semaphore, &history(1, release, other));
    bad(Workload::Semaphore, "over-limit", &history(2, release, other));
    // Also when nobody knows what became of the releases: the permits were out when the second was told.
    let lost = |owner: u64| format!(r#"release {{"lock":"s","owner":{owner}}} -> info"#);
    bad(Workload::Semaphore, "over-limit", &history(2, &lost(1), &lost(2)));
    // One who lost its session may have lost its permits before.
    let expired = r#"release {"lock":"s","owner":1,"token":10} -> fail error=session-expired"#;
    good(Workload::Semaphore, &history(2, expired, other));
}

#[test]
fn permits_that_are_out_at_once_in_the_log_are_found() {
    let history = |released: u64| {
        format!(
            r#"
            0 enqueue {{"lock":"s","owner":1,"permits":2,"limit":2}} -> ok +"token":10 zxid=10
            0 release {{"lock":"s","owner":1,"token":10}} -> ok zxid={released}
            1 enqueue {{"lock":"s","owner":2,"permits":1,"limit":2}} -> ok +"token":12 zxid=12
            1 release {{"lock":"s","owner":2,"token":12}} -> ok zxid=15
            9 again {{"lock":"s","owner":9,"permits":2,"limit":2}} -> ok +"token":20 zxid=20"#
        )
    };
    good(Workload::Semaphore, &history(12));
    bad(Workload::Semaphore, "over-limit", &history(13));
}

#[test]
fn another_limit_that_is_granted_and_the_own_that_is_refused_are_found() {
    let history = |asked: u64, end: &str| {
        format!(
            r#"
            0 enqueue {{"lock":"s","owner":1,"permits":1,"limit":3}} -> ok +"token":10 zxid=10
            0 acquire {{"lock":"s","owner":1,"permits":1,"limit":{asked}}} -> {end}
            0 close {{"owner":1}} -> ok
            9 again {{"lock":"s","owner":9,"permits":3,"limit":3}} -> ok +"token":20 zxid=20"#
        )
    };
    good(Workload::Semaphore, &history(4, "fail error=limit-differs"));
    bad(Workload::Semaphore, "two-limits", &history(4, r#"ok +"token":11"#));
    bad(Workload::Semaphore, "limit-forgotten", &history(3, "fail error=limit-differs"));
}

#[test]
fn permits_that_are_given_to_one_who_came_later_are_found() {
    let history = |second: &str| {
        format!(
            r#"
            0 enqueue {{"lock":"s","owner":1,"permits":2,"limit":3}} -> ok +"token":10 zxid=10
            1 enqueue {{"lock":"s","owner":2,"permits":3,"limit":3}} -> ok zxid=11
            2 enqueue {{"lock":"s","owner":3,"permits":1,"limit":3}} -> ok {second}
            1 await {{"lock":"s","owner":2,"permits":3,"limit":3}} -> ok zxid=13
            2 close {{"owner":3}} -> ok
            0 release {{"lock":"s","owner":1,"token":10}} -> ok zxid=15
            1 await {{"lock":"s","owner":2,"permits":3,"limit":3}} -> ok +"token":11 zxid=15
            1 close {{"owner":2}} -> ok
            9 again {{"lock":"s","owner":9,"permits":3,"limit":3}} -> ok +"token":20 zxid=20"#
        )
    };
    good(Workload::Semaphore, &history("zxid=12"));
    bad(Workload::Semaphore, "overtaken", &history(r#"+"token":12 zxid=12"#));
}

#[test]
fn a_queue_that_shows_other_holders_than_there_are_is_found() {
    let history = |holders: &str, held: u64| {
        format!(
            r#"
            0 enqueue {{"lock":"s","owner":1,"permits":3,"limit":3}} -> ok +"token":10 zxid=10
            1 enqueue {{"lock":"s","owner":2,"permits":3,"limit":3}} -> ok zxid=11
            2 look {{"lock":"s"}} -> ok +"holders":{holders},"held":{held},"limit":3 zxid=12
            1 await {{"lock":"s","owner":2,"permits":3,"limit":3}} -> ok zxid=13
            0 release {{"lock":"s","owner":1,"token":10}} -> ok zxid=14
            1 close {{"owner":2}} -> ok
            9 again {{"lock":"s","owner":9,"permits":3,"limit":3}} -> ok +"token":20 zxid=20"#
        )
    };
    good(Workload::Semaphore, &history("[1]", 3));
    bad(Workload::Semaphore, "holder-not-shown", &history("[]", 3));
    bad(Workload::Semaphore, "holds-while-it-waits", &history("[1,2]", 3));
    bad(Workload::Semaphore, "over-limit", &history("[1]", 4));
}

#[test]
fn a_lock_that_nobody_gets_any_more_is_found() {
    for workload in [Workload::Semaphore, Workload::MultiLock] {
        good(workload, r#"9 again {"lock":"l","owner":9} -> ok +"token":20 zxid=20"#);
        bad(workload, "not-granted-again", r#"9 again {"lock":"l","owner":9} -> fail error=not-acquired"#);
        let verdict = judge(workload, r#"0 enqueue {"lock":"l","owner":1} -> fail error=unavailable"#);
        assert_eq!(verdict.valid, Validity::Unknown, "{verdict:#?}");
    }
}

/// Two multi-locks, one after the other, with the second's answer.
fn two_multi_locks(second: &str, until: u64) -> String {
    format!(
        r#"
        0 enqueue {{"owner":1,"policy":"strict","locks":[{{"lock":"a","mode":"write"}},{{"lock":"b","mode":"read"}}]}} -> ok +"locks":[{{"lock":"a","mode":"write","token":10}},{{"lock":"b","mode":"read","token":10}}] zxid=10
        1 enqueue {second}
        0 release {{"owner":1,"locks":[{{"lock":"a","mode":"write","token":10}},{{"lock":"b","mode":"read","token":10}}]}} -> ok zxid={until}
        1 close {{"owner":2}} -> ok
        9 again {{"owner":9,"locks":[{{"lock":"a"}},{{"lock":"b"}}]}} -> ok +"locks":[{{"lock":"a","token":20}},{{"lock":"b","token":20}}] zxid=20"#
    )
}

#[test]
fn multi_locks_that_meet_and_both_hold_are_found() {
    let with = |part: &str| {
        format!(
            r#"{{"owner":2,"policy":"backfill","locks":[{{"lock":"c","mode":"write"}},{part}}}]}} -> ok +"locks":[{{"lock":"c","mode":"write","token":11}},{part},"token":11}}] zxid=11"#
        )
    };
    good(Workload::MultiLock, &two_multi_locks(&with(r#"{"lock":"b","mode":"read""#), 12));
    bad(Workload::MultiLock, "two-holders", &two_multi_locks(&with(r#"{"lock":"b","mode":"write""#), 12));
    bad(Workload::MultiLock, "two-holders", &two_multi_locks(&with(r#"{"lock":"a","mode":"read""#), 12));
}

#[test]
fn a_multi_lock_that_holds_some_of_its_locks_is_found() {
    let second = |locks: &str| {
        format!(
            r#"{{"owner":2,"policy":"strict","locks":[{{"lock":"c","mode":"write"}},{{"lock":"d","mode":"write"}}]}} -> ok +"locks":[{locks}] zxid=11"#
        )
    };
    let (c, d) = (r#"{"lock":"c","mode":"write","token":11}"#, r#"{"lock":"d","mode":"write""#);
    good(Workload::MultiLock, &two_multi_locks(&second(&format!(r#"{c},{d},"token":11}}"#)), 12));
    bad(Workload::MultiLock, "partly-held", &two_multi_locks(&second(&format!("{c},{d}}}")), 12));
    bad(Workload::MultiLock, "partly-held", &two_multi_locks(&second(c), 12));
}

#[test]
fn a_multi_lock_that_holds_one_lock_while_it_waits_for_another_is_found() {
    let history = |holders: &str| {
        format!(
            r#"
            0 enqueue {{"lock":"a","owner":1,"mode":"write"}} -> ok +"token":10 zxid=10
            1 enqueue {{"owner":2,"policy":"strict","locks":[{{"lock":"a","mode":"write"}},{{"lock":"b","mode":"write"}}]}} -> ok zxid=11
            2 look {{"lock":"b"}} -> ok +"holders":{holders} zxid=12
            1 await {{"owner":2,"policy":"strict","locks":[{{"lock":"a","mode":"write"}},{{"lock":"b","mode":"write"}}]}} -> ok zxid=13
            9 again {{"owner":9,"locks":[{{"lock":"a"}}]}} -> ok zxid=20"#
        )
    };
    good(Workload::MultiLock, &history("[]"));
    bad(Workload::MultiLock, "holds-while-it-waits", &history("[2]"));
}

#[test]
fn only_a_backfill_multi_lock_may_be_passed() {
    let history = |policy: &str, mode: &str| {
        format!(
            r#"
            0 enqueue {{"lock":"a","owner":1,"mode":"write"}} -> ok +"token":10 zxid=10
            1 enqueue {{"owner":2,"policy":"{policy}","locks":[{{"lock":"a","mode":"write"}},{{"lock":"b","mode":"read"}}]}} -> ok zxid=11
            2 enqueue {{"lock":"b","owner":3,"mode":"{mode}"}} -> ok +"token":12 zxid=12
            1 await {{"owner":2,"policy":"{policy}","locks":[{{"lock":"a","mode":"write"}},{{"lock":"b","mode":"read"}}]}} -> ok zxid=13
            2 release {{"lock":"b","owner":3,"mode":"{mode}","token":12}} -> ok zxid=14
            1 close {{"owner":2}} -> ok
            9 again {{"owner":9,"locks":[{{"lock":"a"}}]}} -> ok zxid=20"#
        )
    };
    bad(Workload::MultiLock, "overtaken", &history("strict", "write"));
    good(Workload::MultiLock, &history("backfill", "write"));
    // Readers may hold together, so this says nothing.
    good(Workload::MultiLock, &history("strict", "read"));
}

#[test]
fn tokens_that_fall_in_the_log_are_found() {
    let history = |second: u64| {
        format!(
            r#"
            1 enqueue {{"lock":"a","owner":2,"mode":"write"}} -> ok zxid=11
            0 enqueue {{"lock":"a","owner":1,"mode":"write"}} -> ok +"token":13 zxid=13
            0 release {{"lock":"a","owner":1,"mode":"write","token":13}} -> ok zxid=14
            1 await {{"lock":"a","owner":2,"mode":"write"}} -> ok +"token":{second} zxid=15
            1 release {{"lock":"a","owner":2,"mode":"write","token":{second}}} -> ok zxid=16
            9 again {{"lock":"a","owner":9}} -> ok +"token":20 zxid=20"#
        )
    };
    let verdict = judge(Workload::MultiLock, &history(14));
    assert!(!verdict.has("falling-token"), "{verdict:#?}");
    bad(Workload::MultiLock, "falling-token", &history(11));
}

#[test]
fn readers_of_one_grant_may_share_a_token_and_a_writer_has_its_own() {
    let history = |mode: &str| {
        format!(
            r#"
            0 enqueue {{"lock":"a","owner":1,"mode":"read"}} -> ok +"token":13 zxid=13
            1 enqueue {{"lock":"a","owner":2,"mode":"read"}} -> ok +"token":13 zxid=13
            0 release {{"lock":"a","owner":1,"mode":"read","token":13}} -> ok zxid=14
            1 release {{"lock":"a","owner":2,"mode":"read","token":13}} -> ok zxid=15
            2 enqueue {{"lock":"a","owner":3,"mode":"{mode}"}} -> ok +"token":13 zxid=16
            2 release {{"lock":"a","owner":3,"mode":"{mode}","token":13}} -> ok zxid=17
            9 again {{"lock":"a","owner":9}} -> ok +"token":20 zxid=20"#
        )
    };
    good(Workload::MultiLock, &history("read"));
    bad(Workload::MultiLock, "falling-token", &history("write"));
}
