//! `/v1/admin/members` and `/v1/admin/leader`: the members of the cluster, and the transfer of
//! leadership.

use axum::extract::Path;
use axum::http::StatusCode;
use replica::{MembersReport, NewMember, Order, OrderError, OrderOutcome, RefusedOrder};
use serde_json::{Value, json};
use zlock_client::api::ProblemType::{
    AlreadyMember, AnotherNodeAnswers, ChangeInProgress, IdUsedBefore, LastVoter, LearnerLagging, LearnerSilent,
    MemberHasOtherData, MemberUnreachable, NoMember, TooManyLearners, TransferFailed, WouldLoseQuorum,
};
use zlock_client::api::{MemberState, Members, ProblemType, RemovedMember, Transfer};

use crate::openapi::examples::ZXID;
use crate::problem::Problem;
use crate::request::call::{Answer, Call, json};
use crate::route::{Route, route};

/// Problems that any change of the members may have.
const MEMBERS: &[ProblemType] = &[
    NoMember,
    AlreadyMember,
    IdUsedBefore,
    MemberUnreachable,
    MemberHasOtherData,
    ChangeInProgress,
    TooManyLearners,
    LearnerLagging,
    LearnerSilent,
    WouldLoseQuorum,
    LastVoter,
    AnotherNodeAnswers,
];

pub(crate) const ROUTES: &[Route] = &[
    route!(look),
    Route { problems: &[MEMBERS], ..route!(add) },
    Route { problems: &[MEMBERS], ..route!(promote) },
    Route { problems: &[MEMBERS], ..route!(update) },
    Route { problems: &[MEMBERS], ..route!(remove) },
    Route { problems: &[&[TransferFailed]], ..route!(transfer) },
];

/// Returns the list of members that the OpenAPI document shows as an example.
fn shown_members() -> Value {
    json!({"index": 12, "committed": true, "joint": false, "reported_by": 1, "leader": 1, "failure_tolerance": 1,
        "members": [{"id": 4, "peer_addr": "10.0.0.4:7101", "http_addr": "10.0.0.4:7001", "role": "learner",
        "zone": "eu-1a", "removing": false, "replaces": 3, "lag_entries": 12, "last_contact_ms": 31}],
        "removed": [{"id": 2, "zxid": ZXID + 40}]})
}

/// Lists the members, as the leader knows them.
#[utoipa::path(get, path = "/v1/admin/members", operation_id = "adminMembersLook", tag = "admin",
    responses((status = 200, description = "The members", body = Members, example = shown_members)))]
pub(crate) async fn look(mut call: Call) -> Answer {
    std::mem::take(&mut call.query).finish()?;
    ordered(&call, Order::Members).await
}

/// Adds a member. Its program must be running already, because the leader first contacts it.
#[utoipa::path(post, path = "/v1/admin/members", operation_id = "adminMembersAdd", tag = "admin",
    params(("id" = u64, Query, minimum = 1, example = 4,
        description = "node id of the new member, never used before in the cluster"),
        ("peer_addr" = String, Query, min_length = 1, max_length = 255, example = "10.0.0.4:7101",
            description = "`host:port` of the member's listener for peers"),
        ("http_addr" = String, Query, min_length = 1, max_length = 255, example = "10.0.0.4:7001",
            description = "`host:port` of the member's listener for HTTP clients"),
        ("observer" = Option<bool>, Query, description = "true: the member serves clients and never votes"),
        ("manual" = Option<bool>, Query,
            description = "true: the member becomes a voter only by a request to promote it"),
        ("zone" = Option<String>, Query, min_length = 1, max_length = 255,
            description = "place of the member, as a note for people"),
        ("replaces" = Option<u64>, Query, minimum = 1, example = 3,
            description = "id of the voter that the new member replaces")),
    responses((status = 200, description = "The node is a member, and not yet a voter", body = Members,
        example = shown_members)))]
pub(crate) async fn add(mut call: Call) -> Answer {
    let missing = |name: &'static str| move || Problem::bad(name, "missing");
    let new = NewMember {
        id: call.query.get("id")?.ok_or_else(missing("id"))?,
        peer_addr: call.query.take("peer_addr")?.ok_or_else(missing("peer_addr"))?,
        http_addr: call.query.take("http_addr")?.ok_or_else(missing("http_addr"))?,
        observer: call.query.flag("observer")?,
        manual: call.query.flag("manual")?,
        zone: call.query.take("zone")?,
        replaces: call.query.get("replaces")?,
    };
    std::mem::take(&mut call.query).finish()?;
    ordered(&call, Order::Add(new)).await
}

/// Makes a learner that has caught up a voter.
#[utoipa::path(post, path = "/v1/admin/members/{id}/promote", operation_id = "adminMembersPromote", tag = "admin",
    params(("id" = u64, Path, minimum = 1, example = 6, description = "id of the learner")),
    responses((status = 200, description = "The learner has become a voter", body = Members, example = shown_members)))]
pub(crate) async fn promote(Path(id): Path<String>, mut call: Call) -> Answer {
    std::mem::take(&mut call.query).finish()?;
    let id = member_id(&id)?;
    ordered(&call, Order::Promote { id }).await
}

/// Changes the addresses of a member, after the leader has reached it at the new addresses.
#[utoipa::path(put, path = "/v1/admin/members/{id}", operation_id = "adminMembersUpdate", tag = "admin",
    params(("id" = u64, Path, minimum = 1, example = 6, description = "id of the member"),
        ("peer_addr" = Option<String>, Query, min_length = 1, max_length = 255, example = "10.0.0.9:7101",
            description = "new `host:port` of the member's listener for peers"),
        ("http_addr" = Option<String>, Query, min_length = 1, max_length = 255,
            description = "new `host:port` of the member's listener for HTTP clients"),
        ("zone" = Option<String>, Query, min_length = 1, max_length = 255,
            description = "place of the member, as a note for people")),
    responses((status = 200,
        description = "The member has the new addresses and zone", body = Members, example = shown_members)))]
pub(crate) async fn update(Path(id): Path<String>, mut call: Call) -> Answer {
    let (peer_addr, http_addr) = (call.query.take("peer_addr")?, call.query.take("http_addr")?);
    let zone = call.query.take("zone")?;
    std::mem::take(&mut call.query).finish()?;
    let id = member_id(&id)?;
    ordered(&call, Order::Update { id, peer_addr, http_addr, zone }).await
}

/// Removes a member for good. The removal takes several steps, which a new leader continues.
#[utoipa::path(delete, path = "/v1/admin/members/{id}", operation_id = "adminMembersRemove", tag = "admin",
    params(("id" = u64, Path, minimum = 1, example = 6, description = "id of the member"),
        ("force" = Option<bool>, Query,
            description = "true: remove the member even if the remaining voters in contact with the leader are no \
                quorum")),
    responses((status = 200, description = "The removal has begun", body = Members, example = shown_members)))]
pub(crate) async fn remove(Path(id): Path<String>, mut call: Call) -> Answer {
    let force = call.query.flag("force")?;
    std::mem::take(&mut call.query).finish()?;
    let id = member_id(&id)?;
    ordered(&call, Order::Remove { id, force }).await
}

/// Passes leadership to another voter, and waits until that voter leads.
#[utoipa::path(put, path = "/v1/admin/leader", operation_id = "adminLeaderTransfer", tag = "admin",
    params(("to" = Option<u64>, Query, minimum = 1, example = 2,
        description = "id of the voter that is to lead; absent: of the voters that lack few entries the one with the \
            highest raft.leader_priority, and among equals with the smallest lag")),
    responses((status = 200, description = "The new leader leads", body = Transfer, example = json!({"from": 1, "to": 2,
        "term": 8, "took_ms": 14}))))]
pub(crate) async fn transfer(mut call: Call) -> Answer {
    let to = call.query.get("to")?;
    std::mem::take(&mut call.query).finish()?;
    ordered(&call, Order::Transfer { to }).await
}

fn member_id(text: &str) -> Result<u64, Problem> {
    text.parse().ok().filter(|id| *id != 0).ok_or_else(|| Problem::bad("id", "a node id, 1 or more"))
}

async fn ordered(call: &Call, order: Order) -> Answer {
    let replica = &call.door.replica;
    let done = replica.order(order, call.door.order_deadline()).await.map_err(problem)?;
    let zxid = replica.state().last_zxid();
    Ok(match done {
        OrderOutcome::Members(report) => json(StatusCode::OK, zxid, &members(report)),
        OrderOutcome::Transferred { from, to, term, took_ms } => {
            json(StatusCode::OK, zxid, &Transfer { from, to, term, took_ms })
        }
    })
}

fn problem(error: OrderError) -> Problem {
    let (kind, why) = match error {
        OrderError::Refused { kind: RefusedOrder::BadOrder, why } => return Problem::bad("member", why),
        OrderError::Refused { kind, why } => (kind, why),
        OrderError::Unavailable(why) => return replica::Error::Unavailable { reason: why, retry_after_ms: 250 }.into(),
        OrderError::Unknown(why) => return replica::Error::Unknown { reason: why }.into(),
    };
    let kind = ProblemType::from_slug(kind.as_str()).expect("a test finds each of them");
    Problem::new(kind, why)
}

fn members(report: MembersReport) -> Members {
    let MembersReport { index, committed, joint, reported_by, leader, failure_tolerance, members, removed } = report;
    let member = |member: replica::MemberReport| MemberState {
        id: member.id,
        peer_addr: member.peer_addr,
        http_addr: member.http_addr,
        role: member.role,
        zone: member.zone,
        removing: member.removing,
        replaces: member.replaces,
        lag_entries: member.lag_entries,
        last_contact_ms: member.last_contact_ms,
    };
    let members = members.into_iter().map(member).collect();
    let removed = removed.into_iter().map(|(id, zxid)| RemovedMember { id, zxid }).collect();
    Members { index, committed, joint, reported_by, leader, failure_tolerance, members, removed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_is_a_problem_of_its_name() {
        for kind in RefusedOrder::ALL {
            let named = ProblemType::from_slug(kind.as_str()).unwrap_or(ProblemType::BadRequest);
            assert_eq!(problem(OrderError::Refused { kind, why: "why".into() }).kind, named);
            assert_eq!(named == ProblemType::BadRequest, kind == RefusedOrder::BadOrder, "{kind:?}");
        }
    }
}
