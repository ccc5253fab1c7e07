//! Checks of locks with queues: a lock is granted in the order of its queue, and to one holder at a
//! time, except readers together and permits together.

use std::collections::BTreeMap;

use super::ends::{self, Ends};
use super::holds::{self, Clock, Hold};
use super::places::{Place, places};
use super::{fenced, grouped, in_time, waits};
use crate::history::Operation;
use crate::verdict::Verdict;

/// Judges the workload `queue`: `enqueue` (answered with a ticket, and with a token if the lock is
/// granted at once), `await` (answered with the token) and `release`.
pub(super) fn check(operations: &[Operation]) -> Verdict {
    let mut verdict = Verdict::default();
    let holds = check_lasting(operations, &mut verdict);
    holds::check_own_tokens(&holds, &mut verdict);
    verdict.figure("grants", holds.len());
    check_places(operations, true, &mut verdict);
    verdict
}

/// Judges locks that are never taken away from a holder with a living session. Returns the holds.
pub(super) fn check_lasting<'a>(operations: &'a [Operation], verdict: &mut Verdict) -> Vec<Hold<'a>> {
    let holds = holds::lasting(operations);
    holds::check_room("two-holders", &holds, Clock::History, verdict);
    ends::check_kept(operations, verdict);
    holds
}

/// Judges exclusive locks, granted in the order of their queues, and the znodes that they guard.
/// The parameter `grants` is the name of the figure that counts the grants. Returns the holds that
/// the log proves.
///
/// A holder may lose its lock at any time (its session expires, or the lock is revoked). So only
/// proven holds count, and a hold does not last until its release.
pub(super) fn check_guarded<'a>(operations: &'a [Operation], grants: &str, verdict: &mut Verdict) -> Vec<Hold<'a>> {
    let lasting = holds::lasting(operations);
    holds::check_own_tokens(&lasting, verdict);
    verdict.figure(grants, lasting.len());
    let holds = holds::check_proven(operations, verdict);
    waits::check_order(&waits::waits(operations), &holds, verdict);
    fenced::check_updates(operations, verdict);
    in_time::check_again(operations, verdict);
    holds
}

/// Reports each grant to a place (stay of a session in a queue) while an earlier place was still in
/// the queue. A place is earlier if its client was told of it before the other place was requested.
/// With `by_token`, a place with a smaller token is earlier, too, because tokens are the czxids of
/// the tickets.
///
/// A place with the policy `backfill` may be overtaken. A grant beside a holder is no overtaking
/// when both read or both use permits.
pub(super) fn check_places(operations: &[Operation], by_token: bool, verdict: &mut Verdict) {
    let ends = Ends::new(operations);
    let all = places(operations);
    let asked = |place: &&Place<'_>| place.requests[0].f == "enqueue" && place.requests[0].is_ok();
    let locks = grouped(all.iter().filter(asked).map(|place| {
        let (lock, enqueue) = (place.parts[0].lock, place.requests[0]);
        let end = ends.first_after(place.owner, lock, enqueue.text("mode"), enqueue.call);
        // The number in the pair is the history index from which on the place may have left the
        // queue.
        (lock, (place, ends.until(place.owner, enqueue, end)))
    }));
    verdict.figure("enqueued", locks.values().map(Vec::len).sum::<usize>());
    for (lock, places) in locks {
        for (place, _) in &places {
            let Some(grant) = place.grant else { continue };
            let passed = |(before, until): &&(&Place<'_>, u64)| {
                let first = before.is_before(place)
                    || by_token && before.token().is_some_and(|token| Some(token) < place.token());
                first && *until > grant.complete && before.owner != place.owner && !before.fits_beside(place)
            };
            if let Some((before, _)) = places.iter().find(passed) {
                let owners = (place.owner, before.owner);
                let detail = format!(
                    "{lock}: session {} was granted while {}, who came before, was in the queue",
                    owners.0, owners.1
                );
                let part = [Some(before.requests[0]), before.grant, Some(place.requests[0]), Some(grant)];
                verdict.found("overtaken", detail, &part.into_iter().flatten().collect::<Vec<_>>());
            }
        }
    }
}

/// Judges `enqueue` and `await` for `permits` of `limit` (answered with a token when granted),
/// `release`, `look`, and `acquire`, which asks for another limit than the semaphore has. Permits
/// must stay within the limit and be granted in the order of the queue.
pub(super) fn check_semaphore(operations: &[Operation]) -> Verdict {
    let mut verdict = Verdict::default();
    let lasting = check_lasting(operations, &mut verdict);
    holds::check_own_tokens(&lasting, &mut verdict);
    verdict.figure("grants", lasting.len());
    let holds = holds::check_proven(operations, &mut verdict);
    let waits = waits::waits(operations);
    verdict.figure("waits", waits.len());
    waits::check_order(&waits, &holds, &mut verdict);
    waits::check_looks(operations, &holds, &waits, &mut verdict);
    check_limits(operations, &mut verdict);
    in_time::check_again(operations, &mut verdict);
    verdict
}

/// Checks that a semaphore keeps the limit of its first acquire: a request with another limit is
/// refused, and a request with that limit is not refused.
fn check_limits(operations: &[Operation], verdict: &mut Verdict) {
    let asks = |operation: &&Operation| matches!(operation.f.as_str(), "acquire" | "enqueue" | "again");
    let mut taken: BTreeMap<&str, (u64, &Operation)> = BTreeMap::new();
    for operation in operations.iter().filter(asks).filter(|operation| operation.is_ok()) {
        let (Some(lock), Some(limit)) = (operation.text("lock"), operation.number("limit")) else { continue };
        let (first, by) = taken.entry(lock).or_insert((limit, operation));
        if *first != limit {
            let detail = format!("{lock}: it has a limit of {first}, and of {limit}");
            verdict.found("two-limits", detail, &[by, operation]);
        }
    }
    let mut refused = 0;
    let is_refused = |operation: &&Operation| operation.error.as_deref() == Some("permits-max-differs");
    for operation in operations.iter().filter(asks).filter(is_refused) {
        refused += 1;
        let (Some(lock), Some(limit)) = (operation.text("lock"), operation.number("limit")) else { continue };
        if let Some((_, by)) = taken.get(lock).filter(|(taken, _)| *taken == limit) {
            let detail = format!("{lock}: its own limit of {limit} was refused");
            verdict.found("limit-forgotten", detail, &[by, operation]);
        }
    }
    verdict.figure("other-limits-refused", refused);
}
