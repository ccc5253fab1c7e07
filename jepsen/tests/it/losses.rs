//! Tests of the check of lost locks: an operation of the client must explain each end of a hold.
//!
//! `written/mod.rs` explains how histories are written.

use crate::written::{bad, good};
use jepsen::check::Workload;

/// Workloads whose clients take locks by the operation `acquire`.
const ACQUIRED: [Workload; 2] = [Workload::Lock, Workload::RwLock];

/// Returns a history in which session 1 and then session 2 are granted one lock, each by the
/// operation named `grant`. The operations in `then` follow.
fn two_grants(grant: &str, then: &str) -> String {
    format!(
        r#"
        0 {grant} {{"lock":"l","owner":1}} -> ok +"token":10
        1 {grant} {{"lock":"l","owner":2}} -> ok +"token":11
        {then}"#
    )
}

#[test]
fn a_session_that_lives_loses_no_lock() {
    for error in ["no-node", "ticket-gone", "lock-not-held"] {
        let gone = format!(r#"0 release {{"lock":"l","owner":1}} -> fail error={error}"#);
        for workload in ACQUIRED {
            bad(workload, "lost-ticket", &two_grants("acquire", &gone));
            bad(workload, "two-holders", &two_grants("acquire", &gone));
        }
        bad(Workload::Queue, "lost-ticket", &two_grants("enqueue", &gone));
        bad(Workload::Queue, "two-holders", &two_grants("enqueue", &gone));
    }
    // The client was told later that its session had expired.
    let expired = r#"
        0 await {"lock":"l","owner":1} -> fail error=ticket-gone
        0 close {"owner":1} -> fail error=session-expired"#;
    good(Workload::Queue, &two_grants("enqueue", expired));
}

#[test]
fn what_its_owner_may_have_given_back_is_not_lost() {
    let twice = r#"
        0 acquire {"lock":"l","owner":1} -> ok +"token":10
        0 release {"lock":"l","owner":1} -> info
        2 release {"lock":"l","owner":1} -> fail error=no-node
        1 acquire {"lock":"l","owner":2} -> ok +"token":11"#;
    ACQUIRED.into_iter().for_each(|workload| good(workload, twice));
}

#[test]
fn what_was_given_back_once_is_lost_when_it_is_gone_the_next_time() {
    let history = |grant: &str| {
        format!(
            r#"
            0 {grant} {{"lock":"l","owner":1}} -> ok +"token":10
            0 release {{"lock":"l","owner":1}} -> ok
            0 {grant} {{"lock":"l","owner":1}} -> ok +"token":11
            0 release {{"lock":"l","owner":1}} -> fail error=no-node"#
        )
    };
    ACQUIRED.into_iter().for_each(|workload| bad(workload, "lost-ticket", &history("acquire")));
    bad(Workload::Queue, "lost-ticket", &history("enqueue"));
    let revoke = r#"
        0 enqueue {"lock":"l","owner":1} -> ok +"token":10,"ticket":"t1" zxid=10
        0 release {"lock":"l","owner":1,"ticket":"t1"} -> ok zxid=11
        0 enqueue {"lock":"l","owner":1} -> ok +"token":12,"ticket":"t2" zxid=12
        0 append {"lock":"l","owner":1,"token":12,"ticket":"t2","element":2} -> fail error=lock-not-held
        5 read-all {"lock":"l"} -> ok +"elements":[]
        0 past {"lock":"l","ticket":"t2"} -> ok +"dead_token":12,"end":"released","ended_zxid":13,"ended_ms":9
        9 again {"lock":"l","owner":9} -> ok +"token":20 zxid=20"#;
    bad(Workload::Revoke, "lost-ticket", revoke);
}

#[test]
fn a_ticket_that_nobody_took_away_or_gave_back_is_found() {
    let history = |release: &str, end: &str| {
        format!(
            r#"
            0 enqueue {{"lock":"l","owner":1}} -> ok +"token":10,"ticket":"t1" zxid=10
            {release}
            1 append {{"lock":"l","owner":1,"token":10,"ticket":"t1","element":2}} -> fail error=lock-not-held
            5 read-all {{"lock":"l"}} -> ok +"elements":[]
            1 past {{"lock":"l","ticket":"t1"}} -> ok +"dead_token":10,"end":"{end}","ended_zxid":12,"ended_ms":9
            9 again {{"lock":"l","owner":9}} -> ok +"token":20 zxid=20"#
        )
    };
    let release = r#"0 release {"lock":"l","owner":1,"ticket":"t1"} -> info"#;
    for end in ["released", "withdrawn", "expired"] {
        bad(Workload::Revoke, "lost-ticket", &history("", end));
    }
    good(Workload::Revoke, &history(release, "released"));
    good(Workload::Revoke, &history(r#"0 close {"owner":1} -> info"#, "closed"));
}

#[test]
fn a_session_that_closed_itself_was_not_lost_before() {
    let closes = r#"
        0 release {"lock":"l","owner":1} -> info
        2 close {"owner":1} -> info
        3 close {"owner":1} -> fail error=session-expired"#;
    for workload in ACQUIRED {
        bad(workload, "two-holders", &two_grants("acquire", closes));
    }
    bad(Workload::Queue, "two-holders", &two_grants("enqueue", closes));
}

#[test]
fn a_session_that_was_lost_had_lived_until_it_last_did_something() {
    let history = |first: &str, second: &str| {
        format!(
            r#"
            0 {first} {{"lock":"l","owner":1}} -> ok +"token":10
            1 {first} {{"lock":"l","owner":2}} -> ok +"token":11
            {second}
            0 {first} {{"lock":"m","owner":1}} -> ok +"token":12
            0 release {{"lock":"m","owner":1}} -> fail error=session-expired"#
        )
    };
    let releases = r#"
        0 release {"lock":"l","owner":1} -> ok
        1 release {"lock":"l","owner":2} -> ok"#;
    bad(Workload::Queue, "two-holders", &history("enqueue", releases));
    for workload in ACQUIRED {
        bad(workload, "two-holders", &history("acquire", ""));
        good(workload, &two_grants("acquire", r#"0 release {"lock":"l","owner":1} -> fail error=session-expired"#));
    }
}

#[test]
fn a_token_that_was_given_back_is_not_given_again() {
    let history = |grant: &str, token: u64| {
        format!(
            r#"
            0 {grant} {{"lock":"l","owner":1}} -> ok +"token":10
            0 release {{"lock":"l","owner":1}} -> ok
            0 {grant} {{"lock":"l","owner":1}} -> ok +"token":{token}"#
        )
    };
    for (workload, grant) in [
        (Workload::Lock, "acquire"),
        (Workload::RwLock, "acquire"),
        (Workload::FencedLock, "acquire"),
        (Workload::Queue, "enqueue"),
    ] {
        bad(workload, "token-given-twice", &history(grant, 10));
        good(workload, &history(grant, 11));
    }
    // A reentrant holder has one token for all its holds.
    let holds = |token: u64| {
        format!(
            r#"
            0 acquire {{"lock":"l","owner":1}} -> ok +"token":10,"holds":1
            0 acquire {{"lock":"l","owner":1}} -> ok +"token":10,"holds":2
            0 release {{"lock":"l","owner":1}} -> ok +"holds":1
            0 acquire {{"lock":"l","owner":1}} -> ok +"token":10,"holds":2
            0 release {{"lock":"l","owner":1}} -> ok +"holds":1
            0 release {{"lock":"l","owner":1}} -> ok +"holds":0
            0 acquire {{"lock":"l","owner":1}} -> ok +"token":{token},"holds":1"#
        )
    };
    good(Workload::ReentrantLock, &holds(11));
    bad(Workload::ReentrantLock, "token-given-twice", &holds(10));
}
