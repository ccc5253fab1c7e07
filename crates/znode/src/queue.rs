//! The queue of a lock: its holders with their tokens, and its waiters, sorted by `QueueTurn`.
//!
//! A new ticket first waits. `grant.rs` goes through the sorted waiters, and grants the lock as
//! long as the first waiter fits beside the holders. A holder keeps holding until its ticket is
//! removed, even if another ticket enters in front of it.
//!
//! Tokens. The token of a holder is its czxid, or the zxid of the granting entry if a token at
//! least as large was granted before. So of two grants by different entries, the later has the
//! larger token: either its czxid is larger than all tokens before, or its token is the zxid of an
//! entry after all of them. Within one entry only readers can share a token. One entry never grants
//! the lock to two tickets that hold alone, and in a semaphore [`Queue::repeats_token`] leaves the
//! second grant to the next entry. The largest token is forgotten with the queue; any later ticket
//! has a larger czxid.

mod check;
pub(crate) mod contender;
pub(crate) mod demand;
pub(crate) mod ended;
pub(crate) mod revocations;

use std::cmp::Reverse;
use std::ops::Bound;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};

use crate::queue::demand::{Demand, LockUsage};
use crate::queue::ended::Grant;
use crate::words::ticket_name::sequence_of;
use crate::{Contender, FencingToken, LockSettings, SessionId, Zxid};

/// Sort key of a ticket: the sequence number in its name, then its czxid, then its name. The name
/// decides between znodes that one multi created.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) number: u64,
    pub(crate) czxid: Zxid,
    pub(crate) name: Arc<str>,
}

impl Position {
    /// The position of a child; `None` when its name shows that the child is not a ticket.
    pub(crate) fn of(name: &str, czxid: Zxid) -> Option<Position> {
        sequence_of(name).map(|number| Position { number, czxid, name: name.into() })
    }

    fn least() -> Position {
        Position { number: 0, czxid: Zxid(0), name: "".into() }
    }
}

/// Sort key of a waiter: first the write ticket of an upgrade, then by priority, then by position.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueTurn {
    rank: Reverse<u64>,
    pub(crate) position: Position,
}

/// Rank of the write ticket of an upgrade, above all priorities.
const UPGRADED: u64 = u64::MAX;

impl QueueTurn {
    /// The sort key of the write ticket of an upgrade.
    pub(crate) fn upgraded(position: Position) -> QueueTurn {
        QueueTurn { rank: Reverse(UPGRADED), position }
    }
}

/// A ticket (a lock node that holds or waits), as the queue keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) demand: Demand,
    /// The session that owns the znode; `None` for a znode that is not ephemeral.
    pub(crate) session: Option<SessionId>,
    pub(crate) origin: Origin,
}

impl Ticket {
    /// The ticket of a lock node with this name. `contender` is `None` for a lock node that a plain
    /// create made.
    pub(crate) fn of(name: &str, session: Option<SessionId>, contender: Option<&Contender>) -> Ticket {
        let origin = match contender {
            None => Origin::Create,
            Some(contender) if contender.in_multi_lock => Origin::MultiLock,
            Some(_) => Origin::Acquire,
        };
        Ticket { demand: Demand::of(name, contender), session, origin }
    }
}

/// The kind of request that made a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A plain create. Its client compares names, and waits for all tickets before its own.
    Create,
    /// An acquire or an upgrade of this lock alone.
    Acquire,
    /// An acquire of several locks at once: a multi-lock.
    MultiLock,
}

/// A ticket that holds the lock, with its token and the entry that granted the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) ticket: Ticket,
    pub(crate) grant: Grant,
}

/// The two tickets of an upgrade from reading to writing, waiting or granted. A queue has at most
/// one pair: another upgrade is refused until the write ticket is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UpgradePair {
    pub(crate) writer: Position,
    /// The read ticket of the upgrade, which does not block the write ticket. `None` when the read
    /// ticket has been removed.
    pub(crate) reader: Option<Position>,
}

/// The queue of a lock: holders with their tokens, waiters in the order of grants, and settings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    settings: LockSettings,
    holders: OrdMap<Position, Holder>,
    by_token: OrdSet<(FencingToken, Position)>,
    usage: LockUsage,
    /// Position of the holder that has the whole lock; `None` if there is no such holder.
    alone: Option<Position>,
    /// Waiters that want to read; `others` has all other waiters. Two maps, so that a reader finds
    /// the last writer before it at once.
    readers: OrdMap<QueueTurn, Ticket>,
    others: OrdMap<QueueTurn, Ticket>,
    /// Priorities of waiters; a waiter that is not listed has 0.
    priorities: OrdMap<Position, u32>,
    upgrade: Option<UpgradePair>,
    /// The largest fencing token that was granted in this queue.
    top_token: FencingToken,
    /// The waiters in `readers` that are parts of multi-locks.
    reading_parts: OrdMap<QueueTurn, Ticket>,
}

/// Changes of the queue: tickets enter, leave and are granted the lock.
impl Queue {
    /// A queue without tickets, as a snapshot describes it; the caller adds its tickets afterwards.
    pub(crate) fn restored(settings: LockSettings, top_token: FencingToken, upgrade: Option<UpgradePair>) -> Queue {
        Queue { settings, top_token, upgrade, ..Queue::default() }
    }

    /// Tells whether the queue can be dropped: it has no tickets, and default settings.
    pub(crate) fn is_over(&self) -> bool {
        self.is_empty() && self.settings == LockSettings::default()
    }

    /// Adds a ticket as a waiter.
    pub(crate) fn enter(&mut self, position: Position, ticket: Ticket) {
        let turn = self.turn_of(position);
        if is_reading_part(&ticket) {
            self.reading_parts.insert(turn.clone(), ticket);
        }
        self.side_mut(ticket.demand).insert(turn, ticket);
    }

    /// Gives a waiter a priority, which brings it before all waiters with a lower one.
    pub(crate) fn prioritize(&mut self, position: &Position, priority: u32) {
        let Some(ticket) = self.take_waiter(position) else { return };
        self.priorities.insert(position.clone(), priority);
        self.enter(position.clone(), ticket);
    }

    /// Records an upgrade before its write ticket enters. The write ticket will then go before all
    /// waiters, and will not be blocked by the upgrade's read ticket.
    pub(crate) fn expect_upgraded(&mut self, writer: Position, reader: Position) {
        self.upgrade = Some(UpgradePair { writer, reader: Some(reader) });
    }

    /// Makes the waiter at a position a holder. Returns its ticket, or `None` if no ticket waits
    /// there.
    pub(crate) fn grant(&mut self, position: &Position, grant: Grant) -> Option<Ticket> {
        let ticket = self.take_waiter(position)?;
        self.hold(position.clone(), Holder { ticket, grant });
        Some(ticket)
    }

    fn hold(&mut self, position: Position, holder: Holder) {
        let usage = LockUsage::by(holder.ticket.demand, self.settings.limit);
        self.usage = self.usage.plus(usage);
        if usage.alone > 0 {
            self.alone = Some(position.clone());
        }
        self.top_token = self.top_token.max(holder.grant.token);
        self.by_token.insert((holder.grant.token, position.clone()));
        self.holders.insert(position, holder);
    }

    /// Removes a ticket. Returns its holder record if it held the lock, and `None` if it waited.
    pub(crate) fn leave(&mut self, position: &Position) -> Option<Holder> {
        let holder = self.holders.remove(position);
        match &holder {
            Some(Holder { ticket, grant }) => {
                self.usage = self.usage.less(LockUsage::by(ticket.demand, self.settings.limit));
                self.by_token.remove(&(grant.token, position.clone()));
                self.alone.take_if(|alone| alone == position);
            }
            None => drop(self.take_waiter(position)),
        }
        self.upgrade.take_if(|upgrade| upgrade.writer == *position);
        if let Some(upgrade) = &mut self.upgrade {
            upgrade.reader.take_if(|reader| reader == position);
        }
        holder
    }

    fn take_waiter(&mut self, position: &Position) -> Option<Ticket> {
        let turn = self.turn_of(position.clone());
        let ticket = self.others.remove(&turn).or_else(|| self.readers.remove(&turn))?;
        self.priorities.remove(position);
        self.reading_parts.remove(&turn);
        Some(ticket)
    }

    fn side_mut(&mut self, demand: Demand) -> &mut OrdMap<QueueTurn, Ticket> {
        if demand == Demand::Shared { &mut self.readers } else { &mut self.others }
    }

    /// Replaces the settings. A semaphore with tickets must stay a semaphore. If it gets fewer
    /// permits than are taken, no waiter is granted permits until enough are given back.
    pub(crate) fn set(&mut self, settings: LockSettings) {
        let before = self.settings.limit;
        self.settings = settings;
        // A holder of the whole lock takes one permit once the lock is a semaphore.
        let alone = self.alone.as_ref().and_then(|position| self.holders.get(position));
        if let Some(demand) = alone.map(|holder| holder.ticket.demand) {
            self.usage = self.usage.less(LockUsage::by(demand, before)).plus(LockUsage::by(demand, settings.limit));
            self.alone.take_if(|_| self.usage.alone == 0);
        }
    }
}

/// Order of the waiters, room beside the holders, and fencing tokens.
impl Queue {
    /// Tells whether a demand (share of the lock that a ticket wants) fits beside the holders. For
    /// the write ticket of an upgrade, the upgrade's read ticket does not count as a holder.
    pub(crate) fn fits(&self, position: &Position, demand: Demand) -> bool {
        let upgrade = self.upgrade.as_ref().filter(|upgrade| upgrade.writer == *position);
        self.fits_without(upgrade.and_then(|upgrade| upgrade.reader.as_ref()), position, demand)
    }

    /// Tells whether a ticket's demand would fit if the holder `gone` gave the lock back.
    pub(crate) fn fits_after(&self, gone: &Position, position: &Position, demand: Demand) -> bool {
        let mut left = self.clone();
        left.leave(gone);
        left.fits(position, demand)
    }

    fn fits_without(&self, gone: Option<&Position>, position: &Position, demand: Demand) -> bool {
        let limit = self.settings.limit;
        let gone = gone.filter(|gone| *gone != position).and_then(|gone| self.holders.get(gone));
        let usage = gone.map_or(self.usage, |gone| self.usage.less(LockUsage::by(gone.ticket.demand, limit)));
        usage.has_room(demand, limit)
    }

    /// Tells whether two tickets with these demands could hold the lock together.
    pub(crate) fn fit_together(&self, other: Demand, demand: Demand) -> bool {
        LockUsage::by(other, self.settings.limit).has_room(demand, self.settings.limit)
    }

    /// The fencing token that a ticket gets if the entry `now` grants it the lock.
    pub(crate) fn token_at(&self, position: &Position, now: Zxid) -> FencingToken {
        let own = FencingToken::from(position.czxid);
        if own > self.top_token { own } else { FencingToken::from(now) }
    }

    /// Raises the largest granted token to at least `token`, which a client may already have.
    pub(crate) fn raise_top_token(&mut self, token: FencingToken) {
        self.top_token = self.top_token.max(token);
    }

    /// Tells whether a grant by the entry `now` would repeat a token. A ticket for the whole lock
    /// needs a token above all earlier ones; in a semaphore, one that no present holder has.
    pub(crate) fn repeats_token(&self, position: &Position, demand: Demand, now: Zxid) -> bool {
        let token = self.token_at(position, now);
        let alone = LockUsage::by(demand, self.settings.limit).alone > 0;
        alone && token <= self.top_token || self.settings.limit.is_some() && self.holders_with(token).next().is_some()
    }

    fn rank_of(&self, position: &Position) -> u64 {
        match &self.upgrade {
            Some(upgrade) if upgrade.writer == *position => UPGRADED,
            _ => u64::from(self.priority_of(position)),
        }
    }

    fn turn_of(&self, position: Position) -> QueueTurn {
        QueueTurn { rank: Reverse(self.rank_of(&position)), position }
    }

    /// The sort key of the waiter at a position.
    pub(crate) fn turn(&self, position: &Position) -> QueueTurn {
        self.turn_of(position.clone())
    }

    /// The waiters, sorted by `QueueTurn`.
    pub(crate) fn waiters(&self) -> impl Iterator<Item = (&Position, &Ticket)> {
        merge(self.readers.iter(), self.others.iter())
    }

    /// The waiters before a sort key; all waiters for `None`.
    pub(crate) fn waiters_before<'a>(
        &'a self,
        turn: Option<&QueueTurn>,
    ) -> impl Iterator<Item = (&'a Position, &'a Ticket)> + use<'a> {
        let end = || turn.map_or(Bound::Unbounded, Bound::Excluded).cloned();
        let readers = self.readers.range((Bound::Unbounded, end()));
        merge(readers, self.others.range((Bound::Unbounded, end())))
    }

    /// The waiters before a sort key that can block a reader. Readers of single locks are left out,
    /// because the waiters that block them come before the key, too.
    pub(crate) fn blockers_of_reader<'a>(
        &'a self,
        turn: Option<&QueueTurn>,
    ) -> impl Iterator<Item = (&'a Position, &'a Ticket)> + use<'a> {
        let end = || turn.map_or(Bound::Unbounded, Bound::Excluded).cloned();
        merge(self.reading_parts.range((Bound::Unbounded, end())), self.others.range((Bound::Unbounded, end())))
    }

    /// The last waiter before a sort key.
    pub(crate) fn waiter_before(&self, turn: &QueueTurn) -> Option<&Position> {
        let before = (Bound::Unbounded, Bound::Excluded(turn.clone()));
        let reader = self.readers.range(before.clone()).next_back();
        let other = self.others.range(before).next_back();
        reader.into_iter().chain(other).map(|(turn, _)| turn).max().map(|turn| &turn.position)
    }

    /// The sort key of the last waiter before `turn` that is not a reader.
    pub(crate) fn writer_before(&self, turn: &QueueTurn) -> Option<&QueueTurn> {
        self.others.range((Bound::Unbounded, Bound::Excluded(turn.clone()))).next_back().map(|(turn, _)| turn)
    }

    /// Number of tickets before a ticket. Costs O(n) in the tickets before it or behind it,
    /// whichever are fewer: most calls are for a ticket that has just joined a long queue.
    pub(crate) fn place_of(&self, position: &Position) -> usize {
        if self.holders.contains_key(position) {
            return rank(&self.holders, position);
        }
        let turn = self.turn_of(position.clone());
        self.holders.len() + rank(&self.readers, &turn) + rank(&self.others, &turn)
    }
}

/// Reads of the queue.
impl Queue {
    pub(crate) fn settings(&self) -> LockSettings {
        self.settings
    }

    /// Tells whether the queue has no tickets.
    pub(crate) fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.waiter_count() == 0
    }

    /// Number of tickets, holders and waiters.
    pub(crate) fn len(&self) -> usize {
        self.holders.len() + self.waiter_count()
    }

    pub(crate) fn waiter_count(&self) -> usize {
        self.readers.len() + self.others.len()
    }

    /// Tells whether the limit of waiters in the settings is reached; false without a limit.
    pub(crate) fn is_full(&self) -> bool {
        self.settings.waiters_max.is_some_and(|max| self.waiter_count() >= max as usize)
    }

    /// Tells whether more tickets wait than the settings allow; false without a limit.
    pub(crate) fn is_over_full(&self) -> bool {
        self.settings.waiters_max.is_some_and(|max| self.waiter_count() > max as usize)
    }

    /// The holders, in the order of their positions.
    pub(crate) fn holders(&self) -> impl DoubleEndedIterator<Item = (&Position, &Holder)> {
        self.holders.iter()
    }

    pub(crate) fn holder_count(&self) -> usize {
        self.holders.len()
    }

    pub(crate) fn holder(&self, position: &Position) -> Option<&Holder> {
        self.holders.get(position)
    }

    /// Tells whether all holders are readers; true if there are no holders.
    pub(crate) fn all_share(&self) -> bool {
        self.usage.alone == 0 && self.usage.units == 0
    }

    /// The holder that has the whole lock; `None` if there is no such holder.
    pub(crate) fn alone(&self) -> Option<(&Position, &Holder)> {
        let position = self.alone.as_ref()?;
        Some((position, self.holders.get(position)?))
    }

    pub(crate) fn waits(&self, position: &Position) -> bool {
        self.waiter(position).is_some()
    }

    pub(crate) fn waiter(&self, position: &Position) -> Option<&Ticket> {
        let turn = self.turn(position);
        self.others.get(&turn).or_else(|| self.readers.get(&turn))
    }

    /// All tickets: holders by position, then waiters sorted by `QueueTurn`.
    pub(crate) fn tickets(&self) -> impl Iterator<Item = &Position> {
        self.holders.keys().chain(self.waiters().map(|(position, _)| position))
    }

    /// The holders with a fencing token. Only readers granted by one entry can share a token.
    pub(crate) fn holders_with(&self, token: FencingToken) -> impl Iterator<Item = &Position> {
        let from = (token, Position::least());
        self.by_token.range(from..).take_while(move |(other, _)| *other == token).map(|(_, position)| position)
    }

    /// The ticket that is shown to people as the one that a waiter waits for. For a reader, the
    /// last waiter before it that is not a reader; for another ticket, the waiter just before it.
    /// If there is no such waiter, the last holder.
    pub(crate) fn predecessor(&self, position: &Position) -> Option<&Position> {
        let turn = self.turn(position);
        let writer = self.writer_before(&turn).map(|writer| &writer.position);
        let waiter = if self.readers.contains_key(&turn) { writer } else { self.waiter_before(&turn) };
        waiter.or_else(|| self.holders.keys().next_back())
    }

    pub(crate) fn priority_of(&self, position: &Position) -> u32 {
        if self.priorities.is_empty() { 0 } else { self.priorities.get(position).copied().unwrap_or(0) }
    }

    pub(crate) fn upgrade(&self) -> Option<&UpgradePair> {
        self.upgrade.as_ref()
    }

    /// Tells whether the upgrade's tickets all hold or wait in the queue; true without an upgrade.
    pub(crate) fn has_all_of_upgrade(&self) -> bool {
        let stands = |position: &Position| self.holders.contains_key(position) || self.waits(position);
        let tickets = self.upgrade.iter().flat_map(|upgrade| [Some(&upgrade.writer), upgrade.reader.as_ref()]);
        tickets.flatten().all(stands)
    }

    pub(crate) fn top_token(&self) -> FencingToken {
        self.top_token
    }

    /// Number of permits that the holders of a semaphore have.
    pub(crate) fn units_taken(&self) -> u32 {
        self.usage.units
    }

    /// Number of permits that a demand takes in this semaphore. `None` if the lock is no semaphore,
    /// or the demand is not for permits.
    pub(crate) fn units_of(&self, demand: Demand) -> Option<u32> {
        let units = LockUsage::by(demand, self.settings.limit).units;
        Some(units).filter(|_| self.settings.limit.is_some() && !matches!(demand, Demand::Alone | Demand::Shared))
    }
}

fn is_reading_part(ticket: &Ticket) -> bool {
    ticket.demand == Demand::Shared && ticket.origin == Origin::MultiLock
}

/// Merges two sorted iterators of waiters into one, sorted by `QueueTurn`.
fn merge<'a>(
    readers: impl Iterator<Item = (&'a QueueTurn, &'a Ticket)>,
    others: impl Iterator<Item = (&'a QueueTurn, &'a Ticket)>,
) -> impl Iterator<Item = (&'a Position, &'a Ticket)> {
    let (mut readers, mut others) = (readers.peekable(), others.peekable());
    std::iter::from_fn(move || {
        let reads = match (readers.peek(), others.peek()) {
            (Some((reader, _)), Some((other, _))) => reader < other,
            (reader, _) => reader.is_some(),
        };
        let next = if reads { readers.next() } else { others.next() };
        next.map(|(turn, ticket)| (&turn.position, ticket))
    })
}

/// Number of keys in a map below `key`, which need not be in the map.
fn rank<K: Ord + Clone, V: Clone>(map: &OrdMap<K, V>, key: &K) -> usize {
    let mut before = map.range((Bound::Unbounded, Bound::Excluded(key.clone())));
    let mut from_it_on = map.range((Bound::Included(key.clone()), Bound::Unbounded));
    let mut steps = 0;
    loop {
        if before.next().is_none() {
            return steps;
        }
        if from_it_on.next().is_none() {
            return map.len() - steps;
        }
        steps += 1;
    }
}
