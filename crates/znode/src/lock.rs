//! Locks as readings of znodes: who holds, who waits. Of that a lock has no state of its own; what is remembered or asked of
//! it beyond its queue is in the files of `lock/`.
//!
//! A lock is a znode with contenders among its children: children whose names end in ten digits, whoever made them. They
//! queue by number, then by czxid, then by name. A writer holds when nothing is before it; a reader when no writer is before it.

pub(crate) mod deadlock;
mod grants;
mod limits;
pub(crate) mod naming;
pub(crate) mod past;
pub(crate) mod records;
pub(crate) mod revoke;
pub(crate) mod upgrade;

use std::ops::Bound;
use std::sync::Arc;

use bincode::{Decode, Encode};
use imbl::OrdSet;

use crate::ledger::{Demand, demand_of};
use crate::znode::{Contender, Kind, Place, Znode, is_shared, mode_of, sequence_of};
use crate::{ClientInfo, Error, FencingToken, LockMode, LockSettings, SessionId, State, ZPath, Zxid};

pub use deadlock::WaitsFor;
pub use limits::LockLimits;
pub use naming::{BlindSpot, Naming, lint};
pub use past::{EndedSession, Grant, Moment, PastTicket, TicketEnd, grant, history, may_read_of_ended, may_read_past};
pub use revoke::{Revocation, revocation};

/// Where a ticket stands.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum LockStatus {
    /// It holds the lock.
    Held {
        /// What to show to resources.
        token: FencingToken,
        /// How often the owner holds it.
        holds: u32,
    },
    /// It waits.
    Waiting {
        /// The contender before it. Its going may make it the holder; see [`to_watch`].
        predecessor: ZPath,
    },
}

/// One contender, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueEntry {
    /// The lock node.
    pub ticket: ZPath,
    /// Contenders before it.
    pub position: u32,
    /// Whether it holds the lock now. A lingering node does not, but nobody else does either.
    pub held: bool,
    /// How it wants the lock; told by its name when another client made it.
    pub mode: LockMode,
    /// Its session; `None` for a znode that is not ephemeral.
    pub session: Option<SessionId>,
    /// The label of its session; empty also when the session has ended and is forgotten.
    pub session_label: String,
    /// The client of its session, likewise.
    pub client: Arc<ClientInfo>,
    /// Who, within the session; empty for nobody.
    pub owner: String,
    /// The lock node's data if that is text, and no longer than a label may be.
    pub label: Option<String>,
    /// When it entered the queue, in milliseconds since 1970 by the leader's clock.
    pub since_ms: u64,
    /// The fencing token that it has, or will have when it holds: its czxid. Once somebody was passed in the queue (by leave
    /// of a waiting multi-lock), the token of a waiter is not known before it holds, and may be larger.
    pub token: FencingToken,
    /// Since when it holds; `None` while it waits, and for a znode that no session owns.
    pub grant: Option<Grant>,
    /// Whether it was asked to give up.
    pub revocation: Option<Revocation>,
    /// Acquires that share it.
    pub holds: u32,
    /// In a semaphore: the permits that it has, or wants.
    pub permits: Option<u32>,
    /// In a closed lock: the priority with which it waits.
    pub priority: u32,
    /// Its session expired while it held: until when it keeps others out.
    pub lingers_until_ms: Option<u64>,
}

/// A page of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// All contenders, holders included.
    pub contenders: u32,
    /// The page, in order; holders come first.
    pub entries: Vec<QueueEntry>,
    /// Of a semaphore.
    pub permits: Option<Permits>,
    /// What was set for the lock.
    pub settings: LockSettings,
}

/// The permits of a semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permits {
    /// How many there are.
    pub limit: u32,
    /// How many of them are taken.
    pub held: u32,
}

/// A lock in a list of locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockSummary {
    /// The lock directory.
    pub lock: ZPath,
    /// All contenders, holders included.
    pub contenders: u32,
    /// The first in the queue.
    pub first: QueueEntry,
}

/// Where a ticket stands. O(log n) in the length of the queue.
///
/// # Errors
/// `NoNode` when the lock node is gone: released, withdrawn, or its session ended. `SessionExpired` when the session
/// expired and the node lingers for its lock-delay, or waits to be removed: it holds for no client. `BadArguments` when the path is
/// no lock node's.
pub fn status(state: &State, ticket: &ZPath) -> Result<LockStatus, Error> {
    let (parent, node, place) = contender(state, ticket)?;
    if node.lingers_until_ms().is_some() || state.waits_in_vain(ticket, node) {
        return Err(Error::SessionExpired);
    }
    if let Some(ledger) = &parent.family.ledger {
        return match ledger.grant_of(&place) {
            Some(grant) => Ok(LockStatus::Held { token: grant.token, holds: holds(state, ticket, node) }),
            None => Ok(LockStatus::Waiting { predecessor: before_in_ledger(state, ticket, node, &place)? }),
        };
    }
    match predecessor(state, parent, ticket, node, &place) {
        Some(name) => {
            let lock = ticket.parent().ok_or(Error::BadArguments)?;
            Ok(LockStatus::Waiting { predecessor: lock.child(name)? })
        }
        // It is told when its token is.
        None if state.awaits_token(ticket, node) => Ok(LockStatus::Waiting { predecessor: ticket.clone() }),
        None => Ok(LockStatus::Held { token: state.token_of(ticket, node), holds: holds(state, ticket, node) }),
    }
}

/// Whether nothing is before a ticket in a lock without a ledger.
pub(crate) fn is_first(state: &State, ticket: &ZPath) -> bool {
    contender(state, ticket).is_ok_and(|(parent, node, place)| {
        node.lingers_until_ms().is_none() && predecessor(state, parent, ticket, node, &place).is_none()
    })
}

/// The znode whose next event may make a waiting ticket a holder: its predecessor, whose going does it, or the ticket itself
/// in a lock whose ledger is told of every grant ([`crate::EventKind::Granted`]). One that waits for its token alone is its
/// own predecessor, and is told in the same way.
pub fn to_watch(state: &State, ticket: &ZPath, predecessor: ZPath) -> ZPath {
    let told = ticket.parent().is_some_and(|lock| state.ledger(&lock).is_some());
    if told { ticket.clone() } else { predecessor }
}

/// The lock nodes of the multi-lock that a ticket is a part of, in the order of its request.
pub fn parts<'a>(state: &'a State, ticket: &ZPath) -> Option<&'a [ZPath]> {
    let node = state.node(ticket)?;
    state.multi_of(ticket, node).map(|multi| &*multi.tickets)
}

/// Who is before a waiter, for people. A part that is the first in its own queue waits where another part does.
fn before_in_ledger(state: &State, ticket: &ZPath, node: &Znode, place: &Place) -> Result<ZPath, Error> {
    let before = |ticket: &ZPath, place: &Place| {
        let lock = ticket.parent()?;
        lock.child(&state.ledger(&lock)?.before(place)?.name).ok()
    };
    if let Some(before) = before(ticket, place) {
        return Ok(before);
    }
    let others = state.multi_of(ticket, node).map_or(&[][..], |multi| &multi.tickets);
    let elsewhere = others.iter().find_map(|other| before(other, &Place::of(other.name(), node.czxid)?));
    Ok(elsewhere.unwrap_or_else(|| ticket.clone()))
}

/// How many contenders are before a ticket. O(n) in these or in those behind it, whichever are fewer: whoever has just joined
/// a long queue, and asks most, is at its end.
///
/// # Errors
/// `NoNode` and `BadArguments` as for [`status`].
pub fn position(state: &State, ticket: &ZPath) -> Result<u32, Error> {
    let (parent, _, place) = contender(state, ticket)?;
    let places = &parent.family.contenders;
    let mut from_it_on = places.range::<_, Place>((Bound::Included(&place), Bound::Unbounded));
    let mut before = before(places, &place);
    let mut steps = 0;
    loop {
        if before.next().is_none() {
            return Ok(count(steps));
        }
        if from_it_on.next().is_none() {
            return Ok(count(places.len() - steps));
        }
        steps += 1;
    }
}

/// A lock's queue: at most `max` contenders after the first `from`.
///
/// # Errors
/// `NoNode` when there is no znode at the path. One without contenders is a free lock.
pub fn queue(state: &State, lock: &ZPath, from: usize, max: usize) -> Result<Queue, Error> {
    let parent = state.node(lock).ok_or(Error::NoNode)?;
    let page = parent.family.contenders.iter().enumerate().skip(from).take(max);
    let entries = page.map(|(position, place)| entry(state, lock, position, &place.name)).collect::<Result<_, _>>()?;
    let ledger = parent.family.ledger.as_ref();
    let settings = ledger.map(|ledger| ledger.settings).unwrap_or_default();
    let permits =
        ledger.and_then(|ledger| Some(Permits { limit: ledger.settings.limit?, held: ledger.permits_held() }));
    Ok(Queue { contenders: count(parent.family.contenders.len()), entries, permits, settings })
}

/// The first of those who hold; `None` when nobody does, as while a dead holder lingers.
///
/// # Errors
/// None that a consistent state can have; the signature says that nothing here panics.
pub fn holder(state: &State, lock: &ZPath) -> Result<Option<QueueEntry>, Error> {
    let Some(parent) = state.node(lock) else {
        return Ok(None);
    };
    let first = match &parent.family.ledger {
        Some(ledger) => ledger.granted().next().map(|(place, _)| place),
        None => parent.family.contenders.get_min(),
    };
    let Some(place) = first else {
        return Ok(None);
    };
    let position = count(before(&parent.family.contenders, place).count());
    Ok(Some(entry(state, lock, position as usize, &place.name)?).filter(|entry| entry.held))
}

/// The locks at and under `prefix` that have contenders, sorted by path: at most `max`, after `after`.
///
/// # Errors
/// None that a consistent state can have; the signature says that nothing here panics.
pub fn list(state: &State, prefix: &ZPath, after: Option<&ZPath>, max: usize) -> Result<Vec<LockSummary>, Error> {
    paths(state, prefix, after).take(max).map(|lock| summary(state, lock)).collect()
}

/// Their paths: all of them, which costs nothing before they are looked at.
pub fn paths<'a>(state: &'a State, prefix: &'a ZPath, after: Option<&'a ZPath>) -> impl Iterator<Item = &'a ZPath> {
    // Paths below "/a" are those from "/a/" to before "/a0": '0' follows '/'. "/a-b" sorts between "/a" and "/a/".
    let below = match prefix.is_root() {
        true => String::from("/"),
        false => format!("{prefix}/"),
    };
    let itself = state.locks.get(prefix).into_iter();
    let itself = itself.filter(move |path| after.is_none_or(|after| *path > after));
    let from = after.map_or(&*below, |after| after.as_str().max(&below));
    let under = state.locks.range::<_, str>((Bound::Included(from), Bound::Unbounded));
    let under = under.take_while(move |path| path.as_str().starts_with(&below));
    let under = under.filter(move |path| *path != prefix && after.is_none_or(|after| *path > after));
    itself.chain(under)
}

/// Whether the token is that of a present holder of the lock: of a lock node in its queue, or of the ephemeral znode that is
/// the lock itself where nobody queues. O(log n).
pub fn is_held_with(state: &State, lock: &ZPath, token: FencingToken) -> bool {
    is_held(state, lock, token, None)
}

/// Whether it is that of a present holder which the session owns.
pub fn is_held_by(state: &State, lock: &ZPath, token: FencingToken, session: SessionId) -> bool {
    is_held(state, lock, token, Some(session))
}

/// By whomever, if no session is given.
fn is_held(state: &State, lock: &ZPath, token: FencingToken, session: Option<SessionId>) -> bool {
    let Some(parent) = state.node(lock) else {
        return false;
    };
    let theirs = |node: &Znode| session.is_none() || node.owner() == session;
    if let Kind::Ephemeral { .. } = parent.kind() {
        return parent.czxid == Zxid(token.0) && sequence_of(lock.name()).is_none() && theirs(parent);
    }
    let holds = |name: &str| {
        let ticket = lock.child(name);
        let ticket = ticket.ok().filter(|ticket| session.is_none() || state.node(ticket).is_some_and(theirs));
        ticket.is_some_and(|ticket| matches!(status(state, &ticket), Ok(LockStatus::Held { .. })))
    };
    if let Some(ledger) = &parent.family.ledger {
        return ledger.holders_with(token).any(|place| holds(&place.name));
    }
    let czxid = Zxid(token.0);
    let mut tokens = parent.family.tokens.range((czxid, "".into())..).take_while(|(other, _)| *other == czxid);
    tokens.any(|(_, name)| holds(name))
}

/// The parent, the lock node and its place in the queue.
fn contender<'a>(state: &'a State, ticket: &ZPath) -> Result<(&'a Znode, &'a Znode, Place), Error> {
    let lock = ticket.parent_str().ok_or(Error::BadArguments)?;
    let place = Place::of(ticket.name(), Zxid(0)).ok_or(Error::BadArguments)?;
    let node = state.node(ticket).ok_or(Error::NoNode)?;
    let parent = state.nodes.get(lock).ok_or(Error::NoNode)?;
    Ok((parent, node, Place { czxid: node.czxid, ..place }))
}

/// The contender that must go before this one can hold; `None` when it holds.
fn predecessor<'a>(state: &State, parent: &'a Znode, ticket: &ZPath, node: &Znode, place: &Place) -> Option<&'a str> {
    if !is_shared(ticket.name()) {
        let passes = if state.upgrades.is_empty() { None } else { state.passes(&ticket.parent()?, ticket.name()) };
        let mut names = before(&parent.family.contenders, place).rev().map(|place| &*place.name);
        return names.find(|name| Some(*name) != passes);
    }
    let lock = ticket.parent()?;
    let mut writers = before(&parent.family.writers, place).rev();
    let writer = writers.next()?;
    // Curator's downgrade: the holder of the write lock reads under the same number, and goes on reading after it.
    let own = writer.number == place.number
        && node.owner().is_some()
        && lock.child(&writer.name).ok().and_then(|path| state.node(&path)).and_then(Znode::owner) == node.owner();
    if own { writers.next().map(|place| &*place.name) } else { Some(&writer.name) }
}

/// The places before a place, in order.
fn before<'a>(places: &'a OrdSet<Place>, place: &Place) -> impl DoubleEndedIterator<Item = &'a Place> {
    places.range::<_, Place>((Bound::Unbounded, Bound::Excluded(place)))
}

fn entry(state: &State, lock: &ZPath, position: usize, name: &str) -> Result<QueueEntry, Error> {
    let ticket = lock.child(name)?;
    let node = state.node(&ticket).ok_or(Error::NoNode)?;
    let ledger = state.ledger(lock);
    let granted = node_place(&ticket, node).and_then(|place| ledger?.grant_of(&place));
    let priority = node_place(&ticket, node).and_then(|place| Some(ledger?.priority_of(&place))).unwrap_or(0);
    let permits = match ledger.map(|ledger| demand_of(name, node, ledger.settings)) {
        Some(Demand::Permits(permits)) => Some(permits),
        _ => None,
    };
    let held = matches!(status(state, &ticket), Ok(LockStatus::Held { .. }));
    let acquired = node.contender();
    let (session_label, client) = who(state, node);
    Ok(QueueEntry {
        position: count(position),
        held,
        mode: match (acquired, ledger.and_then(|ledger| ledger.settings.limit), permits) {
            (Some(contender), ..) => contender.mode,
            (None, Some(limit), Some(permits)) => LockMode::Lease { permits, limit },
            _ => mode_of(name),
        },
        session: node.owner(),
        session_label,
        client,
        owner: acquired.map_or_else(String::new, |contender| contender.owner.clone()),
        label: label(state, node),
        since_ms: node.ctime_ms,
        token: granted.map_or_else(|| state.token_of(&ticket, node), |grant| grant.token),
        grant: grant(state, &ticket),
        revocation: revocation(state, &ticket),
        holds: holds(state, &ticket, node),
        permits,
        priority,
        lingers_until_ms: node.lingers_until_ms(),
        ticket,
    })
}

/// The session of a lock node, open or, while the node lingers, ended.
fn who(state: &State, node: &Znode) -> (String, Arc<ClientInfo>) {
    let Some(id) = node.owner() else { return Default::default() };
    let open = state.session(id).map(|session| (session.label.to_string(), session.client.clone()));
    let ended = || state.ended_session(id).map(|ended| (ended.label.clone(), ended.client.clone()));
    open.or_else(ended).unwrap_or_default()
}

fn node_place(ticket: &ZPath, node: &Znode) -> Option<Place> {
    Place::of(ticket.name(), node.czxid)
}

/// A znode that no acquire made may hold anything: what is longer than a label may be is none.
fn label(state: &State, node: &Znode) -> Option<String> {
    let short = node.data.len() <= state.limits.label_bytes_max as usize;
    short.then(|| std::str::from_utf8(&node.data).ok().map(String::from)).flatten()
}

/// A lock that has contenders, and the first of them.
///
/// # Errors
/// `NoNode` when it has none.
pub fn summary(state: &State, lock: &ZPath) -> Result<LockSummary, Error> {
    let parent = state.node(lock).ok_or(Error::NoNode)?;
    let first = parent.family.contenders.get_min().ok_or(Error::NoNode)?;
    Ok(LockSummary {
        lock: lock.clone(),
        contenders: count(parent.family.contenders.len()),
        first: entry(state, lock, 0, &first.name)?,
    })
}

/// A lock node that no acquire made is held once; the holds of a multi-lock are those of its first ticket.
fn holds(state: &State, ticket: &ZPath, node: &Znode) -> u32 {
    let multi = state.multi_of(ticket, node);
    let counting = multi.and_then(|multi| state.node(&multi.tickets[0])).unwrap_or(node);
    counting.contender().map_or(1, Contender::count)
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
