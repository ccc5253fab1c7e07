//! Locks with queues: granted in the order of the queue, and to one holder, except where holders
//! may hold together.

use std::collections::BTreeMap;

use super::ends::{self, Ends};
use super::holds::{self, Clock, Hold};
use super::places::{Place, places};
use super::{again, fenced, waits};
use crate::history::Operation;
use crate::verdict::Verdict;

/// Judges `queue`: `enqueue` (answers a ticket, with a token when it holds at once), `await`
/// (answers the token) and `release`.
pub(super) fn check(operations: &[Operation]) -> Verdict {
    let mut verdict = Verdict::default();
    let holds = check_lasting(operations, &mut verdict);
    holds::check_own_tokens(&holds, &mut verdict);
    verdict.figure("grants", holds.len());
    check_places(operations, true, &mut verdict);
    verdict
}

/// Judges locks whose holders lose nothing while their sessions live.
pub(super) fn check_lasting<'a>(operations: &'a [Operation], verdict: &mut Verdict) -> Vec<Hold<'a>> {
    let holds = holds::lasting(operations);
    holds::check_room("two-holders", &holds, Clock::History, verdict);
    ends::check_kept(operations, verdict);
    holds
}

/// Judges a lock that is held alone and granted in the order of its queue, and the znode that it
/// guards. Counts the grants as the figure `grants`. Returns the holds that the log proves.
///
/// A holder may lose the lock at any time, so only proven holds count, and not the time of a
/// release.
pub(super) fn check_guarded<'a>(operations: &'a [Operation], grants: &str, verdict: &mut Verdict) -> Vec<Hold<'a>> {
    let lasting = holds::lasting(operations);
    holds::check_own_tokens(&lasting, verdict);
    verdict.figure(grants, lasting.len());
    let holds = holds::check_proven(operations, verdict);
    waits::check_order(&waits::waits(operations), &holds, verdict);
    fenced::check_updates(operations, verdict);
    again::check(operations, verdict);
    holds
}

/// Finds clients that asked after another client had been told its place, and were granted before
/// that place was gone from the queue. With `by_token` the order of the tokens counts as well,
/// which are the czxids of the lock nodes.
///
/// A place with the policy `backfill` may be overtaken. Readers hold beside readers, and permits
/// beside permits.
pub(super) fn check_places(operations: &[Operation], by_token: bool, verdict: &mut Verdict) {
    let ends = Ends::new(operations);
    let all = places(operations);
    let mut locks: BTreeMap<&str, Vec<(&Place<'_>, u64)>> = BTreeMap::new();
    let asked = |place: &&Place<'_>| place.requests[0].f == "enqueue" && place.requests[0].is_ok();
    for place in all.iter().filter(asked) {
        let (lock, enqueue) = (place.parts[0].lock, place.requests[0]);
        let end = ends.first_after(place.owner, lock, enqueue.text("mode"), enqueue.call);
        // The number is the index from which on the place may have left the queue.
        locks.entry(lock).or_default().push((place, ends.until(place.owner, enqueue, end)));
    }
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
