//! `POST /v1/revoke/{path}`: ask a ticket, or all who hold a lock, to give up; and how a holder
//! hears of it.

use axum::http::StatusCode;
use replica::{Replica, Step, WatchKey};
use tokio::time::Instant;
use zlock_client::api::ProblemType::{NoNode, TicketGone};
use zlock_client::api::{Millis, PathInUrl, Revoked};
use znode::lock::{self, LockStatus};
use znode::{Error, Op, Reply, ZPath};

use crate::api::history;
use crate::openapi::examples::{TICKET, ZXID};
use crate::problem::Problem;
use crate::request::call::{Answer, Call, json};
use crate::route::{Route, route};

pub(crate) const ROUTES: &[Route] = &[Route { problems: &[&[NoNode, TicketGone]], ..route!(revoke) }];

/// Asks for a ticket back, or for those of all who hold a lock.
#[utoipa::path(post, path = "/v1/revoke/{*path}", operation_id = "locksRevoke", tag = "locks",
    params(("path" = PathInUrl, Path, example = "team/x",
        description = "a lock node's path, or a lock's, slashes plain or encoded"),
        ("deadline" = Option<Millis>, Query, example = "10s",
            description = "take the ticket away after this; 0 is at once, absent is never")),
    responses((status = 200, description = "They are asked", body = Revoked, example = json!({"tickets": [TICKET],
        "zxid": ZXID + 18}))))]
pub(crate) async fn revoke(mut call: Call) -> Answer {
    let path = call.lock_path("/v1/revoke")?;
    let deadline_ms = call.query.duration_ms("deadline", u64::from(u32::MAX))?;
    std::mem::take(&mut call.query).finish()?;
    let deadline_ms = deadline_ms.map(|ms| u32::try_from(ms).unwrap_or(u32::MAX));
    let (zxid, Reply::Revoking { tickets }) = call.propose(Op::Revoke { path, deadline_ms }).await? else {
        return Err(Problem::internal("a revocation was not answered as one"));
    };
    let tickets = tickets.iter().map(|ticket| ticket.as_str().into()).collect();
    Ok(json(StatusCode::OK, zxid, &Revoked { tickets, zxid: zxid.0 }))
}

/// Waits until a ticket is asked for, it goes, or the deadline passes. How it stands then is to be
/// looked up.
///
/// # Errors
/// 410 when the ticket has gone; 429 and 503 by the node's bounds and end.
pub(crate) async fn wait(replica: &Replica, ticket: &ZPath, deadline: Instant) -> Result<(), Problem> {
    let step = |state: &znode::State| match lock::status(state, ticket) {
        Ok(LockStatus::Held { .. } | LockStatus::Waiting { .. }) => match lock::revocation(state, ticket) {
            Some(_) => Step::Ready(Ok(())),
            None => Step::Watch(WatchKey::Node(ticket.clone())),
        },
        Err(error) => Step::Ready(Err((error, state.last_zxid()))),
    };
    match replica.wait_for(deadline, step).await {
        Ok(Ok(())) | Err(replica::WaitEnd::Deadline) => Ok(()),
        Ok(Err((Error::NoNode, zxid))) => Err(history::ticket_gone(&replica.state(), ticket, zxid)),
        Ok(Err((error, zxid))) => Err(Problem::from(error).at(ticket, zxid)),
        Err(end) => Err(end.into()),
    }
}
