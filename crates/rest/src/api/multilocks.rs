//! `/v1/multilocks`: multi-locks, each a set of locks that are acquired all together or not at all.

use std::time::Duration;

use axum::http::StatusCode;
use axum::response::Response;
use replica::{Step, WatchKey};
use serde_json::{Value, json};
use zlock_client::api::ProblemType::TicketGone;
use zlock_client::api::{HeldPart, Millis, MultiTicket, PathInUrl};
use znode::lock::{self, LockStatus};
use znode::{AcquireAll, Error, Identity, Limits, Op, Policy, State, ZPath, Zxid};

use crate::api::acquire::{enqueue, propose, wait, wait_or_leave};
use crate::api::convert;
use crate::api::holders;
use crate::http::delivery::deliver;
use crate::http::heartbeat::Heartbeat;
use crate::openapi::examples::ZXID;
use crate::openapi::problems::{NO_FRACTION, QUEUE};
use crate::problem::Problem;
use crate::request::access::{forbidden, own_credential, shown_name};
use crate::request::call::{Answer, Call, WithBody, json};
use crate::request::door::Door;
use crate::request::paths;
use crate::request::query::at_most;
use crate::request::texts::check_seen;
use crate::request::wait::Wait;
use crate::route::{Route, route};

/// Paths of the two tickets of one multi-lock in the examples of the OpenAPI document.
const FIRST: &str = "/a/0000000000_e7c1c45f674f49e297e3a776f66e1ba3__WRIT__0000000000__lock__0000000000";
const SECOND: &str = "/b/0000000001_e7c1c45f674f49e297e3a776f66e1ba3__WRIT__0000000001__lock__0000000001";

pub(crate) const ROUTES: &[Route] = &[
    Route {
        in_session: true,
        problems: &[QUEUE],
        rules: &[
            NO_FRACTION,
            "permits_max: it is missing",
            "is named twice",
            "are asked for, and the semaphore has",
            "of them, and permits_max is",
            "permits and permits_max belong to mode=semaphore",
        ],
        ..route!(acquire)
    },
    Route { reads: true, problems: &[&[TicketGone]], ..route!(ticket) },
];

/// Returns the answer that the OpenAPI document shows as an example of a multi-lock that is held.
fn shown_held() -> Value {
    json!({"state": "held", "ticket": FIRST, "locks": [{"path": "/a", "ticket": FIRST, "fencing_token": ZXID + 12},
        {"path": "/b", "ticket": SECOND, "fencing_token": ZXID + 12}], "holds": 1, "safe_for_ms": 29400})
}

/// Returns the answer that the OpenAPI document shows as an example of a multi-lock that waits.
fn shown_waiting() -> Value {
    json!({"state": "waiting", "ticket": FIRST, "tickets": [FIRST, SECOND],
        "predecessor": "/b/0000000000_de933a7efc124e91b6b38a310c5da592__WRIT__0000000000__lock__0000000000"})
}

/// Acquires several locks, all or none, waiting for them for at most the time in `wait`.
#[utoipa::path(post, path = "/v1/multilocks", operation_id = "multilocksAcquire", tag = "locks",
    request_body(content = zlock_client::api::AcquireAll, example = json!({"locks": [{"path": "/a"}, {"path": "/b",
    "mode": "write"}], "policy": "backfill", "label": "both"})),
    params(("wait" = Option<Millis>, Query,
        description = "longest time to wait for the locks; 0, the default: no wait"),
        ("keep" = Option<bool>, Query,
            description = "true: the tickets stay in the queues when the wait ends or the client disconnects")),
    responses((status = 200, description = "All locks are held", body = MultiTicket, example = shown_held),
        (status = 202,
            description = "The tickets wait in the queues; only with keep=true",
            body = MultiTicket, example = shown_waiting)))]
pub(crate) async fn acquire(WithBody(mut call): WithBody) -> Answer {
    call.caller.session()?;
    let (body, place) = call.json::<zlock_client::api::AcquireAll>().await?;
    if body.wait.is_some() {
        call.may_wait();
    }
    let (wait_ms, keep) = patience(&mut call, &body)?;
    let wish = wish(&call.door, body)?;
    call.forget_head();
    let Some((first, _)) = wish.parts.first().cloned() else {
        return Err(Problem::bad("locks", "at least one"));
    };
    let deadline = call.arrived + Duration::from_millis(wait_ms);
    let parts = wish.parts.clone();
    let texts = [("label", wish.label.len()), ("owner", wish.owner.len())];
    let (heartbeat, mut waiter) = propose(&mut call, Op::AcquireAll(wish), &first, keep).await?;
    let entered = enqueue(&call.door, &mut waiter, &first).await;
    // The log has the contents of the body, so its memory is freed before a wait that may last
    // hours.
    drop(place);
    let (ticket, grant) = entered.map_err(|problem| {
        let state = call.door.replica.state();
        let problem = problem.of_used_key().naming(&state, &texts);
        match problem.op_index.and_then(|index| parts.get(index as usize)) {
            Some((lock, mode)) => problem.with_permits(&call.identities, &state, lock, *mode),
            None => problem,
        }
    })?;
    let _waiting = if grant.is_none() { call.waits() } else { None };
    if grant.is_none() && keep {
        // The client stays in the queues, so it must learn its ticket however the wait ended.
        let _ = wait(&call.door, &ticket, deadline).await;
    } else if grant.is_none() {
        let left = wait_or_leave(&call.door, &mut waiter, &ticket, deadline).await;
        left.map_err(|problem| {
            let state = call.door.replica.state();
            holders::explained_all(problem, &call.identities, &state, &parts, wait_ms)
        })?;
    }
    let safe_for_ms = heartbeat.safe_for_ms().await;
    let answer = view(&call.identities, &call.door.replica.state(), &ticket, safe_for_ms)?;
    deliver(&call.parts.extensions, waiter);
    Ok(answer)
}

/// Shows a multi-lock, named by its first ticket. With `wait`, first waits until the multi-lock is
/// held. Deleting the ticket releases all its locks.
#[utoipa::path(get, path = "/v1/multilocks/{*ticket}", operation_id = "multilocksLook", tag = "locks",
    params(("ticket" = PathInUrl, Path, example = json!(FIRST),
        description = "path of the ticket that names the multi-lock, with slashes as / or %2F"),
        ("wait" = Option<Millis>, Query, description = "longest time to wait for a change; absent: no wait")),
    responses((status = 200, description = "All locks are held", body = MultiTicket, example = shown_held),
        (status = 202, description = "The multi-lock is not yet held", body = MultiTicket, example = shown_waiting)))]
pub(crate) async fn ticket(mut call: Call) -> Answer {
    let ticket = call.path("/v1/multilocks")?;
    let wait = Wait::take(&mut call)?;
    let state = call.read().await?;
    std::mem::take(&mut call.query).finish()?;
    let Some(parts) = lock::parts(&state, &ticket) else {
        let is_there = state.node(&ticket).is_some();
        let other = || Problem::bad("path", "no ticket of a multi-lock: ask for it under /v1/tickets");
        return Err(if is_there { other() } else { gone(&ticket, &state) });
    };
    // As for a single ticket, only the owner gets `safe_for_ms`, and other clients need read
    // access.
    check_parts_readable(&call, &state, &ticket, parts)?;
    let own = own_credential(&call, &state, &ticket);
    let heartbeat = own.map(|credential| Heartbeat::send(&call.door, credential));
    let step = |state: &State| match lock::status(state, &ticket) {
        Ok(LockStatus::Waiting { .. }) => Step::Watch(WatchKey::Node(ticket.clone())),
        _ => Step::Ready(()),
    };
    wait.until(&call, state, step).await?;
    let safe_for_ms = match heartbeat {
        Some(heartbeat) => heartbeat.safe_for_ms().await,
        None => 0,
    };
    let state = call.door.replica.state();
    // Access is checked again, because a lock's ACL may have changed during the wait.
    let parts = lock::parts(&state, &ticket).ok_or_else(|| gone(&ticket, &state))?;
    check_parts_readable(&call, &state, &ticket, parts)?;
    view(&call.identities, &state, &ticket, safe_for_ms)
}

/// Checks whether the request may see the multi-lock: its session owns the multi-lock, or it may
/// read all the locks.
fn check_parts_readable(call: &Call, state: &State, ticket: &ZPath, parts: &[ZPath]) -> Result<(), Problem> {
    let mut locks = parts.iter().filter_map(ZPath::parent);
    let readable =
        own_credential(call, state, ticket).is_some() || locks.all(|lock| state.may_read(&lock, &call.identities));
    // The refusal names the ticket in the request, and hides which lock is unreadable.
    if readable { Ok(()) } else { Err(forbidden(state, ticket)) }
}

/// Returns the parameters `wait` (in milliseconds) and `keep` (stay in the queues when the wait
/// ends). Either may be in the query or in the body, but not in both.
fn patience(call: &mut Call, body: &zlock_client::api::AcquireAll) -> Result<(u64, bool), Problem> {
    let twice = |name| Problem::bad(name, "given twice, in the query and the body");
    let wait_max_ms = call.door.config.wait_max_ms;
    let query = &mut call.query;
    let wait_ms = match (body.wait, query.duration_ms("wait", wait_max_ms)?) {
        (Some(_), Some(_)) => return Err(twice("wait")),
        (Some(Millis(ms)), None) => at_most("wait", ms, wait_max_ms)?,
        (None, ms) => ms.unwrap_or(0),
    };
    let keep = match (body.keep, query.has("keep")) {
        (Some(_), true) => return Err(twice("keep")),
        (Some(keep), false) => keep,
        (None, _) => query.flag("keep")?,
    };
    std::mem::take(query).finish_beside(&["locks", "policy", "owner", "label", "lock_delay"])?;
    Ok((wait_ms, keep))
}

/// Converts the body to the state machine's operation that acquires a multi-lock.
fn wish(door: &Door, body: zlock_client::api::AcquireAll) -> Result<AcquireAll, Problem> {
    if body.locks.len() > Limits::PARTS_MOST as usize {
        return Err(Error::TooManyOps.into());
    }
    let mut parts = Vec::with_capacity(body.locks.len());
    for (index, wish) in body.locks.into_iter().enumerate() {
        let path = paths::parse("path", &wish.path).map_err(|problem| problem.of_op(index))?;
        let mode =
            convert::lock_mode_of(wish.mode, wish.permits, wish.permits_max).map_err(|problem| problem.of_op(index))?;
        if parts.iter().any(|(known, _)| *known == path) {
            return Err(Problem::bad("path", format!("{path} is named twice")).of_op(index));
        }
        parts.push((path, mode));
    }
    check_seen("label", &body.label)?;
    check_seen("owner", &body.owner)?;
    let policy = match body.policy {
        zlock_client::api::Policy::Strict => Policy::Strict,
        zlock_client::api::Policy::Backfill => Policy::Backfill,
    };
    let lock_delay_ms = door.lock_delay_ms(body.lock_delay.map(|delay| delay.0))?;
    Ok(AcquireAll { policy, owner: body.owner, label: body.label, lock_delay_ms, ..AcquireAll::new(parts) })
}

/// Makes the answer for a multi-lock: 200 if it is held, 202 if it waits, 410 if it has ended.
fn view(identities: &[Identity], state: &State, ticket: &ZPath, safe_for_ms: u64) -> Result<Response, Problem> {
    let zxid: Zxid = state.last_zxid();
    let parts = lock::parts(state, ticket).ok_or_else(|| gone(ticket, state))?;
    let tickets: Vec<String> = parts.iter().map(|part| part.as_str().into()).collect();
    let mut locks = Vec::with_capacity(parts.len());
    let mut held = 0;
    for part in parts {
        match lock::status(state, part) {
            Ok(LockStatus::Held { token, holds }) => {
                held = holds;
                locks.push(HeldPart {
                    path: part.parent().map_or_else(String::new, |lock| lock.as_str().into()),
                    ticket: part.as_str().into(),
                    fencing_token: token.0,
                });
            }
            Ok(LockStatus::Waiting { predecessor }) => {
                let predecessor = shown_name(identities, state, &predecessor);
                let body = MultiTicket::Waiting { ticket: ticket.as_str().into(), tickets, predecessor };
                return Ok(json(StatusCode::ACCEPTED, zxid, &body));
            }
            Err(Error::NoNode) => return Err(gone(ticket, state)),
            Err(error) => return Err(Problem::from(error).at(part, zxid)),
        }
    }
    let held = MultiTicket::Held { ticket: ticket.as_str().into(), locks, holds: held, safe_for_ms };
    Ok(json(StatusCode::OK, zxid, &held))
}

fn gone(ticket: &ZPath, state: &State) -> Problem {
    Problem::ticket_gone(ticket, state.last_zxid())
}
