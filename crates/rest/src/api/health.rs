//! `/readyz` and `/health/*`: tell balancers whether to send clients to this node.
//! `/v1/cluster/health`: shows the health of the cluster.

use std::borrow::Cow;

use axum::http::StatusCode;
use axum::response::Response;
use replica::{Check, Health, Readiness, Role};
use zlock_client::api::{ClusterHealth, MemberHealth};

use crate::openapi::schemas::words;
use crate::problem::Problem;
use crate::request::call::{Answer, Call, answer, empty, json};
use crate::request::door::Door;
use crate::route::{Route, route};

pub(crate) const ROUTES: &[Route] = &[route!(ready), route!(leader), route!(voter), route!(serving), route!(cluster)];

words!(CheckName, Check::NAMES.into_iter().chain(CHECKS));

/// Status of a node that could serve clients, and is being drained or stopped.
const DRAINING: &str = "draining";
/// Status of a node whose certificate at one of its ports has expired.
const CERTIFICATE_EXPIRED: &str = "certificate-expired";
/// Names of the conditions of `/readyz` that follow those of the replica ([`Check::NAMES`]).
const CHECKS: [&str; 2] = ["drain", "certificates"];

/// One condition of `/readyz`. `failure` is `None` for a condition that is met, else the node's
/// status for clients and the reason.
struct Condition {
    name: &'static str,
    failure: Option<(&'static str, Cow<'static, str>)>,
}

impl From<Check> for Condition {
    fn from(check: Check) -> Condition {
        let failure = check.failure.map(|(readiness, why)| (readiness.as_str(), why));
        Condition { name: check.name, failure }
    }
}

/// Lists all conditions, most important first.
fn conditions(door: &Door, lag_max: Option<u64>) -> Vec<Condition> {
    let drains = door.drains().map(|why| (DRAINING, Cow::Borrowed(why)));
    let of_node = door.replica.checks(lag_max).into_iter().map(Condition::from);
    let expired = door
        .config
        .certificates
        .expired()
        .map(|port| (CERTIFICATE_EXPIRED, Cow::Owned(format!("the certificate of the port `{port}` has expired"))));
    let more = CHECKS.into_iter().zip([drains, expired]).map(|(name, failure)| Condition { name, failure });
    of_node.chain(more).collect()
}

/// Returns `ready`, or the status of the most important failed condition.
pub(crate) fn readiness(door: &Door) -> &'static str {
    first_failure(&conditions(door, None), &[])
}

fn first_failure(conditions: &[Condition], excluded: &[String]) -> &'static str {
    let counts = conditions.iter().filter(|condition| !excluded.iter().any(|name| name == condition.name));
    let mut failures = counts.filter_map(|condition| condition.failure.as_ref());
    failures.next().map_or(Readiness::Ready.as_str(), |(word, _)| word)
}

/// Tells whether clients should be sent to this node. It is not ready if it has no quorum, lags
/// behind the leader, is short of disk space, is drained, or has an expired certificate.
#[utoipa::path(get, path = "/readyz", operation_id = "nodeReady", tag = "node",
    params(
        ("verbose" = Option<bool>, Query,
            description = "true: one line of text for each condition, also in an answer with 503"),
        ("exclude" = inline(Option<CheckName>), Query,
            description = "a condition to ignore; may be given several times"),
        ("max_lag" = Option<u64>, Query,
            description = "number of committed log entries that the node may still have to apply, in place of \
                raft.ready_lag_entries_max"),
    ),
    responses((status = 200, description = "Clients should be sent to this node", content(
        (zlock_client::api::Readiness = "application/json", example = json!({"status": "ready"})),
        (String = "text/plain", example = "[+]alive ok\n[+]recovered ok\n[+]disk ok\n[+]quorum ok\n\
            [+]agreement ok\n[+]lag ok\n[+]space ok\n[+]drain ok\n[+]certificates ok\n"))),
        (status = 503,
            description = "Clients should not be sent to this node.", body = String, content_type = "text/plain")))]
pub(crate) async fn ready(mut call: Call) -> Answer {
    let (verbose, lag_max) = (call.query.flag("verbose")?, call.query.get("max_lag")?);
    let excluded = call.query.take_all("exclude")?;
    std::mem::take(&mut call.query).finish()?;
    let conditions = conditions(&call.door, lag_max);
    let names: Vec<&str> = conditions.iter().map(|condition| condition.name).collect();
    if let Some(unknown) = excluded.iter().find(|name| !names.contains(&name.as_str())) {
        return Err(Problem::bad(
            "exclude",
            format!("there is no condition {unknown:?}; these are: {}", names.join(", ")),
        ));
    }
    let status = first_failure(&conditions, &excluded);
    let is_ready = status == Readiness::Ready.as_str();
    if verbose {
        return Ok(lines(&call.door, is_ready, &conditions, &excluded));
    }
    if !is_ready {
        return Err(Problem::unavailable(format!("not ready: {status}"), 1_000));
    }
    let zxid = call.door.replica.state().last_zxid();
    Ok(json(StatusCode::OK, zxid, &zlock_client::api::Readiness { status: status.into() }))
}

/// Writes one line for each condition, in the format of Kubernetes and etcd.
fn lines(door: &Door, is_ready: bool, conditions: &[Condition], excluded: &[String]) -> Response {
    let line = |condition: &Condition| match &condition.failure {
        _ if excluded.iter().any(|name| name == condition.name) => format!("[ ]{} excluded\n", condition.name),
        None => format!("[+]{} ok\n", condition.name),
        Some((_, why)) => format!("[-]{} failed: {why}\n", condition.name),
    };
    let lines: String = conditions.iter().map(line).collect();
    answer(status(is_ready), door.replica.state().last_zxid(), "text/plain; charset=utf-8", lines)
}

fn status(good: bool) -> StatusCode {
    if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

/// Answers 200 if the node is ready and `has_it` is true for its role, else 503. The body is empty.
fn with_role(mut call: Call, has_it: impl FnOnce(Role) -> bool) -> Answer {
    std::mem::take(&mut call.query).finish()?;
    let is_ready = readiness(&call.door) == Readiness::Ready.as_str();
    let replica = &call.door.replica;
    Ok(empty(status(is_ready && has_it(replica.status().role)), replica.state().last_zxid()))
}

/// Tells whether the node is the leader and ready for clients.
#[utoipa::path(get, path = "/health/leader", operation_id = "healthLeader", tag = "node",
    responses((status = 200,
        description = "The node is the leader and ready for clients. The body is empty, also with 503, and for HEAD \
            and OPTIONS"),
        (status = 503,
            description = "The node is not the leader or not ready for clients, and the body is empty; or the node \
                cannot answer.",
            extensions(("x-may-be-empty" = json!(true))))))]
pub(crate) async fn leader(call: Call) -> Answer {
    with_role(call, |role| role == Role::Leader)
}

/// Tells whether the node has a vote and is ready for clients.
#[utoipa::path(get, path = "/health/voter", operation_id = "healthVoter", tag = "node",
    responses((status = 200,
        description = "The node has a vote and is ready for clients. The body is empty, also with 503, and for HEAD \
            and OPTIONS"),
        (status = 503,
            description = "The node has no vote or is not ready for clients, and the body is empty; or the node \
                cannot answer.",
            extensions(("x-may-be-empty" = json!(true))))))]
pub(crate) async fn voter(call: Call) -> Answer {
    with_role(call, |role| matches!(role, Role::Leader | Role::Follower | Role::Candidate))
}

/// Tells whether the node is ready for clients, in any role.
#[utoipa::path(get, path = "/health/serving", operation_id = "healthServing", tag = "node",
    responses((status = 200,
        description = "The node is ready for clients. The body is empty, also with 503, and for HEAD and OPTIONS"),
        (status = 503,
            description = "The node is not ready for clients, and the body is empty; or the node cannot answer.",
            extensions(("x-may-be-empty" = json!(true))))))]
pub(crate) async fn serving(call: Call) -> Answer {
    with_role(call, |_| true)
}

/// Shows whether the cluster is healthy, and how many more voters it can lose. The leader shows all
/// members; another node shows only itself and the leader.
#[utoipa::path(get, path = "/v1/cluster/health", operation_id = "nodeClusterHealth", tag = "node",
    responses((status = 200, description = "The health of the cluster, as this node knows it", body = ClusterHealth,
        example = json!({"node_id": 3, "leader": 3, "healthy": true, "failure_tolerance": 1, "voters": 3,
        "learners": 0, "members": [{"id": 1, "role": "voter", "reachable": true, "last_contact_ms": 41, "lag_entries": 0},
        {"id": 2, "role": "voter", "reachable": true, "last_contact_ms": 41, "lag_entries": 0}, {"id": 3, "role": "leader",
        "reachable": true, "last_contact_ms": 0, "lag_entries": 0}]}))))]
pub(crate) async fn cluster(mut call: Call) -> Answer {
    std::mem::take(&mut call.query).finish()?;
    let replica = &call.door.replica;
    let health = told(call.door.node_id, replica.health());
    Ok(json(StatusCode::OK, replica.state().last_zxid(), &health))
}

fn told(node_id: u64, health: Health) -> ClusterHealth {
    let member = |member: replica::MemberHealth| MemberHealth {
        id: member.id,
        role: member.part.as_str().into(),
        reachable: member.reachable,
        last_contact_ms: member.last_contact.map(|ago| u64::try_from(ago.as_millis()).unwrap_or(u64::MAX)),
        lag_entries: member.lag,
    };
    ClusterHealth {
        node_id,
        leader: health.leader,
        healthy: health.healthy,
        failure_tolerance: health.failure_tolerance,
        voters: health.voters,
        learners: health.learners,
        members: health.members.into_iter().map(member).collect(),
    }
}
