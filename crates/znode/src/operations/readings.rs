//! Locks, as they are read: where a ticket stands, who queues, which locks there are.

use std::sync::Arc;

use crate::edits::positions::{find, is_ticket};
use crate::entry::txn_outcome::TicketHolds;
use crate::queue::ended::{Grant, Moment};
use crate::queue::revocations::{Revocation, asks_to_give_up};
use crate::queue::{Holder, Position, Queue};
use crate::state::mixed_clients::{MixedPair, Naming};
use crate::words::ticket_name::{mode_of, sequence_of};
use crate::{
    Actor, ClientInfo, Contender, Error, FencingToken, Kind, LockMode, LockSettings, SessionId, State, ZPath, Znode,
    Zxid,
};

/// Standing of a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockStatus {
    /// The ticket holds the lock.
    Held {
        /// The token to show to resources.
        token: FencingToken,
        /// Number of times that the owner holds it.
        holds: u32,
    },
    /// The ticket waits.
    Waiting {
        /// The ticket before it: the waiter whose turn is before its own (of a reader the last one
        /// that is no reader), or the last of the holders. The event [`crate::EventKind::Granted`]
        /// at its own lock node tells when it holds.
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
    /// Tells whether it holds the lock now. A lingering node does not, but no other ticket does
    /// either.
    pub held: bool,
    /// The mode in which it wants the lock; told by its name when another client made it.
    pub mode: LockMode,
    /// The session; `None` for a znode that is not ephemeral.
    pub session: Option<SessionId>,
    /// The label of its session; empty also when the session has ended and is forgotten.
    pub session_label: String,
    /// The client of its session, likewise.
    pub client: Arc<ClientInfo>,
    /// The owner within the session; empty for none.
    pub owner: String,
    /// The lock node's data if that is text, and no longer than a label may be.
    pub label: Option<String>,
    /// Time at which it entered the queue, in milliseconds since 1970 by the leader's clock.
    pub since_ms: u64,
    /// The fencing token that it has, or will have when it holds: its czxid. Once a ticket was
    /// passed in the queue (by leave of a waiting multi-lock), the token of a waiter is not known
    /// before it holds, and may be larger.
    pub token: FencingToken,
    /// The grant by which it holds; `None` while it waits, and for a znode that no session owns.
    pub grant: Option<Grant>,
    /// The request to give it up, where there is one.
    pub revocation: Option<Revocation>,
    /// Acquires that share it.
    pub holds: u32,
    /// The permits of a semaphore that it has, or wants.
    pub permits: Option<u32>,
    /// The priority in a managed lock with which it waits.
    pub priority: u32,
    /// Time until which it keeps others out, where its session expired while it held.
    pub lingers_until_ms: Option<u64>,
}

/// A page of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuePage {
    /// All contenders, holders included.
    pub contenders: u32,
    /// The page, in order; holders come first.
    pub entries: Vec<QueueEntry>,
    /// The permits, where the lock is a semaphore.
    pub permits: Option<Permits>,
    /// The settings of the lock.
    pub settings: LockSettings,
}

/// The permits of a semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permits {
    /// Number of all permits.
    pub limit: u32,
    /// Number of those that are taken.
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

/// The standing of a ticket. O(log n) in the length of the queue.
///
/// # Errors
/// `NoNode` when the lock node is gone: released, withdrawn, or its session ended. `SessionExpired`
/// when the session expired and the node lingers for its lock-delay, or waits to be removed: it
/// holds for no client. `BadArguments` when the path is no lock node's.
pub fn status(state: &State, ticket: &ZPath) -> Result<LockStatus, Error> {
    let (queue, node, position) = find(state, ticket)?;
    Ok(match held_at(state, ticket, node, queue, &position)? {
        Some(TicketHolds { token, holds }) => LockStatus::Held { token, holds },
        None => LockStatus::Waiting { predecessor: predecessor(state, ticket, node, queue, &position) },
    })
}

/// The hold of a ticket; `None` while it waits.
///
/// # Errors
/// As [`status`].
pub(crate) fn held(state: &State, ticket: &ZPath) -> Result<Option<TicketHolds>, Error> {
    let (queue, node, position) = find(state, ticket)?;
    held_at(state, ticket, node, queue, &position)
}

fn held_at(
    state: &State,
    ticket: &ZPath,
    node: &Znode,
    queue: &Queue,
    position: &Position,
) -> Result<Option<TicketHolds>, Error> {
    if node.lingers_until_ms().is_some() || state.waits_in_vain(ticket, node) {
        return Err(Error::SessionExpired);
    }
    let held = |holder: &Holder| TicketHolds { token: holder.grant.token, holds: holds(state, ticket, node) };
    Ok(queue.holder(position).map(held))
}

/// The lock nodes of the multi-lock that a ticket is a part of, in the order of its request.
pub fn parts<'a>(state: &'a State, ticket: &ZPath) -> Option<&'a [ZPath]> {
    let node = state.node(ticket)?;
    state.multi_of(ticket, node).map(|multi| &*multi.tickets)
}

/// The ticket before a waiter, for people. A part that is the first in its own queue waits where
/// another part does.
fn predecessor(state: &State, ticket: &ZPath, node: &Znode, queue: &Queue, position: &Position) -> ZPath {
    let at = |ticket: &ZPath, before: Option<&Position>| ticket.parent()?.child(&before?.name).ok();
    if let Some(before) = at(ticket, queue.predecessor(position)) {
        return before;
    }
    let others = state.multi_of(ticket, node).map_or(&[][..], |multi| &multi.tickets);
    let elsewhere = |other: &ZPath| {
        let (queue, _, position) = find(state, other).ok()?;
        at(other, queue.predecessor(&position))
    };
    others.iter().find_map(elsewhere).unwrap_or_else(|| ticket.clone())
}

/// Number of tickets before one: holders by their positions, then waiters in the order of their
/// turns. O(n) in these or in those behind it, whichever are fewer.
///
/// # Errors
/// `NoNode` and `BadArguments` as for [`status`].
pub fn position(state: &State, ticket: &ZPath) -> Result<u32, Error> {
    let (queue, _, position) = find(state, ticket)?;
    Ok(count(queue.place_of(&position)))
}

/// A lock's queue: at most `max` tickets after the first `from`.
///
/// # Errors
/// `NoNode` when there is no znode at the path. One without tickets is a free lock.
pub fn queue(state: &State, lock: &ZPath, from: usize, max: usize) -> Result<QueuePage, Error> {
    let parent = state.node(lock).ok_or(Error::NoNode)?;
    let Some(queue) = parent.family.queue.as_deref() else {
        return Ok(QueuePage { contenders: 0, entries: Vec::new(), permits: None, settings: LockSettings::default() });
    };
    let page = queue.tickets().enumerate().skip(from).take(max);
    let entries = page.map(|(at, position)| entry(state, lock, queue, at, position)).collect::<Result<_, _>>()?;
    let settings = queue.settings();
    let permits = settings.limit.map(|limit| Permits { limit, held: queue.units_taken() });
    Ok(QueuePage { contenders: count(queue.len()), entries, permits, settings })
}

/// The first of those who hold; `None` when no ticket does, as while only dead holders linger.
///
/// # Errors
/// None that a consistent state can have; the signature says that nothing here panics.
pub fn holder(state: &State, lock: &ZPath) -> Result<Option<QueueEntry>, Error> {
    let Some(queue) = state.queue(lock) else { return Ok(None) };
    for (at, (position, _)) in queue.holders().enumerate() {
        let entry = entry(state, lock, queue, at, position)?;
        if entry.held {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

/// The locks at and under `prefix` that have contenders, sorted by path: at most `max`, after
/// `after`.
///
/// # Errors
/// None that a consistent state can have; the signature says that nothing here panics.
pub fn list(state: &State, prefix: &ZPath, after: Option<&ZPath>, max: usize) -> Result<Vec<LockSummary>, Error> {
    paths(state, prefix, after).take(max).map(|lock| summary(state, lock)).collect()
}

/// Paths of these locks: all of them, which costs nothing before they are looked at. The root is no
/// lock, whatever its children are named.
pub fn paths<'a>(state: &'a State, prefix: &'a ZPath, after: Option<&'a ZPath>) -> impl Iterator<Item = &'a ZPath> {
    // Paths below "/a" are those from "/a/" to before "/a0": '0' follows '/'. "/a-b" sorts between
    // "/a" and "/a/".
    let below = match prefix.is_root() {
        true => String::from("/"),
        false => format!("{prefix}/"),
    };
    let itself = state.locks.directory(prefix).into_iter();
    let itself = itself.filter(move |path| after.is_none_or(|after| *path > after));
    let from = after.map_or(&*below, |after| after.as_str().max(&below));
    let under = state.locks.directories_from(from);
    let under = under.take_while(move |path| path.as_str().starts_with(&below));
    let under = under.filter(move |path| *path != prefix && after.is_none_or(|after| *path > after));
    itself.chain(under).filter(|path| !path.is_root())
}

/// Tells whether the token is that of a present holder of the lock: of a lock node in its queue, or
/// of the ephemeral znode that is the lock itself where no client queues. O(log n).
pub fn is_held_with(state: &State, lock: &ZPath, token: FencingToken) -> bool {
    is_held(state, lock, token, None)
}

/// Tells whether the token is that of a present holder of the lock which the session owns.
pub fn is_held_by(state: &State, lock: &ZPath, token: FencingToken, session: SessionId) -> bool {
    is_held(state, lock, token, Some(session))
}

/// Tells whether a token is that of a present holder: one that the session owns, or any when no
/// session is given.
fn is_held(state: &State, lock: &ZPath, token: FencingToken, session: Option<SessionId>) -> bool {
    let Some(parent) = state.node(lock) else {
        return false;
    };
    let theirs = |node: &Znode| session.is_none() || node.owner() == session;
    if let Kind::Ephemeral { .. } = parent.kind() {
        return parent.czxid == Zxid(token.0) && sequence_of(lock.name()).is_none() && theirs(parent);
    }
    let holds = |position: &Position| {
        lock.child(&position.name).is_ok_and(|ticket| matches!(held(state, &ticket), Ok(Some(_))))
    };
    let Some(queue) = state.queue(lock) else { return false };
    let theirs = |position: &&Position| {
        session.is_none() || queue.holder(position).is_some_and(|holder| holder.ticket.session == session)
    };
    queue.holders_with(token).filter(theirs).any(holds)
}

fn entry(state: &State, lock: &ZPath, queue: &Queue, at: usize, position: &Position) -> Result<QueueEntry, Error> {
    let ticket = lock.child(&position.name)?;
    let node = state.node(&ticket).ok_or(Error::NoNode)?;
    let holder = queue.holder(position);
    let known = holder.map(|holder| &holder.ticket).or_else(|| queue.waiter(position)).ok_or(Error::NoNode)?;
    let permits = queue.units_of(known.demand);
    let acquired = node.contender();
    let (session_label, client) = who(state, node);
    Ok(QueueEntry {
        position: count(at),
        held: holder.is_some() && node.lingers_until_ms().is_none(),
        mode: match (acquired, queue.settings().limit, permits) {
            (Some(contender), ..) => contender.mode,
            (None, Some(limit), Some(permits)) => LockMode::Lease { permits, limit },
            _ => mode_of(&position.name),
        },
        session: node.owner(),
        session_label,
        client,
        owner: acquired.map_or_else(String::new, |contender| contender.owner.clone()),
        label: node.label(state.limits.label_bytes_max).map(String::from),
        since_ms: node.ctime_ms,
        token: holder.map_or(FencingToken::from(node.czxid), |holder| holder.grant.token),
        grant: grant(state, &ticket),
        revocation: revocation(state, &ticket),
        holds: holds(state, &ticket, node),
        permits,
        priority: queue.priority_of(position),
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

/// A lock that has contenders, and the first of them.
///
/// # Errors
/// `NoNode` when it has none.
pub fn summary(state: &State, lock: &ZPath) -> Result<LockSummary, Error> {
    let queue = state.queue(lock).ok_or(Error::NoNode)?;
    let first = queue.tickets().next().ok_or(Error::NoNode)?;
    Ok(LockSummary { lock: lock.clone(), contenders: count(queue.len()), first: entry(state, lock, queue, 0, first)? })
}

/// Number of holds. A lock node that no acquire made is held once; the holds of a multi-lock are
/// those of its first ticket.
fn holds(state: &State, ticket: &ZPath, node: &Znode) -> u32 {
    let multi = state.multi_of(ticket, node);
    let counting = multi.and_then(|multi| state.node(&multi.tickets[0])).unwrap_or(node);
    counting.contender().map_or(1, Contender::count)
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// Clients that queue for a lock beside others that they do not see: each may believe to hold it
/// alone. Empty when all is well.
pub fn mixed_clients(state: &State, lock: &ZPath) -> Vec<MixedPair> {
    let mut mixed = state.locks.mixed_clients.of(lock);
    for pair in mixed.iter_mut().filter(|pair| pair.unseen == Naming::Data) {
        pair.child = first_data(state, lock);
    }
    mixed
}

/// The first child that does not contend and that Curator's clients may wait for, if it is among
/// the first thousand.
fn first_data(state: &State, lock: &ZPath) -> Option<Arc<str>> {
    let mut names = state.node(lock)?.family.names.iter().take(1_000);
    let is_data = |name: &&Arc<str>| {
        let child = lock.child(name).ok().and_then(|path| state.node(&path));
        child.and_then(|child| Naming::of_child(name, child)) == Some(Naming::Data)
    };
    names.find(is_data).cloned()
}

/// The grant by which a lock node became a holder; `None` while it waits, and for one that no
/// session owns.
pub fn grant(state: &State, ticket: &ZPath) -> Option<Grant> {
    let node = state.node(ticket).filter(|node| node.owner().is_some() && node.lingers_until_ms().is_none())?;
    let position = node.position(ticket.name())?;
    Some(state.queue(&ticket.parent()?)?.holder(&position)?.grant)
}

/// Tells whether a client wants this ticket back: by [`crate::Op::Revoke`], or by setting the lock
/// node's data as Curator or ZooKeeper's recipe do.
pub fn revocation(state: &State, ticket: &ZPath) -> Option<Revocation> {
    if let Some(revocation) = state.locks.revocations.get(ticket) {
        return Some(revocation.clone());
    }
    let node = state.node(ticket).filter(|node| is_ticket(ticket, node))?;
    // Not what it was made with: that is a label.
    let told = node.version != 0 && asks_to_give_up(&node.data);
    let at = Moment { zxid: node.mzxid, time_ms: node.mtime_ms };
    told.then(|| Revocation { at, by: Actor::default(), due_ms: None })
}
