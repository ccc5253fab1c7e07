//! Ended tickets and sessions that the state machine remembers, in types of the API.

use zlock_client::api::{EndedTicket, LockHistory, ProblemType, SessionEnd, SessionEnded, TicketEnd};
use znode::lock::{self, EndedSession};
use znode::{Identity, SUPER, SessionId, State, ZPath, Zxid};

use crate::api::convert;
use crate::problem::{Extra, Problem};
use crate::request::access::forbidden;

/// Checks that the request may read a lock's past, whether its directory exists or not.
pub(crate) fn check_readable(identities: &[Identity], state: &State, lock: &ZPath) -> Result<(), Problem> {
    if lock::may_read_history(state, lock, identities) { Ok(()) } else { Err(forbidden(state, lock)) }
}

/// A lock's past: the last `limit` tickets that ended.
pub(crate) fn history(state: &State, lock: &ZPath, limit: usize) -> LockHistory {
    let history = lock::history(state, lock, limit);
    LockHistory {
        lock: lock.as_str().into(),
        history: history.iter().map(|ticket| ended_ticket(lock, ticket)).collect(),
    }
}

fn ended_ticket(lock: &ZPath, past: &lock::EndedTicket) -> EndedTicket {
    EndedTicket {
        // A former child's name is valid.
        ticket: lock.child(&past.name).ok().map(|path| path.as_str().into()),
        mode: convert::lock_mode(past.mode),
        session: past.session.0,
        owner: past.owner.clone(),
        label: past.label.clone(),
        enqueued_zxid: past.enqueued.zxid.0,
        enqueued_ms: past.enqueued.time_ms,
        granted_zxid: past.grant.map(|grant| grant.at.zxid.0),
        granted_ms: past.grant.map(|grant| grant.at.time_ms),
        fencing_token: past.grant.map(|grant| grant.token.0),
        ended_zxid: past.ended.zxid.0,
        ended_ms: past.ended.time_ms,
        end: ticket_end(past.end),
        session_label: past.session_label.to_string(),
        client: convert::client(&past.client),
        by: past.by.as_deref().and_then(convert::actor),
    }
}

fn ticket_end(end: lock::TicketEnd) -> TicketEnd {
    match end {
        lock::TicketEnd::Released => TicketEnd::Released,
        lock::TicketEnd::Closed => TicketEnd::Closed,
        lock::TicketEnd::Expired => TicketEnd::Expired,
        lock::TicketEnd::Revoked => TicketEnd::Revoked,
        lock::TicketEnd::Withdrawn => TicketEnd::Withdrawn,
        lock::TicketEnd::Admin => TicketEnd::Admin,
        lock::TicketEnd::Deadlock => TicketEnd::Deadlock,
    }
}

/// 410: the ticket has gone. Gives the reason if the lock remembers it.
pub(crate) fn ticket_gone(state: &State, ticket: &ZPath, zxid: Zxid) -> Problem {
    let history = ticket.parent().map(|lock| lock::history(state, &lock, usize::MAX)).unwrap_or_default();
    let problem = Problem::ticket_gone(ticket, zxid);
    match history.iter().find(|past| past.name == ticket.name()) {
        Some(past) => problem.with(znode::Error::NoNode, Extra::TicketEnd(ticket_end(past.end))),
        None => problem,
    }
}

/// 410 as by [`ticket_gone`], for a request of any session: the reason is a part of the lock's
/// past, so only readers of the past get it.
pub(crate) fn ticket_gone_for(identities: &[Identity], state: &State, ticket: &ZPath) -> Problem {
    let zxid = state.last_zxid();
    let readable = ticket.parent().is_some_and(|lock| lock::may_read_history(state, &lock, identities));
    let problem = if readable { ticket_gone(state, ticket, zxid) } else { Problem::ticket_gone(ticket, zxid) };
    if problem.tells_the_end() {
        return problem;
    }
    problem.because("there is no such ticket: it was released or withdrawn, its session ended, or it never was")
}

/// Says of a ticket that there is no such znode by 410.
pub(crate) fn of_ticket(problem: Problem, identities: &[Identity], state: &State, ticket: &ZPath) -> Problem {
    if problem.is(znode::Error::NoNode) { ticket_gone_for(identities, state, ticket) } else { problem }
}

/// 410 with the end of the session while that is remembered, else 404.
pub(crate) fn no_session(identities: &[Identity], state: &State, id: SessionId) -> Problem {
    let problem = match state.ended_session(id) {
        Some(ended) => {
            let shown = session_ended(state, ended, shows_client(identities, state, ended));
            let how = match shown.why {
                SessionEnd::Expired => "expired",
                SessionEnd::Closed => "was closed",
                SessionEnd::Restored => "ended when the cluster was restored from a backup,",
            };
            let client = shown.client.as_ref().map(|client| format!(" of {client}")).unwrap_or_default();
            let detail = format!("the session{client} {how} at zxid {}", ended.ended.zxid);
            let problem = Problem::new(ProblemType::SessionExpired, detail);
            problem.with(znode::Error::SessionExpired, Extra::Ended(shown))
        }
        None => {
            let detail = "it never was, or ended too long ago to be remembered";
            Problem::new(ProblemType::NoSession, detail)
        }
    };
    problem.since(state.last_zxid())
}

/// Tells whether the request may know the client of an ended session. Access to the past of the
/// session's locks decides, as its znodes are gone.
fn shows_client(identities: &[Identity], state: &State, session: &EndedSession) -> bool {
    let is_super = identities.iter().any(|identity| identity.scheme == SUPER);
    is_super || lock::may_read_of_ended(state, session, identities)
}

fn session_ended(state: &State, session: &EndedSession, shows_client: bool) -> SessionEnded {
    let why = match session.expired {
        _ if state.ended_by_restore(session) => SessionEnd::Restored,
        true => SessionEnd::Expired,
        false => SessionEnd::Closed,
    };
    SessionEnded {
        client: convert::client(&session.client).filter(|_| shows_client),
        id: session.id.0,
        why,
        ended_zxid: session.ended.zxid.0,
        ended_ms: session.ended.time_ms,
        opened_ms: session.opened_ms,
        timeout_ms: session.timeout_ms,
        label: session.label.clone(),
        ephemeral_count: session.ephemerals,
    }
}
