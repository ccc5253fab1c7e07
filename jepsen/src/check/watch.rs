//! Checker of the workload `watch`: every watcher is told every change once and in order, across
//! nodes and restarts. A watcher of children is also told each time that they change.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::calm::Calm;
use super::grouped;
use super::in_time::GRANT_MAX_NS;
use crate::history::{Entry, Operation};
use crate::verdict::Verdict;

/// Kind of a change, and its path.
type Change = (String, String);

/// Events that one watcher was told, and the ranges of zxids that its polls covered.
#[derive(Default)]
struct Stream<'a> {
    /// Zxid up to which the last answer told events, and that answer. The next poll must begin
    /// there.
    upto: Option<(u64, &'a Operation)>,
    /// Zxid of the last event, and the poll that told it.
    last: Option<(u64, &'a Operation)>,
    /// Ranges of zxids that polls covered, as (exclusive start, inclusive end, poll). The watcher
    /// must have been told all events in them.
    covered: Vec<(u64, u64, &'a Operation)>,
    events: BTreeMap<u64, BTreeSet<Change>>,
    /// True for a watcher that is also told when the children of a znode change.
    children: bool,
    resets: usize,
}

/// Kind of the event that a parent gets when its children have changed.
const CHILDREN: &str = "children_changed";

/// Judges changes (`write`, `create`, `delete`, each with its zxid) and `poll`s, which are answered
/// with `events` up to the zxid `upto`.
pub(super) fn check(operations: &[Operation]) -> Verdict {
    let mut verdict = Verdict::default();
    let mut streams: BTreeMap<u64, Stream<'_>> = BTreeMap::new();
    for operation in operations.iter().filter(|operation| operation.is_ok()) {
        let Some(watcher) = operation.number("watcher") else { continue };
        let stream = streams.entry(watcher).or_default();
        match operation.f.as_str() {
            "poll" => take_poll(watcher, stream, operation, &mut verdict),
            "reset" => {
                stream.resets += 1;
                stream.upto = None;
            }
            _ => {}
        }
    }
    let mut all: BTreeMap<u64, BTreeSet<Change>> = BTreeMap::new();
    for stream in streams.values() {
        for (zxid, changes) in &stream.events {
            let of_znodes = changes.iter().filter(|(kind, _)| kind != CHILDREN).cloned();
            all.entry(*zxid).or_default().extend(of_znodes);
        }
    }
    check_sources(operations, &mut all, &mut verdict);
    let parents = parents(&all);
    for (watcher, stream) in &streams {
        check_complete(*watcher, stream, &all, &mut verdict);
        if stream.children {
            check_complete(*watcher, stream, &parents, &mut verdict);
        }
        check_parents(*watcher, stream, &parents, &mut verdict);
    }
    let children = |stream: &Stream<'_>| stream.events.values().flatten().filter(|(kind, _)| kind == CHILDREN).count();
    verdict.figure("children-events", streams.values().map(children).sum::<usize>());
    let told: usize = streams.values().flat_map(|stream| stream.events.values()).map(BTreeSet::len).sum();
    verdict.figure("watchers", streams.len());
    verdict.figure("events", told);
    verdict.figure("resets", streams.values().map(|stream| stream.resets).sum::<usize>());
    verdict
}

fn events(operation: &Operation) -> Vec<(u64, Change)> {
    let list = operation.result.get("events").and_then(Value::as_array);
    let one = |event: &Value| {
        let text = |i| event.get(i).and_then(Value::as_str).map(str::to_owned);
        Some((event.get(0)?.as_u64()?, (text(1)?, text(2)?)))
    };
    list.into_iter().flatten().filter_map(one).collect()
}

fn take_poll<'a>(watcher: u64, stream: &mut Stream<'a>, poll: &'a Operation, verdict: &mut Verdict) {
    let since = poll.argument.get("since").and_then(Value::as_u64).unwrap_or(0);
    let Some(upto) = poll.number("upto") else { return };
    stream.children = poll.argument["children"] == true;
    if let Some((before, earlier)) = stream.upto.filter(|(before, _)| *before != since) {
        let detail = format!("watcher {watcher} went on at {since} instead of {before}: the harness is at fault");
        verdict.doubt(format!("{detail}: {} {}", earlier.describe(), poll.describe()));
    }
    if upto < since {
        let detail = format!("watcher {watcher}: the answer goes back from {since} to {upto}");
        verdict.found("goes-back", detail, &[poll]);
    }
    for (zxid, change) in events(poll) {
        if zxid <= since || zxid > upto {
            let detail = format!("watcher {watcher}: an event of {zxid} in an answer about ({since}, {upto}]");
            verdict.found("out-of-range", detail, &[poll]);
        }
        if let Some((last, earlier)) = stream.last.filter(|(last, _)| *last > zxid) {
            let detail = format!("watcher {watcher}: the event of {zxid} came after that of {last}");
            verdict.found("out-of-order", detail, &[earlier, poll]);
        }
        stream.last = Some((zxid, poll));
        if !stream.events.entry(zxid).or_default().insert(change.clone()) {
            let detail = format!("watcher {watcher}: {} of {} at {zxid} came twice", change.0, change.1);
            verdict.found("event-twice", detail, &[poll]);
        }
    }
    stream.upto = Some((upto, poll));
    stream.covered.push((since, upto.max(since), poll));
}

fn kind_of(f: &str) -> Option<&'static str> {
    match f {
        "write" => Some("data_changed"),
        "create" => Some("created"),
        "delete" => Some("deleted"),
        _ => None,
    }
}

/// Checks that every event comes from a change that some client made, or may have made. Adds the
/// acknowledged changes to `all`, the events that watchers must be told.
fn check_sources(operations: &[Operation], all: &mut BTreeMap<u64, BTreeSet<Change>>, verdict: &mut Verdict) {
    let mut known: BTreeSet<(u64, Change)> = BTreeSet::new();
    // Number of requests for each change that had no answer with a zxid.
    let mut possible: BTreeMap<Change, usize> = BTreeMap::new();
    for operation in operations.iter().filter(|operation| operation.is_possible()) {
        let (Some(kind), Some(path)) = (kind_of(&operation.f), operation.text("path")) else { continue };
        let change = (kind.to_owned(), path.to_owned());
        match operation.zxid.filter(|_| operation.is_ok()) {
            Some(zxid) => _ = known.insert((zxid, change)),
            None => *possible.entry(change).or_default() += 1,
        }
    }
    for (zxid, changes) in &*all {
        for change in changes {
            if known.contains(&(*zxid, change.clone())) {
                continue;
            }
            match possible.get_mut(change).filter(|left| **left > 0) {
                Some(left) => *left -= 1,
                None => {
                    let detail = format!("{} of {} at {zxid}: no client did that", change.0, change.1);
                    verdict.found("event-from-nowhere", detail, &[]);
                }
            }
        }
    }
    for (zxid, change) in known {
        all.entry(zxid).or_default().insert(change);
    }
}

/// Returns the events [`CHILDREN`] that parents must get: one for each created or deleted child.
fn parents(all: &BTreeMap<u64, BTreeSet<Change>>) -> BTreeMap<u64, BTreeSet<Change>> {
    let parent = |(kind, path): &Change| {
        let comes_or_goes = kind == "created" || kind == "deleted";
        let (parent, _) = path.rsplit_once('/').filter(|_| comes_or_goes)?;
        Some((CHILDREN.to_owned(), parent.to_owned()))
    };
    all.iter().map(|(zxid, changes)| (*zxid, changes.iter().filter_map(parent).collect())).collect()
}

/// Checks that a watcher got [`CHILDREN`] only at zxids at which a child was created or deleted.
fn check_parents(watcher: u64, stream: &Stream<'_>, parents: &BTreeMap<u64, BTreeSet<Change>>, verdict: &mut Verdict) {
    for (zxid, changes) in &stream.events {
        for change in changes.iter().filter(|(kind, _)| kind == CHILDREN) {
            if !parents.get(zxid).is_some_and(|changes| changes.contains(change)) {
                let detail = format!("watcher {watcher}: no child of {} came or went at {zxid}", change.1);
                verdict.found("event-from-nowhere", detail, &[]);
            }
        }
    }
}

/// Checks that a watcher was told all changes of `all` in the ranges of its polls.
fn check_complete(watcher: u64, stream: &Stream<'_>, all: &BTreeMap<u64, BTreeSet<Change>>, verdict: &mut Verdict) {
    let none = BTreeSet::new();
    for (since, upto, poll) in stream.covered.iter().filter(|(since, upto, _)| since < upto) {
        for (zxid, changes) in all.range(since + 1..=*upto) {
            let seen = stream.events.get(zxid).unwrap_or(&none);
            for (kind, path) in changes.difference(seen) {
                let detail = format!("watcher {watcher} was not told {kind} of {path} at {zxid}");
                verdict.found("lost-event", detail, &[poll]);
            }
        }
    }
}

/// Time within which a watcher must be told of a change. It equals the time limit of a grant, for
/// the reasons given at [`GRANT_MAX_NS`].
const TOLD_MAX_NS: u64 = GRANT_MAX_NS;

/// Checks that a polling watcher is told of a change in time. A poll without events waits for one.
/// So a watcher that polls all the time is told of a change soon after its acknowledgement, by the
/// poll that was under way or by the next poll.
///
/// A poll must tell each watcher of every acknowledged change (`write`, `create`, `delete`)
/// within [`TOLD_MAX_NS`]. Times near a fault are not judged.
pub(super) fn check_in_time(entries: &[Entry], operations: &[Operation], verdict: &mut Verdict) {
    let calm = Calm::new(entries, operations);
    let polls = operations.iter().filter(|operation| operation.f == "poll");
    let polls = grouped(polls.filter_map(|poll| Some((poll.number("watcher")?, poll))));
    let is_change = |op: &&Operation| op.is_ok() && matches!(op.f.as_str(), "write" | "create" | "delete");
    let (mut told, mut slowest_ns) = (0, 0);
    for change in operations.iter().filter(is_change) {
        let Some(zxid) = change.zxid else { continue };
        for (watcher, polls) in &polls {
            match judge(change.time.1, zxid, polls, &calm) {
                Some(Judged::InTime { took_ns }) => {
                    told += 1;
                    slowest_ns = took_ns.max(slowest_ns);
                }
                Some(Judged::Late { due, poll }) => {
                    let after_ms = (poll.time.1 - due) / 1_000_000;
                    let detail = format!("watcher {watcher} asked, and was not told of {zxid} in {after_ms} ms");
                    verdict.found("late-event", detail, &[change, poll]);
                }
                None => {}
            }
        }
    }
    verdict.figure("told-in-time", told);
    verdict.figure("slowest-event-ms", slowest_ns / 1_000_000);
}

enum Judged<'a> {
    /// A poll told the watcher of the change after `took_ns`.
    InTime { took_ns: u64 },
    /// The poll that should have told the watcher of the change ended too late. `due` is the first
    /// time at which the change had been acknowledged and the watcher was polling.
    Late { due: u64, poll: &'a Operation },
}

/// Judges the polls of a watcher against a change that was acknowledged at time `at`. Returns
/// `None` when the watcher already knew of the change, did not poll, or the time was not calm (see
/// [`Calm`]).
fn judge<'a>(at: u64, zxid: u64, polls: &[&'a Operation], calm: &Calm) -> Option<Judged<'a>> {
    let first = polls.partition_point(|poll| poll.time.1 <= at);
    let due = polls.get(first)?.time.0.max(at);
    if !calm.covers(due, due + TOLD_MAX_NS) {
        return None;
    }
    for poll in &polls[first..] {
        let (call, end) = poll.time;
        if poll.argument.get("since").and_then(Value::as_u64).is_none_or(|since| zxid <= since) {
            return None;
        }
        let tells = poll.is_ok() && poll.number("upto").is_some_and(|upto| zxid <= upto);
        // A client may rest between polls. If it sent the poll that tells of the change later than
        // `due`, the time counts from then.
        let took_ns = end - if tells { due.max(call) } else { due };
        if took_ns > TOLD_MAX_NS {
            return Some(Judged::Late { due, poll });
        }
        if tells {
            return Some(Judged::InTime { took_ns: end - due });
        }
    }
    None
}
