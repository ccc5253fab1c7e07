//! Who held a lock for sure, as every answer with a token proves: the checks that do not care how a
//! holder lost it.
//!
//! Each acknowledged operation that names lock, owner and token shows the owner as its holder: a
//! grant, a write that the log took under the token, a look at the ticket; a release until just
//! before it. A token that is lost never comes back, so its owner held the lock from the first of
//! these moments to the last: on the clients' clock from the end of the first operation to the
//! beginning of the last, in the log from the first zxid to the last. Nothing is known of the time
//! after.

use std::collections::BTreeMap;

use super::tenure::Tenure;
use crate::history::Operation;
use crate::verdict::Verdict;

/// A stretch in which a lock was held for sure, both ends included.
#[derive(Clone, Debug)]
pub struct Stay<'a> {
    /// The lock.
    pub lock: &'a str,
    /// The session.
    pub owner: u64,
    /// The fencing token.
    pub token: u64,
    /// Together with other readers.
    pub shared: bool,
    /// How many permits of how many, in a semaphore.
    pub permits: Option<(u64, u64)>,
    /// From here, an index of the history or a zxid ...
    pub begin: u64,
    /// ... to here.
    pub until: u64,
    /// What proves it.
    pub shown: Vec<&'a Operation>,
}

impl Stay<'_> {
    /// Whether the two may hold at once, as far as there is room: readers, and leases.
    fn fits_beside(&self, other: &Stay<'_>) -> bool {
        self.shared && other.shared || self.permits.is_some() && other.permits.is_some()
    }

    /// Whether it may hold beside others of its kind.
    fn is_together(&self) -> bool {
        self.shared || self.permits.is_some()
    }
}

/// What the time of stays is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Indexes of the history: the clients' time.
    History,
    /// Zxids: the log's time.
    Log,
}

/// The stays that answers prove.
pub fn stays(operations: &[Operation], clock: Clock) -> Vec<Stay<'_>> {
    stays_by("token", operations, clock)
}

/// The same for something that its owner has for a time, and that the field `name` tells apart as
/// tokens do.
pub fn stays_by<'a>(name: &str, operations: &'a [Operation], clock: Clock) -> Vec<Stay<'a>> {
    let mut proofs: BTreeMap<(&str, u64, u64), Vec<&Operation>> = BTreeMap::new();
    for operation in operations.iter().filter(|operation| operation.is_ok()) {
        if let (Some(lock), Some(owner), Some(token)) =
            (operation.text("lock"), operation.number("owner"), operation.number(name))
        {
            proofs.entry((lock, token, owner)).or_default().push(operation);
        }
    }
    proofs.into_iter().filter_map(|((lock, token, owner), proofs)| stay(lock, owner, token, &proofs, clock)).collect()
}

fn stay<'a>(lock: &'a str, owner: u64, token: u64, proofs: &[&'a Operation], clock: Clock) -> Option<Stay<'a>> {
    let begins = |op: &Operation| if clock == Clock::History { Some(op.complete) } else { op.zxid };
    let ends = |op: &Operation| match clock {
        Clock::History => Some(op.call),
        Clock::Log if op.f == "release" => op.zxid.map(|zxid| zxid.saturating_sub(1)),
        Clock::Log => op.zxid,
    };
    let mut first: Option<(u64, &Operation)> = None;
    let mut last: Option<(u64, &Operation)> = None;
    for op in proofs {
        if let Some(at) = begins(op).filter(|at| op.f != "release" && first.is_none_or(|(before, _)| before > *at)) {
            first = Some((at, op));
        }
        if let Some(at) = ends(op).filter(|at| last.is_none_or(|(before, _)| before < *at)) {
            last = Some((at, op));
        }
    }
    let ((begin, first), (until, last)) = (first?, last?);
    (begin <= until).then(|| Stay {
        lock,
        owner,
        token,
        shared: first.text("mode") == Some("read"),
        permits: first.number("permits").zip(first.number("limit")),
        begin,
        until,
        shown: vec![first, last],
    })
}

/// Tenures as stays on the clients' clock: they reach further, to whatever may have ended them.
pub fn of_tenures<'a>(tenures: &[Tenure<'a>]) -> Vec<Stay<'a>> {
    let stay = |tenure: &Tenure<'a>| Stay {
        lock: tenure.lock,
        owner: tenure.owner,
        token: tenure.token.unwrap_or(0),
        shared: tenure.shared,
        permits: tenure.grant.number("permits").zip(tenure.grant.number("limit")),
        begin: tenure.grant.complete,
        until: tenure.until,
        shown: [Some(tenure.grant), tenure.end].into_iter().flatten().collect(),
    };
    tenures.iter().map(stay).collect()
}

/// No two sessions hold one lock at once, but for readers and leases, neither on the clients' clock
/// nor in the log, and tokens rise in the log. Answers with the stays in the log.
pub fn check_holders<'a>(operations: &'a [Operation], verdict: &mut Verdict) -> Vec<Stay<'a>> {
    check_exclusion(&stays(operations, Clock::History), Clock::History, verdict);
    let stays = stays(operations, Clock::Log);
    check_exclusion(&stays, Clock::Log, verdict);
    check_tokens_rise(&stays, verdict);
    stays
}

/// No two sessions hold one lock at once, but for readers and leases.
pub fn check_exclusion(stays: &[Stay<'_>], clock: Clock, verdict: &mut Verdict) {
    check_alone("two-holders", stays, clock, verdict);
}

/// The same under another name.
pub fn check_alone(kind: &str, stays: &[Stay<'_>], clock: Clock, verdict: &mut Verdict) {
    crowds(stays, |stay, others| {
        let against = |other: &&&Stay<'_>| other.owner != stay.owner && !other.fits_beside(stay);
        if let Some(before) = others.iter().find(against) {
            let (lock, at) = (stay.lock, told(clock, stay.begin));
            let detail = format!("{lock}: sessions {} and {} have it at once, {at}", before.owner, stay.owner);
            verdict.found(kind, detail, &[&before.shown[..], &stay.shown[..]].concat());
        }
    });
}

/// Never more permits than there are.
pub fn check_limit(stays: &[Stay<'_>], clock: Clock, verdict: &mut Verdict) {
    crowds(stays, |stay, others| {
        let Some((own, limit)) = stay.permits else { return };
        let held = own + others.iter().filter_map(|other| Some(other.permits?.0)).sum::<u64>();
        if held > limit {
            let detail =
                format!("{}: {held} of {limit} permits are held at once, {}", stay.lock, told(clock, stay.begin));
            let part: Vec<&Operation> =
                others.iter().copied().chain([stay]).flat_map(|other| other.shown.iter().copied()).collect();
            verdict.found("over-limit", detail, &part);
        }
    });
}

fn told(clock: Clock, at: u64) -> String {
    match clock {
        Clock::History => format!("at entry {at} of the history"),
        Clock::Log => format!("at zxid {at}"),
    }
}

/// Shows every stay together with those that began before it and last when it begins, lock by lock.
fn crowds<'s, 'a>(stays: &'s [Stay<'a>], mut show: impl FnMut(&'s Stay<'a>, &[&'s Stay<'a>])) {
    for stays in by_lock(stays).values() {
        let mut there: Vec<&Stay<'a>> = Vec::new();
        for stay in stays {
            there.retain(|other| other.until >= stay.begin);
            show(stay, &there);
            there.push(stay);
        }
    }
}

fn by_lock<'s, 'a>(stays: &'s [Stay<'a>]) -> BTreeMap<&'a str, Vec<&'s Stay<'a>>> {
    let mut locks: BTreeMap<&str, Vec<&Stay<'a>>> = BTreeMap::new();
    for stay in stays {
        locks.entry(stay.lock).or_default().push(stay);
    }
    for stays in locks.values_mut() {
        stays.sort_by_key(|stay| (stay.begin, stay.token));
    }
    locks
}

/// Tokens rise from holder to holder in the order of the log. Readers and leases, which may hold
/// together, have no order, and where a ticket was passed those of one grant share a token.
pub fn check_tokens_rise(stays: &[Stay<'_>], verdict: &mut Verdict) {
    for (lock, stays) in by_lock(stays) {
        // The highest so far: of those who held alone, and of all.
        let (mut alone, mut all): (Option<&Stay<'_>>, Option<&Stay<'_>>) = (None, None);
        for stay in stays {
            let before = if stay.is_together() { alone } else { all };
            if let Some(before) = before.filter(|before| before.token >= stay.token && before.until < stay.begin) {
                let detail = format!("{lock}: token {} held after token {}", stay.token, before.token);
                verdict.found("falling-token", detail, &[&before.shown[..], &stay.shown[..]].concat());
            }
            let higher = |than: Option<&Stay<'_>>| than.is_none_or(|than| than.token < stay.token);
            if !stay.is_together() && higher(alone) {
                alone = Some(stay);
            }
            if higher(all) {
                all = Some(stay);
            }
        }
    }
}

/// Who waited for sure: from the zxid at which it was told its place to the last at which it was
/// told that it waits.
#[derive(Clone, Debug)]
pub struct Wait<'a> {
    /// The lock.
    pub lock: &'a str,
    /// The session.
    pub owner: u64,
    /// The token that it got in the end.
    pub token: Option<u64>,
    /// From this zxid ...
    pub begin: u64,
    /// ... to this.
    pub until: u64,
    /// What proves it.
    pub shown: Vec<&'a Operation>,
}

/// The waits that answers prove: an acknowledged `enqueue` without a token, and every `await` that
/// has none.
pub fn waits(operations: &[Operation]) -> Vec<Wait<'_>> {
    let mut waits: Vec<Wait<'_>> = Vec::new();
    let mut open: BTreeMap<(&str, u64), usize> = BTreeMap::new();
    for operation in operations.iter().filter(|operation| operation.is_ok()) {
        let (Some(lock), Some(owner)) = (operation.text("lock"), operation.number("owner")) else { continue };
        let (token, key) = (operation.number("token"), (lock, owner));
        match (operation.f.as_str(), operation.zxid, token) {
            ("enqueue", Some(at), None) => {
                open.insert(key, waits.len());
                waits.push(Wait { lock, owner, token, begin: at, until: at, shown: vec![operation] });
            }
            ("await", Some(at), None) => {
                if let Some(wait) = open.get(&key).map(|i| &mut waits[*i]) {
                    wait.until = wait.until.max(at);
                    wait.shown.truncate(1);
                    wait.shown.push(operation);
                }
            }
            ("await", _, Some(_)) => {
                if let Some(i) = open.remove(&key) {
                    waits[i].token = token;
                }
            }
            _ => _ = open.remove(&key),
        }
    }
    waits
}

/// Locks are granted in the order of the queue: nobody holds, while one with a place before it
/// waits.
///
/// A place is the czxid of the lock node. It is the token where nobody is ever passed; of one who
/// never held, it is not above the zxid of the answer that told the place.
pub fn check_order(waits: &[Wait<'_>], stays: &[Stay<'_>], verdict: &mut Verdict) {
    let locks = by_lock(stays);
    for wait in waits {
        let place = wait.token.unwrap_or(wait.begin);
        let granted = locks.get(wait.lock).into_iter().flatten().take_while(|stay| stay.begin <= wait.until);
        if let Some(stay) = granted.filter(|stay| stay.owner != wait.owner).find(|stay| stay.token > place) {
            let detail = format!(
                "{}: session {} held with token {} while {}, who came before, still waited at zxid {}",
                wait.lock, stay.owner, stay.token, wait.owner, wait.until
            );
            verdict.found("overtaken", detail, &[&wait.shown[..], &stay.shown[..]].concat());
        }
    }
}

/// What the queue's own view says agrees with what its clients were told: `look` with the sessions
/// that hold, `holders`.
///
/// At its zxid it names everybody who held then for sure and nobody who waited.
pub fn check_looks(operations: &[Operation], stays: &[Stay<'_>], waits: &[Wait<'_>], verdict: &mut Verdict) {
    let locks = by_lock(stays);
    let mut looks = 0;
    for look in operations.iter().filter(|operation| operation.f == "look" && operation.is_ok()) {
        let (Some(lock), Some(at), Some(holders)) = (look.text("lock"), look.zxid, look.field("holders")) else {
            continue;
        };
        looks += 1;
        let holders: Vec<u64> =
            holders.as_array().into_iter().flatten().filter_map(serde_json::Value::as_u64).collect();
        for stay in locks.get(lock).into_iter().flatten().filter(|stay| stay.begin <= at && at <= stay.until) {
            if !holders.contains(&stay.owner) {
                let detail = format!("{lock}: session {} held it at zxid {at} and is not shown", stay.owner);
                verdict.found("holder-not-shown", detail, &[&stay.shown[..], &[look]].concat());
            }
        }
        let waited = |wait: &&Wait<'_>| wait.lock == lock && wait.begin <= at && at <= wait.until;
        for wait in waits.iter().filter(waited).filter(|wait| holders.contains(&wait.owner)) {
            let detail = format!("{lock}: session {} is shown as a holder at zxid {at}, while it waited", wait.owner);
            verdict.found("holds-while-it-waits", detail, &[&wait.shown[..], &[look]].concat());
        }
        let (held, limit) = (look.number("held").unwrap_or(0), look.number("limit").unwrap_or(u64::MAX));
        if held > limit {
            verdict.found("over-limit", format!("{lock}: {held} of {limit} permits are shown as held"), &[look]);
        }
    }
    verdict.figure("looks", looks);
}
