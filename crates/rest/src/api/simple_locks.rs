//! `/v1/simple-locks`: locks without a queue, each an ephemeral znode that exists while the lock is
//! held.
//!
//! The request whose log entry creates the znode holds the lock. The znode's deletion wakes all
//! waiting requests, which try again. Each try and each release is one log entry. The znode's data
//! is the owner's id. A retry compares this id and the session to recognize the znode of an earlier
//! request whose answer was lost.

use std::time::Duration;

use axum::http::StatusCode;
use replica::{Step, WatchKey};
use tokio::time::Instant;
use uuid::Uuid;
use zlock_client::api::ProblemType::{NoNode, NotAcquired, TicketGone};
use zlock_client::api::{Millis, PathInUrl, Release, SimpleLock, Ticket};
use znode::{Ensure, Error, FencingToken, HeldTicket, LockGuard, Op, State, TicketRef, ZPath, Zxid, lock};

use crate::api::ensure::ensure;
use crate::api::holders;
use crate::http::heartbeat::Heartbeat;
use crate::openapi::examples::ZXID;
use crate::openapi::problems::CREATE;
use crate::problem::Problem;
use crate::request::access::check_readable;
use crate::request::call::{Answer, Call, json};
use crate::request::caller::key_text;
use crate::request::texts::check_seen;
use crate::request::wait::Wait;
use crate::route::{Route, route};

pub(crate) const ROUTES: &[Route] = &[
    Route {
        in_session: true,
        problems: &[CREATE, &[NotAcquired, TicketGone]],
        rules: &["the root is there already"],
        ..route!(acquire)
    },
    Route { reads: true, ..route!(look) },
    Route {
        in_session: true,
        problems: &[&[NoNode]],
        rules: &["give the owner of the acquire", "a release depends on the lock that it gives back"],
        ..route!(release)
    },
];

const ROUTE: &str = "/v1/simple-locks";

/// Acquires a simple lock, trying again whenever it becomes free, for at most the time in `wait`.
#[utoipa::path(post, path = "/v1/simple-locks/{*path}", operation_id = "simpleLocksAcquire", tag = "locks",
    params(("path" = PathInUrl, Path, example = "cron", description = "path of the lock, with slashes as / or %2F"),
        ("owner" = Option<String>, Query, max_length = 256, example = "job-1",
            description = "name of the owner within the session; absent: the text of the Idempotency-Key, or else a \
                UUID"),
        ("wait" = Option<Millis>, Query, description = "longest time to wait for the lock; 0, the default: no wait")),
    responses((status = 200,
        description = "The owner holds the lock", body = Ticket, example = json!({"state": "held", "ticket": "/cron",
        "path": "/cron", "fencing_token": ZXID + 31, "holds": 1, "safe_for_ms": 29400}))))]
pub(crate) async fn acquire(mut call: Call) -> Answer {
    let credential = call.caller.session()?;
    let path = call.lock_path(ROUTE)?;
    if lock::sequence_of(path.name()).is_some() {
        // Such a znode counts as a ticket in the queue of its parent, and not as a lock.
        return Err(Problem::bad(
            "path",
            "a simple lock's name must not end in ten digits: such a name is that of a ticket",
        ));
    }
    let wait_ms = call.query.duration_ms("wait", call.door.config.wait_max_ms)?.unwrap_or(0);
    if wait_ms > 0 {
        // The idempotency key is not sent to the log, which would answer all later tries with the
        // refusal of the first one.
        call.caller.key = None;
    }
    let named = call.query.take("owner")?.filter(|owner| !owner.is_empty());
    check_seen("owner", named.as_deref().unwrap_or_default())?;
    std::mem::take(&mut call.query).finish()?;
    let id = owner_or_key(&call, named)?;
    call.forget_head();
    let heartbeat = Heartbeat::send(&call.door, credential);
    let deadline = call.arrived + Duration::from_millis(wait_ms);
    let (token, zxid) = loop {
        // The session is compared, too: a znode with the same owner and an earlier session will be
        // deleted soon (CURATOR-604).
        let refused = match ensure(&call, &path, id.clone().into(), Ensure::OwnWithData).await {
            Ok((zxid, stat)) => break (stat.czxid, zxid),
            Err(problem) if problem.is(Error::NodeExists) => problem.zxid.unwrap_or(Zxid(0)),
            Err(problem) => return Err(problem),
        };
        let left_ms = deadline.saturating_duration_since(Instant::now()).as_millis();
        if left_ms == 0 || gone(&call, &path, refused, deadline).await?.is_none() {
            let problem = Problem::not_acquired(&path, refused);
            return Err(holders::of_simple(problem, &call.identities, &call.door.replica.state(), &path));
        }
    };
    let (ticket, path) = (path.as_str().into(), path.as_str().into());
    let safe_for_ms = heartbeat.safe_for_ms().await;
    Ok(json(
        StatusCode::OK,
        zxid,
        &Ticket::Held { ticket, path, fencing_token: token.0, holds: 1, safe_for_ms, revoke: None },
    ))
}

/// Returns the owner's name: the request's `owner`, else its idempotency key, else a new UUID.
fn owner_or_key(call: &Call, named: Option<String>) -> Result<String, Problem> {
    let key = key_text(call.headers())?;
    let (from, id) = match (named, key) {
        (Some(owner), _) => ("owner", owner),
        (None, Some(key)) => ("Idempotency-Key", key.to_owned()),
        (None, None) => return Ok(Uuid::new_v4().to_string()),
    };
    let state = call.door.replica.state();
    if id.len() > state.limits().label_bytes_max as usize {
        return Err(Problem::from(Error::DataTooLarge).naming(&state, &[(from, id.len())]));
    }
    Ok(id)
}

/// Waits until the lock's znode is deleted; `None` when the wait ends first. `refused` is the zxid
/// at which the state machine refused the acquire because the znode existed.
async fn gone(call: &Call, path: &ZPath, refused: Zxid, deadline: Instant) -> Result<Option<()>, Problem> {
    let step = |state: &State| match state.node(path) {
        None => Step::Ready(()),
        Some(_) => Step::Watch(WatchKey::Node(path.clone())),
    };
    let state = call.state_with(refused).await?;
    Ok(Wait::ending(deadline).until(call, state, step).await?.0)
}

/// Shows the holder of a simple lock.
#[utoipa::path(get, path = "/v1/simple-locks/{*path}", operation_id = "simpleLocksLook", tag = "locks",
    params(("path" = PathInUrl, Path, example = "cron", description = "path of the lock, with slashes as / or %2F")),
    responses((status = 200, description = "The holder of the lock, if there is one", body = SimpleLock,
        example = json!({"path": "/cron", "holder": {"session": 3, "owner": "job-1", "fencing_token": ZXID + 31,
        "granted_at_ms": 1795262275514_u64}}))))]
pub(crate) async fn look(mut call: Call) -> Answer {
    let path = call.lock_path(ROUTE)?;
    let state = call.read().await?;
    std::mem::take(&mut call.query).finish()?;
    check_readable(&call.identities, &state, &path)?;
    let holder = holders::simple(&state, &path);
    Ok(json(StatusCode::OK, state.last_zxid(), &SimpleLock { path: path.as_str().into(), holder }))
}

/// Releases a simple lock.
#[utoipa::path(delete, path = "/v1/simple-locks/{*path}", operation_id = "simpleLocksRelease", tag = "locks",
    params(("path" = PathInUrl, Path, example = "cron", description = "path of the lock, with slashes as / or %2F"),
        ("owner" = Option<String>, Query, max_length = 256, description = "owner that acquired the lock"),
        ("fencing_token" = Option<u64>, Query, description = "the lock's fencing token, in place of owner")),
    responses((status = 200, description = "The lock is released, by this request or before it", body = Release,
        example = json!({"holds": 0, "zxid": ZXID + 32}))))]
pub(crate) async fn release(mut call: Call) -> Answer {
    call.caller.session()?;
    let path = call.lock_path(ROUTE)?;
    let (owner, token) = (call.query.take("owner")?, call.query.get("fencing_token")?);
    std::mem::take(&mut call.query).finish()?;
    let zxid = match (token, owner) {
        (Some(token), _) => delete(&mut call, path, FencingToken(token)).await?,
        (None, owner @ Some(_)) => give_back(&call, path, owner).await?,
        (None, None) => {
            return Err(Problem::bad("owner", "it is missing: give the owner of the acquire, or fencing_token"));
        }
    };
    Ok(json(StatusCode::OK, zxid, &Release { holds: 0, zxid: zxid.0 }))
}

/// Releases the lock if this session holds it under the owner's name `owner`. A lock without a
/// holder counts as released. Returns the zxid of the log entry.
async fn give_back(call: &Call, path: ZPath, owner: Option<String>) -> Result<Zxid, Problem> {
    let held = HeldTicket { lock: path.clone(), mode: None, token: None, owner };
    let refused = match call.propose(Op::Release { ticket: TicketRef::Held(held) }).await {
        Ok((zxid, _)) => return Ok(zxid),
        Err(problem) if problem.is(Error::NotHolder) => problem.zxid.unwrap_or(Zxid(0)),
        Err(problem) => return Err(problem),
    };
    match call.state_with(refused).await?.node(&path) {
        None => Ok(refused),
        Some(_) => {
            let problem = Problem::from(Error::LockNotHeld).at(&path, refused);
            Err(problem.because("this owner of this session does not hold the lock"))
        }
    }
}

/// Releases the lock if it is held with this fencing token. Without this check, the znode of a
/// later owner could be deleted. Returns the zxid of the log entry.
async fn delete(call: &mut Call, path: ZPath, token: FencingToken) -> Result<Zxid, Problem> {
    let own = LockGuard { lock: path.clone(), token };
    if call.caller.guard.replace(own.clone()).is_some_and(|given| given != own) {
        return Err(Problem::bad("If-Lock", "a release depends on the lock that it gives back, and on no other"));
    }
    // Unlike a delete, a release needs no permission in an ACL, because the session owns the znode.
    Ok(call.propose(Op::Release { ticket: path.into() }).await?.0)
}
