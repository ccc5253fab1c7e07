//! Places in the queues of locks. A place is the stay of one session in a queue: the times at which
//! the session may be in the queue, and at which its client asks for the lock.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::history::{Kind, Operation};

/// Errors that say that the session has ended, so that it has no place in any queue.
const SESSION_OVER: [&str; 2] = ["session-expired", "auth-failed"];
/// Errors that say that a ticket (a node in the queue) is gone. The session may still live.
const TICKET_OVER: [&str; 3] = ["ticket-gone", "lock-not-held", "no-node"];

/// One lock that a place (the stay of a session in a queue) is for. The place of a multi-lock has
/// several parts, one for each lock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Part<'a> {
    pub(super) lock: &'a str,
    /// Whether the lock may be held together with other readers.
    shared: bool,
    /// Permits that the place asks for, and all permits of the semaphore; `None` for other locks.
    permits: Option<(u64, u64)>,
}

/// A place that a session has, or may have, in the queue of a lock or of several locks: it waits
/// and, after the grant, holds. Times are nanoseconds since the run began.
#[derive(Debug)]
pub(super) struct Place<'a> {
    pub(super) owner: u64,
    pub(super) parts: Vec<Part<'a>>,
    mode: Option<&'a str>,
    /// Time of the request by which the session asked for its place in the queue.
    pub(super) from: u64,
    /// Time of the answer that said that the place is in the queue; places requested later stand
    /// behind it. `u64::MAX` without such an answer.
    pub(super) told: u64,
    /// Time from which on the session is certainly out of the queue; `u64::MAX` if no answer shows
    /// that.
    pub(super) gone: u64,
    /// Whether the place may overtake places that were requested earlier, as an upgrade or a
    /// downgrade may.
    passes: bool,
    /// Whether places that were requested later may overtake this place, as with the policy
    /// `backfill`.
    may_be_passed: bool,
    /// Requests that waited for the grant of this place, or may have. While such a request is under
    /// way, the client does not know whether it holds the lock.
    pub(super) requests: Vec<&'a Operation>,
    /// Time of the last answer that said that the place still waits; 0 without one. The place was
    /// not granted before that time, because a granted place would have stayed granted.
    waits_until: u64,
    /// First operation that was answered with the granted lock.
    pub(super) grant: Option<&'a Operation>,
}

impl<'a> Place<'a> {
    /// Returns the time of the answer that told the client of its grant; `None` without a grant.
    pub(super) fn held(&self) -> Option<u64> {
        self.grant.map(|grant| grant.time.1)
    }

    /// Returns the fencing token in the answer that granted the lock; `None` without a grant and
    /// for several locks.
    pub(super) fn token(&self) -> Option<u64> {
        self.grant?.result.get("token")?.as_u64()
    }

    /// Tells whether this place certainly stands before the other place: the client was told of
    /// this place before the other place was requested, and the other place may not overtake it.
    pub(super) fn is_before(&self, other: &Place<'_>) -> bool {
        self.told < other.from && !other.passes && !self.may_be_passed
    }

    /// Tells whether the other place may at some time stand before this one.
    pub(super) fn may_wait_for(&self, other: &Place<'_>) -> bool {
        other.owner != self.owner && !self.is_before(other) && other.gone > self.from
    }

    /// Returns the times at which [`Place::is_blocked`] may change because of this place.
    pub(super) fn moments(&self) -> impl Iterator<Item = u64> {
        let asks = self.requests.iter().flat_map(|request| [request.time.0, request.time.1]);
        asks.chain([self.from, self.waits_until, self.gone])
    }

    fn is_there(&self, at: u64) -> bool {
        self.from <= at && at < self.gone
    }

    /// Tells whether the place certainly waits at this time, or its client waits for an answer that
    /// may grant the lock.
    fn asks(&self, at: u64) -> bool {
        if at < self.waits_until {
            return true;
        }
        let after = self.requests.partition_point(|request| request.time.0 <= at);
        after.checked_sub(1).is_some_and(|last| at < self.requests[last].time.1)
    }

    /// Tells whether other places may keep this place from its grant, from the time `at` until the
    /// next of [`Place::moments`].
    pub(super) fn is_blocked(&self, others: &[&Place<'_>], at: u64) -> bool {
        let there = || others.iter().filter(|other| other.is_there(at));
        if there().all(|other| self.fits_beside(other)) && self.has_room(others, at) {
            return false;
        }
        // Places for several locks may block each other in ways that are not modelled here, so
        // such a place counts as in the way.
        let several = self.parts.len() > 1 || there().any(|other| other.parts.len() > 1);
        several || there().any(|other| !other.asks(at))
    }

    /// Tells whether both places may hold at the same time: on each common lock both read, or both
    /// use permits. The number of permits is not checked.
    pub(super) fn fits_beside(&self, other: &Place<'_>) -> bool {
        let pairs = self.parts.iter().flat_map(|own| other.parts.iter().map(move |part| (own, part)));
        let mut meeting = pairs.filter(|(own, part)| own.lock == part.lock);
        meeting.all(|(own, part)| own.shared && part.shared || own.permits.is_some() && part.permits.is_some())
    }

    /// Tells whether the permits of the semaphore suffice for this place and for all other places
    /// that are in the queue at this time, holding or waiting.
    fn has_room(&self, others: &[&Place<'_>], at: u64) -> bool {
        self.parts.iter().all(|own| {
            let Some((permits, limit)) = own.permits else { return true };
            let there = others.iter().filter(|other| other.is_there(at)).flat_map(|other| &other.parts);
            let taken: u64 = there.filter(|part| part.lock == own.lock).filter_map(|part| Some(part.permits?.0)).sum();
            taken + permits <= limit
        })
    }
}

fn part(value: &Value) -> Option<Part<'_>> {
    let number = |name: &str| value[name].as_u64();
    let shared = value["mode"] == "read";
    Some(Part { lock: value["lock"].as_str()?, shared, permits: number("permits").zip(number("limit")) })
}

/// Returns the locks that an operation names.
fn parts(operation: &Operation) -> Vec<Part<'_>> {
    match operation.argument.get("locks").and_then(Value::as_array) {
        Some(locks) => locks.iter().filter_map(part).collect(),
        None => part(&operation.argument).into_iter().collect(),
    }
}

fn is_granted(operation: &Operation) -> bool {
    let several = || operation.result.get("locks").and_then(|locks| locks.get(0)?.get("token")?.as_u64());
    operation.is_ok() && operation.result.get("token").and_then(Value::as_u64).or_else(several).is_some()
}

/// Finds the places in a history. `acquire`, `enqueue`, `upgrade` and `downgrade` ask for a place,
/// `await` waits for an existing place, and `release` and `close` give places back.
pub(super) fn places(operations: &[Operation]) -> Vec<Place<'_>> {
    let mut places = Vec::new();
    let mut open: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for operation in operations {
        let Some(owner) = operation.number("owner") else { continue };
        let open = open.entry(owner).or_default();
        match operation.f.as_str() {
            "acquire" | "enqueue" | "upgrade" | "downgrade" => take(operation, owner, open, &mut places),
            "await" => ask_again(operation, open, &mut places),
            _ => {}
        }
        open.retain(|i| {
            let ends = ends(operation, &places[*i]);
            if ends {
                places[*i].gone = operation.time.1;
            }
            !ends
        });
    }
    displace(&mut places);
    places
}

/// Ends the place of each holder at the grant of a later holder that cannot hold together with it.
/// The later grant proves that the earlier holder is gone. Otherwise a holder with an expired
/// session would count as present until its client is told of the expiry, perhaps never.
fn displace(places: &mut [Place<'_>]) {
    let mut by_lock: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (i, place) in places.iter().enumerate() {
        if let ([part], Some(_), Some(_)) = (&place.parts[..], place.grant, place.token())
            && part.permits.is_none()
        {
            by_lock.entry(part.lock).or_default().push(i);
        }
    }
    for holders in by_lock.values() {
        for holder in holders {
            let place = &places[*holder];
            let follows = |next: &&Place<'_>| {
                next.owner != place.owner
                    && next.token() > place.token()
                    && next.held() > place.held()
                    && !place.fits_beside(next)
            };
            let next = holders.iter().map(|next| &places[*next]).filter(follows).filter_map(Place::held).min();
            places[*holder].gone = next.map_or(place.gone, |next| place.gone.min(next));
        }
    }
}

fn take<'a>(operation: &'a Operation, owner: u64, open: &mut Vec<usize>, places: &mut Vec<Place<'a>>) {
    let (parts, mode) = (parts(operation), operation.argument.get("mode").and_then(Value::as_str));
    let again = |i: &usize| places[*i].parts == parts && places[*i].mode == mode;
    // If the session already has this place, the operation only adds another hold.
    if parts.is_empty() || open.iter().any(again) {
        return;
    }
    let kept = operation.f != "acquire" && operation.is_ok();
    let failed = operation.outcome == Kind::Fail;
    if !failed {
        open.push(places.len());
    }
    places.push(Place {
        owner,
        parts,
        mode,
        from: operation.time.0,
        told: if kept { operation.time.1 } else { u64::MAX },
        gone: if failed { operation.time.1 } else { u64::MAX },
        passes: matches!(operation.f.as_str(), "upgrade" | "downgrade"),
        may_be_passed: operation.argument["policy"] == "backfill",
        requests: vec![operation],
        waits_until: if kept && !is_granted(operation) { operation.time.1 } else { 0 },
        grant: is_granted(operation).then_some(operation),
    });
}

fn ask_again<'a>(operation: &'a Operation, open: &[usize], places: &mut [Place<'a>]) {
    let (parts, mode) = (parts(operation), operation.argument.get("mode").and_then(Value::as_str));
    for i in open {
        let place = &mut places[*i];
        if place.mode == mode && place.parts.iter().map(|part| part.lock).eq(parts.iter().map(|part| part.lock)) {
            place.requests.push(operation);
            if is_granted(operation) {
                place.grant.get_or_insert(operation);
            } else if operation.is_ok() {
                place.waits_until = operation.time.1;
            }
        }
    }
}

/// Tells whether the completion of an operation shows that its session no longer has this place in
/// the queue.
fn ends(operation: &Operation, place: &Place<'_>) -> bool {
    let error = operation.error.as_deref().unwrap_or_default();
    if SESSION_OVER.contains(&error) || operation.f == "close" && operation.is_ok() {
        return true;
    }
    let mode = operation.argument.get("mode").and_then(Value::as_str);
    let of_place = parts(operation).iter().any(|part| place.parts.iter().any(|its| its.lock == part.lock))
        && (mode.is_none() || mode == place.mode);
    let given_back = operation.f == "release" && operation.is_ok() && operation.number("holds").unwrap_or(0) == 0;
    of_place && (given_back || TICKET_OVER.contains(&error))
}
