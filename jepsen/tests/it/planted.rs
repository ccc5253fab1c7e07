//! Tests that the checker of each workload finds planted bugs, and judges the same history without
//! the bug valid.
//!
//! `written/mod.rs` explains how histories are written.

use crate::written::{bad, doubtful, good, judge};
use jepsen::check::{Workload, check_worth};
use jepsen::verdict::Validity;

#[test]
fn a_stale_read_is_found() {
    let history = |answer: i64| {
        format!(
            r#"
            0 write ["k",1] -> ok zxid=10
            1 write ["k",2] -> ok zxid=11
            2 read ["k",null] -> ok ["k",{answer}] zxid=11"#
        )
    };
    good(Workload::Register, &history(2));
    bad(Workload::Register, "not-linearizable", &history(1));
}

#[test]
fn a_lost_acknowledgement_is_found() {
    bad(
        Workload::Register,
        "not-linearizable",
        r#"
        0 write ["k",7] -> ok
        1 read ["k",null] -> ok"#,
    );
}

#[test]
fn a_zxid_that_falls_in_real_time_is_found() {
    let history = |second: u64| {
        format!(
            r#"
            0 write ["a",1] -> ok zxid=10
            1 write ["b",2] -> ok zxid={second}"#
        )
    };
    good(Workload::Register, &history(11));
    bad(Workload::Register, "zxid-order", &history(9));
}

#[test]
fn two_holders_are_found() {
    let history = |second: &str| {
        format!(
            r#"
            0 acquire {{"lock":"l","owner":1}} -> ok +"token":10
            1 acquire {{"lock":"l","owner":2}} -> {second}
            0 release {{"lock":"l","owner":1}} -> ok"#
        )
    };
    let granted = r#"ok +"token":11"#;
    let refused = "fail error=not-acquired";
    for workload in [Workload::Lock, Workload::RwLock] {
        good(workload, &history(refused));
        bad(workload, "two-holders", &history(granted));
        bad(workload, "not-linearizable", &history(granted));
    }
}

#[test]
fn a_lock_of_a_closed_or_expired_session_is_free() {
    good(
        Workload::Lock,
        r#"
        0 acquire {"lock":"l","owner":1} -> ok +"token":10
        0 release {"lock":"l","owner":1} -> info
        2 close {"owner":1} -> ok
        1 acquire {"lock":"l","owner":2} -> ok +"token":11"#,
    );
    good(
        Workload::Lock,
        r#"
        0 acquire {"lock":"l","owner":1} -> ok +"token":10
        1 acquire {"lock":"l","owner":2} -> ok +"token":11
        0 release {"lock":"l","owner":1} -> fail error=session-expired"#,
    );
}

#[test]
fn readers_share_and_a_writer_does_not() {
    let history = |mode: &str| {
        format!(
            r#"
            0 acquire {{"lock":"l","owner":1,"mode":"read"}} -> ok +"token":10
            1 acquire {{"lock":"l","owner":2,"mode":"{mode}"}} -> ok +"token":11
            0 release {{"lock":"l","owner":1,"mode":"read"}} -> ok"#
        )
    };
    good(Workload::RwLock, &history("read"));
    bad(Workload::RwLock, "two-holders", &history("write"));
}

#[test]
fn holds_are_counted() {
    let history = |holds: u64, left: u64| {
        format!(
            r#"
            0 acquire {{"lock":"l","owner":1}} -> ok +"token":10,"holds":1
            0 acquire {{"lock":"l","owner":1}} -> ok +"token":10,"holds":{holds}
            0 release {{"lock":"l","owner":1}} -> ok +"holds":{left}"#
        )
    };
    good(Workload::ReentrantLock, &history(2, 1));
    bad(Workload::ReentrantLock, "not-linearizable", &history(1, 1));
    bad(Workload::ReentrantLock, "not-linearizable", &history(2, 0));
}

#[test]
fn a_falling_token_is_found() {
    let history = |token: u64| {
        format!(
            r#"
            0 acquire {{"lock":"l","owner":1}} -> ok +"token":10
            0 release {{"lock":"l","owner":1}} -> ok
            1 acquire {{"lock":"l","owner":2}} -> ok +"token":{token}"#
        )
    };
    for workload in [Workload::Lock, Workload::FencedLock, Workload::Queue] {
        good(workload, &history(11));
        bad(workload, "falling-token", &history(9));
    }
    bad(Workload::Lock, "token-given-twice", &history(10));
}

#[test]
fn a_lost_update_under_the_guard_is_found() {
    let history = |there: &str| {
        format!(
            r#"
            0 append {{"lock":"l","owner":1,"token":10,"element":1}} -> ok
            0 append {{"lock":"l","owner":1,"token":10,"element":2}} -> info
            1 read-all {{"lock":"l"}} -> ok +"elements":{there}"#
        )
    };
    good(Workload::FencedLock, &history("[1]"));
    good(Workload::FencedLock, &history("[1,2]"));
    bad(Workload::FencedLock, "lost-update", &history("[2]"));
    bad(Workload::FencedLock, "duplicated", &history("[1,1]"));
    bad(Workload::FencedLock, "element-from-nowhere", &history("[1,3]"));
}

#[test]
fn an_old_token_at_the_resource_is_found() {
    bad(
        Workload::FencedLock,
        "old-token-accepted",
        r#"
        0 use {"lock":"l","token":11,"element":1} -> ok +"seq":0
        1 use {"lock":"l","token":10,"element":2} -> ok +"seq":1
        1 resource-read {"lock":"l"} -> ok +"elements":[1,2]"#,
    );
}

#[test]
fn one_who_is_overtaken_in_the_queue_is_found() {
    let history = |first: &str| {
        format!(
            r#"
            0 enqueue {{"lock":"l","owner":1}} -> ok +"token":10
            1 enqueue {{"lock":"l","owner":2}} -> ok
            2 enqueue {{"lock":"l","owner":3}} -> ok
            0 release {{"lock":"l","owner":1}} -> ok
            {first}"#
        )
    };
    let in_order = r#"
            1 await {"lock":"l","owner":2} -> ok +"token":11
            1 release {"lock":"l","owner":2} -> ok
            2 await {"lock":"l","owner":3} -> ok +"token":12"#;
    good(Workload::Queue, &history(in_order));
    let overtaken = r#"
            2 await {"lock":"l","owner":3} -> ok +"token":12"#;
    bad(Workload::Queue, "overtaken", &history(overtaken));
}

#[test]
fn a_duplicated_create_is_found() {
    let history = |names: &str, number: u64| {
        format!(
            r#"
            0 create {{"parent":"/p","element":1}} -> ok +"number":4 zxid=10
            0 create {{"parent":"/p","element":2}} -> ok +"number":{number} zxid=11
            0 list {{"parent":"/p"}} -> ok +"names":{names}"#
        )
    };
    for workload in [Workload::Sequential, Workload::ExactlyOnce] {
        good(workload, &history(r#"["e1-0000000004","e2-0000000005"]"#, 5));
        bad(workload, "duplicated-create", &history(r#"["e1-0000000004","e1-0000000006","e2-0000000005"]"#, 5));
        bad(workload, "lost-create", &history(r#"["e2-0000000005"]"#, 5));
        bad(workload, "number-given-twice", &history(r#"["e1-0000000004","e2-0000000004"]"#, 4));
        bad(workload, "falling-number", &history(r#"["e1-0000000004","e2-0000000003"]"#, 3));
    }
}

#[test]
fn a_request_that_happened_twice_or_not_is_found() {
    let history = |version: u64| {
        format!(
            r#"
            0 add {{"counter":"/c","element":1}} -> ok +"version":1
            0 add {{"counter":"/c","element":2}} -> info
            1 count {{"counter":"/c"}} -> ok +"version":{version}"#
        )
    };
    good(Workload::ExactlyOnce, &history(1));
    good(Workload::ExactlyOnce, &history(2));
    bad(Workload::ExactlyOnce, "applied-twice", &history(3));
    bad(Workload::ExactlyOnce, "lost-update", &history(0));
    bad(
        Workload::ExactlyOnce,
        "counted-twice",
        r#"
        0 acquire {"lock":"l","owner":1} -> ok +"holds":2"#,
    );
}

#[test]
fn one_of_unknown_outcome_excuses_none_that_happened_twice_before_it() {
    let history = |first: u64, last: u64| {
        format!(
            r#"
            0 add {{"counter":"/c","element":1}} -> ok +"version":{first}
            1 add {{"counter":"/c","element":2}} -> info
            2 add {{"counter":"/c","element":3}} -> fail error=unavailable
            0 add {{"counter":"/c","element":4}} -> ok +"version":{last}
            3 add {{"counter":"/c","element":5}} -> info
            0 count {{"counter":"/c"}} -> ok +"version":3"#
        )
    };
    good(Workload::ExactlyOnce, &history(1, 2));
    good(Workload::ExactlyOnce, &history(1, 3));
    bad(Workload::ExactlyOnce, "applied-twice", &history(2, 3));
    bad(Workload::ExactlyOnce, "applied-twice", &history(1, 4));
    bad(Workload::ExactlyOnce, "falling-version", &history(1, 4));
    bad(Workload::ExactlyOnce, "falling-version", &history(2, 1));
    bad(Workload::ExactlyOnce, "lost-update", &history(1, 1));
    bad(Workload::ExactlyOnce, "lost-update", &history(0, 3));
}

#[test]
fn a_session_that_ends_early_is_found() {
    let history = |safe_for_ms: u64, exists: bool| {
        format!(
            r#"
            0 open {{}} -> ok +"owner":1,"safe_for_ms":{safe_for_ms}
            0 create {{"owner":1,"path":"/e"}} -> ok
            1 look {{"owner":1,"path":"/e"}} -> ok +"exists":{exists}"#
        )
    };
    good(Workload::Ephemeral, &history(2000, true));
    good(Workload::Ephemeral, &history(20, false));
    bad(Workload::Ephemeral, "early-expiry", &history(2000, false));
}

#[test]
fn a_znode_that_outlives_its_session_is_found() {
    let history = |exists: bool| {
        format!(
            r#"
            0 open {{}} -> ok +"owner":1,"safe_for_ms":2000
            0 create {{"owner":1,"path":"/e"}} -> ok
            0 close {{"owner":1}} -> ok
            1 look {{"owner":1,"path":"/e"}} -> ok +"exists":{exists}"#
        )
    };
    good(Workload::Ephemeral, &history(false));
    bad(Workload::Ephemeral, "outlives-its-session", &history(true));
}

#[test]
fn a_znode_whose_session_ended_nobody_knows_how_is_gone_at_the_last_look() {
    let history = |end: &str, exists: bool| {
        format!(
            r#"
            0 open {{}} -> ok +"owner":1,"safe_for_ms":20
            0 create {{"owner":1,"path":"/e"}} -> ok
            0 {end}
            1 final-look {{"owner":1,"path":"/e"}} -> ok +"exists":{exists}"#
        )
    };
    let ends = ["info", "fail error=unavailable"].map(|end| format!(r#"close {{"owner":1}} -> {end}"#));
    for end in [&ends[0], &ends[1], r#"abandon {"owner":1} -> ok"#] {
        good(Workload::Ephemeral, &history(end, false));
        bad(Workload::Ephemeral, "outlives-its-session", &history(end, true));
    }
}

#[test]
fn a_znode_that_was_seen_was_created_whatever_its_answer() {
    let history = |safe_for_ms: u64, first: bool, last: bool| {
        let look = |exists: bool| format!(r#"1 look {{"owner":1,"path":"/e"}} -> ok +"exists":{exists}"#);
        format!(
            r#"
            0 open {{}} -> ok +"owner":1,"safe_for_ms":{safe_for_ms}
            0 create {{"owner":1,"path":"/e"}} -> info
            {}
            {}
            {}"#,
            look(first),
            look(false),
            look(last)
        )
    };
    good(Workload::Ephemeral, &history(2000, false, true));
    good(Workload::Ephemeral, &history(20, true, false));
    bad(Workload::Ephemeral, "early-expiry", &history(2000, true, false));
    bad(Workload::Ephemeral, "came-back", &history(20, true, true));
}

#[test]
fn a_lost_a_double_and_an_invented_event_are_found() {
    let history = |events: &str| {
        format!(
            r#"
            0 write {{"path":"/w/a"}} -> ok zxid=5
            0 create {{"path":"/w/b"}} -> ok zxid=6
            1 poll {{"watcher":1,"since":4}} -> ok +"events":{events},"upto":6
            2 poll {{"watcher":2,"since":5}} -> ok +"events":[[6,"created","/w/b"]],"upto":6"#
        )
    };
    good(Workload::Watch, &history(r#"[[5,"data_changed","/w/a"],[6,"created","/w/b"]]"#));
    bad(Workload::Watch, "lost-event", &history(r#"[[6,"created","/w/b"]]"#));
    bad(Workload::Watch, "out-of-order", &history(r#"[[6,"created","/w/b"],[5,"data_changed","/w/a"]]"#));
    let twice = r#"[[5,"data_changed","/w/a"],[5,"data_changed","/w/a"],[6,"created","/w/b"]]"#;
    bad(Workload::Watch, "event-twice", &history(twice));
    let invented = r#"[[5,"data_changed","/w/a"],[6,"created","/w/b"],[6,"deleted","/w/b"]]"#;
    bad(Workload::Watch, "event-from-nowhere", &history(invented));
}

#[test]
fn a_watcher_of_children_hears_each_time_that_one_comes_or_goes() {
    let history = |children: bool, events: &str| {
        format!(
            r#"
            0 create {{"path":"/w/b"}} -> ok zxid=5
            0 write {{"path":"/w/b"}} -> ok zxid=6
            1 poll {{"watcher":1,"since":4,"children":{children}}} -> ok +"events":{events},"upto":6"#
        )
    };
    let own = r#"[5,"created","/w/b"]"#;
    let (parent, data) = (r#"[5,"children_changed","/w"]"#, r#"[6,"data_changed","/w/b"]"#);
    good(Workload::Watch, &history(true, &format!("[{own},{parent},{data}]")));
    good(Workload::Watch, &history(false, &format!("[{own},{data}]")));
    // No watcher was told, but the acknowledged create shows that all had to be told.
    bad(Workload::Watch, "lost-event", &history(true, &format!("[{own},{data}]")));
    let invented = r#"[6,"children_changed","/w"]"#;
    bad(Workload::Watch, "event-from-nowhere", &history(true, &format!("[{own},{parent},{data},{invented}]")));
}

#[test]
fn a_change_of_unknown_outcome_explains_one_event_and_no_more() {
    let history = |events: &str| {
        format!(
            r#"
            0 write {{"path":"/w/a"}} -> info
            1 poll {{"watcher":1,"since":4}} -> ok +"events":{events},"upto":6"#
        )
    };
    good(Workload::Watch, &history(r#"[[5,"data_changed","/w/a"]]"#));
    bad(Workload::Watch, "event-from-nowhere", &history(r#"[[5,"data_changed","/w/a"],[6,"data_changed","/w/a"]]"#));
}

#[test]
fn money_that_appears_or_a_snapshot_that_never_was_is_found() {
    let history = |read: &str| {
        format!(
            r#"
            0 open-accounts {{}} -> ok +"accounts":3,"initial":10 zxid=1
            0 transfer {{"from":0,"to":1,"amount":3}} -> ok {{"sides":[[0,7,1],[1,13,1]]}} zxid=2
            1 transfer {{"from":1,"to":2,"amount":5}} -> info {{"sides":[[1,8,2],[2,15,1]]}}
            2 read {{}} -> ok {read}"#
        )
    };
    good(Workload::Multi, &history(r#"{"balances":[7,13,10],"versions":[1,1,0]} zxid=3"#));
    good(Workload::Multi, &history(r#"{"balances":[7,8,15],"versions":[1,2,1]} zxid=4"#));
    bad(Workload::Multi, "wrong-total", &history(r#"{"balances":[7,13,15],"versions":[1,1,1]} zxid=4"#));
    bad(Workload::Multi, "not-serializable", &history(r#"{"balances":[7,8,15],"versions":[1,2,2]} zxid=4"#));
    bad(Workload::Multi, "zxid-order", &history(r#"{"balances":[10,10,10],"versions":[0,0,0]} zxid=1"#));
}

#[test]
fn accounts_that_nobody_reads_behind_the_last_transfer_are_in_doubt() {
    let history = |read: &str| {
        format!(
            r#"
            0 open-accounts {{}} -> ok +"accounts":2,"initial":10 zxid=1
            2 read {{}} -> ok {{"balances":[10,10],"versions":[0,0]}} zxid=2
            0 transfer {{"from":0,"to":1,"amount":3}} -> ok {{"sides":[[0,7,1],[1,13,1]]}} zxid=3
            2 read {{}} -> {read}"#
        )
    };
    good(Workload::Multi, &history(r#"ok {"balances":[7,13],"versions":[1,1]} zxid=4"#));
    doubtful(Workload::Multi, "behind the last transfer", &history("fail error=bad-version"));
}

#[test]
fn a_client_that_goes_back_in_time_is_found() {
    let history = |read: &str| {
        format!(
            r#"
            0 write {{"key":"k","element":1}} -> ok zxid=5
            1 write {{"key":"k","element":2}} -> ok zxid=6
            0 local-read {{"key":"k","min_zxid":5}} -> ok {read}"#
        )
    };
    good(Workload::Session, &history(r#"{"key":"k","element":1,"mzxid":5} zxid=5"#));
    good(Workload::Session, &history(r#"{"key":"k","element":2,"mzxid":6} zxid=9"#));
    bad(Workload::Session, "older-than-asked", &history(r#"{"key":"k","element":0,"mzxid":3} zxid=4"#));
    bad(Workload::Session, "stale-read", &history(r#"{"key":"k","element":1,"mzxid":5} zxid=6"#));
    bad(Workload::Session, "wrong-value", &history(r#"{"key":"k","element":1,"mzxid":6} zxid=6"#));
}

#[test]
fn an_answer_without_the_zxid_that_it_is_judged_by_is_in_doubt() {
    let table = [
        (
            Workload::Register,
            r#"
            0 write ["k",1] -> ok zxid=10
            1 read ["k",null] -> ok ["k",1]"#,
        ),
        (
            Workload::Sequential,
            r#"
            0 create {"parent":"/p","element":1} -> ok +"number":0
            0 list {"parent":"/p"} -> ok +"names":["e1-0000000000"]"#,
        ),
        (
            Workload::Watch,
            r#"
            0 write {"path":"/w/a"} -> ok
            1 poll {"watcher":1,"since":4} -> ok +"events":[[5,"data_changed","/w/a"]],"upto":5"#,
        ),
        (
            Workload::Multi,
            r#"
            0 open-accounts {} -> ok +"accounts":2,"initial":10
            0 read {} -> ok {"balances":[10,10],"versions":[0,0]}"#,
        ),
        (
            Workload::Session,
            r#"
            0 write {"key":"k","element":1} -> ok zxid=5
            0 local-read {"key":"k","min_zxid":5} -> ok {"key":"k","element":0,"mzxid":3}"#,
        ),
    ];
    for (workload, history) in table {
        doubtful(workload, "no zxid to judge them by", history);
    }
}

#[test]
fn a_run_in_which_nothing_was_judged_is_in_doubt() {
    for workload in Workload::all() {
        let mut verdict = judge(workload, "");
        check_worth(workload, &mut verdict);
        assert_eq!(verdict.valid, Validity::Unknown, "{workload:?}: {verdict:#?}");
        assert!(verdict.doubts.iter().any(|doubt| doubt.contains("nothing was judged")), "{workload:?}: {verdict:#?}");
    }
    // A run in which a watcher was told no event is in doubt, too.
    let history = |poll: &str| {
        format!(
            r#"
            1 reset {{"watcher":1}} -> ok +"since":4
            0 write {{"path":"/w/a"}} -> ok zxid=5
            1 poll {{"watcher":1,"since":4}} -> {poll}"#
        )
    };
    let told = history(r#"ok +"events":[[5,"data_changed","/w/a"]],"upto":5"#);
    for (history, events) in [(told, 1), (history("fail error=events-gone"), 0)] {
        let mut verdict = judge(Workload::Watch, &history);
        check_worth(Workload::Watch, &mut verdict);
        assert_eq!(verdict.figures["events"], events, "{verdict:#?}");
        let doubted = verdict.doubts.iter().any(|doubt| doubt == "nothing was judged: events 0");
        assert_eq!(doubted, events == 0, "{verdict:#?}");
    }
}
