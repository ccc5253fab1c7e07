//! `/v1/history/{path}`: ended tickets of a lock. Also the problems about tickets and sessions that
//! have ended.

use axum::http::StatusCode;
use zlock_client::api::{End, EndCause, EndedTicket, LockHistory, PathInUrl, ProblemType};
use znode::lock;
use znode::{Identity, SUPER, SessionId, State, ZPath, Zxid};

use crate::api::convert;
use crate::openapi::examples::{TICKET, ZXID};
use crate::problem::{Extra, Problem};
use crate::request::access::{check_readable as check_lock_readable, forbidden};
use crate::request::call::{Answer, Call, json};
use crate::route::{Route, route};

pub(crate) const ROUTES: &[Route] = &[Route { reads: true, ..route!(look) }];

/// Shows the tickets of a lock that ended most recently.
#[utoipa::path(get, path = "/v1/history/{*path}", operation_id = "historyLook", tag = "locks",
    params(("path" = PathInUrl, Path, example = "team/x", description = "path of the lock, with slashes as / or %2F"),
        ("page_size" = Option<u64>, Query, minimum = 1, description = "largest number of tickets in the answer")),
    responses((status = 200, description = "Ended tickets, the last one to end first", body = LockHistory,
        example = json!({"path": "/team/x", "history": [{"ticket": TICKET, "mode": "exclusive", "session": 6,
        "enqueued_zxid": ZXID + 17, "enqueued_at_ms": 1795248152406_u64, "granted_zxid": ZXID + 17,
        "granted_at_ms": 1795248152406_u64, "fencing_token": ZXID + 17,
        "ended": {"how": "released", "zxid": ZXID + 25, "at_ms": 1795248159482_u64}}]}))))]
pub(crate) async fn look(mut call: Call) -> Answer {
    let path = call.lock_path("/v1/history")?;
    let state = call.read().await?;
    check_lock_readable(&call.identities, &state, &path)?;
    drop(state);
    let page_size = call.query.page_size(call.door.config.page_max)?;
    let page = move |call: &Call, state: &State| {
        check_lock_readable(&call.identities, state, &path)?;
        check_readable(&call.identities, state, &path)?;
        Ok(json(StatusCode::OK, state.last_zxid(), &history(state, &path, page_size)))
    };
    call.page(page).await
}

/// Checks whether the request may read a lock's history, even if the lock's directory no longer
/// exists.
fn check_readable(identities: &[Identity], state: &State, lock: &ZPath) -> Result<(), Problem> {
    if lock::may_read_history(state, lock, identities) { Ok(()) } else { Err(forbidden(state, lock)) }
}

/// Returns a lock's history: the last `page_size` tickets that ended.
fn history(state: &State, lock: &ZPath, page_size: usize) -> LockHistory {
    let history = lock::history(state, lock, page_size);
    LockHistory {
        path: lock.as_str().into(),
        history: history.iter().map(|ticket| ended_ticket(lock, ticket)).collect(),
    }
}

fn ended_ticket(lock: &ZPath, past: &lock::EndedTicket) -> EndedTicket {
    EndedTicket {
        // The name was that of a child, so it is valid.
        ticket: lock.child(&past.name).ok().map(|path| path.as_str().into()),
        mode: convert::lock_mode(past.mode),
        session: past.session.0,
        owner: past.owner.clone(),
        label: past.label.clone(),
        enqueued_zxid: past.enqueued.zxid.0,
        enqueued_at_ms: past.enqueued.time_ms,
        granted_zxid: past.grant.map(|grant| grant.at.zxid.0),
        granted_at_ms: past.grant.map(|grant| grant.at.time_ms),
        fencing_token: past.grant.map(|grant| grant.token.0),
        ended: End { by: past.by.as_deref().and_then(convert::actor), ..ended(past) },
        session_label: past.session_label.to_string(),
        client: convert::client(&past.client),
    }
}

/// Converts the cause and time of a ticket's end, without the client that caused it.
fn ended(past: &lock::EndedTicket) -> End {
    let how = match past.end {
        lock::TicketEnd::Released => EndCause::Released,
        lock::TicketEnd::Closed => EndCause::Closed,
        lock::TicketEnd::Expired => EndCause::Expired,
        lock::TicketEnd::Revoked => EndCause::Revoked,
        lock::TicketEnd::Withdrawn => EndCause::Withdrawn,
        lock::TicketEnd::Admin => EndCause::Deleted,
        lock::TicketEnd::Deadlock => EndCause::Deadlock,
    };
    End { how, zxid: past.ended.zxid.0, at_ms: past.ended.time_ms, by: None }
}

/// Returns the problem (410) of a ticket that has ended, with the way it ended if the lock's
/// history still has it.
pub(crate) fn ticket_gone(state: &State, ticket: &ZPath, zxid: Zxid) -> Problem {
    let history = ticket.parent().map(|lock| lock::history(state, &lock, usize::MAX)).unwrap_or_default();
    let problem = Problem::ticket_gone(ticket, zxid);
    match history.iter().find(|past| past.name == ticket.name()) {
        Some(past) => problem.with(znode::Error::NoNode, Extra { ended: Some(ended(past)), ..Extra::default() }),
        None => problem,
    }
}

/// Returns the problem (410) of a ticket that has ended, for a request of any session. The way it
/// ended is part of the lock's history, so only requests that may read the history get it.
pub(crate) fn ticket_gone_for(identities: &[Identity], state: &State, ticket: &ZPath) -> Problem {
    let zxid = state.last_zxid();
    let readable = ticket.parent().is_some_and(|lock| lock::may_read_history(state, &lock, identities));
    let problem = if readable { ticket_gone(state, ticket, zxid) } else { Problem::ticket_gone(ticket, zxid) };
    if problem.tells_the_end() {
        return problem;
    }
    problem.because("there is no such ticket: it was released or withdrawn, its session ended, or it never was")
}

/// Replaces a problem about a missing znode by the problem (410) of a ticket that has ended. Other
/// problems are returned unchanged.
pub(crate) fn of_ticket(problem: Problem, identities: &[Identity], state: &State, ticket: &ZPath) -> Problem {
    if problem.is(znode::Error::NoNode) { ticket_gone_for(identities, state, ticket) } else { problem }
}

/// Returns the problem of a session that is not open: 410 with the way it ended while the state
/// remembers it, else 404.
pub(crate) fn no_session(identities: &[Identity], state: &State, id: SessionId) -> Problem {
    let problem = match state.ended_session(id) {
        Some(session) => {
            let shown = ended_session(session, shows_client(identities, state, session));
            let (cause, how) = match session.expired {
                _ if state.ended_by_restore(session) => {
                    (EndCause::Restored, "ended when the cluster was restored from a backup,")
                }
                true => (EndCause::Expired, "expired"),
                false => (EndCause::Closed, "was closed"),
            };
            let (zxid, at_ms) = (session.ended.zxid.0, session.ended.time_ms);
            let ended = Some(End { how: cause, zxid, at_ms, by: None });
            let client = shown.client.as_ref().map(|client| format!(" of {client}")).unwrap_or_default();
            let detail = format!("the session{client} {how} at zxid {zxid}");
            let extra = Extra { ended, ended_session: Some(shown), ..Extra::default() };
            let problem = Problem::new(ProblemType::SessionExpired, detail);
            problem.with(znode::Error::SessionExpired, extra)
        }
        None => {
            let detail = "it never was, or ended too long ago to be remembered";
            Problem::new(ProblemType::NoSession, detail)
        }
    };
    problem.since(state.last_zxid())
}

/// Tells whether the request may know the client of an ended session. The session's znodes are
/// deleted, so the access to the history of its locks decides.
fn shows_client(identities: &[Identity], state: &State, session: &lock::EndedSession) -> bool {
    let is_super = identities.iter().any(|identity| identity.scheme == SUPER);
    is_super || lock::may_read_of_ended(state, session, identities)
}

fn ended_session(session: &lock::EndedSession, shows_client: bool) -> zlock_client::api::EndedSession {
    zlock_client::api::EndedSession {
        session: session.id.0,
        opened_at_ms: session.opened_ms,
        timeout_ms: session.timeout_ms,
        label: session.label.clone(),
        ephemeral_count: session.ephemerals,
        client: convert::client(&session.client).filter(|_| shows_client),
    }
}
