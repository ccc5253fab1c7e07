//! Check that a free lock is granted in time and that a wait ends in time. All workloads with locks
//! promise this for times without a fault.
//!
//! After a lost grant, a client waits although it holds the lock, and all clients behind it wait as
//! well. So a waiting client must be granted the lock as soon as no other client can be in its way:
//! each client that may stand before it has released the lock, or is itself waiting without having
//! been told of a grant.

use std::collections::BTreeMap;

use super::calm::Calm;
use super::grouped;
use super::places::{Place, places};
use crate::history::{Entry, Kind, Operation};
use crate::verdict::Verdict;

/// Time within which a free lock must be granted, and within which a node must end a wait whose
/// time limit has passed. Without a fault both take some milliseconds, for a commit, an event and
/// an answer: no session has to expire first, and no leader is elected. Three seconds allow for
/// three elections (0.8 s each), because several clusters may run on one machine.
pub const GRANT_MAX_NS: u64 = 3_000_000_000;

/// Errors after which a client no longer waits, because its ticket or its session is gone.
const OVER: [&str; 5] = ["ticket-gone", "lock-not-held", "no-node", "session-expired", "auth-failed"];

/// Checks that each `acquire` and `await` is granted within [`GRANT_MAX_NS`] once no other client
/// can delay the grant, and that waits end at their time limit. Times near a fault are not judged.
pub(super) fn check(entries: &[Entry], operations: &[Operation], verdict: &mut Verdict) {
    let calm = Calm::new(entries, operations);
    let places = places(operations);
    let by_lock = grouped(places.iter().flat_map(|place| place.parts.iter().map(move |part| (part.lock, place))));
    let (mut granted, mut slowest_ns) = (0, 0);
    for place in &places {
        let others = others(place, &by_lock);
        for request in place.requests.iter().copied().filter(|request| request.f != "enqueue") {
            let Some(judged) = judge(place, request, &others, &calm) else { continue };
            match judged {
                Judged::Lost { due, in_the_way } => found(place, request, due, &in_the_way, verdict),
                Judged::InTime { took_ns } => {
                    granted += 1;
                    slowest_ns = took_ns.max(slowest_ns);
                }
            }
        }
    }
    verdict.figure("granted-in-time", granted);
    verdict.figure("slowest-grant-ms", slowest_ns / 1_000_000);
    check_ends(entries, operations, &calm, verdict);
}

enum Judged<'a> {
    /// The lock had to be granted at `due` and was not granted in time. `in_the_way` has the last
    /// request of each client that may have stood before the judged one in the queue.
    Lost { due: u64, in_the_way: Vec<&'a Operation> },
    /// The lock became free while the client waited, and the client was told of its grant after
    /// `took_ns`.
    InTime { took_ns: u64 },
}

/// Returns the places (stays of other sessions in the queues of the same locks) that may at any
/// time stand before `place`.
fn others<'p, 'a>(place: &Place<'a>, by_lock: &BTreeMap<&'a str, Vec<&'p Place<'a>>>) -> Vec<&'p Place<'a>> {
    let of = place.parts.iter().flat_map(|part| &by_lock[part.lock]).copied();
    let mut others: Vec<&Place<'_>> = of.filter(|other| place.may_wait_for(other)).collect();
    others.sort_by_key(|other| (other.from, other.owner));
    others.dedup_by(|one, other| std::ptr::eq(*one, *other));
    others
}

/// Judges a request whose client waited in a queue, at `place`. Returns `None` if the request
/// cannot be judged: the lock was not free for this client, or the time was not calm (see
/// [`Calm`]).
fn judge<'a>(place: &Place<'a>, request: &'a Operation, others: &[&Place<'a>], calm: &Calm) -> Option<Judged<'a>> {
    let (call, end) = request.time;
    if request.error.as_deref().is_some_and(|error| OVER.contains(&error)) {
        return None;
    }
    // A client that sends an `await` has been in the queue since the answer to its `enqueue`.
    let queued = if request.f == "await" { place.told } else { call };
    let free = free_since(place, others, queued.min(call), end)?;
    let granted = place.held() == Some(end);
    let mut due = free.max(queued);
    if granted {
        due = due.max(call);
    }
    // If the grant was due before the calm time, it counts as due at the beginning of the calm
    // time.
    let late = |due: u64| end > due.saturating_add(GRANT_MAX_NS);
    let due = if calm.covers(due, due) { due } else { due.max(calm.since(end).unwrap_or(u64::MAX)) };
    if late(due) && calm.covers(due, due + GRANT_MAX_NS) {
        let there = others.iter().filter(|other| other.from < end && due < other.gone);
        let in_the_way = there.filter_map(|other| other.requests.last().copied()).collect();
        return Some(Judged::Lost { due, in_the_way });
    }
    let became_free = granted && free > call && due <= end && !late(due) && calm.covers(due, end);
    became_free.then(|| Judged::InTime { took_ns: end - due })
}

/// Returns the earliest time in `from..end` from which on, until `end`, none of the `others` in the
/// queue could keep `place` from its grant. Returns `None` if one of them still could just before
/// `end`.
fn free_since(place: &Place<'_>, others: &[&Place<'_>], from: u64, end: u64) -> Option<u64> {
    let there: Vec<&Place<'_>> = others.iter().copied().filter(|other| other.from < end && other.gone > from).collect();
    let mut moments: Vec<u64> = there.iter().flat_map(|other| other.moments()).collect();
    moments.retain(|at| from < *at && *at < end);
    moments.push(from);
    moments.sort_unstable();
    moments.dedup();
    let mut free = None;
    for at in moments.into_iter().rev() {
        if place.is_blocked(&there, at) {
            return free;
        }
        free = Some(at);
    }
    free
}

fn found(place: &Place<'_>, request: &Operation, due: u64, others: &[&Operation], verdict: &mut Verdict) {
    let (lock, owner) = (place.parts[0].lock, place.owner);
    let (due_ms, after_ms) = (due / 1_000_000, (request.time.1 - due) / 1_000_000);
    let told = if place.held() == Some(request.time.1) { "was told only" } else { "was not told" };
    let detail = format!("{lock}: session {owner} could have it from {due_ms} ms on, and {told} {after_ms} ms later");
    let mut part = others.to_vec();
    part.extend(place.requests.iter().filter(|before| before.call <= request.call).rev().take(2));
    verdict.found("lost-grant", detail, &part);
}

/// Checks that a node answers a waiting request when the time `wait_ms` is over. Otherwise the
/// client gives up later, and the operation ends with `timed-out`. The node is to blame only if it
/// answered other requests meanwhile.
fn check_ends(entries: &[Entry], operations: &[Operation], calm: &Calm, verdict: &mut Verdict) {
    let ends = entries.iter().filter(|entry| entry.kind != Kind::Invoke).map(|entry| (entry.time, entry));
    let ends: BTreeMap<u64, &Entry> = ends.collect();
    let (mut waits, mut ended) = (0, 0);
    for operation in operations {
        let Some(wait_ms) = operation.number("wait_ms") else { continue };
        waits += 1;
        let (over, end) = (operation.time.0 + wait_ms * 1_000_000, operation.time.1);
        let node = ends.get(&end).and_then(|entry| entry.node);
        if operation.error.as_deref() != Some("timed-out") {
            ended += u64::from(node.is_some() && calm.covers(operation.time.0, end));
        } else if let Some(node) = node.filter(|node| calm.covers(over, end) && calm.answers(*node, over, end)) {
            let detail = format!("node {node} had not ended a wait of {wait_ms} ms when the client gave up");
            verdict.found("endless-wait", detail, &[operation]);
        }
    }
    if waits > 0 {
        verdict.figure("waits-ended", ended);
    }
}

/// Reports each lock that could not be acquired once more at the end of the run, by the operation
/// `again`. Makes a valid verdict unknown when the history has no such operation.
pub(super) fn check_again(operations: &[Operation], verdict: &mut Verdict) {
    let asked: Vec<&Operation> = operations.iter().filter(|operation| operation.f == "again").collect();
    for operation in asked.iter().filter(|operation| !operation.is_ok()) {
        let lock = operation.text("lock").unwrap_or("a multi-lock");
        let why = operation.error.as_deref().unwrap_or_default();
        verdict.found(
            "not-granted-again",
            format!("{lock}: no client acquires it in the calm at the end: {why}"),
            &[operation],
        );
    }
    verdict.figure("granted-again", asked.iter().filter(|operation| operation.is_ok()).count());
    if asked.is_empty() {
        verdict.doubt("no lock was asked for in the calm at the end");
    }
}
