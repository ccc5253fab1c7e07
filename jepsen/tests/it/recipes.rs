//! Tests of the promises of recipes (semaphores, multi-locks, elections, upgrades, revocations): a
//! history that keeps a promise is judged valid, and the same history with a broken promise is
//! judged invalid.
//!
//! `written/mod.rs` explains how histories are written.

use crate::written::{bad, doubtful, good};
use jepsen::check::Workload;

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
    // The same with releases of unknown outcome, because the permits were held when the second
    // client was told of its grant.
    let lost = |owner: u64| format!(r#"release {{"lock":"s","owner":{owner}}} -> info"#);
    bad(Workload::Semaphore, "over-limit", &history(2, &lost(1), &lost(2)));
    // A client that lost its session may have lost its permits before.
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
    good(Workload::Semaphore, &history(4, "fail error=permits-max-differs"));
    bad(Workload::Semaphore, "two-limits", &history(4, r#"ok +"token":11"#));
    bad(Workload::Semaphore, "limit-forgotten", &history(3, "fail error=permits-max-differs"));
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
    for workload in [Workload::Semaphore, Workload::Mixed] {
        good(workload, r#"9 again {"lock":"l","owner":9} -> ok +"token":20 zxid=20"#);
        bad(workload, "not-granted-again", r#"9 again {"lock":"l","owner":9} -> fail error=not-acquired"#);
        doubtful(workload, "no lock was asked for", r#"0 enqueue {"lock":"l","owner":1} -> fail error=unavailable"#);
    }
}

/// Returns a history of two multi-locks, one after the other. `second` is the request for the
/// second multi-lock with its answer, `until` the zxid at which the first is released.
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
    good(Workload::Mixed, &two_multi_locks(&with(r#"{"lock":"b","mode":"read""#), 12));
    bad(Workload::Mixed, "two-holders", &two_multi_locks(&with(r#"{"lock":"b","mode":"write""#), 12));
    bad(Workload::Mixed, "two-holders", &two_multi_locks(&with(r#"{"lock":"a","mode":"read""#), 12));
}

#[test]
fn a_multi_lock_that_holds_some_of_its_locks_is_found() {
    let second = |locks: &str| {
        format!(
            r#"{{"owner":2,"policy":"strict","locks":[{{"lock":"c","mode":"write"}},{{"lock":"d","mode":"write"}}]}} -> ok +"locks":[{locks}] zxid=11"#
        )
    };
    let (c, d) = (r#"{"lock":"c","mode":"write","token":11}"#, r#"{"lock":"d","mode":"write""#);
    good(Workload::Mixed, &two_multi_locks(&second(&format!(r#"{c},{d},"token":11}}"#)), 12));
    bad(Workload::Mixed, "partly-held", &two_multi_locks(&second(&format!("{c},{d}}}")), 12));
    bad(Workload::Mixed, "partly-held", &two_multi_locks(&second(c), 12));
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
    good(Workload::Mixed, &history("[]"));
    bad(Workload::Mixed, "holds-while-it-waits", &history("[2]"));
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
    bad(Workload::Mixed, "overtaken", &history("strict", "write"));
    good(Workload::Mixed, &history("backfill", "write"));
    // Readers may hold together, so the order of their grants is free.
    good(Workload::Mixed, &history("strict", "read"));
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
    good(Workload::Mixed, &history("read"));
    bad(Workload::Mixed, "falling-token", &history("write"));
}

/// Returns a history of two leaders, one after the other. `first` and `second` are the observations
/// during the term of each.
fn two_leaders(first: &str, second: &str) -> String {
    format!(
        r#"
        0 enqueue {{"lock":"e","owner":1}} -> ok +"token":10 zxid=10
        1 enqueue {{"lock":"e","owner":2}} -> ok zxid=11
        0 proclaim {{"lock":"e","owner":1,"token":10,"element":1}} -> ok zxid=12
        {first}
        0 close {{"owner":1}} -> ok
        1 await {{"lock":"e","owner":2}} -> ok +"token":11 zxid=14
        1 proclaim {{"lock":"e","owner":2,"token":11,"element":2}} -> ok zxid=15
        {second}
        1 close {{"owner":2}} -> ok
        9 again {{"lock":"e","owner":9}} -> ok +"token":20 zxid=20"#
    )
}

fn seen(token: u64, said: u64, spoke: u64, at: u64) -> String {
    let leader = format!(r#""leads_with":{token},"said":"{said}","upto":"{token}.{spoke}""#);
    format!(r#"3 observe {{"lock":"e"}} -> ok +{leader} zxid={at}"#)
}

const NOBODY_SEEN: &str = r#"3 observe {"lock":"e"} -> ok +"upto":"0.0" zxid=13"#;

#[test]
fn observers_see_leaders_in_order() {
    good(Workload::Election, &two_leaders(&seen(10, 1, 12, 12), &seen(11, 2, 15, 16)));
    good(Workload::Election, &two_leaders(NOBODY_SEEN, &seen(11, 2, 15, 16)));
    bad(Workload::Election, "leader-order", &two_leaders(&seen(11, 11, 11, 9), &seen(10, 1, 12, 9)));
    bad(Workload::Election, "proclamation-order", &two_leaders(&seen(10, 1, 12, 12), &seen(10, 1, 10, 9)));
    bad(Workload::Election, "wrong-leader", &two_leaders("", &seen(10, 1, 12, 16)));
    bad(Workload::Election, "wrong-leader", &two_leaders(&seen(9, 1, 9, 12), ""));
    let blind = NOBODY_SEEN.replace("zxid=13", "zxid=11");
    bad(Workload::Election, "wrong-leader", &two_leaders(&blind, ""));
    bad(Workload::Election, "missed-proclamation", &two_leaders(&seen(10, 1, 10, 12), ""));
    bad(Workload::Election, "proclamation-from-nowhere", &two_leaders(&seen(10, 2, 12, 12), ""));
}

#[test]
fn a_leader_that_is_heard_after_the_next_one_leads_is_found() {
    let late = |zxid: u64| format!(r#"0 proclaim {{"lock":"e","owner":1,"token":10,"element":3}} -> ok zxid={zxid}"#);
    good(Workload::Election, &two_leaders(&late(13), ""));
    bad(Workload::Election, "two-holders", &two_leaders("", &late(16)));
    let written = |first: u64, second: u64, elements: &str| {
        let append = |owner: u64, token: u64, version: u64, zxid: u64| {
            format!(
                r#"{owner} append {{"lock":"e","owner":{owner},"token":{token},"element":{token}}} -> ok +"version":{version} zxid={zxid}"#
            )
        };
        let (first, second) = (append(1, 10, first, 13), append(2, 11, second, 16));
        two_leaders(&first, &format!("{second}\n5 read-all {{\"lock\":\"e\"}} -> ok +\"elements\":{elements}"))
    };
    good(Workload::Election, &written(1, 2, "[10,11]"));
    bad(Workload::Election, "old-token-accepted", &written(2, 1, "[10,11]"));
    bad(Workload::Election, "lost-update", &written(1, 2, "[11]"));
}

/// Returns a history of a reader that upgrades and then releases both holds. `upgraded` is the
/// answer to the upgrade, `between` has the operations after it.
fn an_upgrade(upgraded: &str, between: &str) -> String {
    format!(
        r#"
        0 enqueue {{"lock":"l","owner":1,"mode":"read"}} -> ok +"token":10 zxid=10
        0 upgrade {{"lock":"l","owner":1,"mode":"write","upgrade":1}} -> ok {upgraded}
        {between}
        0 release {{"lock":"l","owner":1,"mode":"write","upgrade":1,"token":11}} -> ok zxid=15
        0 release {{"lock":"l","owner":1,"mode":"read","token":10}} -> ok zxid=17
        9 again {{"lock":"l","owner":9,"mode":"write"}} -> ok +"token":20 zxid=20"#
    )
}

#[test]
fn a_reader_or_a_writer_beside_an_upgraded_writer_is_found() {
    let other = |mode: &str, begin: u64, end: u64| {
        format!(
            r#"
            1 enqueue {{"lock":"l","owner":2,"mode":"{mode}"}} -> ok +"token":{begin} zxid={begin}
            1 release {{"lock":"l","owner":2,"mode":"{mode}","token":{begin}}} -> ok zxid={end}"#
        )
    };
    let held = r#"+"token":11 zxid=11"#;
    good(Workload::Mixed, &an_upgrade(held, ""));
    bad(Workload::Mixed, "two-holders", &an_upgrade(held, &other("read", 12, 13)));
    bad(Workload::Mixed, "two-holders", &an_upgrade(held, &other("write", 12, 13)));
    // While the upgrade waits, the client still holds the read lock. Earlier readers may go on, but
    // no other client may write.
    let await_it = r#"0 await {"lock":"l","owner":1,"mode":"write","upgrade":1} -> ok +"token":11 zxid=14"#;
    let waits = |mode: &str| {
        let other = other(mode, 12, 13).replace(r#""token":12"#, r#""token":9"#);
        an_upgrade("zxid=11", &format!("{other}\n{await_it}")).replace(r#""token":10"#, r#""token":8"#)
    };
    good(Workload::Mixed, &waits("read"));
    bad(Workload::Mixed, "two-holders", &waits("write"));
    // Only the zxids show the overlap; on the clients' clock the holds are apart.
    let late = other("read", 16, 18).replace("owner\":2", "owner\":3");
    good(Workload::Mixed, &format!("{}{late}", an_upgrade(held, "")));
    let early = other("read", 12, 18);
    bad(Workload::Mixed, "two-holders", &format!("{}{early}", an_upgrade(held, "")));
}

#[test]
fn a_second_upgrade_is_refused_and_a_first_one_is_not() {
    let second = |end: &str| format!(r#"1 upgrade {{"lock":"l","owner":2,"mode":"write","upgrade":2}} -> {end}"#);
    let refused = second("fail error=upgrade-conflict");
    let waits = |second: &str| an_upgrade("zxid=11", second);
    good(Workload::Mixed, &waits(&refused));
    let both = format!(
        "{}\n{}\n{}",
        second("ok zxid=12"),
        r#"1 await {"lock":"l","owner":2,"mode":"write","upgrade":2} -> ok zxid=13"#,
        r#"0 await {"lock":"l","owner":1,"mode":"write","upgrade":1} -> ok +"token":11 zxid=14"#,
    );
    bad(Workload::Mixed, "two-upgrades", &waits(&both));
    let alone = format!("{refused}\n9 again {{\"lock\":\"l\",\"owner\":9}} -> ok +\"token\":20 zxid=20");
    bad(Workload::Mixed, "refused-alone", &alone);
    let over = format!("{}\n{refused}", waits(""));
    bad(Workload::Mixed, "refused-alone", &over);
    // An upgrade of unknown outcome may still be in the queue.
    good(
        Workload::Mixed,
        &format!("{}\n{alone}", second("info").replace("owner\":2", "owner\":3").replace("1 up", "5 up")),
    );
}

#[test]
fn a_write_between_the_read_and_the_upgrade_is_found_and_a_downgrade_that_waits() {
    let history = |there: &str, downgraded: &str| {
        format!(
            r#"
            0 enqueue {{"lock":"l","owner":1,"mode":"write"}} -> ok +"token":10 zxid=10
            0 append {{"lock":"l","owner":1,"mode":"write","token":10,"element":1}} -> ok +"version":1 zxid=11
            0 downgrade {{"lock":"l","owner":1,"mode":"read"}} -> ok {downgraded}
            0 release {{"lock":"l","owner":1,"mode":"write","token":10}} -> ok zxid=13
            0 release {{"lock":"l","owner":1,"mode":"read","token":12}} -> ok zxid=14
            5 read-all {{"lock":"l"}} -> ok +"elements":{there}
            9 again {{"lock":"l","owner":9}} -> ok +"token":20 zxid=20"#
        )
    };
    good(Workload::Mixed, &history("[1]", r#"+"token":12 zxid=12"#));
    bad(Workload::Mixed, "lost-update", &history("[]", r#"+"token":12 zxid=12"#));
    bad(Workload::Mixed, "downgrade-waits", &history("[1]", "zxid=12"));
}

/// Returns a history in which a client revokes a lock with a deadline. `holder` has the holder's
/// operations afterwards, `past` the read of the lock's history.
fn a_revocation(holder: &str, past: &str) -> String {
    format!(
        r#"
        0 enqueue {{"lock":"l","owner":1}} -> ok +"token":10,"ticket":"t1" zxid=10
        1 enqueue {{"lock":"l","owner":2}} -> ok +"ticket":"t2" zxid=11
        2 revoke {{"lock":"l","deadline_ms":500}} -> ok +"tickets":["t1"] zxid=12
        {holder}
        1 await {{"lock":"l","owner":2}} -> ok +"token":11,"ticket":"t2" zxid=15
        1 release {{"lock":"l","owner":2,"token":11,"ticket":"t2"}} -> ok zxid=17
        {past}
        9 again {{"lock":"l","owner":9}} -> ok +"token":20 zxid=20"#
    )
}

const LISTENS: &str = r#"0 listen {"lock":"l","owner":1,"token":10,"ticket":"t1"} -> ok "#;
const LOST: &str =
    r#"0 append {"lock":"l","owner":1,"token":10,"ticket":"t1","element":2} -> fail error=lock-not-held"#;

const RELEASES: &str = r#"0 release {"lock":"l","owner":1,"token":10,"ticket":"t1"} -> ok zxid=14"#;

fn append(zxid: u64) -> String {
    format!(r#"0 append {{"lock":"l","owner":1,"token":10,"element":1}} -> ok +"version":1 zxid={zxid}"#)
}

fn past(end: &str, zxid: u64, ms: u64) -> String {
    let ended = format!(r#""dead_token":10,"end":"{end}","ended_zxid":{zxid},"ended_ms":{ms}"#);
    format!(
        "5 read-all {{\"lock\":\"l\"}} -> ok +\"elements\":[1]\n0 past {{\"lock\":\"l\",\"ticket\":\"t1\"}} -> ok +{ended}"
    )
}

#[test]
fn a_token_that_lives_on_after_the_lock_was_taken_away_is_found() {
    good(Workload::Revoke, &a_revocation(&format!("{}\n{LOST}", append(13)), &past("revoked", 14, 1_500)));
    bad(Workload::Revoke, "dead-token-accepted", &a_revocation(&append(14), &past("revoked", 13, 1_500)));
    let again = format!("{LOST}\n{}", append(14));
    bad(Workload::Revoke, "dead-token-accepted", &a_revocation(&again, &past("revoked", 15, 1_500)));
    bad(Workload::Revoke, "two-holders", &a_revocation(&append(16), &past("revoked", 17, 1_500)));
}

#[test]
fn a_lock_that_is_taken_away_early_or_unasked_is_found() {
    let told = |due_ms: u64| format!("{LISTENS}+\"asked\":true,\"due_ms\":{due_ms} zxid=13\n{}", append(13));
    good(Workload::Revoke, &a_revocation(&told(1_500), &past("revoked", 14, 1_500)));
    bad(Workload::Revoke, "taken-early", &a_revocation(&told(1_501), &past("revoked", 14, 1_500)));
    // Another client may have set an earlier deadline afterwards.
    let sooner = format!("{}\n{}", told(9_000), r#"3 revoke {"lock":"l","deadline_ms":0} -> info"#);
    good(Workload::Revoke, &a_revocation(&sooner, &past("revoked", 14, 1_500)));
    let unasked =
        a_revocation(&append(13), &past("revoked", 14, 1_500)).replace(r#""deadline_ms":500"#, r#""deadline_ms":null"#);
    bad(Workload::Revoke, "taken-unasked", &unasked);
}

#[test]
fn a_deadline_that_acts_late_is_found_where_the_cluster_worked_all_the_time() {
    // Each operation takes 20 ms: the deadline is over after 25 operations, the tolerance after 100
    // more.
    let other = |count: usize, answer: &str| {
        let line = format!("3 revoke {{\"lock\":\"other\",\"deadline_ms\":null}} -> {answer}\n");
        line.repeat(count)
    };
    let works = |count| other(count, r#"ok +"tickets":[] zxid=12"#);
    let uses = |before: &str| {
        a_revocation(
            &format!("{before}{}", append(13).replace(r#""token""#, r#""ticket":"t1","token""#)),
            &past("revoked", 14, 1_500),
        )
    };
    bad(Workload::Revoke, "taken-late", &uses(&works(140)));
    good(Workload::Revoke, &uses(&works(120)));
    // Without a leader for a while, lateness is not judged.
    good(Workload::Revoke, &uses(&format!("{}{}{}", works(60), other(60, "fail error=unavailable"), works(20))));
}

#[test]
fn a_holder_that_is_not_asked_or_not_told_is_found() {
    let hears = |asked: bool| format!("{LISTENS}+\"asked\":{asked} zxid=13\n{}\n{RELEASES}", append(13));
    good(Workload::Revoke, &a_revocation(&hears(true), &past("released", 14, 1_500)));
    bad(Workload::Revoke, "not-told", &a_revocation(&hears(false), &past("released", 14, 1_500)));
    let nobody = a_revocation(&hears(true), &past("released", 14, 1_500)).replace(r#"["t1"]"#, "[]");
    bad(Workload::Revoke, "not-asked", &nobody);
}

#[test]
fn one_who_is_passed_over_when_a_lock_was_taken_away_is_found() {
    let taken = |by: &str| a_revocation(&format!("{}\n{by}", append(13)), &past("revoked", 14, 1_500));
    let queued = r#"3 enqueue {"lock":"l","owner":3} -> ok +"ticket":"t3" zxid=13"#;
    good(Workload::Revoke, &taken(queued));
    let jumped = format!(
        "{}\n{}",
        r#"3 enqueue {"lock":"l","owner":3} -> ok +"ticket":"t3","token":13 zxid=14"#,
        r#"1 await {"lock":"l","owner":2} -> ok +"ticket":"t2" zxid=14"#
    );
    bad(Workload::Revoke, "overtaken", &taken(&jumped));
}

#[test]
fn leases_and_parts_of_multi_locks_exclude_what_does_not_fit_beside_them() {
    let history = |second: &str| {
        format!(
            r#"
            0 enqueue {{"locks":[{{"lock":"l","mode":"semaphore","permits":2,"limit":4}},{{"lock":"m","mode":"write"}}],"owner":1,"policy":"strict"}} -> ok +"locks":[{{"lock":"l","mode":"semaphore","permits":2,"limit":4,"token":10}},{{"lock":"m","mode":"write","token":10}}] zxid=10
            1 enqueue {{"lock":"l",{second},"owner":2}} -> ok +"token":11 zxid=11
            0 release {{"locks":[{{"lock":"l","mode":"semaphore","permits":2,"limit":4}},{{"lock":"m","mode":"write"}}],"owner":1}} -> ok zxid=13
            1 release {{"lock":"l",{second},"owner":2}} -> ok zxid=14
            2 again {{"locks":[{{"lock":"l","mode":"exclusive"}}],"owner":3}} -> ok zxid=15"#
        )
    };
    good(Workload::Mixed, &history(r#""mode":"semaphore","permits":2,"limit":4"#));
    bad(Workload::Mixed, "over-limit", &history(r#""mode":"semaphore","permits":3,"limit":4"#));
    bad(Workload::Mixed, "two-holders", &history(r#""mode":"read""#));
    bad(Workload::Mixed, "two-holders", &history(r#""mode":"write""#));
}
