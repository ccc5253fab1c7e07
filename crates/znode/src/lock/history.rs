//! What a lock and a session leave behind: who held, who waited in vain, and why that ended.

use std::collections::VecDeque;
use std::sync::Arc;

use bincode::{Decode, Encode};
use imbl::{OrdMap, OrdSet};

use crate::lock::demand::{mode_of, sequence_of};
use crate::lock::label;
use crate::lock::queue::Position;
use crate::session::client_info::remembered;
use crate::state::{Changes, State};
use crate::tree::znode::Znode;
use crate::{
    Acl, Actor, ClientInfo, FencingToken, Identity, Limits, LockMode, Op, READ, Session, SessionId, ZPath, Zxid,
    permits, weight,
};

/// Why a ticket ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub enum TicketEnd {
    /// It held, and its session gave it back.
    Released,
    /// Its session was closed.
    Closed,
    /// Its session expired. With a lock-delay the lock node stays, but it holds for nobody from
    /// here on.
    Expired,
    /// It was asked to give up and did not within the deadline.
    Revoked,
    /// Its wait was over, its session gave it up before it held, or its client had gone before it
    /// had the answer.
    Withdrawn,
    /// Another client deleted the lock node.
    Admin,
    /// It was never let in: waiting would have closed a cycle.
    Deadlock,
}

/// A ticket that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct EndedTicket {
    /// The lock node's name; empty when it was never made.
    pub name: String,
    /// How it wanted the lock.
    pub mode: LockMode,
    /// Its session.
    pub session: SessionId,
    /// Who, within the session; empty for nobody.
    pub owner: String,
    /// The lock node's data at its end if that was text and no longer than a label.
    pub label: String,
    /// When it entered the queue.
    pub enqueued: Moment,
    /// When it became a holder, and its fencing token. `None` when it waited in vain.
    pub grant: Option<Grant>,
    /// When it ended.
    pub ended: Moment,
    /// Why.
    pub end: TicketEnd,
    /// The label of its session.
    pub session_label: Arc<str>,
    /// The client of its session.
    pub client: Arc<ClientInfo>,
    /// Who ended it, where that was not its own session, nor its silence.
    pub by: Option<Arc<Actor>>,
}

/// An entry of the log and the time on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Moment {
    /// The entry.
    pub zxid: Zxid,
    /// In milliseconds since 1970.
    pub time_ms: u64,
}

/// When a ticket became a holder, and with which token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Grant {
    /// When.
    pub at: Moment,
    /// What it showed to resources.
    pub token: FencingToken,
}

/// A session that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct EndedSession {
    /// Its id.
    pub id: SessionId,
    /// What the one who opened it said of itself.
    pub label: String,
    /// Its timeout, in milliseconds.
    pub timeout_ms: u32,
    /// When it was opened, in milliseconds since 1970.
    pub opened_ms: u64,
    /// When it ended.
    pub ended: Moment,
    /// Whether it was silent too long; else it was closed.
    pub expired: bool,
    /// How many ephemeral znodes went with it.
    pub ephemerals: u32,
    /// Who the client was that opened it.
    pub client: Arc<ClientInfo>,
}

/// The past of one lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub(crate) struct History {
    /// When something ended last.
    pub(crate) newest: Zxid,
    pub(crate) grants: VecDeque<Arc<EndedTicket>>,
    /// Apart, so that many short tries do not push the grants out.
    pub(crate) waits: VecDeque<Arc<EndedTicket>>,
    /// The directory's ACL when something ended last, where not all clients might read it. The past
    /// goes by it when the directory has gone, or is another one.
    pub(crate) readers: Option<Arc<[Acl]>>,
}

impl History {
    /// Adds one. What those weigh that are forgotten for it, and the ACL that is.
    fn add(&mut self, ticket: EndedTicket, readers: Option<Arc<[Acl]>>, max: usize) -> u64 {
        let mut forgotten = 0;
        if self.readers != readers {
            forgotten += readers_weight(self.readers.as_deref());
            // What some might read is not told to others who may read what comes after it.
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
            forgotten += old.map(|ticket| weight::ended_ticket(&ticket)).sum::<u64>();
        }
        forgotten
    }

    /// What it weighs: its tickets, and an ACL of its own, since a snapshot has it once for each
    /// lock.
    fn bytes(&self) -> u64 {
        self.tickets_weight() + readers_weight(self.readers.as_deref())
    }

    fn tickets_weight(&self) -> u64 {
        self.grants.iter().chain(&self.waits).map(|ticket| weight::ended_ticket(ticket)).sum()
    }
}

fn readers_weight(readers: Option<&[Acl]>) -> u64 {
    readers.map_or(0, weight::acl)
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
    /// What all of it weighs.
    bytes: u64,
}

impl Histories {
    /// What all of it weighs.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The histories of locks, while they may change.
    pub(crate) fn walk(&self) -> impl Iterator<Item = (ZPath, Arc<History>)> + Send + use<> {
        self.by_lock.clone().into_iter()
    }

    /// The same of sessions that have ended.
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
            self.bytes += weight::ended_ticket(&ticket);
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
    fn forget_oldest(&mut self) {
        let Some((newest, lock)) = self.by_age.get_min().cloned() else {
            return;
        };
        self.by_age.remove(&(newest, lock.clone()));
        let old = self.by_lock.remove(&lock).expect("each history is in the index");
        self.bytes -= weight::history(&lock) + old.bytes();
    }

    fn add_session(&mut self, session: EndedSession, limits: &Limits) {
        let now_ms = session.ended.time_ms;
        self.restore_session(session);
        while let Some((zxid, id)) = self.by_end.get_min().copied() {
            let over = self.sessions.len() > limits.ended_sessions_max as usize;
            if !over && is_remembered(&self.sessions[&id], limits, now_ms) {
                break;
            }
            self.by_end.remove(&(zxid, id));
            let old = self.sessions.remove(&id).expect("it was looked at just above");
            self.bytes -= weight::ended_session(&old);
        }
    }

    /// Puts a record back as it was, from a snapshot; false when there is one.
    pub(crate) fn restore_history(&mut self, lock: ZPath, history: History) -> bool {
        self.bytes += weight::history(&lock) + history.bytes();
        self.by_age.insert((history.newest, lock.clone()));
        self.by_lock.insert(lock, Arc::new(history)).is_none()
    }

    /// The same for a session.
    pub(crate) fn restore_session(&mut self, session: EndedSession) -> bool {
        self.bytes += weight::ended_session(&session);
        self.by_end.insert((session.ended.zxid, session.id));
        self.sessions.insert(session.id, Arc::new(session)).is_none()
    }

    pub(crate) fn check_invariants(&self) -> Result<(), String> {
        let ages = self.by_lock.iter().map(|(lock, history)| (history.newest, lock.clone()));
        let ends = self.sessions.values().map(|session| (session.ended.zxid, session.id));
        if ages.collect::<OrdSet<_>>() != self.by_age || ends.collect::<OrdSet<_>>() != self.by_end {
            return Err("the past is indexed wrongly".into());
        }
        let histories = self.by_lock.iter().map(|(lock, history)| weight::history(lock) + history.bytes());
        let bytes: u64 = histories.chain(self.sessions.values().map(|session| weight::ended_session(session))).sum();
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

/// What a lock remembers, the newest end first: at most `max`. Empty for a lock that nobody knows.
pub fn history(state: &State, lock: &ZPath, max: usize) -> Vec<Arc<EndedTicket>> {
    let Some(history) = state.locks.histories.by_lock.get(lock) else {
        return Vec::new();
    };
    let mut tickets: Vec<_> = history.grants.iter().chain(&history.waits).cloned().collect();
    // A stable sort of the reversed: what ended in one entry also comes newest first.
    tickets.reverse();
    tickets.sort_by_key(|ticket| std::cmp::Reverse(ticket.ended));
    tickets.truncate(max);
    tickets
}

/// Whether one who has proven these identities may read what a lock remembers: who may read the
/// directory, and might when something ended last.
pub fn may_read_history(state: &State, lock: &ZPath, reader: &[Identity]) -> bool {
    let then = state.locks.histories.by_lock.get(lock).and_then(|history| history.readers.as_deref());
    then.is_none_or(|acl| permits(acl, READ, reader)) && state.may_read(lock, reader)
}

/// Locks whose past is looked at to find a ticket of a session that has ended, at most twice.
const LOOKS_MAX: usize = 512;

/// Whether one who has proven these identities may read of a session that has ended in what a lock
/// remembers: who may know whose its tickets were may know its client. Looked for among the locks
/// where something ended with the session or soon after it, and among those where that was during
/// its life.
pub fn may_read_of_ended(state: &State, session: &EndedSession, reader: &[Identity]) -> bool {
    let (opened, ended) = (Zxid(session.id.0), session.ended.zxid);
    let at = |zxid: Zxid| (zxid, ZPath::root());
    let since = state.locks.histories.by_age.range(at(ended)..).take(LOOKS_MAX);
    let before = state.locks.histories.by_age.range(at(opened)..at(ended)).rev().take(LOOKS_MAX);
    // One whose lock node might be read by fewer is remembered without the client.
    let tells = |past: &EndedTicket| past.session == session.id && !past.client.is_empty();
    let theirs = |history: &History| history.grants.iter().chain(&history.waits).any(|past| tells(past));
    let known = |lock: &ZPath| state.locks.histories.by_lock.get(lock).is_some_and(|history| theirs(history));
    since.chain(before).any(|(_, lock)| known(lock) && may_read_history(state, lock, reader))
}

/// How a lock node became a holder; `None` while it waits, and for one that no session owns.
pub fn grant(state: &State, ticket: &ZPath) -> Option<Grant> {
    let node = state.node(ticket).filter(|node| node.owner().is_some() && node.lingers_until_ms().is_none())?;
    let position = Position::of(ticket.name(), node.czxid)?;
    Some(state.queue(&ticket.parent()?)?.holder(&position)?.grant)
}

/// What an entry means for the tickets that end in it.
pub(crate) fn end_of(op: &Op) -> Option<TicketEnd> {
    match op {
        Op::CloseSession { .. } => Some(TicketEnd::Closed),
        Op::ExpireSessions { .. } => Some(TicketEnd::Expired),
        Op::Withdraw { .. } => Some(TicketEnd::Withdrawn),
        Op::Reap { .. } | Op::Revoke { .. } => Some(TicketEnd::Revoked),
        // It depends on whose it was.
        _ => None,
    }
}

impl State {
    /// A session that has ended and is still remembered.
    pub fn ended_session(&self, id: SessionId) -> Option<&EndedSession> {
        let session = self.locks.histories.sessions.get(&id)?;
        is_remembered(session, &self.limits, self.time_ms).then_some(&**session)
    }

    pub(crate) fn remember_session(&mut self, session: &Session, expired: bool, changes: &Changes) {
        let ended = EndedSession {
            id: session.id,
            label: session.label.to_string(),
            timeout_ms: session.timeout_ms,
            opened_ms: session.opened_ms,
            ended: self.moment(changes),
            expired,
            ephemerals: u32::try_from(session.ephemeral_count()).unwrap_or(u32::MAX),
            client: session.client.clone(),
        };
        self.locks.histories.add_session(ended, &self.limits);
    }

    /// A lock node goes, or begins to linger: what is kept beside it goes, too, and the past has
    /// one more.
    pub(crate) fn ticket_ended(&mut self, path: &ZPath, node: &Znode, grant: Option<Grant>, changes: &Changes) {
        let (Some(session), Some(lock)) = (node.owner(), path.parent()) else {
            return;
        };
        // One that lingered ended before.
        if sequence_of(path.name()).is_none() || node.lingers_until_ms().is_some() {
            return;
        }
        if grant.is_some() {
            self.locks.discount_holder();
        }
        let asked = self.locks.revocations.remove(path);
        let own = changes.session == Some(session);
        let end = changes.end.unwrap_or(match (own, grant) {
            (true, Some(_)) => TicketEnd::Released,
            (true, None) => TicketEnd::Withdrawn,
            (false, _) => TicketEnd::Admin,
        });
        let by = match end {
            // At its deadline the leader takes it, in the name of the client that asked for it.
            TicketEnd::Revoked | TicketEnd::Admin => {
                let actor = Some(self.actor(changes)).filter(|actor| *actor != Actor::default());
                actor.or(asked.map(|asked| asked.by))
            }
            _ => None,
        };
        let (session_label, client) = remembered(self.session_of(session, changes));
        let contender = node.contender();
        let (readers, own_readers) = (self.history_readers(&lock), self.readers(path, node));
        let is_open = own_readers.is_none() || own_readers == readers;
        let ticket = EndedTicket {
            name: short(path.name()),
            mode: contender.map_or_else(|| mode_of(path.name()), |contender| contender.mode),
            session,
            owner: contender.map_or_else(String::new, |contender| short(&contender.owner)),
            // What some readers of the history might not read is not remembered.
            label: if is_open { short(&label(self, node).unwrap_or_default()) } else { String::new() },
            enqueued: Moment { zxid: node.czxid, time_ms: node.ctime_ms },
            grant,
            ended: self.moment(changes),
            end,
            session_label,
            client: if is_open { client } else { Arc::default() },
            by: by
                .map(|actor| Arc::new(if is_open { actor } else { Actor { client: ClientInfo::default(), ..actor } })),
        };
        self.remember_ticket(&lock, ticket, readers);
    }

    /// Who may read what a lock remembers, where that is not every client.
    pub(crate) fn history_readers(&self, lock: &ZPath) -> Option<Arc<[Acl]>> {
        let acl = &self.nearest(lock.as_str()).1.acl;
        (!permits(acl, READ, &[])).then(|| Arc::clone(acl))
    }

    /// Adds to a lock's past. Where memory is short, that of others is forgotten for it.
    pub(crate) fn remember_ticket(&mut self, lock: &ZPath, ticket: EndedTicket, readers: Option<Arc<[Acl]>>) {
        self.locks.histories.add_ticket(lock, ticket, readers, &self.limits);
        for _ in 0..2 {
            if self.is_overweight() {
                self.locks.histories.forget_oldest();
            }
        }
    }

    pub(crate) fn moment(&self, changes: &Changes) -> Moment {
        Moment { zxid: changes.zxid, time_ms: self.time_ms }
    }
}

/// What is kept of a text, in bytes, whatever the limits: the history of a lock is one record of a
/// snapshot.
pub(crate) const TEXT_MAX: usize = 1024;

/// The beginning of a text.
pub(crate) fn short(text: &str) -> String {
    let end = (0..=TEXT_MAX.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text[..end.unwrap_or(0)].into()
}
