//! Rules that each step must keep, in terms of what clients can see before and after it. A step is
//! one applied log entry.
//!
//! The specification predicts no result and copies no state: it compares two states as clients see
//! them, and reports a step that breaks a rule. So it can disagree with the code and with the
//! model, which both compute the holders.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use znode::lock::{self, QueueEntry};
use znode::{LockMode, Op, Policy, Reply, State, Txn, TxnOutcome, ZPath};

/// Share of a lock that a contender has or wants.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Share {
    All,
    OneOfMany,
    Permits(u32),
}

/// A contender, as the list of its lock's queue shows it to clients.
#[derive(Clone, Debug)]
struct SeenContender {
    path: ZPath,
    share: Share,
    has_it: bool,
    token: u64,
    session: Option<u64>,
    born: u64,
    /// True for a ticket that a client made with a plain create.
    by_hand: bool,
    /// Sort key for the order of waiters: write tickets of upgrades, then higher priorities, then
    /// smaller numbers.
    place: (bool, Reverse<u32>, String, u64),
}

/// A lock, as its clients see it: its contenders and, for a semaphore, its number of permits.
#[derive(Clone, Debug, Default)]
struct Sight {
    permits: Option<u32>,
    contenders: Vec<SeenContender>,
}

impl Sight {
    fn holders(&self) -> Vec<&SeenContender> {
        self.contenders.iter().filter(|seen| seen.has_it).collect()
    }

    /// Tells whether the holders have more permits than the semaphore has.
    fn is_over_full(&self) -> bool {
        let permits = |seen: &&SeenContender| if let Share::Permits(count) = seen.share { count } else { 0 };
        self.permits.is_some_and(|limit| self.holders().iter().map(permits).sum::<u32>() > limit)
    }

    fn queue(&self) -> Vec<&SeenContender> {
        let mut waiting: Vec<&SeenContender> = self.contenders.iter().filter(|seen| !seen.has_it).collect();
        waiting.sort_by(|left, right| left.place.cmp(&right.place));
        waiting
    }

    /// Tells whether a contender with this share could hold the lock beside the contenders in
    /// `beside`.
    fn is_free(&self, share: Share, beside: &[&SeenContender]) -> bool {
        let shares: Vec<Share> = beside.iter().map(|seen| seen.share).collect();
        match share {
            Share::All => shares.is_empty(),
            Share::OneOfMany => shares.iter().all(|other| *other == Share::OneOfMany),
            Share::Permits(wanted) => {
                let taken =
                    shares.iter().map(|other| if let Share::Permits(count) = other { *count } else { u32::MAX });
                taken.fold(wanted, u32::saturating_add) <= self.permits.unwrap_or(0)
            }
        }
    }
}

/// Checker of the rules that every step must keep, with the facts that it remembers from earlier
/// steps.
#[derive(Default)]
pub(crate) struct Specification {
    /// Tickets of multi-locks with the policy `Backfill`, which later tickets may overtake. Their
    /// czxids distinguish them from later tickets at the same paths.
    backfill: BTreeSet<(ZPath, u64)>,
    /// Write tickets of upgrades, with their czxids; each with the read ticket of its upgrade.
    upgraded: BTreeMap<(ZPath, u64), ZPath>,
    /// Largest fencing token of each lock in the states so far.
    tokens: BTreeMap<ZPath, u64>,
    before: BTreeMap<ZPath, Sight>,
    versions: BTreeMap<ZPath, (u64, i32, u64)>,
}

impl Specification {
    /// Checks the state after a step.
    pub(crate) fn step(&mut self, txn: &Txn, applied: &TxnOutcome, state: &State) -> Result<(), String> {
        self.remember(txn, applied, state);
        let paths = all_paths(state);
        let after: BTreeMap<ZPath, Sight> = paths.iter().map(|path| (path.clone(), self.look(state, path))).collect();
        for (lock, sight) in &after {
            let before = self.before.remove(lock).unwrap_or_default();
            let tell = |what: String| Err(format!("{lock}: {what}\nbefore: {before:#?}\nafter: {sight:#?}"));
            // When a limit is lowered, holders keep their permits, and no waiter is granted the
            // lock until it fits.
            let lowered = sight.permits < before.permits || before.is_over_full();
            if !lowered || has_new_holder(&before, sight) {
                self.holders_fit(sight).or_else(tell)?;
            }
            holders_stay(&before, sight).or_else(tell)?;
            self.grants_are_in_turn(&before, sight, txn).or_else(tell)?;
            let largest = self.tokens.get(lock).copied().unwrap_or(0);
            tokens_rise(&before, sight, largest).or_else(tell)?;
            if !state.is_unsettled() {
                self.nobody_waits_in_vain(state, lock, &after).or_else(tell)?;
            }
            let newest = sight.holders().iter().map(|seen| seen.token).max().unwrap_or(0);
            self.tokens.entry(lock.clone()).and_modify(|known| *known = newest.max(*known)).or_insert(newest);
        }
        self.before = after;
        self.tree_is_whole(state, &paths)
    }

    /// Records facts that no list of a queue shows: which tickets may be overtaken, and which pairs
    /// of tickets belong to an upgrade.
    fn remember(&mut self, txn: &Txn, applied: &TxnOutcome, state: &State) {
        let Ok(Reply::Acquired { ticket, .. }) = &applied.reply else { return };
        match &txn.request.op {
            Op::AcquireAll(wish) if wish.policy == Policy::Backfill => {
                let parts = lock::parts(state, ticket).into_iter().flatten();
                self.backfill.extend(parts.map(|part| (part.clone(), applied.zxid.0)));
            }
            Op::Upgrade(upgrade) => {
                drop(self.upgraded.insert((ticket.clone(), applied.zxid.0), upgrade.ticket.clone()))
            }
            _ => {}
        }
    }

    fn look(&self, state: &State, path: &ZPath) -> Sight {
        let queue = lock::queue(state, path, 0, usize::MAX).unwrap();
        let permits = queue.permits.map(|permits| permits.limit);
        let contenders = queue.entries.iter().map(|entry| self.see(state, entry, permits)).collect();
        Sight { permits, contenders }
    }

    fn see(&self, state: &State, entry: &QueueEntry, permits: Option<u32>) -> SeenContender {
        let (path, name) = (entry.ticket.clone(), entry.ticket.name());
        let node = state.node(&path).unwrap();
        let share = match entry.mode {
            LockMode::Lease { permits: count, .. } if permits.is_some() => Share::Permits(count),
            LockMode::Read => Share::OneOfMany,
            _ => Share::All,
        };
        let (born, digits) = (node.stat().czxid.0, name[name.len() - 10..].to_string());
        let is_upgraded = self.upgraded.contains_key(&(path.clone(), born));
        SeenContender {
            share,
            has_it: entry.held || entry.lingers_until_ms.is_some(),
            token: entry.token.0,
            session: entry.session.map(|session| session.0),
            born,
            by_hand: node.contender().is_none(),
            place: (!is_upgraded, Reverse(entry.priority), digits, born),
            path,
        }
    }

    /// Checks that the holders fit together: one with the whole lock, or many readers, or tickets
    /// within the semaphore's number of permits. A writer may hold beside readers of its own
    /// session, in an upgrade or a downgrade.
    fn holders_fit(&self, sight: &Sight) -> Result<(), String> {
        let holders = sight.holders();
        let alone = holders.iter().find(|seen| seen.share == Share::All);
        if let Some(alone) = alone {
            let own = |seen: &&SeenContender| seen.share == Share::OneOfMany && seen.session == alone.session;
            let mut strangers = holders.iter().filter(|seen| seen.path != alone.path && !own(seen));
            return strangers.try_for_each(|seen| Err(format!("{} holds beside {}", seen.path, alone.path)));
        }
        // A ticket with the whole lock may have become one with a permit, when its lock became a
        // semaphore. It keeps holding, and so does a reader beside it.
        let permit_of = |seen: &SeenContender| {
            holders.iter().any(|one| one.share != Share::OneOfMany && one.session == seen.session)
        };
        let counted = holders.iter().filter(|seen| seen.share != Share::OneOfMany || !permit_of(seen));
        let holders: Vec<&SeenContender> = counted.copied().collect();
        for (index, seen) in holders.iter().enumerate() {
            if !sight.is_free(seen.share, &holders[..index]) {
                return Err(format!("too much is held: there is no room for {}", seen.path));
            }
        }
        Ok(())
    }

    /// Checks that a new holder has overtaken no waiter. Exceptions are waiters that may be
    /// overtaken, and grants ahead of the order: a hand-over, and a reader beside the writer of its
    /// own session.
    fn grants_are_in_turn(&self, before: &Sight, after: &Sight, txn: &Txn) -> Result<(), String> {
        let named = match &txn.request.op {
            Op::HandOver { to, .. } => Some(to),
            _ => None,
        };
        let held = |seen: &&SeenContender| before.contenders.iter().any(|old| is_same(old, seen) && old.has_it);
        for new in after.holders().into_iter().filter(|seen| !held(seen) && Some(&seen.path) != named) {
            // A queue shows priorities only for waiters, so the priority is that before the grant.
            let waited = before.contenders.iter().find(|old| is_same(old, new)).map(|old| old.place.clone());
            let place = waited.unwrap_or_else(|| match &txn.request.op {
                Op::Acquire(acquire) => (new.place.0, Reverse(acquire.priority), new.place.2.clone(), new.place.3),
                _ => new.place.clone(),
            });
            let own_writer = |seen: &&SeenContender| {
                seen.share == Share::All && seen.session == new.session && new.session.is_some()
            };
            if new.share == Share::OneOfMany && after.holders().iter().any(own_writer) {
                continue;
            }
            let passed =
                |seen: &&SeenContender| seen.place < place && (new.by_hand || !self.may_be_passed(seen, after));
            if let Some(passed) = after.queue().into_iter().find(passed) {
                return Err(format!("{} holds, and {} before it waits", new.path, passed.path));
            }
        }
        Ok(())
    }

    fn may_be_passed(&self, seen: &SeenContender, sight: &Sight) -> bool {
        self.backfill.contains(&(seen.path.clone(), seen.born)) && sight.permits.is_none()
    }

    /// Checks that no grant is missing: reports a waiter that could hold the lock and is blocked by
    /// no earlier waiter.
    fn nobody_waits_in_vain(&self, state: &State, lock: &ZPath, all: &BTreeMap<ZPath, Sight>) -> Result<(), String> {
        let mut passed = false;
        for next in all[lock].queue() {
            if self.could_hold(state, &next.path, all) && !(next.by_hand && passed) {
                return Err(format!("{} could hold, and waits", next.path));
            }
            if !self.may_be_passed(next, &all[lock]) {
                break;
            }
            passed = true;
        }
        Ok(())
    }

    /// Tells whether a ticket, or all tickets of a multi-lock, could hold without overtaking a
    /// waiter that must not be overtaken.
    fn could_hold(&self, state: &State, ticket: &ZPath, all: &BTreeMap<ZPath, Sight>) -> bool {
        let parts = lock::parts(state, ticket).map_or_else(|| vec![ticket.clone()], <[ZPath]>::to_vec);
        parts.iter().all(|part| {
            let sight = &all[&part.parent().unwrap()];
            let own = sight.contenders.iter().find(|seen| seen.path == *part).unwrap();
            let mut beside = sight.holders();
            beside.retain(|seen| self.upgraded.get(&(part.clone(), own.born)) != Some(&seen.path));
            let blocked =
                sight.queue().into_iter().any(|seen| seen.place < own.place && !self.may_be_passed(seen, sight));
            // In a semaphore the holders must have different tokens, so an entry grants only one of
            // the tickets that would get its zxid as token.
            let now = state.last_zxid().0;
            let largest = sight.contenders.iter().map(|seen| if seen.has_it { seen.token } else { 0 }).max();
            let token_is_taken = sight.permits.is_some() && own.born <= largest.unwrap_or(0) && largest == Some(now);
            sight.is_free(own.share, &beside) && !blocked && !token_is_taken
        })
    }

    /// Checks that each znode has its parent, that each ephemeral znode has an open session or is
    /// kept for its lock-delay, and that no version of a znode falls.
    fn tree_is_whole(&mut self, state: &State, paths: &[ZPath]) -> Result<(), String> {
        let mut versions = BTreeMap::new();
        for path in paths {
            let (node, stat) = (state.node(path).unwrap(), state.node(path).unwrap().stat());
            let lingers = node.contender().is_some_and(|contender| contender.lingers_until_ms.is_some());
            if node.owner().is_some_and(|owner| state.session(owner).is_none()) && !lingers {
                return Err(format!("{path} outlives its session"));
            }
            let now = (stat.czxid.0, stat.version, stat.pzxid.0);
            let before = self.versions.get(path).filter(|(czxid, ..)| *czxid == now.0);
            if before.is_some_and(|before| now < *before) || stat.mzxid > state.last_zxid() {
                return Err(format!("{path} goes back from {before:?} to {now:?}"));
            }
            versions.insert(path.clone(), now);
        }
        self.versions = versions;
        Ok(())
    }
}

fn is_same(left: &SeenContender, right: &SeenContender) -> bool {
    (&left.path, left.born) == (&right.path, right.born)
}

fn has_new_holder(before: &Sight, after: &Sight) -> bool {
    let held = |seen: &&&SeenContender| before.holders().iter().any(|old| is_same(old, seen));
    after.holders().iter().any(|seen| !held(&seen))
}

/// Checks that a holder keeps the lock and its token until its ticket is removed.
fn holders_stay(before: &Sight, after: &Sight) -> Result<(), String> {
    for old in before.holders() {
        if let Some(new) = after.contenders.iter().find(|seen| is_same(seen, old))
            && (!new.has_it || new.token != old.token)
        {
            return Err(format!("{} held with token {}", old.path, old.token));
        }
    }
    Ok(())
}

/// Checks that a grant has a larger token than grants of earlier entries, and, unless it is a
/// reader's, a token that no other holder has.
fn tokens_rise(before: &Sight, after: &Sight, largest: u64) -> Result<(), String> {
    let held = |seen: &SeenContender| before.contenders.iter().any(|old| is_same(old, seen) && old.has_it);
    for new in after.holders().into_iter().filter(|seen| !held(seen)) {
        let same = |other: &&SeenContender| other.token == new.token && other.path != new.path;
        if new.token <= largest || (new.share != Share::OneOfMany && after.holders().iter().any(same)) {
            return Err(format!("{} holds with token {}, after {largest}", new.path, new.token));
        }
    }
    Ok(())
}

/// Paths of all znodes, the root first.
fn all_paths(state: &State) -> Vec<ZPath> {
    let mut paths = vec![ZPath::root()];
    let mut at = 0;
    while at < paths.len() {
        let below: Vec<ZPath> =
            state.children(&paths[at]).unwrap().map(|name| paths[at].child(name).unwrap()).collect();
        paths.extend(below);
        at += 1;
    }
    paths
}
