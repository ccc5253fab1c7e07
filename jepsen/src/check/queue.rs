//! `queue`: the first to come is granted first, and alone.

use std::collections::BTreeMap;

use super::tenure::{self, Ends};
use crate::history::Operation;
use crate::verdict::Verdict;

/// One place in the queue of a lock.
#[derive(Clone, Copy)]
struct Place<'a> {
    enqueue: &'a Operation,
    /// The answer with the lock.
    grant: Option<&'a Operation>,
    /// The lock node's czxid, told with the grant.
    token: Option<u64>,
    together: Together,
    /// A later one has to wait for it.
    strict: bool,
    /// From this index on it may have left the queue.
    until: u64,
    end: Option<&'a Operation>,
}

/// Who may hold beside a place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Together {
    Alone,
    Readers,
    Leases,
}

impl Together {
    fn of(enqueue: &Operation) -> Together {
        match enqueue.text("mode") {
            Some("read") => Together::Readers,
            _ if enqueue.number("permits").is_some() => Together::Leases,
            _ => Together::Alone,
        }
    }
}

/// Judges `enqueue` (answers a ticket, with a token when it holds at once), `await` (answers the
/// token) and `release`.
///
/// The order in the queue is that of the tokens, the czxids of the lock nodes; for one who never
/// got a token it is the order in real time. Nobody may be granted while one before it is in the
/// queue for sure.
pub(super) fn check(operations: &[Operation]) -> Verdict {
    let mut verdict = Verdict::default();
    let tenures = tenure::tenures(operations);
    tenure::check_exclusion(&tenures, &mut verdict);
    tenure::check_tokens(&tenures, &mut verdict);
    tenure::check_kept(operations, &mut verdict);
    verdict.figure("grants", tenures.len());
    let locks = places(operations);
    verdict.figure("enqueued", locks.values().map(Vec::len).sum::<usize>());
    for (lock, mut places) in locks {
        places.sort_by_key(|place| place.token.unwrap_or(u64::MAX));
        overtaken(lock, places.iter().filter(|place| place.token.is_some()), &mut verdict);
        overtaken_later(lock, &places, &mut verdict);
    }
    verdict
}

/// Finds those who asked after another had been told its place, and were granted before it was gone
/// from the queue.
///
/// A place with the policy `backfill` may be passed; readers hold beside readers, leases beside
/// leases.
pub(super) fn check_places(operations: &[Operation], verdict: &mut Verdict) {
    for (lock, places) in places(operations) {
        overtaken_later(lock, &places, verdict);
    }
}

fn overtaken_later(lock: &str, places: &[Place<'_>], verdict: &mut Verdict) {
    let mut order: Vec<(u64, bool, &Place<'_>)> = Vec::new();
    for place in places {
        order.push((place.enqueue.call, false, place));
        if place.strict {
            order.push((place.enqueue.complete, true, place));
        }
    }
    order.sort_by_key(|(at, ..)| *at);
    // Those that stay longest in the queue, of each kind.
    let mut longest: [Option<&Place<'_>>; 3] = [None; 3];
    for (_, is_told, place) in order {
        let slot = &mut longest[place.together as usize];
        if is_told {
            *slot = [*slot, Some(place)].into_iter().flatten().max_by_key(|place| place.until);
            continue;
        }
        let fits = |before: &Place<'_>| before.together == place.together && place.together != Together::Alone;
        let before = longest.iter().flatten().filter(|before| !fits(before));
        before.for_each(|before| overtakes(lock, before, place, verdict));
    }
}

/// Nobody is granted while one that came before is in the queue.
fn overtaken<'p, 'a: 'p>(lock: &str, places: impl Iterator<Item = &'p Place<'a>>, verdict: &mut Verdict) {
    let mut longest: Option<&Place<'_>> = None;
    for place in places {
        if let Some(before) = longest {
            overtakes(lock, before, place, verdict);
        }
        longest = [longest, Some(place)].into_iter().flatten().max_by_key(|place| place.until);
    }
}

fn overtakes(lock: &str, before: &Place<'_>, place: &Place<'_>, verdict: &mut Verdict) {
    let Some(grant) = place.grant else { return };
    if before.until > grant.complete {
        let owners = (place.enqueue.number("owner").unwrap_or(0), before.enqueue.number("owner").unwrap_or(0));
        let detail =
            format!("{lock}: session {} was granted while {}, who came before, was in the queue", owners.0, owners.1);
        let part = [Some(before.enqueue), before.grant, before.end, Some(place.enqueue), Some(grant)];
        verdict.found("overtaken", detail, &part.into_iter().flatten().collect::<Vec<_>>());
    }
}

fn places(operations: &[Operation]) -> BTreeMap<&str, Vec<Place<'_>>> {
    let ends = Ends::new(operations);
    let mut locks: BTreeMap<&str, Vec<Place<'_>>> = BTreeMap::new();
    let mut open: BTreeMap<(u64, &str), usize> = BTreeMap::new();
    for operation in operations.iter().filter(|operation| operation.is_ok()) {
        let (Some(owner), Some(lock)) = (operation.number("owner"), operation.text("lock")) else { continue };
        let places = locks.entry(lock).or_default();
        let token = operation.number("token");
        match operation.f.as_str() {
            "enqueue" => {
                let end = ends.first_after(owner, lock, operation.text("mode"), operation.call);
                let until = ends.until(owner, operation, end);
                open.insert((owner, lock), places.len());
                let strict = operation.text("policy") != Some("backfill");
                places.push(Place {
                    enqueue: operation,
                    grant: token.and(Some(operation)),
                    token,
                    together: Together::of(operation),
                    strict,
                    until,
                    end,
                });
            }
            "await" if token.is_some() => {
                if let Some(place) = open.get(&(owner, lock)).and_then(|i| places.get_mut(*i))
                    && place.grant.is_none()
                {
                    place.grant = Some(operation);
                    place.token = token;
                }
            }
            _ => {}
        }
    }
    locks
}
