//! Tickets and sessions that have ended, as they are remembered: with bounds on how many, and the
//! oldest going first.

use std::collections::VecDeque;
use std::sync::Arc;

use bincode::{Decode, Encode};
use imbl::{OrdMap, OrdSet};

use crate::words::acl;
use crate::words::weight::{ENDED, HISTORY, PAST_TICKET, text};
use crate::{Acl, Actor, ClientInfo, FencingToken, Limits, LockMode, SessionId, ZPath, Zxid};

/// Reasons for which a ticket ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub enum TicketEnd {
    /// The ticket held, and its session gave it back.
    Released,
    /// The session was closed.
    Closed,
    /// The session expired. With a lock-delay the lock node stays, but it holds for nobody from
    /// here on.
    Expired,
    /// The holder was asked to give up and did not within the deadline.
    Revoked,
    /// The wait was over, its session gave it up before it held, or its client had gone before it
    /// had the answer.
    Withdrawn,
    /// Another client deleted the lock node.
    Admin,
    /// The ticket was never let in: waiting would have closed a cycle.
    Deadlock,
}

/// A ticket that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct EndedTicket {
    /// The lock node's name; empty when it was never made.
    pub name: String,
    /// The mode in which it wanted the lock.
    pub mode: LockMode,
    /// The session.
    pub session: SessionId,
    /// The owner within the session; empty for none.
    pub owner: String,
    /// The lock node's data at its end if that was text and no longer than a label.
    pub label: String,
    /// The moment at which it entered the queue.
    pub enqueued: Moment,
    /// The moment at which it became a holder, and its fencing token. `None` when it waited in
    /// vain.
    pub grant: Option<Grant>,
    /// The moment at which it ended.
    pub ended: Moment,
    /// The reason for which it ended.
    pub end: TicketEnd,
    /// The label of its session.
    pub session_label: Arc<str>,
    /// The client of its session.
    pub client: Arc<ClientInfo>,
    /// The one who ended it, where that was not its own session, nor its silence.
    pub by: Option<Arc<Actor>>,
}

/// An entry of the log and the time on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Moment {
    /// The entry.
    pub zxid: Zxid,
    /// The time, in milliseconds since 1970.
    pub time_ms: u64,
}

/// The moment at which a ticket became a holder, and with which token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Grant {
    /// The moment.
    pub at: Moment,
    /// The token that it showed to resources.
    pub token: FencingToken,
}

/// A session that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct EndedSession {
    /// The id.
    pub id: SessionId,
    /// Label that the one who opened it gave.
    pub label: String,
    /// The timeout, in milliseconds.
    pub timeout_ms: u32,
    /// Time at which it was opened, in milliseconds since 1970.
    pub opened_ms: u64,
    /// The moment at which it ended.
    pub ended: Moment,
    /// Tells whether it was silent too long; else it was closed.
    pub expired: bool,
    /// Number of ephemeral znodes that went with it.
    pub ephemerals: u32,
    /// The client that opened it.
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

/// Weight of a lock that remembers any tickets, without these.
fn weight_of_lock(lock: &ZPath) -> u64 {
    HISTORY + text(lock.as_str())
}

/// The past of one lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub(crate) struct History {
    /// The entry by which something ended last.
    pub(crate) newest: Zxid,
    pub(crate) grants: VecDeque<Arc<EndedTicket>>,
    /// Waits in vain. They are apart, so that many short tries do not push the grants out.
    pub(crate) waits: VecDeque<Arc<EndedTicket>>,
    /// The directory's ACL when something ended last, where not all clients might read it. The past
    /// goes by it when the directory has gone, or is another one.
    pub(crate) readers: Option<Arc<[Acl]>>,
}

impl History {
    /// Adds a ticket. Returns the weight of those that are forgotten for it, and of the ACL that
    /// is.
    fn add(&mut self, ticket: EndedTicket, readers: Option<Arc<[Acl]>>, max: usize) -> u64 {
        let mut forgotten = 0;
        if self.readers != readers {
            forgotten += readers_weight(self.readers.as_deref());
            // Tickets that some clients might read are not told to others that may read the later
            // ones.
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

    /// Weight of the history: its tickets, and an ACL of its own, since a snapshot has it once for
    /// each lock.
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

/// Everything that is remembered about the past, with its bounds kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histories {
    by_lock: OrdMap<ZPath, Arc<History>>,
    /// The locks in `by_lock`, by what is newest in them.
    by_age: OrdSet<(Zxid, ZPath)>,
    sessions: OrdMap<SessionId, Arc<EndedSession>>,
    /// The sessions in `sessions`, by their end.
    by_end: OrdSet<(Zxid, SessionId)>,
    /// Weight of all of it.
    bytes: u64,
}

impl Histories {
    /// Weight of all of it.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The past that one lock remembers.
    pub(crate) fn of(&self, lock: &ZPath) -> Option<&History> {
        self.by_lock.get(lock).map(|history| &**history)
    }

    /// Locks where something ended last by an entry from this one on, the earliest first.
    pub(crate) fn since(&self, zxid: Zxid) -> impl Iterator<Item = &ZPath> {
        self.by_age.range((zxid, ZPath::root())..).map(|(_, lock)| lock)
    }

    /// Locks where something ended last by an entry from `from` to before `to`, the latest first.
    pub(crate) fn between(&self, from: Zxid, to: Zxid) -> impl Iterator<Item = &ZPath> {
        self.by_age.range((from, ZPath::root())..(to, ZPath::root())).rev().map(|(_, lock)| lock)
    }

    /// A session that has ended, if the limits let it be remembered at this time.
    pub(crate) fn session(&self, id: SessionId, limits: &Limits, now_ms: u64) -> Option<&EndedSession> {
        self.sessions.get(&id).map(|session| &**session).filter(|session| is_remembered(session, limits, now_ms))
    }

    /// The histories of locks, while they may change.
    pub(crate) fn walk(&self) -> impl Iterator<Item = (ZPath, Arc<History>)> + Send + use<> {
        self.by_lock.clone().into_iter()
    }

    /// The sessions that have ended, while they may change.
    pub(crate) fn walk_sessions(&self) -> impl Iterator<Item = Arc<EndedSession>> + Send + use<> {
        self.sessions.clone().into_iter().map(|(_, session)| session)
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

    /// Forgets the past of the lock where nothing ended for longest.
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

    /// Puts a record back as it was, from a snapshot; false when there is one.
    pub(crate) fn restore_history(&mut self, lock: ZPath, history: History) -> bool {
        self.bytes += weight_of_lock(&lock) + history.bytes();
        self.by_age.insert((history.newest, lock.clone()));
        self.by_lock.insert(lock, Arc::new(history)).is_none()
    }

    /// Puts the record of an ended session back as it was, from a snapshot; false when there is
    /// one.
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
