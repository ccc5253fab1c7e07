//! Checker of the workload `revoke`: a revoked lock is lost, its token is refused, its holder is
//! told, and the next waiter gets the lock.

use std::collections::BTreeMap;

use serde_json::Value;

use super::calm::{WORKS_NS, Writes};
use super::ends::Ends;
use super::holds::Hold;
use super::queue;
use crate::history::Operation;
use crate::verdict::Verdict;

/// Nanoseconds after its deadline within which a revocation must take effect.
const SLACK_NS: u64 = 2_000_000_000;

/// Judges these operations:
///
/// * of holders: `enqueue`, `await`, `append` under the token, `release`, and `listen`, answered
///   with `asked` (whether a client has revoked the lock) and the deadline `due_ms`
/// * of other clients: `revoke` with or without `deadline_ms`, answered with the holders' `tickets`
/// * `past`, which reads in the lock's history how a lost ticket ended
pub(super) fn check(operations: &[Operation]) -> Verdict {
    let mut verdict = Verdict::default();
    let holds = queue::check_guarded(operations, "grants", &mut verdict);
    check_dead_tokens(operations, &mut verdict);
    let revokes: Vec<&Operation> = operations.iter().filter(|operation| operation.f == "revoke").collect();
    verdict.figure("revocations", revokes.iter().filter(|revoke| revoke.is_ok()).count());
    check_asked(operations, &revokes, &holds, &mut verdict);
    check_pasts(operations, &revokes, &mut verdict);
    check_ends(operations, &mut verdict);
    check_late(operations, &revokes, &mut verdict);
    verdict
}

/// Checks that no operation with a token succeeds after its holder was told that the lock is lost,
/// or at a later zxid than the end of the hold.
fn check_dead_tokens(operations: &[Operation], verdict: &mut Verdict) {
    let key = |operation: &Operation, name| Some((operation.text("lock")?.to_owned(), operation.number(name)?));
    let told = |operation: &&Operation| {
        operation.error.as_deref().is_some_and(|error| matches!(error, "lock-not-held" | "ticket-gone"))
    };
    let mut learned = 0;
    for loss in operations.iter().filter(|op| matches!(op.f.as_str(), "append" | "listen")).filter(told) {
        learned += 1;
        let later = |op: &&Operation| op.is_ok() && op.call > loss.complete && op.f != "past";
        let alive = |op: &&Operation| key(op, "token").is_some() && key(op, "token") == key(loss, "token");
        if let Some(late) = operations.iter().filter(later).find(alive) {
            verdict.found("dead-token-accepted", told_of(loss, "was lost, and then used"), &[loss, late]);
        }
    }
    verdict.figure("losses-learned", learned);
    for past in operations.iter().filter(|op| op.f == "past" && op.is_ok()) {
        let Some(ended) = past.number("ended_zxid") else { continue };
        let late = |op: &&Operation| op.is_ok() && op.zxid.is_some_and(|zxid| zxid > ended);
        let alive = |op: &&Operation| key(op, "token").is_some() && key(op, "token") == key(past, "dead_token");
        if let Some(late) = operations.iter().filter(late).find(alive) {
            let detail = told_of(past, &format!("ended at zxid {ended}, and was used after that"));
            verdict.found("dead-token-accepted", detail, &[past, late]);
        }
    }
}

fn told_of(operation: &Operation, what: &str) -> String {
    format!("{}: a token {what}", operation.text("lock").unwrap_or_default())
}

fn names(revoke: &Operation, ticket: &str) -> bool {
    let tickets = revoke.result.get("tickets").and_then(Value::as_array);
    tickets.into_iter().flatten().any(|name| name.as_str() == Some(ticket))
}

/// Checks that a revoke names the holder's ticket, and that each `listen` of this holder tells of
/// the revoke if its answer is at the revoke's zxid or later.
fn check_asked(operations: &[Operation], revokes: &[&Operation], holds: &[Hold<'_>], verdict: &mut Verdict) {
    for revoke in revokes.iter().filter(|revoke| revoke.is_ok()) {
        let (Some(lock), Some(at)) = (revoke.text("lock"), revoke.zxid) else { continue };
        // A holder that the revoke itself removes holds only until just before its zxid.
        let held = |hold: &&Hold<'_>| hold.lock == lock && hold.begin < at && at <= hold.until;
        for hold in holds.iter().filter(held) {
            let ticket = hold.shown.iter().find_map(|operation| operation.text("ticket"));
            if ticket.is_some_and(|ticket| !names(revoke, ticket)) {
                let detail = format!("{lock}: session {} held it and was not asked", hold.owner);
                verdict.found("not-asked", detail, &[&hold.shown[..], &[revoke]].concat());
            }
        }
        let hears = |op: &&Operation| op.f == "listen" && op.is_ok() && op.zxid.is_some_and(|zxid| zxid >= at);
        let is_asked = |op: &&Operation| op.text("ticket").is_some_and(|ticket| names(revoke, ticket));
        let deaf = |op: &&Operation| op.field("asked") != Some(&Value::Bool(true));
        if let Some(listens) = operations.iter().filter(hears).filter(is_asked).find(deaf) {
            verdict.found("not-told", format!("{lock}: a holder was asked and did not hear of it"), &[revoke, listens]);
        }
    }
}

/// Checks each ticket that ended without a revoke: its holder released it, or its session ended.
fn check_ends(operations: &[Operation], verdict: &mut Verdict) {
    let ends = Ends::new(operations);
    // The session of each ticket, and the index of the operation that asked for the ticket.
    let mut owners: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for operation in operations {
        if let (Some(ticket), Some(owner)) = (operation.text("ticket"), operation.number("owner")) {
            owners.entry(ticket).or_insert((owner, operation.call));
        }
    }
    for past in operations.iter().filter(|operation| operation.f == "past" && operation.is_ok()) {
        let (Some(lock), Some(ticket), Some(end)) = (past.text("lock"), past.text("ticket"), past.text("end")) else {
            continue;
        };
        let Some((owner, since)) = owners.get(ticket).filter(|_| end != "revoked") else { continue };
        if !ends.lost.contains_key(owner) && !ends.between(*owner, lock, *since, past.complete) {
            let detail = format!("is remembered as {end}, and session {owner} lives and had not given it back");
            verdict.found("lost-ticket", told_of(past, &detail), &[past]);
        }
    }
}

/// Checks that a ticket was revoked only after a client asked with a deadline, and not before the
/// deadline.
fn check_pasts(operations: &[Operation], revokes: &[&Operation], verdict: &mut Verdict) {
    let mut taken = 0;
    let is_taken = |op: &&Operation| op.f == "past" && op.is_ok() && op.text("end") == Some("revoked");
    for past in operations.iter().filter(is_taken) {
        let (lock, Some(ticket)) = (past.text("lock"), past.text("ticket")) else { continue };
        taken += 1;
        let with_deadline = |op: &&&Operation| {
            let of_it = !op.is_ok() || names(op, ticket);
            op.is_possible()
                && of_it
                && op.text("lock") == lock
                && op.number("deadline_ms").is_some()
                && op.call < past.complete
        };
        let asked: Vec<&Operation> = revokes.iter().filter(with_deadline).copied().collect();
        if asked.is_empty() {
            verdict.found(
                "taken-unasked",
                told_of(past, "was taken away, and no client had asked for it with a deadline"),
                &[past],
            );
        }
        // The deadline that the holder was told is used, unless another client may have set an
        // earlier deadline afterwards.
        let listened = |op: &&Operation| op.f == "listen" && op.is_ok() && op.text("ticket") == Some(ticket);
        let due = |op: &&Operation| {
            let since = |asked: &&Operation| !(asked.is_ok() && asked.zxid <= op.zxid);
            op.number("due_ms").is_some() && !asked.iter().copied().any(|asked| since(&asked))
        };
        let ended_ms = past.number("ended_ms").unwrap_or(u64::MAX);
        let early = |op: &&Operation| op.number("due_ms").is_some_and(|due_ms| ended_ms < due_ms);
        if let Some(listens) = operations.iter().filter(listened).filter(due).find(early) {
            verdict.found("taken-early", told_of(past, "was taken away before it was due"), &[listens, past]);
        }
    }
    verdict.figure("taken-away", taken);
}

/// Checks that a deadline takes effect in time: a token is refused from [`SLACK_NS`] after it.
///
/// The leader counts deadlines from the latest time in the log, at the rate of its monotonic clock,
/// so a wall clock that jumps can make deadlines act sooner, but never later. Without a leader no
/// ticket is revoked. So a deadline is judged only if a write was acknowledged in each half second
/// of the tolerance after it.
fn check_late(operations: &[Operation], revokes: &[&Operation], verdict: &mut Verdict) {
    let writes = Writes::new(operations, &["append", "enqueue", "release", "revoke"]);
    let mut judged = 0;
    for revoke in revokes.iter().filter(|revoke| revoke.is_ok()) {
        let Some(deadline_ms) = revoke.number("deadline_ms") else { continue };
        // The deadline was set before the revoke was answered.
        let due = revoke.time.1.saturating_add(deadline_ms.saturating_mul(1_000_000));
        if !(0..SLACK_NS / WORKS_NS).all(|step| writes.fall_into(due + step * WORKS_NS)) {
            continue;
        }
        judged += 1;
        let late = |op: &&Operation| op.f == "append" && op.is_ok() && op.time.0 > due + SLACK_NS;
        let of_it = |op: &&Operation| op.text("ticket").is_some_and(|ticket| names(revoke, ticket));
        if let Some(late) = operations.iter().filter(late).find(of_it) {
            let by_ms = (late.time.0 - due) / 1_000_000;
            verdict.found(
                "taken-late",
                told_of(late, &format!("was good {by_ms} ms after its deadline")),
                &[revoke, late],
            );
        }
    }
    verdict.figure("deadlines-judged", judged);
}
