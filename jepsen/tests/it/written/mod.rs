//! Parser of histories that are written by hand.
//!
//! Each line is one operation, `process f value -> outcome`, followed by the parts of its answer: a
//! value, or `+"token":10` to add fields to the value of the invocation, and `zxid=N` or
//! `error=NAME`. An operation begins after the operation in the line above has ended.

#![allow(dead_code, reason = "not every file uses all of it")]

use jepsen::check::{Workload, check};
use jepsen::history::{Entry, Kind, Process};
use jepsen::verdict::{Validity, Verdict};
use serde_json::Value;

/// Duration of each operation, and of the pause after it, in nanoseconds: 10 ms each.
const STEP_NS: u64 = 10_000_000;

/// Returns the invocation and the completion of the operation in a line.
fn operation((number, line): (usize, &str)) -> [Entry; 2] {
    let json = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_else(|error| panic!("{line}: {error}"));
    let mut words = line.split_whitespace();
    let mut word = || words.next().unwrap_or_else(|| panic!("{line}: too short"));
    let process = Process::Client(word().parse().expect("a line begins with a process"));
    let index = number as u64 * 2;
    let (f, value) = (word().to_owned(), json(word()));
    let (time, kind) = (index * STEP_NS, Kind::Invoke);
    let invoke = Entry { index, time, process, kind, f, value, error: None, node: None, zxid: None };
    assert_eq!(word(), "->", "{line}");
    let kind = match word() {
        "ok" => Kind::Ok,
        "info" => Kind::Info,
        "fail" => Kind::Fail,
        other => panic!("{line}: {other}"),
    };
    let mut end = Entry { index: index + 1, time: time + STEP_NS, kind, ..invoke.clone() };
    for word in words {
        if let Some(zxid) = word.strip_prefix("zxid=") {
            end.zxid = zxid.parse().ok();
        } else if let Some(error) = word.strip_prefix("error=") {
            end.error = Some(error.to_owned());
        } else if let Some(fields) = word.strip_prefix('+') {
            let more = json(&format!("{{{fields}}}"));
            let fields = more.as_object().expect("fields in braces").clone();
            end.value.as_object_mut().expect("fields are added to an object").extend(fields);
        } else {
            end.value = json(word);
        }
    }
    [invoke, end]
}

/// Returns the entries of a history.
pub(crate) fn entries(history: &str) -> Vec<Entry> {
    history.lines().filter(|line| !line.trim().is_empty()).enumerate().flat_map(operation).collect()
}

/// Returns the verdict of the workload's checker on a history.
pub(crate) fn judge(workload: Workload, history: &str) -> Verdict {
    check(workload, &entries(history))
}

/// Checks that the history is judged valid.
#[track_caller]
pub(crate) fn good(workload: Workload, history: &str) {
    let verdict = judge(workload, history);
    assert_eq!(verdict.valid, Validity::Valid, "{verdict:#?}");
}

/// Checks that the history is judged invalid, with a finding of this kind.
#[track_caller]
pub(crate) fn bad(workload: Workload, kind: &str, history: &str) {
    let verdict = judge(workload, history);
    assert_eq!(verdict.valid, Validity::Invalid, "{verdict:#?}");
    assert!(verdict.has(kind), "no {kind} in {verdict:#?}");
}

/// Checks that the history cannot be judged, for this reason.
#[track_caller]
pub(crate) fn doubtful(workload: Workload, why: &str, history: &str) {
    let verdict = judge(workload, history);
    assert_eq!(verdict.valid, Validity::Unknown, "{verdict:#?}");
    assert!(verdict.doubts.iter().any(|doubt| doubt.contains(why)), "no {why} in {verdict:#?}");
}
