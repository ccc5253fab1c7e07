//! Tests of the checks that, without a fault, a free lock is granted in time, a wait ends in time,
//! and a watcher is told in time. The histories are written by hand.

use jepsen::check::{Workload, check, check_worth};
use jepsen::history::{Entry, Kind, NemesisTag, Process};
use jepsen::verdict::{Validity, Verdict};
use serde_json::{Value, json};

const MS: u64 = 1_000_000;
/// Number of the history process that makes regular writes, which show that there is a quorum.
const PULSE: u64 = 999;

fn entry(at_ms: u64, process: Process, kind: Kind, f: &str, value: Value) -> Entry {
    let node = (kind != Kind::Invoke && process != Process::Nemesis(NemesisTag::Nemesis)).then_some(1);
    Entry { index: 0, time: at_ms * MS, process, kind, f: f.to_owned(), value, error: None, node, zxid: None }
}

fn line(line: &str) -> Vec<Entry> {
    let json = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_else(|error| panic!("{line}: {error}"));
    let words: Vec<&str> = line.split_whitespace().collect();
    if words[1] == "nemesis" {
        let at_ms = words[0].parse().expect("a time");
        let value = words.get(3).map_or(Value::Null, |text| json(text));
        return vec![entry(at_ms, Process::Nemesis(NemesisTag::Nemesis), Kind::Info, words[2], value)];
    }
    let (begin, end) = words[0].split_once("..").expect("a beginning and an end");
    let process = Process::Client(words[1].parse().expect("a process"));
    let value = json(words[3]);
    let kind = match words[5] {
        "ok" => Kind::Ok,
        "fail" => Kind::Fail,
        other => panic!("{line}: {other}"),
    };
    let invoke = entry(begin.parse().expect("a time"), process, Kind::Invoke, words[2], value.clone());
    let mut ended = entry(end.parse().expect("a time"), process, kind, words[2], value);
    for word in &words[6..] {
        if let Some(error) = word.strip_prefix("error=") {
            ended.error = Some(error.to_owned());
        } else if let Some(zxid) = word.strip_prefix("zxid=") {
            ended.zxid = Some(zxid.parse().expect("a zxid"));
        } else if let Some(fields) = word.strip_prefix('+') {
            let more = json(&format!("{{{fields}}}"));
            let fields = more.as_object().expect("fields in braces").clone();
            ended.value.as_object_mut().expect("fields are added to an object").extend(fields);
        }
    }
    vec![invoke, ended]
}

fn judge(workload: Workload, history: &str) -> Verdict {
    let lines: Vec<&str> = history.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let mut entries: Vec<Entry> = lines.iter().filter(|text| **text != "silent").flat_map(|text| line(text)).collect();
    if !lines.contains(&"silent") {
        let last_ms = entries.iter().map(|entry| entry.time / MS).max().unwrap_or(0);
        for at_ms in (0..last_ms).step_by(200) {
            let pulse = |at_ms, kind| entry(at_ms, Process::Client(PULSE), kind, "pulse", json!({}));
            entries.extend([pulse(at_ms, Kind::Invoke), pulse(at_ms + 10, Kind::Ok)]);
        }
    }
    entries.sort_by_key(|entry| entry.time);
    (0..).zip(&mut entries).for_each(|(index, entry)| entry.index = index);
    check(workload, &entries)
}

#[track_caller]
fn lost(workload: Workload, history: &str) {
    let verdict = judge(workload, history);
    assert!(verdict.has("lost-grant") && verdict.finding_count == 1, "{verdict:#?}");
}

/// Checks that the history is judged valid, and that this number of grants was judged.
#[track_caller]
fn good(workload: Workload, granted: u64, history: &str) {
    let verdict = judge(workload, history);
    assert_eq!(verdict.valid, Validity::Valid, "{verdict:#?}");
    assert_eq!(verdict.figures["granted-in-time"], granted, "{verdict:#?}");
}

/// Returns a history in which a client releases the lock at 1000 ms while another waits for 6 s.
/// `answer` has the end of the wait in ms, and the waiter's request with its outcome.
fn handed_over(answer: &str) -> String {
    format!(
        r#"
        0..10 0 acquire {{"lock":"l","owner":1}} -> ok +"token":10
        500..{answer}
        990..1000 0 release {{"lock":"l","owner":1}} -> ok
        7000..7010 0 close {{"owner":1}} -> ok"#
    )
}

#[test]
fn a_lost_grant_is_found_and_a_slow_one_is_not() {
    let waits = r#"1 acquire {"lock":"l","owner":2,"wait_ms":6000} ->"#;
    // The waiter was never told of a grant, although the lock was free until its wait ended.
    lost(Workload::Lock, &handed_over(&format!("6500 {waits} fail error=not-acquired")));
    // The waiter was told only when its wait was over.
    lost(Workload::Lock, &handed_over(&format!(r#"6500 {waits} ok +"token":11"#)));
    // The grant came late, but within the limit.
    good(Workload::Lock, 1, &handed_over(&format!(r#"3900 {waits} ok +"token":11"#)));
    // The wait ended within the limit.
    good(Workload::Lock, 0, &handed_over(&format!("3900 {waits} fail error=not-acquired")));
}

#[test]
fn waits_during_faults_and_just_after_them_are_not_judged() {
    let lost_grant = handed_over(r#"6500 1 acquire {"lock":"l","owner":2,"wait_ms":6000} -> fail error=not-acquired"#);
    let with = |nemesis: &str| format!("{nemesis}\n{lost_grant}");
    good(Workload::Lock, 0, &with("3000 nemesis begin-kill\n3100 nemesis start-kill"));
    good(Workload::Lock, 0, &with("100 nemesis begin-kill\n200 nemesis heal {\"waits_for_nodes\":false}"));
    good(Workload::Lock, 0, &with("100 nemesis begin-kill\n200 nemesis heal {\"waits_for_nodes\":true}"));
    // The grant was lost before the fault.
    lost(Workload::Lock, &with("4100 nemesis begin-kill"));
    // A mend without a fault does not end the calm, unless a node had ended by itself.
    let mended = |ended: &str| {
        let value = format!(r#"{{"ended_by_themselves":[{ended}],"waits_for_nodes":true}}"#);
        with(&format!("0 nemesis final-heal {value}\n10 nemesis recovered"))
    };
    lost(Workload::Lock, &mended(""));
    good(Workload::Lock, 0, &mended(r#"{"node":1}"#));
    // Without regular writes the cluster does not show that it works.
    good(Workload::Lock, 0, &with("silent"));
}

#[test]
fn after_a_mend_and_the_time_to_settle_waits_are_judged_again() {
    let history = |answer: &str| {
        format!(
            r#"
            0 nemesis begin-kill
            100 nemesis heal {{"waits_for_nodes":true}}
            3000 nemesis recovered
            0..10 0 acquire {{"lock":"l","owner":1}} -> ok +"token":10
            990..1000 0 release {{"lock":"l","owner":1}} -> ok
            8000..{answer}
            20000..20010 0 close {{"owner":1}} -> ok"#
        )
    };
    let waits = r#"1 acquire {"lock":"l","owner":2,"wait_ms":6000} ->"#;
    lost(Workload::Lock, &history(&format!(r#"14000 {waits} ok +"token":11"#)));
    good(Workload::Lock, 0, &history(&format!(r#"11900 {waits} ok +"token":11"#)));
}

#[test]
fn a_lock_that_another_may_hold_is_not_free() {
    let second = r#"6500 1 acquire {"lock":"l","owner":2,"wait_ms":6000} -> fail error=not-acquired"#;
    let without_release = handed_over(second).replace("990..1000 0 release", "990..1000 0 noted");
    good(Workload::Lock, 0, &without_release);
    // Another client that waits, too, is not in the way: one of the two waits was not told of its
    // grant.
    let both = format!(
        "{}\n600..6600 2 acquire {{\"lock\":\"l\",\"owner\":3,\"wait_ms\":6000}} -> fail error=not-acquired",
        handed_over(second)
    );
    let verdict = judge(Workload::Lock, &both);
    assert_eq!((verdict.has("lost-grant"), verdict.finding_count), (true, 2), "{verdict:#?}");
}

#[test]
fn a_lock_is_free_when_the_session_of_its_holder_has_ended() {
    let answer = r#"6500 1 acquire {"lock":"l","owner":2,"wait_ms":6000} -> fail error=not-acquired"#;
    let expired = handed_over(answer).replace(
        r#"990..1000 0 release {"lock":"l","owner":1} -> ok"#,
        r#"990..1000 0 release {"lock":"l","owner":1} -> fail error=session-expired"#,
    );
    lost(Workload::Lock, &expired);
    let closed = handed_over(answer).replace(r#"release {"lock":"l","owner":1}"#, r#"close {"owner":1}"#);
    lost(Workload::Lock, &closed);
}

#[test]
fn a_grant_proves_that_the_holder_before_it_is_gone() {
    let history = |token: u64| {
        format!(
            r#"
            0..10 0 acquire {{"lock":"l","owner":1}} -> ok +"token":10
            20..30 1 acquire {{"lock":"l","owner":2}} -> ok +"token":{token}
            40..6040 2 acquire {{"lock":"l","owner":3,"wait_ms":6000}} -> fail error=not-acquired
            50..60 1 release {{"lock":"l","owner":2}} -> ok"#
        )
    };
    let found = |token| judge(Workload::FencedLock, &history(token)).has("lost-grant");
    assert_eq!([found(11), found(9)], [true, false]);
}

/// Returns a history with a holder and two waiters that keep their tickets. The holder releases the
/// lock at 1000 ms, and then the first waiter polls twice; `second_poll` is the second poll.
fn kept(second_poll: &str) -> String {
    format!(
        r#"
        0..10 0 enqueue {{"lock":"l","owner":1,"ticket":"/a"}} -> ok +"token":10
        20..30 1 enqueue {{"lock":"l","owner":2,"ticket":"/b"}} -> ok
        40..50 2 enqueue {{"lock":"l","owner":3,"ticket":"/c"}} -> ok
        990..1000 0 release {{"lock":"l","owner":1,"ticket":"/a"}} -> ok
        1100..1600 1 await {{"lock":"l","owner":2,"ticket":"/b","wait_ms":500}} -> ok
        {second_poll}
        9000..9010 2 release {{"lock":"l","owner":3,"ticket":"/c"}} -> ok"#
    )
}

#[test]
fn a_kept_ticket_whose_turn_has_come_is_granted_though_it_is_polled() {
    // The other waiter came later and is behind it, even while it sends no request.
    let polls = |answer: &str| {
        kept(&format!(r#"5000..5500 1 await {{"lock":"l","owner":2,"ticket":"/b","wait_ms":500}} -> {answer}"#))
    };
    lost(Workload::Queue, &polls("ok"));
    good(Workload::Queue, 0, &polls(r#"ok +"token":11"#));
    // The third client's turn has not come: the second one may hold the lock without knowing it.
    good(Workload::Queue, 0, &kept(r#"2000..8000 2 await {"lock":"l","owner":3,"ticket":"/c","wait_ms":6000} -> ok"#));
}

#[test]
fn one_that_asked_at_the_same_time_is_in_the_way_only_until_it_is_told_again_that_it_waits() {
    let history = |last: &str| {
        kept(&format!(
            r#"
            25..35 3 enqueue {{"lock":"l","owner":4,"ticket":"/d"}} -> ok
            1200..1700 3 await {{"lock":"l","owner":4,"ticket":"/d","wait_ms":500}} -> ok
            {last}
            2000..8000 1 await {{"lock":"l","owner":2,"ticket":"/b","wait_ms":6000}} -> ok"#
        ))
    };
    lost(Workload::Queue, &history(r#"7000..7500 3 await {"lock":"l","owner":4,"ticket":"/d","wait_ms":500} -> ok"#));
    let held = r#"7000..7500 3 await {"lock":"l","owner":4,"ticket":"/d","wait_ms":500} -> ok +"token":12"#;
    assert!(!judge(Workload::Queue, &history(held)).has("lost-grant"));
}

#[test]
fn readers_and_permits_wait_only_for_what_leaves_no_room() {
    let rw = |first: &str, second: &str| {
        format!(
            r#"
            0..10 0 acquire {{"lock":"l","owner":1,"mode":"{first}"}} -> ok +"token":10
            100..6100 1 acquire {{"lock":"l","owner":2,"mode":"{second}","wait_ms":6000}} -> fail error=not-acquired"#
        )
    };
    lost(Workload::RwLock, &rw("read", "read"));
    good(Workload::RwLock, 0, &rw("read", "write"));
    good(Workload::RwLock, 0, &rw("write", "read"));
    let semaphore = |permits: u64| {
        format!(
            r#"
            0..10 0 enqueue {{"lock":"l","owner":1,"permits":2,"limit":4}} -> ok +"token":10
            20..30 1 enqueue {{"lock":"l","owner":2,"permits":{permits},"limit":4}} -> ok
            40..6040 1 await {{"lock":"l","owner":2,"permits":{permits},"limit":4,"wait_ms":6000}} -> ok"#
        )
    };
    let found = |permits| judge(Workload::Semaphore, &semaphore(permits)).has("lost-grant");
    assert_eq!([found(2), found(3)], [true, false]);
}

#[test]
fn several_locks_wait_for_all_that_came_before() {
    let all =
        |locks: &[&str]| json!(locks.iter().map(|lock| json!({"lock": lock, "mode": "write"})).collect::<Vec<_>>());
    let history = |release: &str| {
        let (first, second) = (all(&["a", "b"]), all(&["b", "c"]));
        format!(
            r#"
            0..10 0 enqueue {{"locks":{first},"policy":"strict","owner":1}} -> ok
            20..30 1 enqueue {{"locks":{second},"policy":"strict","owner":2}} -> ok
            100..110 0 {release} {{"locks":{first},"owner":1}} -> ok
            200..6200 1 await {{"locks":{second},"policy":"strict","owner":2,"wait_ms":6000}} -> ok"#
        )
    };
    let found = |release| judge(Workload::Mixed, &history(release)).has("lost-grant");
    assert_eq!([found("release"), found("noted")], [true, false]);
}

#[test]
fn a_wait_that_does_not_end_is_found_when_its_node_answers_others() {
    let history = |others: &str| {
        format!(
            r#"
            0..10 0 acquire {{"lock":"l","owner":1}} -> ok +"token":10
            100..2100 1 acquire {{"lock":"l","owner":2,"wait_ms":500}} -> fail error=timed-out
            {others}
            3000..3010 0 release {{"lock":"l","owner":1}} -> ok"#
        )
    };
    assert!(judge(Workload::Lock, &history("")).has("endless-wait"));
    good(Workload::Lock, 0, &history("silent"));
    good(Workload::Lock, 0, &history("1000 nemesis begin-pause"));
}

#[test]
fn a_run_in_which_no_grant_was_judged_is_unknown() {
    let worth = |answer: &str| {
        let mut verdict = judge(Workload::Lock, &handed_over(answer));
        check_worth(Workload::Lock, &mut verdict);
        verdict
    };
    let granted = worth(r#"2000 1 acquire {"lock":"l","owner":2,"wait_ms":6000} -> ok +"token":11"#);
    assert_eq!(granted.valid, Validity::Valid, "{granted:#?}");
    let none = worth(r#"900 1 acquire {"lock":"l","owner":2,"wait_ms":400} -> fail error=not-acquired"#);
    assert!(none.doubts.iter().any(|doubt| doubt == "nothing was judged: granted-in-time 0"), "{none:#?}");
}

/// Judges a watcher's polls against a change that is acknowledged at 110 ms.
fn watched(polls: &str) -> Verdict {
    let change = r#"100..110 1 write {"path":"/w/a"} -> ok zxid=5"#;
    judge(Workload::Watch, &format!("{change}\n{polls}\n9000..9010 1 write {{\"path\":\"/w/b\"}} -> fail"))
}

#[test]
fn an_event_that_comes_long_after_its_change_is_found() {
    let told = |from: u64, to: u64| {
        format!(r#"{from}..{to} 2 poll {{"watcher":1,"since":4}} -> ok +"events":[[5,"data_changed","/w/a"]],"upto":5"#)
    };
    let nothing =
        |from: u64, to: u64| format!(r#"{from}..{to} 2 poll {{"watcher":1,"since":4}} -> ok +"events":[],"upto":4"#);
    let in_time = watched(&told(50, 120));
    assert_eq!(in_time.valid, Validity::Valid, "{in_time:#?}");
    assert_eq!((&in_time.figures["told-in-time"], &in_time.figures["slowest-event-ms"]), (&json!(1), &json!(10)));
    assert!(watched(&told(50, 3200)).has("late-event"));
    // The watcher polled again and again, and was told of no event.
    let again = [nothing(50, 800), nothing(801, 1600), nothing(1601, 2400), nothing(2401, 3200)].join("\n");
    assert!(watched(&again).has("late-event"));
    // The watcher did not poll before, so the event is in time.
    assert_eq!(watched(&told(5000, 5010)).figures["told-in-time"], 1);
    // A fault was made meanwhile.
    let broken = format!("60 nemesis kill\n{}", told(50, 3200));
    assert_eq!(watched(&broken).valid, Validity::Valid);
}

#[test]
fn a_grant_within_the_delay_of_one_that_expired_is_found() {
    let history = |granted: u64, delay_ms: u64| {
        let before = granted - 10;
        format!(
            r#"
            0..10 1 open {{}} -> ok +"owner":1,"safe_for_ms":1500
            20..30 1 acquire {{"lock":"l","owner":1,"delay_ms":{delay_ms},"wait_ms":300}} -> ok +"token":10
            40..41 1 abandon {{"owner":1}} -> ok
            {before}..{granted} 2 acquire {{"lock":"l","owner":2,"delay_ms":0,"wait_ms":300}} -> ok +"token":11
            9000..9010 3 again {{"lock":"l","owner":3}} -> ok"#
        )
    };
    let kept = judge(Workload::LockDelay, &history(2600, 1000));
    assert_eq!(kept.valid, Validity::Valid, "{kept:#?}");
    assert_eq!(kept.figures["delays-kept"], 1);
    assert!(judge(Workload::LockDelay, &history(2400, 1000)).has("granted-in-delay"));
    // Without a delay the session keeps the lock only until it expires.
    assert_eq!(judge(Workload::LockDelay, &history(1600, 0)).valid, Validity::Valid);
    assert!(judge(Workload::LockDelay, &history(1400, 0)).has("granted-in-delay"));
    // The leader's wall clock, which measures delays, was set.
    let clocks = format!("60 nemesis clock\n{}", history(2400, 1000));
    assert_eq!(judge(Workload::LockDelay, &clocks).valid, Validity::Valid);
}

#[test]
fn a_restore_ends_sessions_and_lowers_no_token() {
    let history = |end: &str, token: u64| {
        format!(
            r#"
            0..10 1 open {{}} -> ok +"owner":1,"safe_for_ms":1500
            20..30 1 acquire {{"lock":"l","owner":1,"delay_ms":0,"wait_ms":300}} -> ok +"token":10
            40 nemesis start-restore
            50..60 1 keepalive {{"owner":1}} -> {end}
            2000..2010 2 acquire {{"lock":"l","owner":2,"delay_ms":0,"wait_ms":300}} -> ok +"token":{token}
            9000..9010 3 again {{"lock":"l","owner":3}} -> ok"#
        )
    };
    let refused = judge(Workload::Restore, &history("fail error=session-expired", 11));
    assert_eq!(refused.valid, Validity::Valid, "{refused:#?}");
    assert!(judge(Workload::Restore, &history("ok", 11)).has("old-session-served"));
    assert!(judge(Workload::Restore, &history("fail error=session-expired", 9)).has("falling-token"));
    // The verdict is unknown if no request in the old session was refused.
    assert_eq!(judge(Workload::Restore, &history("fail error=timed-out", 11)).valid, Validity::Unknown);
}
