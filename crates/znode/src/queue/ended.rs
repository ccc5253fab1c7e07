//! Histories: records of tickets and sessions that have ended. Their number is bounded; the oldest
//! record is forgotten first.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use bincode::{Decode, Encode};
use imbl::{OrdMap, OrdSet};

use crate::words::acl;
use crate::words::weight::{ENDED, HISTORY, PAST_TICKET, text};
use crate::{Acl, Actor, ClientInfo, FencingToken, Limits, LockMode, SessionId, ZPath, Zxid};

/// Reasons for which a ticket ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub enum TicketEnd {
    /// The ticket held the lock, and its session gave it back.
    Released,
    /// The ticket's session was closed.
    Closed,
    /// The session expired. With a lock-delay, the lock node stays for that time, but the ticket no
    /// longer counts as held.
    Expired,
    /// The ticket was revoked, and not released before the deadline.
    Revoked,
    /// The ticket never held the lock, or its client never learned of the grant: the wait timed
    /// out, the session gave the ticket up, or the client disconnected before it had the answer.
    Withdrawn,
    /// Another client deleted the lock node.
    Admin,
    /// The ticket was never made, because its wait would have closed a cycle of waits.
    Deadlock,
}

/// A ticket that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct EndedTicket {
    /// The lock node's name; empty if no lock node was made.
    pub name: String,
    /// The mode in which the ticket wanted the lock.
    pub mode: LockMode,
    /// Id of the session that owned the ticket.
    pub session: SessionId,
    /// The owner (a user of the lock within the session); empty for none.
    pub owner: String,
    /// The lock node's data at its end, as text. Empty if the data was not text, was longer than a
    /// label may be, or was not readable for all readers of the history.
    pub label: String,
    /// Time at which the ticket entered the queue.
    pub enqueued: Moment,
    /// The grant of the lock to the ticket; `None` if the ticket only waited.
    pub grant: Option<Grant>,
    /// Time at which the ticket ended.
    pub ended: Moment,
    /// The reason for which the ticket ended.
    pub end: TicketEnd,
    /// The label of the ticket's session.
    pub session_label: Arc<str>,
    /// The description of the client that opened the ticket's session.
    pub client: Arc<ClientInfo>,
    /// The client that ended the ticket; `None` if the ticket's own session ended it, or the
    /// session expired.
    pub by: Option<Arc<Actor>>,
}

/// A log entry: its zxid and its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Moment {
    /// The zxid of the entry.
    pub zxid: Zxid,
    /// The latest time in any entry up to this one, in milliseconds since 1970.
    pub time_ms: u64,
}

/// A grant: the entry that made a ticket a holder, and the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Grant {
    /// The entry that granted the lock, and its time.
    pub at: Moment,
    /// The fencing token of the ticket.
    pub token: FencingToken,
}

/// The record of a session that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct EndedSession {
    /// Id of the session.
    pub id: SessionId,
    /// Label of the session.
    pub label: String,
    /// The session's timeout, in milliseconds.
    pub timeout_ms: u32,
    /// Time at which the session was opened, in milliseconds since 1970.
    pub opened_ms: u64,
    /// Time at which the session ended.
    pub ended: Moment,
    /// True if the session expired, false if it was closed.
    pub expired: bool,
    /// Number of ephemeral znodes that the session had at its end.
    pub ephemerals: u32,
    /// The description of the client that opened the session.
    pub client: Arc<ClientInfo>,
}

impl EndedTicket {
    fn weight(&self) -> u64 {
        let own = text(&self.name) + text(&self.owner) + text(&self.label);
        let session = text(&self.session_label) + self.client.weight();
        PAST_TICKET + own + session + self.by.as_deref().map_or(0, Actor::weight)
    }
}

impl EndedSession {
    fn weight(&self) -> u64 {
        ENDED + text(&self.label) + self.client.weight()
    }
}

/// Estimated memory of a lock's history without its tickets, in bytes.
fn weight_of_lock(lock: &ZPath) -> u64 {
    HISTORY + text(lock.as_str())
}

/// The ended tickets of one lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub(crate) struct History {
    /// The zxid of the last entry in which a ticket of the lock ended.
    pub(crate) newest: Zxid,
    pub(crate) grants: VecDeque<Arc<EndedTicket>>,
    /// Ended tickets that never held the lock. They have a separate list, so that many short waits
    /// do not displace the tickets that held it.
    pub(crate) waits: VecDeque<Arc<EndedTicket>>,
    /// The ACL of the lock's directory at the last end of a ticket; `None` if all clients might
    /// read the directory. It guards the history even after the directory was deleted or made
    /// again.
    pub(crate) readers: Option<Arc<[Acl]>>,
}

impl History {
    /// Adds an ended ticket, and the ACL `readers` that guards the history from now on. Drops the
    /// oldest tickets beyond `max`; if the ACL has changed, drops the former ACL and all tickets
    /// before this one. Returns the estimated memory of what was dropped, in bytes.
    fn add(&mut self, ticket: EndedTicket, readers: Option<Arc<[Acl]>>, max: usize) -> u64 {
        let mut forgotten = 0;
        if self.readers != readers {
            forgotten += readers_weight(self.readers.as_deref());
            // The ACL has changed: a client that may read the new ticket might not have been
            // allowed to read the former ones.
            if self.readers.is_some() {
                forgotten += self.tickets_weight();
                self.grants.clear();
                self.waits.clear();
            }
            self.readers = readers;
        }
        self.newest = ticket.ended.zxid;
        let row = if ticket.grant.is_some() { &mut self.grants } else { &mut self.waits };
        row.push_back(Arc::new(ticket));
        for row in [&mut self.grants, &mut self.waits] {
            let old = row.drain(..row.len().saturating_sub(max));
            forgotten += old.map(|ticket| ticket.weight()).sum::<u64>();
        }
        forgotten
    }

    /// Estimated memory of the tickets and of the ACL, in bytes. The ACL is counted for each lock,
    /// because a snapshot repeats it.
    fn bytes(&self) -> u64 {
        self.tickets_weight() + readers_weight(self.readers.as_deref())
    }

    fn tickets_weight(&self) -> u64 {
        self.grants.iter().chain(&self.waits).map(|ticket| ticket.weight()).sum()
    }
}

fn readers_weight(readers: Option<&[Acl]>) -> u64 {
    readers.map_or(0, acl::weight)
}

/// The histories of all locks, and the ended sessions, within their bounds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histories {
    by_lock: OrdMap<ZPath, Arc<History>>,
    /// The locks in `by_lock`, by the zxid at which a ticket ended last.
    by_age: OrdSet<(Zxid, ZPath)>,
    sessions: OrdMap<SessionId, Arc<EndedSession>>,
    /// The sessions in `sessions`, by the zxid of their end.
    by_end: OrdSet<(Zxid, SessionId)>,
    /// Estimated memory of all histories and ended sessions, in bytes.
    bytes: u64,
}

impl Histories {
    /// Estimated memory of all histories and ended sessions, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The history of a lock; `None` if no ended ticket of it is remembered.
    pub(crate) fn of(&self, lock: &ZPath) -> Option<&History> {
        self.by_lock.get(lock).map(|history| &**history)
    }

    /// Locks whose latest ended ticket ended in the entry `zxid` or a later one, sorted by this
    /// end.
    pub(crate) fn since(&self, zxid: Zxid) -> impl Iterator<Item = &ZPath> {
        // Most entries end no ticket. To make a range costs more than to look at the newest end.
        let newest = self.by_age.get_max().filter(|(at, _)| *at >= zxid);
        newest.into_iter().flat_map(move |_| self.by_age.range((zxid, ZPath::root())..)).map(|(_, lock)| lock)
    }

    /// Locks whose latest ended ticket ended in an entry from `from` to before `to`, the latest end
    /// first.
    pub(crate) fn between(&self, from: Zxid, to: Zxid) -> impl Iterator<Item = &ZPath> {
        self.by_age.range((from, ZPath::root())..(to, ZPath::root())).rev().map(|(_, lock)| lock)
    }

    /// An ended session; `None` if it is unknown, or older at `now_ms` than the limits allow.
    pub(crate) fn session(&self, id: SessionId, limits: &Limits, now_ms: u64) -> Option<&EndedSession> {
        self.sessions.get(&id).map(|session| &**session).filter(|session| is_remembered(session, limits, now_ms))
    }

    /// The histories of the locks with paths after `lock`, sorted by path.
    pub(crate) fn after(&self, lock: &str) -> impl Iterator<Item = (&ZPath, &History)> {
        let range = (Bound::Excluded(lock), Bound::Unbounded);
        self.by_lock.range::<_, str>(range).map(|(lock, history)| (lock, &**history))
    }

    /// The ended sessions with ids above `id`, by id.
    pub(crate) fn sessions_after(&self, id: SessionId) -> impl Iterator<Item = &EndedSession> {
        self.sessions.range((Bound::Excluded(id), Bound::Unbounded)).map(|(_, session)| &**session)
    }

    pub(crate) fn add_ticket(
        &mut self,
        lock: &ZPath,
        ticket: EndedTicket,
        readers: Option<Arc<[Acl]>>,
        limits: &Limits,
    ) {
        let max = limits.histories_each();
        if max == 0 {
            return;
        }
        if let Some(history) = self.by_lock.get_mut(lock) {
            self.by_age.remove(&(history.newest, lock.clone()));
            self.by_age.insert((ticket.ended.zxid, lock.clone()));
            self.bytes += ticket.weight();
            let history = Arc::make_mut(history);
            if history.readers != readers {
                self.bytes += readers_weight(readers.as_deref());
            }
            self.bytes -= history.add(ticket, readers, max);
        } else {
            let mut history = History::default();
            history.add(ticket, readers, max);
            self.restore_history(lock.clone(), history);
        }
        while self.by_lock.len() > limits.histories_max as usize {
            self.forget_oldest();
        }
    }

    /// Forgets the history of the lock in which no ticket has ended for the longest time.
    pub(crate) fn forget_oldest(&mut self) {
        let Some((newest, lock)) = self.by_age.get_min().cloned() else {
            return;
        };
        self.by_age.remove(&(newest, lock.clone()));
        let old = self.by_lock.remove(&lock).expect("each history is in the index");
        self.bytes -= weight_of_lock(&lock) + old.bytes();
    }

    pub(crate) fn add_session(&mut self, session: EndedSession, limits: &Limits) {
        let now_ms = session.ended.time_ms;
        self.restore_session(session);
        while let Some((zxid, id)) = self.by_end.get_min().copied() {
            let over = self.sessions.len() > limits.ended_sessions_max as usize;
            if !over && is_remembered(&self.sessions[&id], limits, now_ms) {
                break;
            }
            self.by_end.remove(&(zxid, id));
            let old = self.sessions.remove(&id).expect("it was looked at just above");
            self.bytes -= old.weight();
        }
    }

    /// Adds a history from a snapshot. Returns false if the lock has one already.
    pub(crate) fn restore_history(&mut self, lock: ZPath, history: History) -> bool {
        self.bytes += weight_of_lock(&lock) + history.bytes();
        self.by_age.insert((history.newest, lock.clone()));
        self.by_lock.insert(lock, Arc::new(history)).is_none()
    }

    /// Adds an ended session from a snapshot. Returns false if it exists already.
    pub(crate) fn restore_session(&mut self, session: EndedSession) -> bool {
        self.bytes += session.weight();
        self.by_end.insert((session.ended.zxid, session.id));
        self.sessions.insert(session.id, Arc::new(session)).is_none()
    }

    pub(crate) fn check_invariants(&self) -> Result<(), String> {
        let ages = self.by_lock.iter().map(|(lock, history)| (history.newest, lock.clone()));
        let ends = self.sessions.values().map(|session| (session.ended.zxid, session.id));
        if ages.collect::<OrdSet<_>>() != self.by_age || ends.collect::<OrdSet<_>>() != self.by_end {
            return Err("the past is indexed wrongly".into());
        }
        let histories = self.by_lock.iter().map(|(lock, history)| weight_of_lock(lock) + history.bytes());
        let bytes: u64 = histories.chain(self.sessions.values().map(|session| session.weight())).sum();
        if bytes != self.bytes {
            return Err(format!("the past weighs {bytes}, not {}", self.bytes));
        }
        let in_row = |row: &VecDeque<Arc<EndedTicket>>| row.iter().is_sorted_by_key(|ticket| ticket.ended);
        match self.by_lock.iter().find(|(_, history)| !in_row(&history.grants) || !in_row(&history.waits)) {
            Some((lock, _)) => Err(format!("{lock}: its past is out of order")),
            None => Ok(()),
        }
    }
}

fn is_remembered(session: &EndedSession, limits: &Limits, now_ms: u64) -> bool {
    session.ended.time_ms.saturating_add(u64::from(limits.ended_sessions_ms)) > now_ms
}
