//! Who held a lock for sure, from when to when: the linear-time checks of everything that is a lock.

use std::collections::BTreeMap;

use super::stay::{self, Clock};
use crate::history::Operation;
use crate::verdict::Verdict;

/// Refusals that say that the session, and with it the lock, had been lost at some time before.
const LOSSES: [&str; 5] = ["session-expired", "auth-failed", "ticket-gone", "lock-not-held", "superseded"];

/// The time in which a client held a lock for sure: from the answer that said so to the request that gave it back.
#[derive(Clone, Copy, Debug)]
pub struct Tenure<'a> {
    /// The lock.
    pub lock: &'a str,
    /// The session.
    pub owner: u64,
    /// The fencing token.
    pub token: Option<u64>,
    /// Together with other readers.
    pub shared: bool,
    /// What was answered with the lock.
    pub grant: &'a Operation,
    /// When the lock was first asked for.
    pub asked: u64,
    /// The index from which on it may have been lost.
    pub until: u64,
    /// The operation that may have given it back.
    pub end: Option<&'a Operation>,
}

/// Finds the tenures in grants (`acquire` and `await` with a token) and what ends them (`release`, `close`, a loss).
pub fn tenures(operations: &[Operation]) -> Vec<Tenure<'_>> {
    let ends = Ends::new(operations);
    let mut asked: BTreeMap<(u64, &str), u64> = BTreeMap::new();
    let mut tenures = Vec::new();
    for operation in operations {
        let (Some(owner), Some(lock)) = (operation.number("owner"), operation.text("lock")) else { continue };
        if matches!(operation.f.as_str(), "acquire" | "enqueue" | "upgrade" | "downgrade") {
            asked.insert((owner, lock), operation.call);
        }
        let grants = ["acquire", "enqueue", "await", "upgrade", "downgrade"].contains(&operation.f.as_str());
        let Some(token) = operation.number("token").filter(|_| grants && operation.is_ok()) else { continue };
        let end = ends.first_after(owner, lock, operation.text("mode"), operation.call);
        let lost = ends.lost.contains_key(&owner);
        tenures.push(Tenure {
            lock,
            owner,
            token: Some(token),
            shared: operation.text("mode") == Some("read"),
            grant: operation,
            asked: asked.get(&(owner, lock)).copied().unwrap_or(operation.call),
            until: if lost { operation.complete } else { end.map_or(u64::MAX, |end| end.call) },
            end,
        });
    }
    tenures
}

/// What may end tenures.
pub struct Ends<'a> {
    releases: BTreeMap<(u64, &'a str), Vec<&'a Operation>>,
    closes: BTreeMap<u64, Vec<&'a Operation>>,
    /// Sessions that were lost, with the operation that was told so.
    pub lost: BTreeMap<u64, &'a Operation>,
}

impl<'a> Ends<'a> {
    /// Looks through a history.
    pub fn new(operations: &'a [Operation]) -> Ends<'a> {
        let mut ends = Ends { releases: BTreeMap::new(), closes: BTreeMap::new(), lost: BTreeMap::new() };
        for operation in operations {
            let Some(owner) = operation.number("owner") else { continue };
            let no_ticket = operation.f == "release" && operation.error.as_deref() == Some("no-node");
            if no_ticket || operation.error.as_deref().is_some_and(|error| LOSSES.contains(&error)) {
                ends.lost.entry(owner).or_insert(operation);
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

    /// The first operation, invoked after `after`, that may have taken the lock from the owner. One who reads and writes
    /// gives one of both back at a time: a release that says its mode ends no other.
    pub fn first_after(&self, owner: u64, lock: &str, mode: Option<&str>, after: u64) -> Option<&'a Operation> {
        let first = |ends: Option<&Vec<&'a Operation>>| {
            let ends = ends?;
            let later = &ends[ends.partition_point(|end| end.call <= after)..];
            let other = |end: &Operation| mode.is_some() && end.text("mode").is_some_and(|its| Some(its) != mode);
            later.iter().copied().find(|end| !other(end))
        };
        let release = first(self.releases.get(&(owner, lock)));
        let close = first(self.closes.get(&owner));
        release.into_iter().chain(close).min_by_key(|end| end.call)
    }
}

/// No two clients hold one lock at once, but for readers.
pub fn check_exclusion(tenures: &[Tenure<'_>], verdict: &mut Verdict) {
    stay::check_exclusion(&stay::of_tenures(tenures), Clock::History, verdict);
}

/// Tenures by lock, in the order of their grants.
fn by_lock<'a>(tenures: &[Tenure<'a>]) -> BTreeMap<&'a str, Vec<Tenure<'a>>> {
    let mut locks: BTreeMap<&str, Vec<Tenure<'_>>> = BTreeMap::new();
    for tenure in tenures {
        locks.entry(tenure.lock).or_default().push(*tenure);
    }
    for tenures in locks.values_mut() {
        tenures.sort_by_key(|tenure| tenure.grant.complete);
    }
    locks
}

/// Tokens of one lock rise from grant to later grant, and no two grants to different sessions share one.
pub fn check_tokens(tenures: &[Tenure<'_>], verdict: &mut Verdict) {
    check_own_tokens(tenures, verdict);
    check_rising_tokens(tenures, verdict);
}

/// No two grants to different sessions share a token.
fn check_own_tokens(tenures: &[Tenure<'_>], verdict: &mut Verdict) {
    for (lock, tenures) in by_lock(tenures) {
        let mut owners: BTreeMap<u64, Tenure<'_>> = BTreeMap::new();
        for tenure in &tenures {
            let Some(token) = tenure.token else { continue };
            let first = owners.entry(token).or_insert(*tenure);
            if first.owner != tenure.owner {
                let detail =
                    format!("{lock}: token {token} was given to sessions {} and {}", first.owner, tenure.owner);
                verdict.found("token-given-twice", detail, &[first.grant, tenure.grant]);
            }
        }
    }
}

/// Tokens of one lock do not fall from grant to later grant.
pub fn check_rising_tokens(tenures: &[Tenure<'_>], verdict: &mut Verdict) {
    for (lock, tenures) in by_lock(tenures) {
        let mut asked = tenures.clone();
        asked.sort_by_key(|tenure| tenure.asked);
        let mut granted = tenures.iter().peekable();
        let mut highest: Option<Tenure<'_>> = None;
        for tenure in asked {
            while let Some(before) = granted.next_if(|before| before.grant.complete < tenure.asked) {
                if highest.is_none_or(|highest| highest.token < before.token) {
                    highest = Some(*before);
                }
            }
            if let Some(before) = highest.filter(|before| before.token > tenure.token) {
                let (old, new) = (before.token.unwrap_or(0), tenure.token.unwrap_or(0));
                let detail = format!("{lock}: after token {old} was granted, token {new} was");
                verdict.found("falling-token", detail, &[before.grant, tenure.grant]);
            }
        }
    }
}
