//! Tests of the check of facts from nodes' logs. Facts and histories are written by hand.

use jepsen::check::Workload;
use jepsen::check::replayed::{NodeFacts, check};
use jepsen::history;
use jepsen::verdict::{Validity, Verdict};

const DIGEST: &str = r#""digest":"aa""#;

/// Returns a node whose log begins at zxid 0 and has these facts.
fn node(id: u64, facts: &str) -> NodeFacts {
    node_between(id, 0, facts, &format!(r#"{{"fact":"applied","zxid":100,"index":100,"term":1,{DIGEST}}}"#))
}

fn node_between(id: u64, began: u64, facts: &str, applied: &str) -> NodeFacts {
    let began = format!(r#"{{"fact":"began","zxid":{began}}}"#);
    let lines: Vec<&str> = std::iter::once(began.as_str()).chain(facts.lines()).chain([applied]).collect();
    NodeFacts::read(id, &lines.join("\n")).expect("facts")
}

fn judge(nodes: &[NodeFacts], history: &str) -> Verdict {
    let entries = crate::written::entries(history);
    check(Workload::Lock, nodes, &history::operations(&entries).expect("a history"))
}

fn granted(zxid: u64, ticket: &str, session: u64, token: u64, mode: &str) -> String {
    format!(
        r#"{{"fact":"granted","zxid":{zxid},"lock":"/l","ticket":"{ticket}","session":{session},"token":{token},{mode}}}"#
    )
}

fn ended(zxid: u64, ticket: &str, session: u64, token: u64) -> String {
    format!(r#"{{"fact":"ended","zxid":{zxid},"lock":"/l","ticket":"{ticket}","session":{session},"token":{token}}}"#)
}

const ALONE: &str = r#""mode":"exclusive""#;
const READ: &str = r#""mode":"read""#;

fn lease(permits: u64) -> String {
    format!(r#""mode":"lease","permits":{permits},"limit":3"#)
}

#[track_caller]
fn found(kind: &str, facts: &[String]) {
    let verdict = judge(&[node(1, &facts.join("\n"))], "");
    assert!(verdict.has(kind), "{kind}: {verdict:#?}");
}

#[track_caller]
fn clean(facts: &[String]) {
    let verdict = judge(&[node(1, &facts.join("\n"))], "");
    assert_eq!(verdict.findings, [], "{verdict:#?}");
}

#[test]
fn two_holders_in_a_log_are_found() {
    let (first, second) = (granted(10, "a", 1, 10, ALONE), granted(12, "b", 2, 12, ALONE));
    found("log-two-holders", &[first.clone(), second.clone()]);
    clean(&[first, ended(11, "a", 1, 10), second]);
    found("log-two-holders", &[granted(10, "a", 1, 10, READ), granted(12, "b", 2, 12, ALONE)]);
    clean(&[granted(10, "a", 1, 10, READ), granted(12, "b", 2, 12, READ)]);
}

#[test]
fn too_many_permits_in_a_log_are_found() {
    found("log-over-limit", &[granted(10, "a", 1, 10, &lease(2)), granted(11, "b", 2, 11, &lease(2))]);
    clean(&[granted(10, "a", 1, 10, &lease(2)), granted(11, "b", 2, 11, &lease(1))]);
}

#[test]
fn a_token_that_falls_in_a_log_is_found() {
    found("log-token-falls", &[granted(10, "a", 1, 10, ALONE), ended(11, "a", 1, 10), granted(12, "b", 2, 9, ALONE)]);
}

#[test]
fn a_grant_to_a_session_that_has_ended_is_found() {
    let gone = r#"{"fact":"session-ended","zxid":9,"session":1}"#.to_owned();
    found("log-holder-without-session", &[gone, granted(10, "a", 1, 10, ALONE)]);
}

#[test]
fn nodes_whose_logs_tell_different_facts_are_found() {
    let (grant, other) = (granted(10, "a", 1, 10, ALONE), granted(10, "a", 2, 10, ALONE));
    let verdict = judge(&[node(1, &grant), node(2, &other)], "");
    assert!(verdict.has("logs-differ"), "{verdict:#?}");
    let (fewer, digest) =
        (r#"{"fact":"applied","zxid":9,"digest":"aa"}"#, r#"{"fact":"applied","zxid":100,"digest":"bb"}"#);
    // Entries that one node has not applied, or has only in its snapshot, are not compared.
    assert_eq!(judge(&[node(1, &grant), node_between(2, 0, "", fewer)], "").findings, []);
    assert_eq!(judge(&[node(1, &grant), node_between(2, 50, &grant, &fewer.replace('9', "90"))], "").findings, []);
    assert!(judge(&[node(1, &grant), node_between(2, 0, &grant, digest)], "").has("replays-differ"));
}

#[test]
fn what_clients_were_told_is_in_the_log() {
    let facts = [granted(10, "a", 1, 10, ALONE), ended(20, "a", 1, 10)].join("\n");
    let told = |f: &str, token: u64, zxid: u64| {
        let history = format!(r#"0 {f} {{"lock":"/l","owner":1}} -> ok +"token":{token} zxid={zxid}"#);
        judge(&[node(1, &facts)], &history)
    };
    let verdict = told("acquire", 10, 10);
    assert_eq!((verdict.valid, &verdict.figures["replayed-grants-told"]), (Validity::Valid, &1.into()), "{verdict:#?}");
    assert!(told("acquire", 11, 11).has("not-in-log"));
    assert!(told("acquire", 10, 9).has("told-before-grant"));
    assert!(told("append", 10, 20).has("told-after-end"));
    assert_eq!(told("append", 10, 19).findings, []);
    assert!(told("release", 10, 19).has("release-not-in-log"));
    assert_eq!(told("release", 10, 20).findings, []);
    let without_zxid = |token: u64| {
        let history = format!(r#"0 acquire {{"lock":"/l","owner":1}} -> ok +"token":{token}"#);
        judge(&[node(1, &facts)], &history)
    };
    assert_eq!(without_zxid(10).valid, Validity::Valid);
    assert!(without_zxid(12).has("not-in-log"));
    // The answer's zxid is behind the end of all logs, so it is not judged.
    assert_eq!(told("acquire", 11, 101).findings, []);
}

#[test]
fn an_answer_between_two_logs_is_not_judged() {
    let applied = |zxid: u64| format!(r#"{{"fact":"applied","zxid":{zxid},"digest":"aa"}}"#);
    // Node 1 was removed at zxid 30, and node 2 began with a snapshot at zxid 50.
    let nodes = [node_between(1, 0, "", &applied(30)), node_between(2, 50, "", &applied(100))];
    let told = |zxid: &str| judge(&nodes, &format!(r#"0 acquire {{"lock":"/l","owner":1}} -> ok +"token":40{zxid}"#));
    assert_eq!(told(" zxid=40").findings, []);
    assert_eq!(told("").findings, []);
    assert!(told(" zxid=20").has("not-in-log"));
    assert!(told(" zxid=60").has("not-in-log"));
}

#[test]
fn a_log_that_tells_nothing_is_in_doubt() {
    assert_eq!(judge(&[node(1, "")], "").valid, Validity::Unknown);
    let facts = granted(10, "a", 1, 10, ALONE) + "\n" + &ended(11, "a", 1, 10);
    assert_eq!(judge(&[node(1, &facts)], "").valid, Validity::Unknown);
    assert!(NodeFacts::read(1, r#"{"fact":"began","zxid":1}"#).is_err());
    assert!(NodeFacts::read(1, "lock").is_err());
}
