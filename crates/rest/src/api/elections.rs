//! `/v1/elections`: elections, each a lock whose holder is the leader and can publish a value.
//!
//! A campaign is an acquire whose lock node has a name like those of Curator's LeaderLatch. The
//! leader's value is the data of its lock node. Observers see the present leader and its latest
//! value. An observer that passes `upto` of its last answer as `since` misses only leaders that
//! came and went between two of its requests.

use axum::http::StatusCode;
use bytes::Bytes;
use replica::{Consistency, Step, WatchKey};
use zlock_client::api::ProblemType::{BlockedByOwnSession, NoNode, NotOwner, TicketGone};
use zlock_client::api::{ChangedZnode, Election, Leader, Millis, PathInUrl, Release, ZnodePath};
use znode::lock::{self, LockStatus, QueueEntry};
use znode::{Error, FencingToken, Identity, LockGuard, LockMode, Op, Reply, SessionId, State, ZPath, ZnodeOp};

use crate::api::acquire::enter;
use crate::api::convert;
use crate::api::history;
use crate::api::release;
use crate::openapi::examples::{ZXID, stat};
use crate::openapi::problems::QUEUE;
use crate::problem::Problem;
use crate::request::access::check_readable;
use crate::request::call::{Answer, Call, WithBody, json};
use crate::request::wait::Wait;
use crate::route::{Route, route};

/// Paths of two tickets in the examples of the OpenAPI document: the leader's and a candidate's.
const LEADER: &str = "/boss/0000000000_a74bf62558bb40e6868b6eb56f90fd66__WRIT__0000000000__lock__0000000000";
const CANDIDATE: &str = "/boss/0000000001_0f2b7a1c5f6d4a529a3e2f9de1a3c001__WRIT__0000000001__lock__0000000001";

pub(crate) const ROUTES: &[Route] = &[
    Route {
        in_session: true,
        problems: &[QUEUE, &[BlockedByOwnSession, NotOwner]],
        rules: &["belongs to acquires without Idempotency-Key and owner"],
        ..route!(campaign)
    },
    Route { reads: true, ..route!(observe) },
    Route {
        in_session: true,
        problems: &[&[NoNode, TicketGone]],
        rules: &["no other lock", "not a lock node of this election", "ticket and fencing_token go together"],
        ..route!(proclaim)
    },
    Route { in_session: true, problems: &[&[NoNode, TicketGone]], ..route!(resign) },
];

const ROUTE: &str = "/v1/elections";

/// Enters the election, and waits to lead for at most the time in `wait`.
#[utoipa::path(post, path = "/v1/elections/{*path}", operation_id = "electionsCampaign", tag = "elections",
    params(("path" = PathInUrl, Path, example = "boss", description = "path of the election, with slashes as / or %2F"),
        ("wait" = Option<Millis>, Query, example = "30s",
            description = "longest time to wait for leadership; 0, the default: no wait"),
        ("owner" = Option<String>, Query, max_length = 256, description = "name of the candidate within the session"),
        ("label" = Option<String>, Query, max_length = 256, example = "node-a",
            description = "id of the candidate; also its value until it proclaims another"),
        ("keep" = Option<bool>, Query,
            description = "true: the candidate stays in the queue when the wait ends or the client disconnects"),
        ("lock_delay" = Option<Millis>, Query,
            description = "time for which no other candidate leads if the leader's session expires")),
    responses((status = 200, description = "The candidate leads", body = zlock_client::api::Ticket,
        example = json!({"state": "held", "ticket": LEADER, "path": "/boss", "fencing_token": ZXID + 16, "holds": 1,
        "safe_for_ms": 29400})),
        (status = 202,
            description = "The candidate waits in the queue; only with keep=true", body = zlock_client::api::Ticket,
            example = json!({"state": "waiting", "ticket": CANDIDATE, "path": "/boss", "position": 1,
            "predecessor": LEADER}))))]
pub(crate) async fn campaign(call: Call) -> Answer {
    enter(call, ROUTE, Some(LockMode::Latch)).await
}

/// Replaces the leader's value. Refused unless the request's session leads.
#[utoipa::path(put, path = "/v1/elections/{*path}", operation_id = "electionsProclaim", tag = "elections",
    params(("path" = PathInUrl, Path, example = "boss", description = "path of the election, with slashes as / or %2F"),
        ("ticket" = Option<ZnodePath>, Query,
            description = "path of the leader's lock node; only together with fencing_token"),
        ("fencing_token" = Option<u64>, Query,
            description = "the leader's fencing token; with ticket and fencing_token, a retry is the same request")),
    request_body(content = Vec<u8>, content_type = "application/octet-stream", example = "http://a:80"),
    responses((status = 200, description = "The value is set", body = ChangedZnode, example = json!({"path": LEADER,
        "stat": stat(16, 17, 1, 3, 11), "zxid": ZXID + 17}))))]
pub(crate) async fn proclaim(WithBody(mut call): WithBody) -> Answer {
    let path = call.lock_path(ROUTE)?;
    let (ticket, token) = named(&mut call, &path).await?;
    let data_max = call.door.replica.state().limits().data_bytes_max as usize;
    let (data, _permit): (Bytes, _) = call.body(data_max.min(call.door.config.body_bytes_max)).await?;
    // The Raft log checks this guard, and so whether the session still leads.
    let leads = LockGuard { lock: path, token };
    match call.caller.guard.replace(leads.clone()) {
        Some(given) if given.lock != leads.lock => {
            return Err(Problem::bad(
                "If-Lock",
                "a leader's value depends on its own leadership, and on no other lock",
            ));
        }
        Some(given) if given.token != leads.token => {
            let zxid = call.door.replica.state().last_zxid();
            return Err(Problem::from(Error::LockNotHeld).at(&leads.lock, zxid));
        }
        _ => {}
    }
    let set = ZnodeOp::SetData { path: ticket.clone(), data: data.into(), version: -1 };
    let set = call.propose(Op::Znode(set)).await.map_err(|problem| of_leader(&call, problem, &ticket));
    let (zxid, Reply::Set { stat }) = set? else {
        return Err(Problem::internal("a set was not answered as one"));
    };
    let set = ChangedZnode { path: ticket.as_str().into(), stat: convert::stat(stat), zxid: zxid.0 };
    Ok(json(StatusCode::OK, zxid, &set))
}

/// Gives one hold of the leadership back. With the last one, the next candidate leads.
#[utoipa::path(delete, path = "/v1/elections/{*path}", operation_id = "electionsResign", tag = "elections",
    params(("path" = PathInUrl, Path, example = "boss",
        description = "path of the election, with slashes as / or %2F")),
    responses((status = 200, description = "A hold is given back; leadership ends when holds is 0", body = Release, example = json!({"holds": 0,
        "zxid": ZXID + 25}))))]
pub(crate) async fn resign(mut call: Call) -> Answer {
    let path = call.lock_path(ROUTE)?;
    let leader = own_leadership(&mut call, &path).await?;
    let op = Op::Release { ticket: leader.ticket.clone().into() };
    release::propose(&call, op, |problem, _| of_leader(&call, problem, &leader.ticket)).await
}

/// Replaces an error about the leader's missing ticket by the 410 of an ended ticket.
fn of_leader(call: &Call, problem: Problem, ticket: &ZPath) -> Problem {
    history::of_ticket(problem, &call.identities, &call.door.replica.state(), ticket)
}

/// Shows the leader. With `since`, waits until the leader or its value changes.
#[utoipa::path(get, path = "/v1/elections/{*path}", operation_id = "electionsObserve", tag = "elections",
    params(("path" = PathInUrl, Path, example = "boss", description = "path of the election, with slashes as / or %2F"),
        ("since" = Option<String>, Query, max_length = 64,
            description = "`upto` of the last answer: waits until the leader or its value differs from that answer"),
        ("wait" = Option<Millis>, Query, description = "longest time to wait for a change; absent: no wait")),
    responses((status = 200, description = "The leader, if there is one", body = Election,
        example = json!({"path": "/boss", "candidates": 1, "leader": {"ticket": LEADER, "session": 3,
        "data": "http://a:80", "fencing_token": ZXID + 16}, "upto": "1838489600000016.1838489600000017"}))))]
pub(crate) async fn observe(mut call: Call) -> Answer {
    let path = call.lock_path(ROUTE)?;
    let wait = Wait::take(&mut call)?;
    let since = call.query.take("since")?;
    // With `Zlock-Min-Zxid`, this state is not older than the client's last answer, whichever node
    // gave it.
    let state = call.read().await?;
    std::mem::take(&mut call.query).finish()?;
    let view = |state: &State| view(&call.identities, state, &path);
    let step = |state: &State| match view(state) {
        Ok(now) if Some(&now.upto) == since.as_ref() => Step::Watch(to_watch(state, &path)),
        now => Step::Ready(now),
    };
    let (election, zxid) = match wait.until(&call, state, step).await? {
        (Some(election), zxid) => (election?, zxid),
        // The wait ended without a change, so this is the view that the client has already.
        (None, _) => {
            let state = call.door.replica.state();
            (view(&state)?, state.last_zxid())
        }
    };
    Ok(json(StatusCode::OK, zxid, &election))
}

fn view(identities: &[Identity], state: &State, path: &ZPath) -> Result<Election, Problem> {
    // Access is checked for each state, because the znode may be created or get another ACL during
    // the wait.
    check_readable(identities, state, path)?;
    let contenders = lock::queue(state, path, 0, 0).map_or(0, |queue| queue.contenders);
    let Some(leader) = leader(state, path)? else {
        let upto = "0.0".into();
        return Ok(Election { path: path.as_str().into(), candidates: contenders, leader: None, upto });
    };
    let node = state.node(&leader.ticket).ok_or(Error::NoNode)?;
    let said = convert::shown_info(&leader.ticket, node, state, identities);
    Ok(Election {
        path: path.as_str().into(),
        candidates: contenders,
        upto: format!("{}.{}", leader.token.0, said.stat.mzxid),
        leader: Some(Leader {
            ticket: said.path,
            session: leader.session.map(|session| session.0),
            owner: leader.owner,
            data: said.data,
            data_base64: said.data_base64,
            fencing_token: leader.token.0,
        }),
    })
}

/// Returns the leader for observers; after the leader's session has expired, this leader during its
/// lock-delay.
fn leader(state: &State, path: &ZPath) -> Result<Option<QueueEntry>, Error> {
    let first = || lock::queue(state, path, 0, 1).ok()?.entries.pop();
    let lingering = || first().filter(|first| first.lingers_until_ms.is_some());
    Ok(lock::holder(state, path)?.or_else(lingering))
}

/// Returns the watch for the next change of the leader or its value.
fn to_watch(state: &State, path: &ZPath) -> WatchKey {
    match leader(state, path) {
        Ok(Some(leader)) => WatchKey::Node(leader.ticket),
        _ => WatchKey::Subtree(path.clone()),
    }
}

/// Returns the ticket and fencing token in the query; without them, those of the present leader. An
/// existing ticket is refused unless it leads and belongs to the request's session.
async fn named(call: &mut Call, path: &ZPath) -> Result<(ZPath, FencingToken), Problem> {
    let (ticket, token) = (call.query.take("ticket")?, call.query.get("fencing_token")?);
    match (ticket, token) {
        (None, None) => own_leadership(call, path).await.map(|leader| (leader.ticket, leader.token)),
        (Some(ticket), Some(token)) => {
            std::mem::take(&mut call.query).finish()?;
            let session = call.caller.session()?.session;
            let ticket = ZPath::parse(&ticket).ok().filter(|ticket| ticket.parent().as_ref() == Some(path));
            let ticket = ticket.ok_or_else(|| Problem::bad("ticket", "not a lock node of this election"))?;
            let token = FencingToken(token);
            // A lock node never changes its owner and token, so a session refused here never led
            // with them. The Raft log decides about a missing lock node, because this may be a
            // retry of a request that was applied.
            let state = call.door.replica.read(Consistency::Linearizable, call.door.read_deadline()).await?;
            if state.node(&ticket).is_some() && !leads(&state, &ticket, session, token) {
                return Err(Problem::from(Error::LockNotHeld).at(path, state.last_zxid()));
            }
            Ok((ticket, token))
        }
        _ => Err(Problem::bad("ticket", "ticket and fencing_token go together")),
    }
}

fn leads(state: &State, ticket: &ZPath, session: SessionId, token: FencingToken) -> bool {
    let holds = matches!(lock::status(state, ticket), Ok(LockStatus::Held { token: held, .. }) if held == token);
    holds && state.owner_of(ticket) == Some(session)
}

/// Looks the leader up, and checks that the request's session owns the leader's lock node.
async fn own_leadership(call: &mut Call, path: &ZPath) -> Result<QueueEntry, Problem> {
    std::mem::take(&mut call.query).finish()?;
    let credential = call.caller.session()?;
    let state = call.read().await?;
    let leader = lock::holder(&state, path)?.filter(|leader| leader.session == Some(credential.session));
    leader.ok_or_else(|| {
        let problem = Problem::from(Error::LockNotHeld).at(path, state.last_zxid());
        problem.because("this session does not lead the election")
    })
}
