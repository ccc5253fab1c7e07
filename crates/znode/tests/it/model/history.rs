//! The model's histories: all ended tickets are in one list. Where a history has too many, the
//! oldest are removed.

use std::cmp::Reverse;
use std::sync::Arc;

use znode::lock::{EndedSession, EndedTicket, Moment, TicketEnd};
use znode::{Acl, Actor, ClientInfo, Identity, LockMode, Op, READ, SessionId};

use super::{Model, Session, Stay, name_of, number, parent_of};

impl Model {
    /// Stores the session of a request, and the reason for which the request's operation ends
    /// tickets, until the next request.
    pub(super) fn note_asking(&mut self, op: &Op, session: Option<SessionId>) {
        self.asking = session;
        self.end = match op {
            Op::CloseSession { .. } => Some(TicketEnd::Closed),
            Op::ExpireSessions { .. } => Some(TicketEnd::Expired),
            Op::Withdraw { .. } => Some(TicketEnd::Withdrawn),
            Op::Reap { .. } | Op::Revoke { .. } => Some(TicketEnd::Revoked),
            _ => None,
        };
    }

    /// Records that a ticket ends: its lock node is removed, or kept only for its lock-delay.
    pub(super) fn note_end(&mut self, path: &str) {
        let node = self.nodes[path].clone();
        let lingers = node.lock.as_ref().is_some_and(|lock| lock.lingers_until_ms.is_some());
        let (Stay::Session(session), Some(_), false) = (node.stay, number(path), lingers) else {
            return;
        };
        let asked = self.revocations.remove(path);
        let grant = self.grant_of(path);
        let by_owner = match grant {
            _ if self.asking != Some(session) => TicketEnd::Admin,
            Some(_) => TicketEnd::Released,
            None => TicketEnd::Withdrawn,
        };
        let end = self.end.unwrap_or(by_owner);
        let unknown = Actor::default();
        let by = match self.actor() {
            _ if !matches!(end, TicketEnd::Admin | TicketEnd::Revoked) => None,
            actor if actor == unknown => asked.map(|asked| asked.by.into()),
            actor => Some(actor.into()),
        };
        let (session_label, client) = self.who(session);
        let text = String::from_utf8(node.data).unwrap();
        let is_label = text.len() <= self.limits.label_bytes_max as usize;
        let readers = |acl: &Vec<Acl>| Some(acl.clone()).filter(|acl| !znode::permits(acl, READ, &[]));
        let readable = readers(&node.acl).is_none() || readers(&node.acl) == self.readers(parent_of(path).unwrap());
        let ticket = EndedTicket {
            name: name_of(path).into(),
            mode: node.lock.as_ref().map_or_else(|| mode(path), |lock| lock.mode),
            session,
            owner: node.lock.map_or_else(String::new, |lock| lock.owner),
            label: if is_label && readable { text } else { String::new() },
            enqueued: Moment { zxid: node.created.0, time_ms: node.created.1 },
            grant,
            ended: self.moment(),
            end,
            session_label: session_label.into(),
            client: if readable { client.into() } else { Arc::default() },
            // If fewer clients could read the lock node than the lock, the client of the actor is
            // left out.
            by: by.map(|by: Arc<Actor>| {
                let client = if readable { by.client.clone() } else { ClientInfo::default() };
                Arc::new(Actor { client, ..(*by).clone() })
            }),
        };
        self.remember(parent_of(path).unwrap(), ticket);
    }

    /// The label and the client description of a session that is open or was ended by the log entry
    /// that is being applied.
    pub(super) fn who(&self, id: SessionId) -> (String, ClientInfo) {
        let session = self.sessions.iter().chain(&self.ending).find(|session| session.id == id).unwrap();
        (session.label.clone(), session.client.clone())
    }

    /// The label and the client description of a session with a lock node in a queue. The session
    /// may have ended; both are empty if it is no longer remembered.
    pub(crate) fn who_in_queue(&self, id: SessionId) -> (String, ClientInfo) {
        match (self.session(id), self.ended_session(id)) {
            (Some(open), _) => (open.label.clone(), open.client.clone()),
            (None, Some(ended)) => (ended.label.clone(), (*ended.client).clone()),
            (None, None) => Default::default(),
        }
    }

    /// The client that sent the request of the log entry that is being applied.
    pub(super) fn actor(&self) -> Actor {
        let (label, mut client) = self.asking.map(|id| self.who(id)).unwrap_or_default();
        if self.from.is_some() {
            client.address = self.from;
        }
        let named = |identity: &&Identity| identity.scheme != "super";
        let identity = self.proven.iter().find(named).or(self.proven.first()).map(|identity| {
            let id = if identity.scheme == "digest" { znode::user(&identity.id) } else { &identity.id };
            format!("{}:{id}", identity.scheme)
        });
        Actor { session: self.asking, label, identity: identity.unwrap_or_default(), client }
    }

    pub(super) fn remember(&mut self, lock: &str, ticket: EndedTicket) {
        let max = self.limits.history_max as usize;
        if max == 0 {
            return;
        }
        let readers = self.readers(lock);
        let before = self.history_readers.insert(lock.into(), readers.clone()).flatten();
        if before.is_some() && before != readers {
            self.past.retain(|(other, _)| other != lock);
        }
        self.past.push((lock.into(), ticket));
        for held in [true, false] {
            let of_it = |(other, ticket): &(String, EndedTicket)| other == lock && ticket.grant.is_some() == held;
            while self.past.iter().filter(|past| of_it(past)).count() > max {
                let oldest = self.past.iter().position(of_it).unwrap();
                self.past.remove(oldest);
            }
        }
        loop {
            // Locks are ordered by the newest end of a ticket, then by name.
            let mut locks: Vec<(Moment, String)> = Vec::new();
            for (lock, ticket) in self.past.iter().rev() {
                if !locks.iter().any(|(_, other)| other == lock) {
                    locks.push((ticket.ended, lock.clone()));
                }
            }
            locks.sort();
            if locks.len() <= self.limits.histories_max as usize {
                return;
            }
            self.past.retain(|(lock, _)| *lock != locks[0].1);
            self.history_readers.remove(&locks[0].1);
        }
    }

    /// The ACL of a directory, or of its nearest existing ancestor; `None` if all clients may read
    /// it.
    fn readers(&self, lock: &str) -> Option<Vec<Acl>> {
        let (base, _) = self.nearest(lock);
        Some(self.nodes[&base].acl.clone()).filter(|acl| !znode::permits(acl, READ, &[]))
    }

    /// Tells whether all clients may read a lock's history.
    pub(crate) fn past_is_open(&self, lock: &str) -> bool {
        let then = self.history_readers.get(lock).is_none_or(Option::is_none);
        then && self.nodes.get(lock).is_none_or(|node| znode::permits(&node.acl, READ, &[]))
    }

    /// A lock's history, the newest end first.
    pub(crate) fn history(&self, lock: &str) -> Vec<EndedTicket> {
        let of_it = self.past.iter().filter(|(other, _)| other == lock).map(|(_, ticket)| ticket.clone());
        // Within one entry, ended waiters count as older than ended holders.
        let (held, waited): (Vec<_>, Vec<_>) = of_it.partition(|ticket| ticket.grant.is_some());
        let mut all: Vec<_> = waited.into_iter().rev().chain(held.into_iter().rev()).collect();
        all.sort_by_key(|ticket| Reverse(ticket.ended));
        all
    }

    pub(super) fn note_session(&mut self, session: &Session) {
        let ended = EndedSession {
            id: session.id,
            label: session.label.clone(),
            timeout_ms: session.timeout_ms,
            opened_ms: session.opened_ms,
            ended: self.moment(),
            expired: self.end == Some(TicketEnd::Expired),
            ephemerals: self.owned_by(session.id).len() as u32,
            client: session.client.clone().into(),
        };
        self.ended.push(ended);
        // Sessions that one entry ended have the same time, so they are ordered by id.
        self.ended.sort_by_key(|session| (session.ended.zxid, session.id));
        // The oldest sessions are forgotten, by number or by age. A session that is young enough
        // keeps all sessions that ended after it.
        while let Some(oldest) = self.ended.first() {
            let number = self.ended.len() > self.limits.ended_sessions_max as usize;
            if !number && self.is_remembered(oldest) {
                break;
            }
            self.ended.remove(0);
        }
    }

    pub(crate) fn ended_session(&self, id: SessionId) -> Option<&EndedSession> {
        self.ended.iter().find(|session| session.id == id).filter(|session| self.is_remembered(session))
    }

    fn is_remembered(&self, session: &EndedSession) -> bool {
        self.time_ms < session.ended.time_ms + u64::from(self.limits.ended_sessions_ms)
    }

    pub(super) fn moment(&self) -> Moment {
        Moment { zxid: self.last_zxid, time_ms: self.time_ms }
    }
}

/// Mode of a lock node that a plain create made, told by its name.
pub(super) fn mode(path: &str) -> LockMode {
    let name = name_of(path);
    if super::reads(path) {
        LockMode::Read
    } else if name.contains("__WRIT__") || name.contains("-W-") || name.starts_with("write-") {
        LockMode::Write
    } else {
        LockMode::Exclusive
    }
}
