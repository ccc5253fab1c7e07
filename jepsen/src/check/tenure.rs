//! Who held a lock for sure, from when to when: the linear-time checks of everything that is a
//! lock.

use std::collections::BTreeMap;

use super::stay::{self, Clock};
use crate::history::Operation;
use crate::verdict::Verdict;

/// Refusals that say that the session, and with it the lock, had been lost at some time before.
const LOSSES: [&str; 2] = ["session-expired", "auth-failed"];
/// Refusals that say that a lock is not held, or not waited for, any more, whatever became of the
/// session.
const TICKET_LOSSES: [&str; 2] = ["ticket-gone", "lock-not-held"];
/// What asks for a lock, or for another hold of it.
const TAKES: [&str; 4] = ["acquire", "enqueue", "upgrade", "downgrade"];
/// What the log does only in a session that lives.
const DONE_IN_SESSION: [&str; 5] = ["acquire", "enqueue", "upgrade", "downgrade", "release"];

/// The time in which a client held a lock for sure: from the answer that said so to the request
/// that gave it back.
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
    /// The release that gave it back for sure.
    given_back: Option<&'a Operation>,
}

/// Finds the tenures in grants (`acquire` and `await` with a token) and what ends them (`release`,
/// `close`, a loss).
pub fn tenures(operations: &[Operation]) -> Vec<Tenure<'_>> {
    let ends = Ends::new(operations);
    let mut asked: BTreeMap<(u64, &str), u64> = BTreeMap::new();
    let mut tenures = Vec::new();
    for operation in operations {
        let (Some(owner), Some(lock)) = (operation.number("owner"), operation.text("lock")) else { continue };
        if TAKES.contains(&operation.f.as_str()) {
            asked.insert((owner, lock), operation.call);
        }
        let grants = ["acquire", "enqueue", "await", "upgrade", "downgrade"].contains(&operation.f.as_str());
        let Some(token) = operation.number("token").filter(|_| grants && operation.is_ok()) else { continue };
        let end = ends.first_after(owner, lock, operation.text("mode"), operation.call);
        tenures.push(Tenure {
            lock,
            owner,
            token: Some(token),
            shared: operation.text("mode") == Some("read"),
            grant: operation,
            asked: asked.get(&(owner, lock)).copied().unwrap_or(operation.call),
            until: ends.until(owner, operation, end),
            end,
            given_back: ends.given_back(owner, lock, operation.text("mode"), operation.call),
        });
    }
    tenures
}

/// A session that lives loses no lock: one is gone only after an operation that may have given it
/// back.
pub fn check_kept(operations: &[Operation], verdict: &mut Verdict) {
    let ends = Ends::new(operations);
    let mut taken: BTreeMap<(u64, &str), u64> = BTreeMap::new();
    for operation in operations {
        let (Some(owner), Some(lock)) = (operation.number("owner"), operation.text("lock")) else { continue };
        if operation.is_ok() && TAKES.contains(&operation.f.as_str()) {
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

/// What may end tenures.
#[derive(Default)]
pub struct Ends<'a> {
    releases: BTreeMap<(u64, &'a str), Vec<&'a Operation>>,
    closes: BTreeMap<u64, Vec<&'a Operation>>,
    /// Sessions that were lost, with the operation that was told so. One that was over after a
    /// close of its own is not.
    pub lost: BTreeMap<u64, &'a Operation>,
    /// When each session last did something, in which it lived then.
    lived: BTreeMap<u64, u64>,
}

impl<'a> Ends<'a> {
    /// Looks through a history.
    pub fn new(operations: &'a [Operation]) -> Ends<'a> {
        let mut ends = Ends::default();
        for operation in operations {
            let Some(owner) = operation.number("owner") else { continue };
            let is_over = operation.error.as_deref().is_some_and(|error| LOSSES.contains(&error));
            if is_over && !ends.closes.contains_key(&owner) {
                ends.lost.entry(owner).or_insert(operation);
            }
            if operation.is_ok() && DONE_IN_SESSION.contains(&operation.f.as_str()) {
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

    /// From when on a lost session may have been over: when it last did something; never before it
    /// did anything.
    pub fn over_from(&self, owner: u64) -> Option<u64> {
        self.lived.get(&owner).copied()
    }

    /// The index from which on the owner may have lost what it was granted, with what may have
    /// given it back.
    pub fn until(&self, owner: u64, grant: &Operation, end: Option<&Operation>) -> u64 {
        let given_back = end.map_or(u64::MAX, |end| end.call);
        if !self.lost.contains_key(&owner) {
            return given_back;
        }
        given_back.min(self.over_from(owner).unwrap_or(0).max(grant.complete))
    }

    /// Whether something invoked after `since` and before `at` may have taken the lock from the
    /// owner.
    pub fn between(&self, owner: u64, lock: &str, since: u64, at: u64) -> bool {
        self.first_after(owner, lock, None, since).is_some_and(|end| end.call < at)
    }

    /// The first operation, invoked after `after`, that may have taken the lock from the owner. One
    /// who reads and writes gives one of both back at a time: a release that says its mode ends no
    /// other.
    pub fn first_after(&self, owner: u64, lock: &str, mode: Option<&str>, after: u64) -> Option<&'a Operation> {
        let release = later(self.releases.get(&(owner, lock)), mode, after).next();
        let close = later(self.closes.get(&owner), mode, after).next();
        release.into_iter().chain(close).min_by_key(|end| end.call)
    }

    /// The first release, invoked after `after`, that left nothing of the lock to the owner.
    fn given_back(&self, owner: u64, lock: &str, mode: Option<&str>, after: u64) -> Option<&'a Operation> {
        let whole = |end: &&Operation| end.is_ok() && end.number("holds").is_none_or(|holds| holds == 0);
        later(self.releases.get(&(owner, lock)), mode, after).find(whole)
    }
}

/// Those of `ends` that were invoked after `after` and do not name another mode.
fn later<'a>(ends: Option<&Vec<&'a Operation>>, mode: Option<&str>, after: u64) -> impl Iterator<Item = &'a Operation> {
    let ends = ends.map(Vec::as_slice).unwrap_or_default();
    let other = move |end: &Operation| mode.is_some() && end.text("mode").is_some_and(|its| Some(its) != mode);
    ends[ends.partition_point(|end| end.call <= after)..].iter().copied().filter(move |end| !other(end))
}

/// No two clients hold one lock at once, but for readers and leases.
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

/// Tokens of one lock rise from grant to later grant, and no two grants share one, but for those of
/// one ticket.
pub fn check_tokens(tenures: &[Tenure<'_>], verdict: &mut Verdict) {
    check_own_tokens(tenures, verdict);
    check_falling_tokens(tenures, verdict);
    check_dead_tokens(tenures, |_| true, verdict);
}

/// The same where readers of one grant may share a token.
pub fn check_rising_tokens(tenures: &[Tenure<'_>], verdict: &mut Verdict) {
    check_falling_tokens(tenures, verdict);
    check_dead_tokens(tenures, |tenure| !tenure.shared, verdict);
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

/// A session that has given a lock back is not granted it again with the same token.
fn check_dead_tokens(tenures: &[Tenure<'_>], judged: impl Fn(&Tenure<'_>) -> bool, verdict: &mut Verdict) {
    for (lock, tenures) in by_lock(tenures) {
        let mut given_back: BTreeMap<(u64, u64), (&Operation, &Operation)> = BTreeMap::new();
        for tenure in tenures.iter().filter(|tenure| judged(tenure)) {
            let Some(token) = tenure.token else { continue };
            if let Some((grant, end)) = given_back.get(&(tenure.owner, token))
                && end.complete < tenure.asked
            {
                let detail = format!("{lock}: token {token} was given again after it had been given back");
                verdict.found("token-given-twice", detail, &[grant, end, tenure.grant]);
            }
            if let Some(end) = tenure.given_back {
                given_back.entry((tenure.owner, token)).or_insert((tenure.grant, end));
            }
        }
    }
}

/// Tokens of one lock do not fall from grant to later grant.
fn check_falling_tokens(tenures: &[Tenure<'_>], verdict: &mut Verdict) {
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
