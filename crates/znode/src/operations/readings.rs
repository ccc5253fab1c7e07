//! Reads of locks: whether a ticket holds or waits, the queue of a lock, lists of locks.

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

/// The status of a ticket: it holds its lock or waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockStatus {
    /// The ticket holds the lock.
    Held {
        /// The fencing token, which the client shows to resources.
        token: FencingToken,
        /// Number of acquires that share the ticket and were not given back.
        holds: u32,
    },
    /// The ticket waits.
    Waiting {
        /// The ticket that is shown to people as the one waited for. For a reader, the last waiter
        /// before it that is not a reader; for another ticket, the waiter just before it; without
        /// such a waiter, the last holder. The grant of the lock is told by the event
        /// [`crate::EventKind::Granted`] at the waiting ticket's own lock node.
        predecessor: ZPath,
    },
}

/// One contender of a lock, as it is shown to people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueEntry {
    /// Path of the lock node.
    pub ticket: ZPath,
    /// Number of contenders before this one.
    pub position: u32,
    /// True if the ticket holds the lock. False for a lock node that is kept for its lock-delay,
    /// though it still blocks other tickets.
    pub held: bool,
    /// The mode in which the ticket wants the lock. For a ticket that a plain create made, the name
    /// tells the mode.
    pub mode: LockMode,
    /// The session that owns the ticket; `None` for a znode that is not ephemeral.
    pub session: Option<SessionId>,
    /// The label of the session; empty also if the session has ended and is no longer remembered.
    pub session_label: String,
    /// The description of the session's client; empty also if the session has ended and is no
    /// longer remembered.
    pub client: Arc<ClientInfo>,
    /// The owner (a user of the lock within the session); empty for none.
    pub owner: String,
    /// Data of the ticket's znode as text; `None` if it is not text, or longer than a label may be.
    pub label: Option<String>,
    /// Time at which the ticket entered the queue, in milliseconds since 1970 by the leader's
    /// clock.
    pub since_ms: u64,
    /// The fencing token of a holder. For a waiter its czxid, which becomes its token unless an
    /// equal or larger token is granted before.
    pub token: FencingToken,
    /// The grant of a holder; `None` for a waiter, and for a znode that no session owns.
    pub grant: Option<Grant>,
    /// The request to release the ticket; `None` if no client has asked for it.
    pub revocation: Option<Revocation>,
    /// Number of acquires that share the ticket and were not given back.
    pub holds: u32,
    /// Number of permits of a semaphore that the ticket has or wants; `None` for other locks.
    pub permits: Option<u32>,
    /// The priority with which the ticket waits in a managed lock; 0 is the default.
    pub priority: u32,
    /// Time until which the lock node of an expired session blocks other tickets (its lock-delay),
    /// in milliseconds since 1970. `None` for other lock nodes.
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
    /// Number of permits that the holders have taken.
    pub held: u32,
}

/// A lock in a list of locks: its path, its number of contenders, and the first of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockSummary {
    /// The lock directory.
    pub lock: ZPath,
    /// Number of contenders, holders included.
    pub contenders: u32,
    /// The first contender of the queue.
    pub first: QueueEntry,
}

/// Tells whether a ticket holds or waits. Costs O(log n) in the length of the queue.
///
/// # Errors
/// `NoNode` if the lock node is gone: released, withdrawn, or its session ended. `SessionExpired`
/// if the session has expired but the lock node still exists, for its lock-delay or until a later
/// entry removes it. `BadArguments` if the path is not that of a lock node.
pub fn status(state: &State, ticket: &ZPath) -> Result<LockStatus, Error> {
    let (queue, node, position) = find(state, ticket)?;
    Ok(match held_at(state, ticket, node, queue, &position)? {
        Some(TicketHolds { token, holds }) => LockStatus::Held { token, holds },
        None => LockStatus::Waiting { predecessor: predecessor(state, ticket, node, queue, &position) },
    })
}

/// Fencing token and number of holds of a ticket; `None` while the ticket waits.
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

/// The ticket that is shown to people as the one that `ticket` waits for. If `ticket` is first in
/// its queue and part of a multi-lock, the shown ticket comes from the queue of another part.
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

/// Number of tickets before a ticket. Holders come first, by their positions, then waiters, sorted
/// by `QueueTurn`. Costs O(n) in the tickets before it or behind it, whichever are fewer.
///
/// # Errors
/// `NoNode` and `BadArguments` as for [`status`].
pub fn position(state: &State, ticket: &ZPath) -> Result<u32, Error> {
    let (queue, _, position) = find(state, ticket)?;
    Ok(count(queue.place_of(&position)))
}

/// A page of a lock's queue: at most `max` tickets, after the first `from` tickets.
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

/// The first holder of a lock whose session is open; `None` if there is no such holder.
///
/// # Errors
/// Returned only for an inconsistent state, instead of a panic.
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

/// The locks with contenders at and below `prefix`, sorted by path: at most `max`, beginning after
/// the path `after`.
///
/// # Errors
/// Returned only for an inconsistent state, instead of a panic.
pub fn list(state: &State, prefix: &ZPath, after: Option<&ZPath>, max: usize) -> Result<Vec<LockSummary>, Error> {
    paths(state, prefix, after).take(max).map(|lock| summary(state, lock)).collect()
}

/// Paths of the locks that [`list`] returns, without a limit of their number; the iterator is lazy.
/// The root is never a lock, even if its children are named like tickets.
pub fn paths<'a>(state: &'a State, prefix: &'a ZPath, after: Option<&'a ZPath>) -> impl Iterator<Item = &'a ZPath> {
    // Paths below "/a" are those from "/a/" to before "/a0", because '0' follows '/'. But "/a-b"
    // sorts between "/a" and "/a/".
    let below = match prefix.is_root() {
        true => String::from("/"),
        false => format!("{prefix}/"),
    };
    let itself = state.locks().directory(prefix).into_iter();
    let itself = itself.filter(move |path| after.is_none_or(|after| *path > after));
    let from = after.map_or(&*below, |after| after.as_str().max(&below));
    let under = state.locks().directories_from(from);
    let under = under.take_while(move |path| path.as_str().starts_with(&below));
    let under = under.filter(move |path| *path != prefix && after.is_none_or(|after| *path > after));
    itself.chain(under).filter(|path| !path.is_root())
}

/// Tells whether a present holder of the lock has this fencing token. The holder is a lock node in
/// the queue, or a simple lock: an ephemeral znode at the lock's own path. Costs O(log n).
pub fn is_held_with(state: &State, lock: &ZPath, token: FencingToken) -> bool {
    is_held(state, lock, token, None)
}

/// Tells whether this session holds the lock with this fencing token.
pub fn is_held_by(state: &State, lock: &ZPath, token: FencingToken, session: SessionId) -> bool {
    is_held(state, lock, token, Some(session))
}

/// Tells whether the session holds the lock with this fencing token; with `None`, whether any
/// session does.
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
        label: node.label(state.limits().label_bytes_max).map(String::from),
        since_ms: node.changes.ctime_ms,
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

/// The label and the client description of a lock node's session; empty if the session is unknown.
/// The session may have ended while its lock node is kept for the lock-delay.
fn who(state: &State, node: &Znode) -> (String, Arc<ClientInfo>) {
    let Some(id) = node.owner() else { return Default::default() };
    let open = state.session(id).map(|session| (session.label.to_string(), session.client.clone()));
    let ended = || state.ended_session(id).map(|ended| (ended.label.clone(), ended.client.clone()));
    open.or_else(ended).unwrap_or_default()
}

/// A lock with contenders: their number, and the first contender.
///
/// # Errors
/// `NoNode` if the lock has no contenders.
pub fn summary(state: &State, lock: &ZPath) -> Result<LockSummary, Error> {
    let queue = state.queue(lock).ok_or(Error::NoNode)?;
    let first = queue.tickets().next().ok_or(Error::NoNode)?;
    Ok(LockSummary { lock: lock.clone(), contenders: count(queue.len()), first: entry(state, lock, queue, 0, first)? })
}

/// Number of acquires that share a ticket and were not given back (holds); 1 for a lock node that a
/// plain create made. For a ticket of a multi-lock, the count is that of its first ticket.
fn holds(state: &State, ticket: &ZPath, node: &Znode) -> u32 {
    let multi = state.multi_of(ticket, node);
    let counting = multi.and_then(|multi| state.node(&multi.tickets[0])).unwrap_or(node);
    counting.contender().map_or(1, Contender::count)
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// Kinds of clients in a lock's queue that do not see each other's lock nodes, so that several
/// clients may believe that they hold the lock. Empty if all clients see each other.
pub fn mixed_clients(state: &State, lock: &ZPath) -> Vec<MixedPair> {
    let mut mixed = state.locks().mixed_clients.of(lock);
    for pair in mixed.iter_mut().filter(|pair| pair.unseen == Naming::Data) {
        pair.child = first_data(state, lock);
    }
    mixed
}

/// The first child that is not a ticket and that Curator's clients may wait for. `None` if there is
/// no such child among the first thousand.
fn first_data(state: &State, lock: &ZPath) -> Option<Arc<str>> {
    let mut names = state.node(lock)?.family.names.iter().take(1_000);
    let is_data = |name: &&Arc<str>| {
        let child = lock.child(name).ok().and_then(|path| state.node(&path));
        child.and_then(|child| Naming::of_child(name, child)) == Some(Naming::Data)
    };
    names.find(is_data).cloned()
}

/// The grant of a lock node that holds. `None` for a waiter, for a lock node kept for its
/// lock-delay, and for a lock node that no session owns.
pub fn grant(state: &State, ticket: &ZPath) -> Option<Grant> {
    let node = state.node(ticket).filter(|node| node.owner().is_some() && node.lingers_until_ms().is_none())?;
    let position = node.position(ticket.name())?;
    Some(state.queue(&ticket.parent()?)?.holder(&position)?.grant)
}

/// The request to release this ticket, by [`crate::Op::Revoke`], or by data that a client of
/// Curator or of ZooKeeper's recipe wrote into the lock node. `None` if no client has asked.
pub fn revocation(state: &State, ticket: &ZPath) -> Option<Revocation> {
    if let Some(revocation) = state.locks().revocations.get(ticket) {
        return Some(revocation.clone());
    }
    let node = state.node(ticket).filter(|node| is_ticket(ticket, node))?;
    // At version 0 the data is still the label with which the lock node was made.
    let told = node.changes.version != 0 && asks_to_give_up(&node.data);
    let at = Moment { zxid: node.changes.mzxid, time_ms: node.changes.mtime_ms };
    told.then(|| Revocation { at, by: Actor::default(), due_ms: None })
}
