//! Who held a lock for sure, from when to when: the linear-time checks of everything that is a lock.

use std::collections::BTreeMap;

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
        if matches!(operation.f.as_str(), "acquire" | "enqueue") {
            asked.insert((owner, lock), operation.call);
        }
        let granted = matches!(operation.f.as_str(), "acquire" | "enqueue" | "await") && operation.is_ok();
        let Some(token) = operation.number("token").filter(|_| granted) else { continue };
        let end = ends.first_after(owner, lock, operation.call);
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

    /// The first operation, invoked after `after`, that may have taken the lock from the owner.
    pub fn first_after(&self, owner: u64, lock: &str, after: u64) -> Option<&'a Operation> {
        let first = |ends: Option<&Vec<&'a Operation>>| {
            let ends = ends?;
            ends.get(ends.partition_point(|end| end.call <= after)).copied()
        };
        let release = first(self.releases.get(&(owner, lock)));
        let close = first(self.closes.get(&owner));
        release.into_iter().chain(close).min_by_key(|end| end.call)
    }
}

/// Tenures by lock, in the order of their grants.
pub fn by_lock<'a>(tenures: &[Tenure<'a>]) -> BTreeMap<&'a str, Vec<Tenure<'a>>> {
    let mut locks: BTreeMap<&str, Vec<Tenure<'_>>> = BTreeMap::new();
    for tenure in tenures {
        locks.entry(tenure.lock).or_default().push(*tenure);
    }
    for tenures in locks.values_mut() {
        tenures.sort_by_key(|tenure| tenure.grant.complete);
    }
    locks
}

/// No two clients hold one lock at once, but for readers.
pub fn check_exclusion(tenures: &[Tenure<'_>], verdict: &mut Verdict) {
    for (lock, tenures) in by_lock(tenures) {
        // The tenures that last longest so far: of readers, and of all others.
        let mut longest: [Option<Tenure<'_>>; 2] = [None, None];
        for tenure in tenures {
            let begins = tenure.grant.complete;
            for before in longest.iter().flatten() {
                let may_share = before.shared && tenure.shared;
                if !may_share && before.owner != tenure.owner && before.until > begins {
                    let detail = format!("{lock}: sessions {} and {} hold it at once", before.owner, tenure.owner);
                    let part = [Some(before.grant), before.end, Some(tenure.grant), tenure.end];
                    verdict.found("two-holders", detail, &part.into_iter().flatten().collect::<Vec<_>>());
                }
            }
            let slot = &mut longest[usize::from(tenure.shared)];
            if slot.is_none_or(|before| before.until < tenure.until) {
                *slot = Some(tenure);
            }
        }
    }
}

/// Tokens of one lock rise from grant to later grant, and no two grants to different sessions share one.
pub fn check_tokens(tenures: &[Tenure<'_>], verdict: &mut Verdict) {
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
