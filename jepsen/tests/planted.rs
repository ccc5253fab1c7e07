//! Each planted bug is found by the checker of its workload, and the same history without it is judged good.
//!
//! A history is written as lines of `process type f value`, and `zxid=N` where the checker looks at it; a line's place is its time.

use jepsen::check::{Workload, check};
use jepsen::history::{Entry, Kind, Process};
use jepsen::verdict::{Validity, Verdict};
use serde_json::Value;

/// Ten milliseconds pass from line to line.
const LINE_NS: u64 = 10_000_000;

fn entry((index, line): (usize, &str)) -> Entry {
    let mut words = line.trim().splitn(4, ' ');
    let mut word = || words.next().unwrap_or_default();
    let process = Process::Client(word().parse().expect("a line begins with a process"));
    let kind = match word() {
        "invoke" => Kind::Invoke,
        "ok" => Kind::Ok,
        "info" => Kind::Info,
        "fail" => Kind::Fail,
        other => panic!("{line}: {other}"),
    };
    let f = word().to_owned();
    let rest = word();
    let (value, zxid) = rest.split_once(" zxid=").map_or((rest, None), |(value, zxid)| (value, zxid.parse().ok()));
    let (value, error) = match value.split_once(" error=") {
        Some((value, error)) => (value, Some(error.to_owned())),
        None => (value, None),
    };
    let value: Value = serde_json::from_str(value).unwrap_or_else(|error| panic!("{line}: {error}"));
    Entry { index: index as u64, time: index as u64 * LINE_NS, process, kind, f, value, error, node: None, zxid }
}

fn judge(workload: Workload, history: &str) -> Verdict {
    let lines = history.lines().filter(|line| !line.trim().is_empty()).enumerate();
    check(workload, &lines.map(entry).collect::<Vec<_>>())
}

#[track_caller]
fn good(workload: Workload, history: &str) {
    let verdict = judge(workload, history);
    assert_eq!(verdict.valid, Validity::Valid, "{verdict:#?}");
}

#[track_caller]
fn bad(workload: Workload, kind: &str, history: &str) {
    let verdict = judge(workload, history);
    assert_eq!(verdict.valid, Validity::Invalid, "{verdict:#?}");
    assert!(verdict.has(kind), "no {kind} in {verdict:#?}");
}

#[test]
fn a_stale_read_is_found() {
    let history = |answer: i64| {
        format!(
            r#"
            0 invoke write ["k",1]
            0 ok write ["k",1] zxid=10
            1 invoke write ["k",2]
            1 ok write ["k",2] zxid=11
            2 invoke read ["k",null]
            2 ok read ["k",{answer}] zxid=11"#
        )
    };
    good(Workload::Register, &history(2));
    bad(Workload::Register, "stale-read", &history(1));
}

#[test]
fn a_lost_acknowledgement_is_found() {
    bad(
        Workload::Register,
        "stale-read",
        r#"
        0 invoke write ["k",7]
        0 ok write ["k",7]
        1 invoke read ["k",null]
        1 ok read ["k",null]"#,
    );
}

#[test]
fn a_zxid_that_falls_in_real_time_is_found() {
    let history = |second: u64| {
        format!(
            r#"
            0 invoke write ["a",1]
            0 ok write ["a",1] zxid=10
            1 invoke write ["b",2]
            1 ok write ["b",2] zxid={second}"#
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
            0 invoke acquire {{"lock":"l","owner":1}}
            0 ok acquire {{"lock":"l","owner":1,"token":10}}
            1 invoke acquire {{"lock":"l","owner":2}}
            {second}
            0 invoke release {{"lock":"l","owner":1}}
            0 ok release {{"lock":"l","owner":1}}"#
        )
    };
    let granted = r#"1 ok acquire {"lock":"l","owner":2,"token":11}"#;
    let refused = r#"1 fail acquire {"lock":"l","owner":2} error=not-acquired"#;
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
        0 invoke acquire {"lock":"l","owner":1}
        0 ok acquire {"lock":"l","owner":1,"token":10}
        0 invoke release {"lock":"l","owner":1}
        0 info release {"lock":"l","owner":1}
        2 invoke close {"owner":1}
        2 ok close {"owner":1}
        1 invoke acquire {"lock":"l","owner":2}
        1 ok acquire {"lock":"l","owner":2,"token":11}"#,
    );
    good(
        Workload::Lock,
        r#"
        0 invoke acquire {"lock":"l","owner":1}
        0 ok acquire {"lock":"l","owner":1,"token":10}
        1 invoke acquire {"lock":"l","owner":2}
        1 ok acquire {"lock":"l","owner":2,"token":11}
        0 invoke release {"lock":"l","owner":1}
        0 fail release {"lock":"l","owner":1} error=session-expired"#,
    );
}

#[test]
fn readers_share_and_a_writer_does_not() {
    let history = |mode: &str| {
        format!(
            r#"
            0 invoke acquire {{"lock":"l","owner":1,"mode":"read"}}
            0 ok acquire {{"lock":"l","owner":1,"mode":"read","token":10}}
            1 invoke acquire {{"lock":"l","owner":2,"mode":"{mode}"}}
            1 ok acquire {{"lock":"l","owner":2,"mode":"{mode}","token":11}}
            0 invoke release {{"lock":"l","owner":1,"mode":"read"}}
            0 ok release {{"lock":"l","owner":1,"mode":"read"}}"#
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
            0 invoke acquire {{"lock":"l","owner":1}}
            0 ok acquire {{"lock":"l","owner":1,"token":10,"holds":1}}
            0 invoke acquire {{"lock":"l","owner":1}}
            0 ok acquire {{"lock":"l","owner":1,"token":10,"holds":{holds}}}
            0 invoke release {{"lock":"l","owner":1}}
            0 ok release {{"lock":"l","owner":1,"holds":{left}}}"#
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
            0 invoke acquire {{"lock":"l","owner":1}}
            0 ok acquire {{"lock":"l","owner":1,"token":10}}
            0 invoke release {{"lock":"l","owner":1}}
            0 ok release {{"lock":"l","owner":1}}
            1 invoke acquire {{"lock":"l","owner":2}}
            1 ok acquire {{"lock":"l","owner":2,"token":{token}}}"#
        )
    };
    for workload in [Workload::Lock, Workload::FencedLock, Workload::UnguardedLock, Workload::Queue] {
        good(workload, &history(11));
        bad(workload, "falling-token", &history(9));
    }
    bad(Workload::Lock, "token-given-twice", &history(10));
}

#[test]
fn a_lost_update_under_the_guard_is_found_and_without_it_counted() {
    let history = |there: &str| {
        format!(
            r#"
            0 invoke append {{"lock":"l","owner":1,"token":10,"element":1}}
            0 ok append {{"lock":"l","owner":1,"token":10,"element":1}}
            0 invoke append {{"lock":"l","owner":1,"token":10,"element":2}}
            0 info append {{"lock":"l","owner":1,"token":10,"element":2}}
            1 invoke read-all {{"lock":"l"}}
            1 ok read-all {{"lock":"l","elements":{there}}}"#
        )
    };
    good(Workload::FencedLock, &history("[1]"));
    good(Workload::FencedLock, &history("[1,2]"));
    bad(Workload::FencedLock, "lost-update", &history("[2]"));
    bad(Workload::FencedLock, "duplicated", &history("[1,1]"));
    bad(Workload::FencedLock, "element-from-nowhere", &history("[1,3]"));
    let verdict = judge(Workload::UnguardedLock, &history("[2]"));
    assert_eq!(verdict.valid, Validity::Valid);
    assert_eq!(verdict.figures["znode-updates-lost"], 1);
}

#[test]
fn an_old_token_at_the_resource_is_found() {
    bad(
        Workload::FencedLock,
        "old-token-accepted",
        r#"
        0 invoke use {"lock":"l","token":11,"element":1}
        0 ok use {"lock":"l","token":11,"element":1,"seq":0}
        1 invoke use {"lock":"l","token":10,"element":2}
        1 ok use {"lock":"l","token":10,"element":2,"seq":1}
        1 invoke resource-read {"lock":"l"}
        1 ok resource-read {"lock":"l","elements":[1,2]}"#,
    );
}

#[test]
fn one_who_is_overtaken_in_the_queue_is_found() {
    let history = |first: &str| {
        format!(
            r#"
            0 invoke enqueue {{"lock":"l","owner":1}}
            0 ok enqueue {{"lock":"l","owner":1,"token":10}}
            1 invoke enqueue {{"lock":"l","owner":2}}
            1 ok enqueue {{"lock":"l","owner":2}}
            2 invoke enqueue {{"lock":"l","owner":3}}
            2 ok enqueue {{"lock":"l","owner":3}}
            0 invoke release {{"lock":"l","owner":1}}
            0 ok release {{"lock":"l","owner":1}}
            {first}"#
        )
    };
    let in_order = r#"
            1 invoke await {"lock":"l","owner":2}
            1 ok await {"lock":"l","owner":2,"token":11}
            1 invoke release {"lock":"l","owner":2}
            1 ok release {"lock":"l","owner":2}
            2 invoke await {"lock":"l","owner":3}
            2 ok await {"lock":"l","owner":3,"token":12}"#;
    good(Workload::Queue, &history(in_order));
    let overtaken = r#"
            2 invoke await {"lock":"l","owner":3}
            2 ok await {"lock":"l","owner":3,"token":12}"#;
    bad(Workload::Queue, "overtaken", &history(overtaken));
}

#[test]
fn a_duplicated_create_is_found() {
    let history = |names: &str, number: u64| {
        format!(
            r#"
            0 invoke create {{"parent":"/p","element":1}}
            0 ok create {{"parent":"/p","element":1,"number":4}}
            0 invoke create {{"parent":"/p","element":2}}
            0 ok create {{"parent":"/p","element":2,"number":{number}}}
            0 invoke list {{"parent":"/p"}}
            0 ok list {{"parent":"/p","names":{names}}}"#
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
            0 invoke add {{"counter":"/c","element":1}}
            0 ok add {{"counter":"/c","element":1,"version":1}}
            0 invoke add {{"counter":"/c","element":2}}
            0 info add {{"counter":"/c","element":2}}
            1 invoke count {{"counter":"/c"}}
            1 ok count {{"counter":"/c","version":{version}}}"#
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
        0 invoke acquire {"lock":"l","owner":1}
        0 ok acquire {"lock":"l","owner":1,"holds":2}"#,
    );
}

#[test]
fn a_session_that_ends_early_is_found() {
    let history = |safe_for_ms: u64, exists: bool| {
        format!(
            r#"
            0 invoke open {{}}
            0 ok open {{"owner":1,"safe_for_ms":{safe_for_ms}}}
            0 invoke create {{"owner":1,"path":"/e"}}
            0 ok create {{"owner":1,"path":"/e"}}
            1 invoke look {{"owner":1,"path":"/e"}}
            1 ok look {{"owner":1,"path":"/e","exists":{exists}}}"#
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
            0 invoke open {{}}
            0 ok open {{"owner":1,"safe_for_ms":2000}}
            0 invoke create {{"owner":1,"path":"/e"}}
            0 ok create {{"owner":1,"path":"/e"}}
            0 invoke close {{"owner":1}}
            0 ok close {{"owner":1}}
            1 invoke look {{"owner":1,"path":"/e"}}
            1 ok look {{"owner":1,"path":"/e","exists":{exists}}}"#
        )
    };
    good(Workload::Ephemeral, &history(false));
    bad(Workload::Ephemeral, "outlives-its-session", &history(true));
}

#[test]
fn a_lost_a_double_and_an_invented_event_are_found() {
    let history = |events: &str| {
        format!(
            r#"
            0 invoke write {{"path":"/w/a"}}
            0 ok write {{"path":"/w/a"}} zxid=5
            0 invoke create {{"path":"/w/b"}}
            0 ok create {{"path":"/w/b"}} zxid=6
            1 invoke poll {{"watcher":1,"since":4}}
            1 ok poll {{"watcher":1,"since":4,"events":{events},"upto":6}}
            2 invoke poll {{"watcher":2,"since":5}}
            2 ok poll {{"watcher":2,"since":5,"events":[[6,"created","/w/b"]],"upto":6}}"#
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
fn money_that_appears_or_a_snapshot_that_never_was_is_found() {
    let history = |read: &str| {
        format!(
            r#"
            0 invoke open-accounts {{}}
            0 ok open-accounts {{"accounts":3,"initial":10}} zxid=1
            0 invoke transfer {{"from":0,"to":1,"amount":3}}
            0 ok transfer {{"sides":[[0,7,1],[1,13,1]]}} zxid=2
            1 invoke transfer {{"from":1,"to":2,"amount":5}}
            1 info transfer {{"sides":[[1,8,2],[2,15,1]]}}
            2 invoke read {{}}
            2 ok read {read}"#
        )
    };
    good(Workload::Multi, &history(r#"{"balances":[7,13,10],"versions":[1,1,0]} zxid=3"#));
    good(Workload::Multi, &history(r#"{"balances":[7,8,15],"versions":[1,2,1]} zxid=4"#));
    bad(Workload::Multi, "wrong-total", &history(r#"{"balances":[7,13,15],"versions":[1,1,1]} zxid=4"#));
    bad(Workload::Multi, "not-serializable", &history(r#"{"balances":[7,8,15],"versions":[1,2,2]} zxid=4"#));
    bad(Workload::Multi, "zxid-order", &history(r#"{"balances":[10,10,10],"versions":[0,0,0]} zxid=1"#));
}

#[test]
fn a_client_that_goes_back_in_time_is_found() {
    let history = |read: &str| {
        format!(
            r#"
            0 invoke write {{"key":"k","element":1}}
            0 ok write {{"key":"k","element":1}} zxid=5
            1 invoke write {{"key":"k","element":2}}
            1 ok write {{"key":"k","element":2}} zxid=6
            0 invoke local-read {{"key":"k","min_zxid":5}}
            0 ok local-read {read}"#
        )
    };
    good(Workload::Session, &history(r#"{"key":"k","element":1,"mzxid":5} zxid=5"#));
    good(Workload::Session, &history(r#"{"key":"k","element":2,"mzxid":6} zxid=9"#));
    bad(Workload::Session, "older-than-asked", &history(r#"{"key":"k","element":0,"mzxid":3} zxid=4"#));
    bad(Workload::Session, "stale-read", &history(r#"{"key":"k","element":1,"mzxid":5} zxid=6"#));
    bad(Workload::Session, "wrong-value", &history(r#"{"key":"k","element":1,"mzxid":6} zxid=6"#));
}
