//! The queue of a lock: who holds, with which token, who waits, and whose turn is next.
//!
//! A ticket that enters waits. `grant.rs` looks at the waiters in the order of their turns, and
//! grants the lock while the first one fits beside the holders. A holder stays one until its ticket
//! goes, whatever enters in front of it.
//!
//! Tokens. A ticket holds with its czxid as the token, or with the zxid of the entry that grants
//! when a token at least as large was granted before. So for two grants by different entries the
//! later has the larger token: either its czxid is larger than the largest before, or its token is
//! an entry younger than all before. Within one entry only readers can share one: two that hold
//! alone are never granted by one entry, and in a semaphore [`Queue::repeats_token`] leaves the
//! second to the next. When the queue is gone its largest token is forgotten, and any later ticket
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

/// Place of a ticket by its name: sequence number first; the czxid decides between equal numbers,
/// and the name between znodes that one multi created.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) number: u64,
    pub(crate) czxid: Zxid,
    pub(crate) name: Arc<str>,
}

impl Position {
    /// The position of a child; `None` when it is no ticket.
    pub(crate) fn of(name: &str, czxid: Zxid) -> Option<Position> {
        sequence_of(name).map(|number| Position { number, czxid, name: name.into() })
    }

    fn least() -> Position {
        Position { number: 0, czxid: Zxid(0), name: "".into() }
    }
}

/// The turn of a waiter. They are ordered: the upgraded writer, then by priority, then by position.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueTurn {
    rank: Reverse<u64>,
    pub(crate) position: Position,
}

/// The rank before any priority.
const UPGRADED: u64 = u64::MAX;

impl QueueTurn {
    /// The turn of a writer that a reader is to become.
    pub(crate) fn upgraded(position: Position) -> QueueTurn {
        QueueTurn { rank: Reverse(UPGRADED), position }
    }
}

/// A ticket as the queue knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) demand: Demand,
    /// The owner; `None` for a znode that is not ephemeral.
    pub(crate) session: Option<SessionId>,
    pub(crate) origin: Origin,
}

impl Ticket {
    /// The ticket of a znode by that name.
    pub(crate) fn of(name: &str, session: Option<SessionId>, contender: Option<&Contender>) -> Ticket {
        let origin = match contender {
            None => Origin::Create,
            Some(contender) if contender.in_multi_lock => Origin::MultiLock,
            Some(_) => Origin::Acquire,
        };
        Ticket { demand: Demand::of(name, contender), session, origin }
    }
}

/// Origin of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A create: its client looks at names, and waits for all that are before its own.
    Create,
    /// An acquire or an upgrade of this lock alone.
    Acquire,
    /// An acquire of several locks, of which this is one.
    MultiLock,
}

/// A ticket that holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) ticket: Ticket,
    pub(crate) grant: Grant,
}

/// The tickets of a reader that became a writer, or wants to. There is one pair in a queue, as long
/// as the writer's ticket stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UpgradePair {
    pub(crate) writer: Position,
    /// The ticket beside which the writer fits. `None` when it has gone.
    pub(crate) reader: Option<Position>,
}

/// The queue of a lock. See the head of the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    settings: LockSettings,
    holders: OrdMap<Position, Holder>,
    by_token: OrdSet<(FencingToken, Position)>,
    usage: LockUsage,
    /// The one that holds alone.
    alone: Option<Position>,
    /// Waiters that want a share, and all others. Apart, so that a reader finds the writers before
    /// it.
    readers: OrdMap<QueueTurn, Ticket>,
    others: OrdMap<QueueTurn, Ticket>,
    /// Waiters with a priority above the ordinary one, which is 0.
    priorities: OrdMap<Position, u32>,
    upgrade: Option<UpgradePair>,
    /// The largest token that was granted.
    top_token: FencingToken,
    /// Readers that wait as parts of multi-locks.
    reading_parts: OrdMap<QueueTurn, Ticket>,
}

/// Entering, leaving, granting.
impl Queue {
    /// A queue as a snapshot has it, before its tickets.
    pub(crate) fn restored(settings: LockSettings, top_token: FencingToken, upgrade: Option<UpgradePair>) -> Queue {
        Queue { settings, top_token, upgrade, ..Queue::default() }
    }

    /// Tells whether there is nothing to remember any more.
    pub(crate) fn is_over(&self) -> bool {
        self.is_empty() && self.settings == LockSettings::default()
    }

    /// Lets a ticket come, and wait.
    pub(crate) fn enter(&mut self, position: Position, ticket: Ticket) {
        let turn = self.turn_of(position);
        if is_reading_part(&ticket) {
            self.reading_parts.insert(turn.clone(), ticket);
        }
        self.side_mut(ticket.demand).insert(turn, ticket);
    }

    /// Brings a waiter before all with a lower priority.
    pub(crate) fn prioritize(&mut self, position: &Position, priority: u32) {
        let Some(ticket) = self.take_waiter(position) else { return };
        self.priorities.insert(position.clone(), priority);
        self.enter(position.clone(), ticket);
    }

    /// Expects an upgraded writer: the ticket at this position, which is not there yet, goes before
    /// all others, and fits without that reader.
    pub(crate) fn expect_upgraded(&mut self, writer: Position, reader: Position) {
        self.upgrade = Some(UpgradePair { writer, reader: Some(reader) });
    }

    /// Lets a waiter hold from here on, with a token for which it was looked at last.
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

    /// Takes a ticket out. Returns what it held, if it did.
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

    /// Sets what the lock is. While there are tickets a limit can come and change, but not go. One
    /// that is less than what is taken lets no waiter hold until as much is given back.
    pub(crate) fn set(&mut self, settings: LockSettings) {
        let before = self.settings.limit;
        self.settings = settings;
        // Of all holders only one that holds alone can have a demand that means something else now.
        let alone = self.alone.as_ref().and_then(|position| self.holders.get(position));
        if let Some(demand) = alone.map(|holder| holder.ticket.demand) {
            self.usage = self.usage.less(LockUsage::by(demand, before)).plus(LockUsage::by(demand, settings.limit));
            self.alone.take_if(|_| self.usage.alone == 0);
        }
    }
}

/// The order of turns.
impl Queue {
    /// Tells whether there is room beside the holders; for the upgraded writer, without its reader.
    pub(crate) fn fits(&self, position: &Position, demand: Demand) -> bool {
        let upgrade = self.upgrade.as_ref().filter(|upgrade| upgrade.writer == *position);
        self.fits_without(upgrade.and_then(|upgrade| upgrade.reader.as_ref()), position, demand)
    }

    /// Tells what [`Queue::fits`] would if the holder `gone` did not hold.
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

    /// Tells whether there is room for one demand beside another alone.
    pub(crate) fn fit_together(&self, other: Demand, demand: Demand) -> bool {
        LockUsage::by(other, self.settings.limit).has_room(demand, self.settings.limit)
    }

    /// The token with which a ticket holds that is granted the lock now.
    pub(crate) fn token_at(&self, position: &Position, now: Zxid) -> FencingToken {
        let own = FencingToken::from(position.czxid);
        if own > self.top_token { own } else { FencingToken::from(now) }
    }

    /// Tokens up to this one may have been shown to resources, whatever this queue remembers.
    pub(crate) fn raise_top_token(&mut self, token: FencingToken) {
        self.top_token = self.top_token.max(token);
    }

    /// Tells whether a grant in this entry would repeat a token: that of a present holder where
    /// tokens tell holders apart, and for one that would hold alone any that was granted.
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

    /// The turn of a waiter.
    pub(crate) fn turn(&self, position: &Position) -> QueueTurn {
        self.turn_of(position.clone())
    }

    /// The waiters, in the order of their turns.
    pub(crate) fn waiters(&self) -> impl Iterator<Item = (&Position, &Ticket)> {
        merge(self.readers.iter(), self.others.iter())
    }

    /// The waiters whose turn is before one; all, where that is at the end.
    pub(crate) fn waiters_before<'a>(
        &'a self,
        turn: Option<&QueueTurn>,
    ) -> impl Iterator<Item = (&'a Position, &'a Ticket)> + use<'a> {
        let end = || turn.map_or(Bound::Unbounded, Bound::Excluded).cloned();
        let readers = self.readers.range((Bound::Unbounded, end()));
        merge(readers, self.others.range((Bound::Unbounded, end())))
    }

    /// The waiters whose turn is before one, without readers that are no parts of multi-locks: a
    /// waiter that blocks such a reader blocks the later ones, too.
    pub(crate) fn blockers_of_reader<'a>(
        &'a self,
        turn: Option<&QueueTurn>,
    ) -> impl Iterator<Item = (&'a Position, &'a Ticket)> + use<'a> {
        let end = || turn.map_or(Bound::Unbounded, Bound::Excluded).cloned();
        merge(self.reading_parts.range((Bound::Unbounded, end())), self.others.range((Bound::Unbounded, end())))
    }

    /// The waiter whose turn is just before one.
    pub(crate) fn waiter_before(&self, turn: &QueueTurn) -> Option<&Position> {
        let before = (Bound::Unbounded, Bound::Excluded(turn.clone()));
        let reader = self.readers.range(before.clone()).next_back();
        let other = self.others.range(before).next_back();
        reader.into_iter().chain(other).map(|(turn, _)| turn).max().map(|turn| &turn.position)
    }

    /// The last waiter before a turn that wants more than a share.
    pub(crate) fn writer_before(&self, turn: &QueueTurn) -> Option<&QueueTurn> {
        self.others.range((Bound::Unbounded, Bound::Excluded(turn.clone()))).next_back().map(|(turn, _)| turn)
    }

    /// Number of tickets before a waiter. O(n) in these or in those behind it, whichever are fewer:
    /// one that has just joined a long queue, and asks most, is at its end.
    pub(crate) fn place_of(&self, position: &Position) -> usize {
        if self.holders.contains_key(position) {
            return rank(&self.holders, position);
        }
        let turn = self.turn_of(position.clone());
        self.holders.len() + rank(&self.readers, &turn) + rank(&self.others, &turn)
    }
}

/// Looks at what is there.
impl Queue {
    pub(crate) fn settings(&self) -> LockSettings {
        self.settings
    }

    /// Tells whether it has no tickets.
    pub(crate) fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.waiter_count() == 0
    }

    /// Number of its tickets.
    pub(crate) fn len(&self) -> usize {
        self.holders.len() + self.waiter_count()
    }

    pub(crate) fn waiter_count(&self) -> usize {
        self.readers.len() + self.others.len()
    }

    /// Tells whether as many wait as may.
    pub(crate) fn is_full(&self) -> bool {
        self.settings.waiters_max.is_some_and(|max| self.waiter_count() >= max as usize)
    }

    /// Tells whether more wait than may.
    pub(crate) fn is_over_full(&self) -> bool {
        self.settings.waiters_max.is_some_and(|max| self.waiter_count() > max as usize)
    }

    /// The holders, by position.
    pub(crate) fn holders(&self) -> impl DoubleEndedIterator<Item = (&Position, &Holder)> {
        self.holders.iter()
    }

    pub(crate) fn holder_count(&self) -> usize {
        self.holders.len()
    }

    pub(crate) fn holder(&self, position: &Position) -> Option<&Holder> {
        self.holders.get(position)
    }

    /// Tells whether all holders have a share.
    pub(crate) fn all_share(&self) -> bool {
        self.usage.alone == 0 && self.usage.units == 0
    }

    /// The one that holds alone.
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

    /// All tickets: holders by position, then waiters in the order of their turns.
    pub(crate) fn tickets(&self) -> impl Iterator<Item = &Position> {
        self.holders.keys().chain(self.waiters().map(|(position, _)| position))
    }

    /// The holders with a token. Several only where readers were granted the lock by one entry.
    pub(crate) fn holders_with(&self, token: FencingToken) -> impl Iterator<Item = &Position> {
        let from = (token, Position::least());
        self.by_token.range(from..).take_while(move |(other, _)| *other == token).map(|(_, position)| position)
    }

    /// The ticket before a waiter, for people: the waiter before it, of a reader the last one
    /// before it that is none, or else the last of the holders.
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

    /// Tells whether the tickets of the upgrade are there.
    pub(crate) fn has_all_of_upgrade(&self) -> bool {
        let stands = |position: &Position| self.holders.contains_key(position) || self.waits(position);
        let tickets = self.upgrade.iter().flat_map(|upgrade| [Some(&upgrade.writer), upgrade.reader.as_ref()]);
        tickets.flatten().all(stands)
    }

    pub(crate) fn top_token(&self) -> FencingToken {
        self.top_token
    }

    /// The permits of a semaphore that its holders have.
    pub(crate) fn units_taken(&self) -> u32 {
        self.usage.units
    }

    /// The permits that a ticket wants where it stands, in a semaphore.
    pub(crate) fn units_of(&self, demand: Demand) -> Option<u32> {
        let units = LockUsage::by(demand, self.settings.limit).units;
        Some(units).filter(|_| self.settings.limit.is_some() && !matches!(demand, Demand::Alone | Demand::Shared))
    }
}

fn is_reading_part(ticket: &Ticket) -> bool {
    ticket.demand == Demand::Shared && ticket.origin == Origin::MultiLock
}

/// Two rows of waiters as one.
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

/// Number of keys before one, which need not be there.
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
