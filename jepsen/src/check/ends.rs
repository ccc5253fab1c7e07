//! Operations that may end a hold of a lock or a wait in its queue: releases, closes and losses of
//! sessions.

use std::collections::BTreeMap;

use crate::history::Operation;
use crate::verdict::Verdict;

/// Errors that say that the session had ended before the request, so that its locks were lost as
/// well.
const LOSSES: [&str; 2] = ["session-expired", "auth-failed"];
/// Errors that say that the ticket (the session's node in the lock's queue) is gone. The session
/// may still live.
const TICKET_LOSSES: [&str; 2] = ["ticket-gone", "lock-not-held"];
/// Operations that ask for a lock, or for another hold of it.
pub(super) const TAKES: [&str; 4] = ["acquire", "enqueue", "upgrade", "downgrade"];
/// Operations that may be answered with a granted lock.
pub(super) const GRANTS: [&str; 5] = ["acquire", "enqueue", "await", "upgrade", "downgrade"];
/// Operations that succeed only while their session lives. A success proves that the session lived.
const DONE_IN_SESSION: [&str; 5] = ["acquire", "enqueue", "upgrade", "downgrade", "release"];

/// Checks that a living session loses a lock only by an operation of its client that may have given
/// the lock back.
pub(super) fn check_kept(operations: &[Operation], verdict: &mut Verdict) {
    let ends = Ends::new(operations);
    let mut taken: BTreeMap<(u64, &str), u64> = BTreeMap::new();
    for operation in operations {
        let (Some(owner), Some(lock)) = (operation.number("owner"), operation.text("lock")) else { continue };
        if operation.is_ok() && TAKES.contains(&&*operation.f) {
            taken.insert((owner, lock), operation.call);
        }
        let error = operation.error.as_deref().unwrap_or_default();
        let gone = TICKET_LOSSES.contains(&error) || (operation.f == "release" && error == "no-node");
        if !gone || ends.lost.contains_key(&owner) {
            continue;
        }
        let since = taken.get(&(owner, lock)).copied().unwrap_or(0);
        if !ends.between(owner, lock, since, operation.call) {
            let detail = format!("{lock}: session {owner} lives and has lost it");
            verdict.found("lost-ticket", detail, &[operation]);
        }
    }
}

/// Releases, closes and losses, by session: the operations of a history that may end holds.
#[derive(Default)]
pub(super) struct Ends<'a> {
    releases: BTreeMap<(u64, &'a str), Vec<&'a Operation>>,
    closes: BTreeMap<u64, Vec<&'a Operation>>,
    /// Lost sessions, with the first operation that reported the loss. A session that its client
    /// closed is not lost.
    pub(super) lost: BTreeMap<u64, &'a Operation>,
    /// For each session, the history index at which its last successful operation was invoked. The
    /// session lived at that index.
    lived: BTreeMap<u64, u64>,
}

impl<'a> Ends<'a> {
    /// Collects the operations of a history that may end holds.
    pub(super) fn new(operations: &'a [Operation]) -> Ends<'a> {
        let mut ends = Ends::default();
        for operation in operations {
            let Some(owner) = operation.number("owner") else { continue };
            let is_over = operation.error.as_deref().is_some_and(|error| LOSSES.contains(&error));
            if is_over && !ends.closes.contains_key(&owner) {
                ends.lost.entry(owner).or_insert(operation);
            }
            if operation.is_ok() && DONE_IN_SESSION.contains(&&*operation.f) {
                let lived = ends.lived.entry(owner).or_default();
                *lived = operation.call.max(*lived);
            }
            match (operation.f.as_str(), operation.text("lock")) {
                ("release", Some(lock)) if operation.is_possible() => {
                    ends.releases.entry((owner, lock)).or_default().push(operation);
                }
                ("close", _) if operation.is_possible() => ends.closes.entry(owner).or_default().push(operation),
                _ => {}
            }
        }
        ends
    }

    /// Returns the history index from which on a lost session may have been over: the index at
    /// which its last successful operation was invoked. `None` if no operation of the session
    /// succeeded.
    pub(super) fn over_from(&self, owner: u64) -> Option<u64> {
        self.lived.get(&owner).copied()
    }

    /// Returns the history index from which on the session `owner` may have lost its grant, by the
    /// operation `end` or because the session was lost; `u64::MAX` if it kept the grant.
    pub(super) fn until(&self, owner: u64, grant: &Operation, end: Option<&Operation>) -> u64 {
        let given_back = end.map_or(u64::MAX, |end| end.call);
        if !self.lost.contains_key(&owner) {
            return given_back;
        }
        given_back.min(self.over_from(owner).unwrap_or(0).max(grant.complete))
    }

    /// Tells whether a release or close, invoked after `since` and before `at`, may have ended the
    /// hold of the session `owner`.
    pub(super) fn between(&self, owner: u64, lock: &str, since: u64, at: u64) -> bool {
        self.first_after(owner, lock, None, since).is_some_and(|end| end.call < at)
    }

    /// Returns the first release or close, invoked after `after`, that may have ended the hold of
    /// the session `owner`. A release that names a mode ends only a hold of that mode, because a
    /// client may hold a lock for reading and for writing at once.
    pub(super) fn first_after(&self, owner: u64, lock: &str, mode: Option<&str>, after: u64) -> Option<&'a Operation> {
        let release = later(self.releases.get(&(owner, lock)), mode, after).next();
        let close = later(self.closes.get(&owner), mode, after).next();
        release.into_iter().chain(close).min_by_key(|end| end.call)
    }

    /// Returns the first acknowledged release, invoked after `after`, that left the session `owner`
    /// without a hold of the lock.
    pub(super) fn given_back(&self, owner: u64, lock: &str, mode: Option<&str>, after: u64) -> Option<&'a Operation> {
        let whole = |end: &&Operation| end.is_ok() && end.number("holds").is_none_or(|holds| holds == 0);
        later(self.releases.get(&(owner, lock)), mode, after).find(whole)
    }
}

/// Returns the operations of `ends` that were invoked after the history index `after`, except
/// releases that name another mode than `mode`.
fn later<'a>(ends: Option<&Vec<&'a Operation>>, mode: Option<&str>, after: u64) -> impl Iterator<Item = &'a Operation> {
    let ends = ends.map(Vec::as_slice).unwrap_or_default();
    let other = move |end: &Operation| mode.is_some() && end.text("mode").is_some_and(|its| Some(its) != mode);
    ends[ends.partition_point(|end| end.call <= after)..].iter().copied().filter(move |end| !other(end))
}
