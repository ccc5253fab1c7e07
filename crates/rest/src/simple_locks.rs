//! `/v1/simple-locks`: one ephemeral znode that is there or not, and nobody queues.
//!
//! Whoever creates the znode first holds; all who wait are woken when it goes and try again. Its data is the owner's id: who
//! retries after a lost answer finds its own by that and by the session.

use std::time::Duration;

use axum::http::StatusCode;
use replica::{Step, WatchKey};
use tokio::time::Instant;
use uuid::Uuid;
use zlock_client::api::{Released, SimpleLock, Ticket};
use znode::{CreateMode, Error, FencingToken, LockGuard, Op, SessionId, State, ZPath, Zxid};

use crate::access::check_readable;
use crate::call::{Answer, Call, json};
use crate::caller::key_text;
use crate::heartbeat::Heartbeat;
use crate::holders;
use crate::own_znode::{create, make_directories, owner, present};
use crate::past;
use crate::problem::Problem;
use crate::wait::Wait;

const ROUTE: &str = "/v1/simple-locks";

/// Takes a simple lock, waiting and trying again as long as `wait` says.
#[utoipa::path(post, path = "/v1/simple-locks/{path}", operation_id = "simpleLocksAcquire", tag = "locks",
    params(("path" = String, Path, description = "slashes plain or encoded"),
        ("owner" = Option<String>, Query, description = "who, within the session; when absent, the text of the Idempotency-Key, or a UUID"),
        ("wait" = Option<String>, Query, description = "0, the default, is a try")),
    responses((status = 200, description = "Held", body = Ticket)))]
pub(crate) async fn acquire(mut call: Call) -> Answer {
    let credential = call.caller.session()?;
    let path = call.path(ROUTE)?;
    let wait_ms = call.query.duration_ms("wait", call.door.config().wait_max_ms)?.unwrap_or(0);
    if wait_ms > 0 {
        // Not a key for the log, which would keep the refusal that the first of several tries may get.
        call.caller.key = None;
    }
    let named = call.query.take("owner")?.filter(|owner| !owner.is_empty());
    std::mem::take(&mut call.query).finish()?;
    let id = owner_or_key(&call, named)?;
    let heartbeat = Heartbeat::send(&call.door, credential);
    let deadline = call.arrived + Duration::from_millis(wait_ms);
    let (token, zxid) = loop {
        if let Some(held) = try_once(&call, &path, credential.session, &id).await? {
            break held;
        }
        let state = present(&call).await?;
        let seen = state.last_zxid();
        let left_ms = deadline.saturating_duration_since(Instant::now()).as_millis();
        let wait = Wait::ending(deadline);
        let gone = |state: &State| match state.node(&path) {
            None => Step::Ready(()),
            Some(_) => Step::Watch(WatchKey::Node(path.clone())),
        };
        if left_ms == 0 || wait.until(&call, state, gone).await?.0.is_none() {
            let problem = Problem::not_acquired(&path, seen);
            return Err(holders::of_simple(problem, &call.identities, &call.door.replica().state(), &path));
        }
    };
    let (ticket, lock) = (path.as_str().into(), path.as_str().into());
    let safe_for_ms = heartbeat.safe_for_ms().await;
    Ok(json(
        StatusCode::OK,
        zxid,
        &Ticket::Held { ticket, lock, fencing_token: token.0, holds: 1, safe_for_ms, revoke: None },
    ))
}

/// The owner's id: as the request names it, or else by its key.
fn owner_or_key(call: &Call, named: Option<String>) -> Result<String, Problem> {
    let key = key_text(call.headers())?;
    let (from, id) = match (named, key) {
        (Some(owner), _) => ("owner", owner),
        (None, Some(key)) => ("Idempotency-Key", key.to_owned()),
        (None, None) => return Ok(Uuid::new_v4().to_string()),
    };
    let state = call.door.replica().state();
    if id.len() > state.limits().label_bytes_max as usize {
        return Err(Problem::from(Error::DataTooLarge).naming(&state, &[(from, id.len())]));
    }
    Ok(id)
}

/// The token, when the znode is this owner's now.
async fn try_once(call: &Call, path: &ZPath, session: SessionId, id: &str) -> Result<Option<(Zxid, Zxid)>, Problem> {
    if let Some(parent) = path.parent() {
        make_directories(call, &parent).await?;
    }
    match call.propose(Op::Znode(create(path, id.into(), CreateMode::Ephemeral)?)).await {
        // With a key it may be the answer of an earlier request, and the znode may have gone since.
        Ok((zxid, _)) if call.caller.key.is_some() => {
            let state = present(call).await.map_err(Problem::behind_a_write)?;
            if holder(&state, path, session, id) != Some(zxid) {
                return Err(past::ticket_gone(&state, path, state.last_zxid()));
            }
            Ok(Some((zxid, zxid)))
        }
        Ok((zxid, _)) => Ok(Some((zxid, zxid))),
        Err(problem) if problem.is(Error::NodeExists) => {
            let state = present(call).await?;
            Ok(holder(&state, path, session, id).map(|token| (token, state.last_zxid())))
        }
        Err(problem) => Err(problem),
    }
}

/// Shows who holds a simple lock.
#[utoipa::path(get, path = "/v1/simple-locks/{path}", operation_id = "simpleLocksLook", tag = "locks",
    params(("path" = String, Path, description = "slashes plain or encoded")),
    responses((status = 200, description = "Its holder, if there is one", body = SimpleLock)))]
pub(crate) async fn look(mut call: Call) -> Answer {
    let path = call.path(ROUTE)?;
    let state = call.read().await?;
    std::mem::take(&mut call.query).finish()?;
    check_readable(&call.identities, &state, &path)?;
    let holder = holders::simple(&state, &path);
    Ok(json(StatusCode::OK, state.last_zxid(), &SimpleLock { lock: path.as_str().into(), holder }))
}

/// Gives a simple lock back.
#[utoipa::path(delete, path = "/v1/simple-locks/{path}", operation_id = "simpleLocksRelease", tag = "locks",
    params(("path" = String, Path, description = "slashes plain or encoded"),
        ("owner" = Option<String>, Query, description = "who took it"),
        ("fencing_token" = Option<u64>, Query, description = "instead: with what it is held")),
    responses((status = 200, description = "Given back, by now or before", body = Released)))]
pub(crate) async fn release(mut call: Call) -> Answer {
    let credential = call.caller.session()?;
    let path = call.path(ROUTE)?;
    let (id, token) = (call.query.take("owner")?, call.query.get("fencing_token")?);
    std::mem::take(&mut call.query).finish()?;
    let released = |zxid: Zxid| json(StatusCode::OK, zxid, &Released { holds: 0, zxid: zxid.0 });
    if let Some(token) = token {
        // Nothing is looked up, so that a retry is answered as the first request, whoever holds by now.
        return Ok(released(delete(&mut call, path, FencingToken(token)).await?));
    }
    let id = id.ok_or_else(|| Problem::bad("owner", "who took it"))?;
    let state = present(&call).await?;
    if state.node(&path).is_none() {
        return Ok(released(state.last_zxid()));
    }
    let Some(token) = holder(&state, &path, credential.session, &id) else {
        let problem = Problem::from(Error::LockNotHeld).at(&path, state.last_zxid());
        return Err(problem.because("this owner of this session does not hold the lock"));
    };
    drop(state);
    Ok(released(delete(&mut call, path, token.into()).await?))
}

/// Deletes the znode while it is this very one: in the meantime it may have become somebody else's.
async fn delete(call: &mut Call, path: ZPath, token: FencingToken) -> Result<Zxid, Problem> {
    let own = LockGuard { lock: path.clone(), token };
    if call.caller.guard.replace(own.clone()).is_some_and(|given| given != own) {
        return Err(Problem::bad("If-Lock", "a release depends on the lock that it gives back, and on no other"));
    }
    // Without any ACL: it is the session's.
    Ok(call.propose(Op::Release { ticket: path }).await?.0)
}

/// The token of an owner that holds.
fn holder(state: &State, path: &ZPath, session: SessionId, id: &str) -> Option<Zxid> {
    // The session is compared too: a znode of an earlier session with the same id is about to vanish (CURATOR-604).
    let node = state.node(path).filter(|node| owner(state, path) == Some(session) && **node.data() == *id.as_bytes());
    node.map(|node| node.stat().czxid)
}
