//! How much memory the state takes, by estimate: what `state_bytes_max` bounds.
//!
//! All that a client can make many or long has its weight here: a fixed one for each thing, with
//! its places in the indexes, and the length of its texts. The sum is kept as the state changes,
//! mostly in the lengths of its maps, so it costs next to nothing, and it is the same on every
//! replica and after a snapshot. The weights were found by filling a state with one kind of thing
//! after the other; `tests/memory.rs` does it again and compares with what the process takes.
//!
//! At the bound, what would make the state grow is refused (`QuotaExceeded`). Giving something back
//! never is. What is remembered of the past goes first: the histories of locks, then answers kept
//! for idempotency keys, of which the keys stay. An eighth more is left for the answers to what is
//! refused or given back. When that is full, too, a request with a new key that gives nothing back
//! is refused without a trace.

use crate::lock::demand::sequence_of;
use crate::lock::{EndedSession, EndedTicket, WaitsFor};
use crate::session::Answered;
use crate::state::State;
use crate::tree::znode::{Contender, Znode};
use crate::{Acl, Actor, ClientInfo, Error, Op, Refusal, Reply, ZPath, ZnodeOp};

/// A znode, ephemeral or not, in the tree and in its parent's list.
const ZNODE: u64 = 560;
/// The list of children of a znode that has any.
const FAMILY: u64 = 320;
/// A queue, on top of its directory: its indexes begin with room for several.
const QUEUE: u64 = 2_600;
/// A ticket, on top of its znode: its positions in the queue's indexes.
const CONTENDER: u64 = 420;
/// One acquire that shares a ticket, with all the attempts that it may keep.
const HOLD: u64 = 200;
/// A multi-lock, beside its lock nodes.
const MULTI: u64 = 160;
/// A quota, path included.
const QUOTA: u64 = 1_300;
/// A znode that is collected at a time, in the index of those.
const TIMED: u64 = 80;
/// A session, with the first entries of its maps, and the count of its address.
const SESSION: u64 = 1_540;
/// What is kept of a client, its texts apart.
const CLIENT: u64 = 160;
/// An idempotency key that was used, without its answer.
const KEY: u64 = 400;
/// What an answer takes beyond that: nothing but what it points to.
const REPLY: u64 = size_of::<Reply>() as u64;
/// A request to give a ticket up.
const REVOCATION: u64 = 240;
/// A lock that remembers any tickets.
const HISTORY: u64 = 360;
/// A ticket that has ended.
const PAST_TICKET: u64 = 300;
/// A session that has ended.
const ENDED: u64 = 280;
/// A text of its own, without its bytes.
const TEXT: u64 = 24;

/// What is counted as it comes and goes; see [`State::state_bytes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weight {
    /// Texts, and what is kept in maps of its own.
    pub(crate) bytes: u64,
    /// Znodes with children.
    pub(crate) families: u64,
    /// Znodes with a queue.
    pub(crate) queues: u64,
}

impl Weight {
    /// A tree of so many znodes, of which so many are collected at a time.
    pub(crate) fn of_tree(&self, nodes: usize, timed: usize) -> u64 {
        self.bytes + self.families * FAMILY + self.queues * QUEUE + nodes as u64 * ZNODE + timed as u64 * TIMED
    }

    /// A znode has other children or another queue.
    pub(crate) fn change(&mut self, before: (bool, bool), now: (bool, bool)) {
        self.families = self.families + u64::from(now.0) - u64::from(before.0);
        self.queues = self.queues + u64::from(now.1) - u64::from(before.1);
    }
}

/// Whether a znode has children, and a queue.
pub(crate) fn shape(node: &Znode) -> (bool, bool) {
    (!node.family.names.is_empty(), node.family.queue.is_some())
}

fn text(text: &str) -> u64 {
    text.len() as u64 + TEXT
}

/// The texts of a znode; those of a lock node stand in more indexes.
pub(crate) fn znode(path: &ZPath, node: &Znode) -> u64 {
    let places = if sequence_of(path.name()).is_some() { 4 } else { 2 };
    let contender = |contender: &Contender| {
        2 * text(&contender.owner) + text(path.as_str()) + holds(contender) + index(path, contender)
    };
    places * text(path.as_str()) + node.contender().map_or(0, contender)
}

/// Its place among those without key and owner.
fn index(path: &ZPath, contender: &Contender) -> u64 {
    if contender.keyless { 2 * text(path.as_str()) } else { 0 }
}

pub(crate) fn holds(contender: &Contender) -> u64 {
    contender.holds.len() as u64 * HOLD
}

pub(crate) fn acl(acl: &[Acl]) -> u64 {
    let entry = |entry: &Acl| size_of::<Acl>() as u64 + text(&entry.scheme) + text(&entry.id);
    2 * TEXT + 2 * size_of::<(usize, u64)>() as u64 + acl.iter().map(entry).sum::<u64>()
}

pub(crate) fn answered(answered: &Answered) -> u64 {
    KEY + match &answered.answer {
        None => 0,
        Some(Ok(answer)) => reply(answer),
        Some(Err(Refusal { path, .. })) => path.as_ref().map_or(0, |path| text(path.as_str())),
    }
}

fn reply(answer: &Reply) -> u64 {
    match answer {
        Reply::Created { path, .. } => text(path.as_str()),
        // The predecessor has a path about as long.
        Reply::Acquired { ticket, .. } => 2 * text(ticket.as_str()),
        Reply::Multi(replies) => replies.iter().map(|one| REPLY + reply(one)).sum(),
        Reply::Revoking { tickets } => tickets.iter().map(|ticket| text(ticket.as_str())).sum(),
        Reply::Deadlock { cycle } => {
            let edge = |edge: &WaitsFor| text(&edge.owner) + text(edge.lock.as_str()) + text(edge.blocker.as_str());
            cycle.iter().map(|one| size_of::<WaitsFor>() as u64 + edge(one)).sum()
        }
        Reply::StillHeld(_)
        | Reply::Done
        | Reply::Set { .. }
        | Reply::SessionOpened { .. }
        | Reply::Released { .. }
        | Reply::Withdrawn
        | Reply::Superseded
        | Reply::Removed { .. } => 0,
    }
}

pub(crate) fn session(label: &str, who: &ClientInfo) -> u64 {
    SESSION + text(label) + client(who)
}

/// Counted at each place, though some share it: a snapshot has it once for each.
fn client(client: &ClientInfo) -> u64 {
    CLIENT + text(&client.host) + text(&client.program)
}

fn actor(actor: &Actor) -> u64 {
    text(&actor.label) + text(&actor.identity) + client(&actor.client)
}

pub(crate) fn revocation(ticket: &ZPath, by: &Actor) -> u64 {
    REVOCATION + text(ticket.as_str()) + actor(by)
}

pub(crate) fn history(lock: &ZPath) -> u64 {
    HISTORY + text(lock.as_str())
}

pub(crate) fn ended_ticket(ticket: &EndedTicket) -> u64 {
    let own = text(&ticket.name) + text(&ticket.owner) + text(&ticket.label);
    let session = text(&ticket.session_label) + client(&ticket.client);
    PAST_TICKET + own + session + ticket.by.as_deref().map_or(0, actor)
}

pub(crate) fn ended_session(session: &EndedSession) -> u64 {
    ENDED + text(&session.label) + client(&session.client)
}

/// What comes with a path that is made, and with so many znodes in all on the way to it.
pub(crate) fn made(path: &ZPath, data: usize, count: u64) -> u64 {
    let queued = if sequence_of(path.name()).is_some() { QUEUE + CONTENDER + HOLD } else { 0 };
    data as u64 + count * (ZNODE + FAMILY + 4 * text(path.as_str())) + queued
}

/// So many tickets and multi-locks, beside what is remembered of them.
pub(crate) fn locks(tickets: u64, multis: usize) -> u64 {
    tickets * CONTENDER + multis as u64 * MULTI
}

/// What one more hold of a ticket weighs.
pub(crate) const fn hold() -> u64 {
    HOLD
}

/// What a lock with settings weighs beyond its znode.
pub(crate) const fn queue() -> u64 {
    QUEUE
}

impl State {
    /// About how many bytes of memory the state takes; bounded by
    /// [`crate::Limits::state_bytes_max`]. O(1).
    pub fn state_bytes(&self) -> u64 {
        let quotas = self.quotas.len() as u64 * QUOTA;
        self.tree.bytes() + self.sessions.bytes() + self.locks.bytes() + quotas
    }

    /// Whether there is room for so many bytes more.
    ///
    /// # Errors
    /// `QuotaExceeded` when there is not.
    pub(crate) fn check_bytes(&self, more: u64) -> Result<(), Error> {
        let over = self.state_bytes().saturating_add(more) > self.limits.state_bytes_max;
        if over { Err(Error::QuotaExceeded) } else { Ok(()) }
    }

    /// Whether the state is beyond its bound.
    pub(crate) fn is_overweight(&self) -> bool {
        self.state_bytes() > self.limits.state_bytes_max
    }

    /// Whether there is no room for another key with its answer, unless the request gives something
    /// back.
    pub(crate) fn is_full_of_keys(&self, op: &Op) -> bool {
        let max = self.limits.state_bytes_max;
        self.state_bytes() > max.saturating_add(max / 8) && !gives_back(op)
    }
}

/// Whether a request only takes away. What its answer adds is less.
fn gives_back(op: &Op) -> bool {
    let deletes = |ops: &[ZnodeOp]| ops.iter().all(|op| matches!(op, ZnodeOp::Delete { .. }));
    match op {
        Op::Release { .. }
        | Op::ReleaseHeld(_)
        | Op::Withdraw { .. }
        | Op::HandOver { .. }
        | Op::CloseSession { .. } => true,
        Op::Znode(op) => deletes(std::slice::from_ref(op)),
        Op::Multi(ops) => deletes(ops),
        _ => false,
    }
}
