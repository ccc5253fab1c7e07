//! `POST /v1/revocations/{path}`: asks the session of one ticket to give the ticket up, or all
//! holders of a lock to release the lock.

use axum::http::StatusCode;
use zlock_client::api::ProblemType::{NoNode, TicketGone};
use zlock_client::api::{Millis, PathInUrl, Revocation};
use znode::{Error, Op, Reply, Zxid, lock};

use crate::api::history;
use crate::openapi::examples::{TICKET, ZXID};
use crate::problem::Problem;
use crate::request::call::{Answer, Call, json};
use crate::route::{Route, route};

pub(crate) const ROUTES: &[Route] = &[Route { problems: &[&[NoNode, TicketGone]], ..route!(revoke) }];

/// Asks the session of a ticket to give the ticket up, or asks all holders of a lock to release the
/// lock.
#[utoipa::path(post, path = "/v1/revocations/{*path}", operation_id = "revocationsMake", tag = "locks",
    params(("path" = PathInUrl, Path, example = "team/x",
        description = "path of a lock node or of a lock, with slashes as / or %2F"),
        ("deadline" = Option<Millis>, Query, example = "10s",
            description = "time after which the holders lose the lock if they have not released it; 0: at once; \
                absent: never")),
    responses((status = 200,
        description = "The holders are asked to release", body = Revocation, example = json!({"tickets": [TICKET],
        "zxid": ZXID + 18}))))]
pub(crate) async fn revoke(mut call: Call) -> Answer {
    let path = call.lock_path("/v1/revocations")?;
    let deadline_ms = call.query.duration_ms("deadline", u64::from(u32::MAX))?;
    std::mem::take(&mut call.query).finish()?;
    let deadline_ms = deadline_ms.map(|ms| u32::try_from(ms).unwrap_or(u32::MAX));
    let asked = call.propose(Op::Revoke { path: path.clone(), deadline_ms }).await.map_err(|problem| {
        match lock::is_ticket_name(path.name()) {
            true => history::of_ticket(problem, &call.identities, &call.door.replica.state(), &path),
            // The path is the path of a lock.
            false => problem,
        }
    });
    let asked = match asked {
        // A free lock may have no directory, and has no tickets to ask back.
        Err(problem) if problem.is(Error::NoNode) && !lock::is_ticket_name(path.name()) => {
            Ok((problem.zxid.unwrap_or(Zxid(0)), Reply::Revoking { tickets: Vec::new() }))
        }
        asked => asked,
    };
    let (zxid, Reply::Revoking { tickets }) = asked? else {
        return Err(Problem::internal("a revocation was not answered as one"));
    };
    let tickets = tickets.iter().map(|ticket| ticket.as_str().into()).collect();
    Ok(json(StatusCode::OK, zxid, &Revocation { tickets, zxid: zxid.0 }))
}
