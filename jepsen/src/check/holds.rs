//! Certain holds of locks, with their begin and end. All checks of locks build on them.
//!
//! A client holds a lock from the answer that grants it. The end of a hold is known in two ways.
//!
//! * `lasting`: a holder with a living session has the lock until the first request that may have
//!   given the lock back.
//! * `proven`: an acknowledged operation that names lock, owner and token proves that the owner
//!   held the lock at that time. Examples are a grant, a write under the token, and a look at the
//!   ticket. A release proves it for the time just before. A lost token never comes back, so its
//!   owner held the lock from the first proof to the last: on the clients' clock from the end of
//!   the first operation to the beginning of the last, in the log from the first zxid to the last.
//!   The proofs say nothing about the time after the last.

use std::collections::BTreeMap;

use super::ends::{Ends, GRANTS, TAKES};
use super::grouped;
use super::order::{self, Numbered};
use crate::history::Operation;
use crate::verdict::Verdict;

/// An interval in which a lock was certainly held, both ends included.
#[derive(Clone, Debug)]
pub(super) struct Hold<'a> {
    pub(super) lock: &'a str,
    /// Id of the session that holds the lock.
    pub(super) owner: u64,
    /// The fencing token.
    pub(super) token: u64,
    /// Whether the hold is shared with other readers.
    shared: bool,
    /// Permits of the hold and of the whole semaphore; `None` for other locks.
    permits: Option<(u64, u64)>,
    /// First moment of the hold, an index of the history or a zxid.
    pub(super) begin: u64,
    /// Last moment of the hold, in the same unit as `begin`.
    pub(super) until: u64,
    /// Operations that prove the hold. The report shows them if the hold breaks a promise.
    pub(super) shown: Vec<&'a Operation>,
    /// Operation that was answered with the grant. For a hold that [`proven`] returns, the first
    /// operation that proves the hold.
    pub(super) grant: &'a Operation,
    /// History index of the request for the lock.
    asked: u64,
    /// First acknowledged release after which the owner has no hold left; `None` without such a
    /// release, and for a hold that [`proven`] returns.
    given_back: Option<&'a Operation>,
}

impl Hold<'_> {
    /// Tells whether two holds of one lock may exist at once: both holders are readers, or both
    /// have permits of a semaphore. The number of permits is not checked.
    fn fits_beside(&self, other: &Hold<'_>) -> bool {
        self.shared && other.shared || self.permits.is_some() && other.permits.is_some()
    }

    /// Tells whether the hold is not exclusive: the holder is a reader, or has permits of a
    /// semaphore.
    fn is_together(&self) -> bool {
        self.shared || self.permits.is_some()
    }
}

/// Unit in which the time of holds is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    /// Indexes of the history: the clients' time.
    History,
    /// Zxids: the log's time.
    Log,
}

/// Returns the holds of clients that keep a lock while their sessions live: from a grant
/// (`acquire`, `await` and others with a token) to the operation that may have ended it (`release`,
/// `close`, a loss).
pub(super) fn lasting(operations: &[Operation]) -> Vec<Hold<'_>> {
    let ends = Ends::new(operations);
    let mut asked: BTreeMap<(u64, &str), u64> = BTreeMap::new();
    let mut holds = Vec::new();
    for operation in operations {
        let (Some(owner), Some(lock)) = (operation.number("owner"), operation.text("lock")) else { continue };
        if TAKES.contains(&&*operation.f) {
            asked.insert((owner, lock), operation.call);
        }
        let grants = GRANTS.contains(&&*operation.f) && operation.is_ok();
        let Some(token) = operation.number("token").filter(|_| grants) else { continue };
        let (mode, call) = (operation.text("mode"), operation.call);
        let end = ends.first_after(owner, lock, mode, call);
        holds.push(Hold {
            until: ends.until(owner, operation, end),
            shown: [Some(operation), end].into_iter().flatten().collect(),
            asked: asked.get(&(owner, lock)).copied().unwrap_or(call),
            given_back: ends.given_back(owner, lock, mode, call),
            ..hold(lock, owner, token, operation, operation.complete)
        });
    }
    holds
}

/// Returns the holds that acknowledged operations prove, in the time of `clock`.
pub(super) fn proven(operations: &[Operation], clock: Clock) -> Vec<Hold<'_>> {
    proven_by("token", operations, clock)
}

/// Returns the proven holds as [`proven`] does, but identifies each hold by another number than the
/// fencing token. The parameter `name` names the field with this number, such as `upgrade`.
pub(super) fn proven_by<'a>(name: &str, operations: &'a [Operation], clock: Clock) -> Vec<Hold<'a>> {
    let proof = |op: &'a Operation| Some(((op.text("lock")?, op.number(name)?, op.number("owner")?), op));
    let proofs = grouped(operations.iter().filter(|operation| operation.is_ok()).filter_map(proof));
    let begins = |op: &Operation| if clock == Clock::History { Some(op.complete) } else { op.zxid };
    let ends = |op: &Operation| match clock {
        Clock::History => Some(op.call),
        Clock::Log if op.f == "release" => op.zxid.map(|zxid| zxid.saturating_sub(1)),
        Clock::Log => op.zxid,
    };
    let one = |((lock, token, owner), proofs): ((&'a str, u64, u64), Vec<&'a Operation>)| {
        let grants = proofs.iter().filter(|op| op.f != "release").filter_map(|op| Some((begins(op)?, *op)));
        let (begin, first) = grants.min_by_key(|(at, _)| *at)?;
        let (until, last) = proofs.iter().filter_map(|op| Some((ends(op)?, *op))).max_by_key(|(at, _)| *at)?;
        (begin <= until).then(|| Hold { until, shown: vec![first, last], ..hold(lock, owner, token, first, begin) })
    };
    proofs.into_iter().filter_map(one).collect()
}

fn hold<'a>(lock: &'a str, owner: u64, token: u64, grant: &'a Operation, begin: u64) -> Hold<'a> {
    let (shared, permits) = (grant.text("mode") == Some("read"), grant.number("permits").zip(grant.number("limit")));
    let (until, shown, asked, given_back) = (begin, vec![grant], grant.call, None);
    Hold { lock, owner, token, shared, permits, begin, until, shown, grant, asked, given_back }
}

/// Checks the proven holds, on the clients' clock and in the log: no two sessions hold one lock at
/// once, unless both read or both have permits. The permits held never exceed the semaphore's
/// limit. In the log, tokens must rise as well. Returns the holds in the log.
pub(super) fn check_proven<'a>(operations: &'a [Operation], verdict: &mut Verdict) -> Vec<Hold<'a>> {
    check_room("two-holders", &proven(operations, Clock::History), Clock::History, verdict);
    let holds = proven(operations, Clock::Log);
    check_room("two-holders", &holds, Clock::Log, verdict);
    check_tokens_rise(&holds, verdict);
    holds
}

/// Checks that no two sessions hold one lock at once, unless both read or both have permits, and
/// that the permits held never exceed the semaphore's limit.
pub(super) fn check_room(kind: &str, holds: &[Hold<'_>], clock: Clock, verdict: &mut Verdict) {
    let told = |at: u64| match clock {
        Clock::History => format!("at entry {at} of the history"),
        Clock::Log => format!("at zxid {at}"),
    };
    for (lock, holds) in by_lock(holds) {
        // Earlier holds that last until `hold` begins, or longer.
        let mut there: Vec<&Hold<'_>> = Vec::new();
        for hold in holds {
            there.retain(|other| other.until >= hold.begin);
            let at = told(hold.begin);
            let against = |other: &&&Hold<'_>| other.owner != hold.owner && !other.fits_beside(hold);
            if let Some(before) = there.iter().find(against) {
                let detail = format!("{lock}: sessions {} and {} have it at once, {at}", before.owner, hold.owner);
                verdict.found(kind, detail, &[&before.shown[..], &hold.shown[..]].concat());
            }
            there.push(hold);
            let held: u64 = there.iter().filter_map(|other| Some(other.permits?.0)).sum();
            if let Some((_, limit)) = hold.permits.filter(|(_, limit)| held > *limit) {
                let detail = format!("{lock}: {held} of {limit} permits are held at once, {at}");
                let part: Vec<&Operation> = there.iter().flat_map(|other| other.shown.iter().copied()).collect();
                verdict.found("over-limit", detail, &part);
            }
        }
    }
}

/// Groups the holds by lock, in the order in which they begin.
pub(super) fn by_lock<'h, 'a>(holds: &'h [Hold<'a>]) -> BTreeMap<&'a str, Vec<&'h Hold<'a>>> {
    let mut locks = grouped(holds.iter().map(|hold| (hold.lock, hold)));
    for holds in locks.values_mut() {
        holds.sort_by_key(|hold| (hold.begin, hold.token));
    }
    locks
}

/// Checks that tokens rise from holder to holder in the order of the log. Holds of readers and of
/// permits are compared with exclusive holds only, because readers, or holders of permits, that are
/// granted together may share a token.
fn check_tokens_rise(holds: &[Hold<'_>], verdict: &mut Verdict) {
    for (lock, holds) in by_lock(holds) {
        // The holds with the highest token so far, among exclusive holds and among all holds.
        let (mut alone, mut all): (Option<&Hold<'_>>, Option<&Hold<'_>>) = (None, None);
        for hold in holds {
            let before = if hold.is_together() { alone } else { all };
            if let Some(before) = before.filter(|before| before.token >= hold.token && before.until < hold.begin) {
                let detail = format!("{lock}: token {} held after token {}", hold.token, before.token);
                verdict.found("falling-token", detail, &[&before.shown[..], &hold.shown[..]].concat());
            }
            let higher = |than: Option<&Hold<'_>>| than.is_none_or(|than| than.token < hold.token);
            if !hold.is_together() && higher(alone) {
                alone = Some(hold);
            }
            if higher(all) {
                all = Some(hold);
            }
        }
    }
}

/// Checks that a later grant of a lock has no smaller token, and that a session that gave a lock
/// back gets another token when it is granted the lock again. Readers may get the same token again.
pub(super) fn check_tokens(holds: &[Hold<'_>], verdict: &mut Verdict) {
    for (lock, holds) in by_lock(holds) {
        let mut tokens = Vec::new();
        for hold in &holds {
            tokens.push(Numbered { call: hold.asked, ..Numbered::of(hold.grant, hold.token, true) });
        }
        order::check_rising("falling-token", &format!("{lock}: token"), &tokens, verdict);
        let mut given_back: BTreeMap<(u64, u64), (&Operation, &Operation)> = BTreeMap::new();
        for hold in holds.iter().filter(|hold| !hold.shared) {
            let key = (hold.owner, hold.token);
            if let Some((grant, end)) = given_back.get(&key).filter(|(_, end)| end.complete < hold.asked) {
                let detail = format!("{lock}: token {} was given again after it had been given back", hold.token);
                verdict.found("token-given-twice", detail, &[grant, end, hold.grant]);
            }
            if let Some(end) = hold.given_back {
                given_back.entry(key).or_insert((hold.grant, end));
            }
        }
    }
}

/// Checks tokens as [`check_tokens`] does, and also that no two sessions got the same token.
pub(super) fn check_own_tokens(holds: &[Hold<'_>], verdict: &mut Verdict) {
    check_tokens(holds, verdict);
    for (lock, holds) in by_lock(holds) {
        let mut owners: BTreeMap<u64, &Hold<'_>> = BTreeMap::new();
        for hold in holds {
            let first = owners.entry(hold.token).or_insert(hold);
            if first.owner != hold.owner {
                let (token, owners) = (hold.token, (first.owner, hold.owner));
                let detail = format!("{lock}: token {token} was given to sessions {} and {}", owners.0, owners.1);
                verdict.found("token-given-twice", detail, &[first.grant, hold.grant]);
            }
        }
    }
}
