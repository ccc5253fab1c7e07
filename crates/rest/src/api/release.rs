//! Releases: `DELETE /v1/tickets/{ticket}` for a ticket, `DELETE /v1/locks/{path}` for the ticket
//! with which the session holds a lock, and `POST /v1/hand-overs/{ticket}`, which grants the lock
//! to a chosen waiter.

use axum::http::StatusCode;
use zlock_client::api::ProblemType::{HandOverRefused, LockNotManaged, NotHolder, NotOwner, SeveralHeld, TicketGone};
use zlock_client::api::{PathInUrl, Release, ZnodePath};
use znode::{Error, FencingToken, HeldTicket, Op, Reply, State, TicketRef, ZPath};

use crate::api::convert;
use crate::api::history;
use crate::api::holders;
use crate::openapi::examples::{TICKET, WAITING, ZXID};
use crate::problem::Problem;
use crate::request::access::shows;
use crate::request::call::{Answer, Call, json};
use crate::request::paths;
use crate::route::{Route, route};

pub(crate) const ROUTES: &[Route] = &[
    Route { in_session: true, problems: &[&[TicketGone, NotOwner]], ..route!(release) },
    Route {
        in_session: true,
        problems: &[&[TicketGone, NotOwner, LockNotManaged, HandOverRefused]],
        ..route!(hand_over)
    },
    Route { in_session: true, problems: &[&[NotHolder, SeveralHeld]], ..route!(release_held) },
];

/// Releases a ticket that holds its lock, or withdraws a ticket that waits. If the owner has
/// acquired the lock several times, only one of its holds is released.
#[utoipa::path(delete, path = "/v1/tickets/{*ticket}", operation_id = "ticketsRelease", tag = "locks",
    params(("ticket" = PathInUrl, Path, example = json!(TICKET),
        description = "path of the lock node, with slashes as / or %2F")),
    responses((status = 200,
        description = "The hold is released, or the ticket no longer waits",
        body = Release, example = json!({"holds": 0,
        "zxid": ZXID + 25}))))]
pub(crate) async fn release(mut call: Call) -> Answer {
    let (ticket, lock) = call.ticket_path("/v1/tickets")?;
    std::mem::take(&mut call.query).finish()?;
    let op = Op::Release { ticket: ticket.clone().into() };
    give_back(&call, op, &ticket, &lock).await
}

/// Releases all holds of a ticket, and grants the lock to a chosen waiter. The lock must be
/// managed: the setting `managed` keeps clients of ZooKeeper's lock recipes out of it.
#[utoipa::path(post, path = "/v1/hand-overs/{*ticket}", operation_id = "handOversMake", tag = "locks",
    params(("ticket" = PathInUrl, Path, example = json!(TICKET),
        description = "path of the holder's lock node, with slashes as / or %2F"),
        ("to" = ZnodePath, Query, example = json!(WAITING), description = "path of the waiter's lock node")),
    responses((status = 200, description = "The waiter holds the lock", body = Release, example = json!({"holds": 0,
        "zxid": ZXID + 25}))))]
pub(crate) async fn hand_over(mut call: Call) -> Answer {
    let (ticket, lock) = call.ticket_path("/v1/hand-overs")?;
    let to = call.query.path("to")?.ok_or_else(|| Problem::bad("to", "it is missing: name the waiter's ticket"))?;
    std::mem::take(&mut call.query).finish()?;
    let op = Op::HandOver { ticket: ticket.clone(), to };
    give_back(&call, op, &ticket, &lock).await
}

async fn give_back(call: &Call, op: Op, ticket: &ZPath, lock: &ZPath) -> Answer {
    call.caller.session()?;
    let explained = |problem: Problem, state: &State| match () {
        () if problem.is(Error::NotOwner) && shows(&call.identities, state, lock) => {
            holders::not_owner(problem, state.owner_of(ticket))
        }
        () if problem.is(Error::HandOverRefused) => problem.because(&format!(
            "the ticket in `to` does not wait for the lock {lock}, or could not hold it beside its remaining holders; \
             GET /v1/locks{} shows who waits",
            paths::encode(lock)
        )),
        () => history::of_ticket(problem, &call.identities, state, ticket),
    };
    propose(call, op, explained).await
}

/// Releases the lock that the session holds. If its owner has acquired the lock several times, only
/// one of its holds is released.
#[utoipa::path(delete, path = "/v1/locks/{*path}", operation_id = "locksRelease", tag = "locks",
    params(("path" = PathInUrl, Path, example = "team/x", description = "path of the lock, with slashes as / or %2F"),
        ("mode" = Option<zlock_client::api::LockMode>, Query,
            description = "release only a ticket that holds in this mode"),
        ("fencing_token" = Option<u64>, Query, description = "release only a ticket with this fencing token"),
        ("owner" = Option<String>, Query, max_length = 256, description = "release only a ticket of this owner")),
    responses((status = 200, description = "The hold is released", body = Release, example = json!({"holds": 0,
        "zxid": ZXID + 25}))))]
pub(crate) async fn release_held(mut call: Call) -> Answer {
    let lock = call.lock_path("/v1/locks")?;
    let mode = call.query.take("mode")?.map(|mode| convert::parse_lock_mode(&mode)).transpose()?;
    let token = call.query.get("fencing_token")?.map(FencingToken);
    let owner = call.query.take("owner")?;
    std::mem::take(&mut call.query).finish()?;
    call.caller.session()?;
    // Permits of 0 match a ticket with any number of permits.
    let mode = mode.map(convert::kind_of_lock);
    let explained = |problem: Problem, state: &State| match () {
        () if problem.is(Error::NotHolder) => holders::not_holder(problem, &call.identities, state, &lock),
        () if problem.is(Error::SeveralHeld) => problem.because(
            "this session holds the lock with several tickets: say which by mode, fencing_token or owner, or delete \
             its ticket",
        ),
        () => problem,
    };
    let held = HeldTicket { lock: lock.clone(), mode, token, owner };
    propose(&call, Op::Release { ticket: TicketRef::Held(held) }, explained).await
}

/// Proposes an operation that is answered as a release, with its errors replaced by `explained`.
pub(crate) async fn propose(call: &Call, op: Op, explained: impl Fn(Problem, &State) -> Problem) -> Answer {
    let released = call.propose(op).await;
    let released = released.map_err(|problem| explained(problem, &call.door.replica.state()));
    let (zxid, Reply::Released { holds }) = released? else {
        return Err(Problem::internal("a release was not answered as one"));
    };
    Ok(json(StatusCode::OK, zxid, &Release { holds, zxid: zxid.0 }))
}
