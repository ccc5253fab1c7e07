//! Histories: the ended tickets of locks and the ended sessions, with the reasons.

use std::sync::Arc;

use crate::edits::actors::remembered;
use crate::edits::effects::Effects;
use crate::queue::ended::{EndedSession, EndedTicket, Grant, History, Moment, TicketEnd};
use crate::words::client_info::short;
use crate::words::ticket_name::mode_of;
use crate::{Acl, Actor, ClientInfo, Identity, Op, READ, SessionId, State, ZPath, Znode, Zxid, permits};

/// The ended tickets that a lock's history remembers, the newest end first; at most `max`. Empty
/// for a lock without a history.
pub fn history(state: &State, lock: &ZPath, max: usize) -> Vec<Arc<EndedTicket>> {
    let Some(history) = state.locks().histories.of(lock) else {
        return Vec::new();
    };
    let mut tickets: Vec<_> = history.grants.iter().chain(&history.waits).cloned().collect();
    // The sort is stable, so reversing first brings the newest first also among ends of one entry.
    tickets.reverse();
    tickets.sort_by_key(|ticket| std::cmp::Reverse(ticket.ended));
    tickets.truncate(max);
    tickets
}

/// Ended tickets in the histories of all locks, each with its lock; only tickets that ended in the
/// entry `zxid` or later.
pub fn ended_in(state: &State, zxid: Zxid) -> impl Iterator<Item = (&ZPath, &EndedTicket)> {
    let histories = &state.locks().histories;
    let of = move |lock| histories.of(lock).map(|history| (lock, history));
    histories.since(zxid).filter_map(of).flat_map(move |(lock, history)| {
        let rows = [&history.grants, &history.waits]
            .map(|row| row.iter().rev().take_while(move |ended| ended.ended.zxid >= zxid).map(|ended| &**ended));
        rows.into_iter().flatten().map(move |ended| (lock, ended))
    })
}

/// Tells whether a client with these identities may read the history of a lock. The lock's ACL must
/// allow reading now, and must have allowed it at the last end of a ticket of the lock.
pub fn may_read_history(state: &State, lock: &ZPath, reader: &[Identity]) -> bool {
    let then = state.locks().histories.of(lock).and_then(|history| history.readers.as_deref());
    then.is_none_or(|acl| permits(acl, READ, reader)) && state.may_read(lock, reader)
}

/// Maximum number of locks that each of the two searches in [`may_read_of_ended`] examines.
const LOOKS_MAX: usize = 512;

/// Tells whether a client with these identities may know about an ended session: whether it may
/// read a lock's history with a ticket of that session. Only some locks are searched: first those
/// in which the last ticket ended with the session or later, then those in which it ended during
/// the session's life.
pub fn may_read_of_ended(state: &State, session: &EndedSession, reader: &[Identity]) -> bool {
    let (opened, ended) = (Zxid(session.id.0), session.ended.zxid);
    let histories = &state.locks().histories;
    let since = histories.since(ended).take(LOOKS_MAX);
    let before = histories.between(opened, ended).take(LOOKS_MAX);
    // A history omits the client of a lock node that fewer clients could read than the lock.
    let tells = |past: &EndedTicket| past.session == session.id && !past.client.is_empty();
    let theirs = |history: &History| history.grants.iter().chain(&history.waits).any(|past| tells(past));
    let known = |lock: &ZPath| histories.of(lock).is_some_and(theirs);
    since.chain(before).any(|lock| known(lock) && may_read_history(state, lock, reader))
}

/// The reason that is recorded for every ticket that the operation ends, for example `Closed` for
/// the close of a session. `None` if the reason may differ from ticket to ticket.
pub(crate) fn end_of(op: &Op) -> Option<TicketEnd> {
    match op {
        Op::CloseSession { .. } => Some(TicketEnd::Closed),
        Op::ExpireSessions { .. } => Some(TicketEnd::Expired),
        Op::Withdraw { .. } => Some(TicketEnd::Withdrawn),
        Op::Reap { .. } | Op::Revoke { .. } => Some(TicketEnd::Revoked),
        // The reason depends on whether the ticket belongs to the session of the request.
        _ => None,
    }
}

impl State {
    /// The record of an ended session; `None` if the session is unknown, or its record was
    /// forgotten.
    pub fn ended_session(&self, id: SessionId) -> Option<&EndedSession> {
        self.locks().histories.session(id, self.limits(), self.time_ms())
    }

    /// Records the end of a ticket: its lock node is removed, or is kept only for the lock-delay
    /// after its session has expired. Drops the request to release the ticket, if there is one, and
    /// adds the ticket to the lock's history.
    pub(crate) fn ticket_ended(&mut self, path: &ZPath, node: &Znode, grant: Option<Grant>, effects: &Effects) {
        let (Some(session), Some(lock)) = (node.owner(), path.parent()) else {
            return;
        };
        // For a lock node kept for its lock-delay, the end is recorded already.
        if node.number(path.name()).is_none() || node.lingers_until_ms().is_some() {
            return;
        }
        let asked = self.discount(path, grant.is_some());
        let own = effects.context.session == Some(session);
        let end = effects.end.unwrap_or(match (own, grant) {
            (true, Some(_)) => TicketEnd::Released,
            (true, None) => TicketEnd::Withdrawn,
            (false, _) => TicketEnd::Admin,
        });
        let by = match end {
            // The leader removes a revoked ticket at its deadline on behalf of the client that
            // revoked it.
            TicketEnd::Revoked | TicketEnd::Admin => {
                let actor = Some(self.actor(effects)).filter(|actor| *actor != Actor::default());
                actor.or(asked.map(|asked| asked.by))
            }
            _ => None,
        };
        let (session_label, client) = remembered(self.session_of(session, effects));
        let contender = node.contender();
        let (readers, own_readers) = (self.history_readers(&lock), self.readers(path, node));
        let is_open = own_readers.is_none() || own_readers == readers;
        let ticket = EndedTicket {
            name: short(path.name()),
            mode: contender.map_or_else(|| mode_of(path.name()), |contender| contender.mode),
            session,
            owner: contender.map_or_else(String::new, |contender| short(&contender.owner)),
            // The label is omitted if some readers of the history could not read it.
            label: if is_open {
                short(node.label(self.limits().label_bytes_max).unwrap_or_default())
            } else {
                String::new()
            },
            enqueued: Moment { zxid: node.czxid, time_ms: node.changes.ctime_ms },
            grant,
            ended: effects.context.moment(),
            end,
            session_label,
            client: if is_open { client } else { Arc::default() },
            by: by
                .map(|actor| Arc::new(if is_open { actor } else { Actor { client: ClientInfo::default(), ..actor } })),
        };
        self.remember_ticket(&lock, ticket, readers);
    }

    /// The ACL that guards the history of a lock; `None` if all clients may read the history.
    pub(crate) fn history_readers(&self, lock: &ZPath) -> Option<Arc<[Acl]>> {
        let acl = &self.nearest(lock.as_str()).1.acl;
        (!permits(acl, READ, &[])).then(|| Arc::clone(acl))
    }
}
