//! Reads of locks: the standing of a ticket, the queue of a lock, lists of locks.

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

/// Standing of a ticket: holding or waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockStatus {
    /// The ticket holds the lock.
    Held {
        /// The fencing token, which the client shows to resources.
        token: FencingToken,
        /// Number of times that the owner holds it.
        holds: u32,
    },
    /// The ticket waits.
    Waiting {
        /// The ticket for which this one waits, for people: for a reader the last waiter before it
        /// that is no reader, for others the waiter just before; or else the last holder. The event
        /// [`crate::EventKind::Granted`] at this ticket's lock node tells when it holds.
        predecessor: ZPath,
    },
}

/// One contender of a lock, as people are shown it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueEntry {
    /// Path of the lock node.
    pub ticket: ZPath,
    /// Number of contenders before this one.
    pub position: u32,
    /// True if the ticket holds the lock. False for a lingering node, though no other ticket holds
    /// meanwhile.
    pub held: bool,
    /// The mode in which the ticket wants the lock. It is told by the name if a create made the
    /// ticket.
    pub mode: LockMode,
    /// The session that owns the ticket; `None` for a znode that is not ephemeral.
    pub session: Option<SessionId>,
    /// The label of the session; empty also if the session has ended and is forgotten.
    pub session_label: String,
    /// The client of the session; empty also if the session has ended and is forgotten.
    pub client: Arc<ClientInfo>,
    /// The owner within the session; empty for none.
    pub owner: String,
    /// The lock node's data if that is text, and no longer than a label may be.
    pub label: Option<String>,
    /// Time at which the ticket entered the queue, in milliseconds since 1970 by the leader's
    /// clock.
    pub since_ms: u64,
    /// The fencing token of a holder. For a waiter its czxid, which is the token that it will have
    /// unless a token at least as large is granted before.
    pub token: FencingToken,
    /// The grant of a holder; `None` for a waiter, and for a znode that no session owns.
    pub grant: Option<Grant>,
    /// The request to release the ticket; `None` if there is none.
    pub revocation: Option<Revocation>,
    /// Number of acquires that share the ticket.
    pub holds: u32,
    /// Number of permits of a semaphore that the ticket has or wants; `None` for other locks.
    pub permits: Option<u32>,
    /// The priority with which the ticket waits in a managed lock; 0 is the default.
    pub priority: u32,
    /// Time until which the node of an ended session keeps others out, in milliseconds since 1970.
    /// `None` if it does not linger.
    pub lingers_until_ms: Option<u64>,
}

/// A page of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuePage {
    /// Number of contenders, holders included.
    pub contenders: u32,
    /// The contenders on this page, in order; holders come first.
    pub entries: Vec<QueueEntry>,
    /// The permits of a semaphore; `None` for other locks.
    pub permits: Option<Permits>,
    /// The settings of the lock.
    pub settings: LockSettings,
}

/// The permits of a semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permits {
    /// Number of permits that the semaphore has.
    pub limit: u32,
    /// Number of permits that holders have.
    pub held: u32,
}

/// A lock in a list of locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockSummary {
    /// The lock directory.
    pub lock: ZPath,
    /// Number of contenders, holders included.
    pub contenders: u32,
    /// The first contender of the queue.
    pub first: QueueEntry,
}

/// The standing of a ticket. Costs O(log n) in the length of the queue.
///
/// # Errors
/// `NoNode` if the lock node is gone: released, withdrawn, or its session ended. `SessionExpired`
/// if the session expired and the node lingers for its lock-delay, or has not been removed yet; no
/// client holds with it. `BadArguments` if the path is that of no lock node.
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

/// The lock nodes of the multi-lock that a ticket is a part of, in the order of the request; `None`
/// for a single ticket.
pub fn parts<'a>(state: &'a State, ticket: &ZPath) -> Option<&'a [ZPath]> {
    let node = state.node(ticket)?;
    state.multi_of(ticket, node).map(|multi| &*multi.tickets)
}

/// The ticket for which another one waits, as people are told. A part that is first in its queue
/// waits for what another part waits for.
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

/// Number of tickets before a ticket: holders by their positions, then waiters in the order of
/// their turns. Costs O(n) in the tickets before it or behind it, whichever are fewer.
///
/// # Errors
/// `NoNode` and `BadArguments` as for [`status`].
pub fn position(state: &State, ticket: &ZPath) -> Result<u32, Error> {
    let (queue, _, position) = find(state, ticket)?;
    Ok(count(queue.place_of(&position)))
}

/// A page of a lock's queue: at most `max` tickets, without the first `from`.
///
/// # Errors
/// `NoNode` if there is no znode at the path. A znode without tickets is a free lock.
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

/// The first holder of a lock that an open session owns; `None` if there is none.
///
/// # Errors
/// None in a consistent state. The signature has an error so that nothing here panics.
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

/// The locks with contenders at and below `prefix`, sorted by path: at most `max`, after the path
/// `after`.
///
/// # Errors
/// None in a consistent state. The signature has an error so that nothing here panics.
pub fn list(state: &State, prefix: &ZPath, after: Option<&ZPath>, max: usize) -> Result<Vec<LockSummary>, Error> {
    paths(state, prefix, after).take(max).map(|lock| summary(state, lock)).collect()
}

/// Paths of the locks of [`list`], without a bound: the iterator does work only as it is read. The
/// root is no lock, whatever its children are named.
pub fn paths<'a>(state: &'a State, prefix: &'a ZPath, after: Option<&'a ZPath>) -> impl Iterator<Item = &'a ZPath> {
    // Paths below "/a" are those from "/a/" to before "/a0", because '0' follows '/'. But "/a-b"
    // sorts between "/a" and "/a/".
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
/// of a simple lock, which is an ephemeral znode at the lock's own path. Costs O(log n).
pub fn is_held_with(state: &State, lock: &ZPath, token: FencingToken) -> bool {
    is_held(state, lock, token, None)
}

/// Tells whether the token is that of a present holder of the lock, and this session owns the
/// holder.
pub fn is_held_by(state: &State, lock: &ZPath, token: FencingToken, session: SessionId) -> bool {
    is_held(state, lock, token, Some(session))
}

/// Tells whether the token is that of a present holder that the session owns; of any holder for
/// `None`.
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

/// The label and client of the session of a lock node. The session may have ended while the node
/// lingers.
fn who(state: &State, node: &Znode) -> (String, Arc<ClientInfo>) {
    let Some(id) = node.owner() else { return Default::default() };
    let open = state.session(id).map(|session| (session.label.to_string(), session.client.clone()));
    let ended = || state.ended_session(id).map(|ended| (ended.label.clone(), ended.client.clone()));
    open.or_else(ended).unwrap_or_default()
}

/// A lock with contenders: their number, and the first of them.
///
/// # Errors
/// `NoNode` if the lock has no contenders.
pub fn summary(state: &State, lock: &ZPath) -> Result<LockSummary, Error> {
    let queue = state.queue(lock).ok_or(Error::NoNode)?;
    let first = queue.tickets().next().ok_or(Error::NoNode)?;
    Ok(LockSummary { lock: lock.clone(), contenders: count(queue.len()), first: entry(state, lock, queue, 0, first)? })
}

/// Number of holds of a ticket. A lock node that a create made has one hold. A multi-lock keeps its
/// holds at its first ticket.
fn holds(state: &State, ticket: &ZPath, node: &Znode) -> u32 {
    let multi = state.multi_of(ticket, node);
    let counting = multi.and_then(|multi| state.node(&multi.tickets[0])).unwrap_or(node);
    counting.contender().map_or(1, Contender::count)
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// Clients in a lock's queue that do not see others there, so that both may believe to hold the
/// lock. Empty if all clients see each other.
pub fn mixed_clients(state: &State, lock: &ZPath) -> Vec<MixedPair> {
    let mut mixed = state.locks.mixed_clients.of(lock);
    for pair in mixed.iter_mut().filter(|pair| pair.unseen == Naming::Data) {
        pair.child = first_data(state, lock);
    }
    mixed
}

/// The first child that is no ticket and that Curator's clients may wait for. `None` if the first
/// thousand names have none.
fn first_data(state: &State, lock: &ZPath) -> Option<Arc<str>> {
    let mut names = state.node(lock)?.family.names.iter().take(1_000);
    let is_data = |name: &&Arc<str>| {
        let child = lock.child(name).ok().and_then(|path| state.node(&path));
        child.and_then(|child| Naming::of_child(name, child)) == Some(Naming::Data)
    };
    names.find(is_data).cloned()
}

/// The grant of a lock node that holds; `None` for a waiter, a lingering node, and a node that no
/// session owns.
pub fn grant(state: &State, ticket: &ZPath) -> Option<Grant> {
    let node = state.node(ticket).filter(|node| node.owner().is_some() && node.lingers_until_ms().is_none())?;
    let position = node.position(ticket.name())?;
    Some(state.queue(&ticket.parent()?)?.holder(&position)?.grant)
}

/// The request to release this ticket, by [`crate::Op::Revoke`] or by the lock node's data, which
/// Curator's and ZooKeeper's recipes set. `None` if there is none.
pub fn revocation(state: &State, ticket: &ZPath) -> Option<Revocation> {
    if let Some(revocation) = state.locks.revocations.get(ticket) {
        return Some(revocation.clone());
    }
    let node = state.node(ticket).filter(|node| is_ticket(ticket, node))?;
    // Data of version 0 is the label with which the node was made.
    let told = node.version != 0 && asks_to_give_up(&node.data);
    let at = Moment { zxid: node.mzxid, time_ms: node.mtime_ms };
    told.then(|| Revocation { at, by: Actor::default(), due_ms: None })
}
