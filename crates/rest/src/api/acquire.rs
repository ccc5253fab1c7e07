//! `POST /v1/locks/{path}`: creates a ticket (the znode that queues for the lock), waits for the
//! lock, and answers with the outcome that the Raft log decided.

use std::time::Duration;

use axum::http::StatusCode;
use axum::response::Response;
use replica::{Step, WaitEnd, WatchKey};
use serde_json::{Value, json};
use tokio::time::Instant;
use uuid::Uuid;
use zlock_client::api::ProblemType::{BlockedByOwnSession, NotOwner};
use zlock_client::api::{Millis, PathInUrl, RevokeRequest, Ticket, ZnodePath};
use znode::lock::{self, LockStatus, TicketHolds};
use znode::{
    Acquire, Attempt, Error, FencingToken, LockMode, Op, Reply, RequestKey, State, TxnOutcome, Upgrade, ZPath, Zxid,
};

use crate::api::convert;
use crate::api::history;
use crate::api::holders;
use crate::api::mixed_clients;
use crate::http::delivery::deliver;
use crate::http::heartbeat::Heartbeat;
use crate::http::waiter::Waiter;
use crate::openapi::examples::{TICKET, WAITING, ZXID};
use crate::openapi::problems::QUEUE;
use crate::problem::Problem;
use crate::request::access::{check_readable, own_credential, shown_name};
use crate::request::call::{Answer, Call, json};
use crate::request::door::Door;
use crate::request::texts::check_seen;
use crate::route::{Route, route};

pub(crate) const ROUTES: &[Route] = &[Route {
    in_session: true,
    problems: &[QUEUE, &[BlockedByOwnSession, NotOwner]],
    rules: &[
        "permits_max: it is missing",
        "are asked for, and the semaphore has",
        "of them, and permits_max is",
        "permits and permits_max belong to mode=semaphore",
        "not the path of a ticket of this lock",
        "belongs to acquires without Idempotency-Key and owner",
    ],
    ..route!(acquire)
}];

/// Returns the answer that the OpenAPI document shows as an example of a ticket that holds its
/// lock.
pub(crate) fn shown_held() -> Value {
    json!({"state": "held", "ticket": TICKET, "path": "/team/x", "fencing_token": ZXID + 17, "holds": 1,
        "safe_for_ms": 29400})
}

/// Returns the answer that the OpenAPI document shows as an example of a ticket that waits.
pub(crate) fn shown_waiting() -> Value {
    json!({"state": "waiting", "ticket": WAITING, "path": "/team/x", "position": 1, "predecessor": TICKET})
}

/// Detail text of the error answer `blocked-by-own-session`.
const BLOCKED: &str = "this session has a ticket of the lock that was acquired without Idempotency-Key and owner, \
    too: `path`, perhaps by way of a node that has died. Resume that ticket, or delete it and ask again; where the \
    connection of its acquire has just broken, it is about to be withdrawn. Acquires that are to be told apart give an \
    Idempotency-Key or an owner";

/// Advice at the end of an error answer: the node has ended the wait, but the ticket stays in the
/// queue.
const TICKET_STAYS: &str = "the ticket stays for as long as its session: ask there with the same Idempotency-Key";
const NOT_WITHDRAWN: &str = "the ticket could not be withdrawn, and stands or holds until it is, or its session ends";

/// A ticket that holds its lock in the state at `zxid`: its fencing token, its number of unreleased
/// acquires, and a client's request to give the ticket up, if there is one. The lock may have been
/// taken away since.
pub(crate) struct Grant {
    pub(crate) token: FencingToken,
    pub(crate) holds: u32,
    pub(crate) zxid: Zxid,
    revoke: Option<Box<RevokeRequest>>,
}

impl Grant {
    /// Makes the grant of a ticket that holds its lock in `state`.
    fn seen(state: &State, ticket: &ZPath, token: FencingToken, holds: u32) -> Grant {
        let revoke = lock::revocation(state, ticket).map(|asked| Box::new(convert::revocation_request(asked)));
        Grant { token, holds, zxid: state.last_zxid(), revoke }
    }

    /// Makes the grant that the log decided at `zxid`. A request to give the ticket up is included
    /// even if it came after that zxid.
    fn answered(door: &Door, ticket: &ZPath, held: TicketHolds, zxid: Zxid) -> Grant {
        Grant { zxid, ..Grant::seen(&door.replica.state(), ticket, held.token, held.holds) }
    }
}

/// Parameters of an acquire, or of an upgrade from a read lock to a write lock.
struct Wish {
    op: Op,
    lock: ZPath,
    wait_ms: u64,
    keep: bool,
    /// Names of the parameters `label` and `owner` with their lengths in bytes, for the error if
    /// the state machine refuses a length.
    texts: [(&'static str, usize); 2],
    /// Mode of an acquire; `None` for an upgrade.
    mode: Option<LockMode>,
}

/// Acquires a lock, waiting for it for at most the time in `wait`.
#[utoipa::path(post, path = "/v1/locks/{*path}", operation_id = "locksAcquire", tag = "locks",
    params(("path" = PathInUrl, Path, example = "team/x", description = "path of the lock, with slashes as / or %2F"),
        ("mode" = Option<zlock_client::api::LockMode>, Query),
        ("permits" = Option<u64>, Query, minimum = 1, maximum = 4294967295_u64,
            description = "only with mode=semaphore: number of permits to acquire; absent: 1"),
        ("permits_max" = Option<u64>, Query, minimum = 1, maximum = 4294967295_u64,
            description = "only with mode=semaphore: number of permits that the semaphore has; absent: the number in \
                its settings"),
        ("wait" = Option<Millis>, Query, example = "30s",
            description = "longest time to wait for the lock; 0, the default: no wait"),
        ("upgrade" = Option<ZnodePath>, Query,
            description = "path of the ticket that holds the lock for reading, to make it a writer; without mode, \
                owner and lock_delay"),
        ("owner" = Option<String>, Query, max_length = 256,
            description = "name within the session; an acquire of an owner that already has a ticket adds a hold to \
                this ticket"),
        ("label" = Option<String>, Query, max_length = 256, example = "worker-7",
            description = "free text, which becomes the lock node's data"),
        ("keep" = Option<bool>, Query,
            description = "true: the ticket stays in the queue when the wait ends or the client disconnects"),
        ("priority" = Option<u64>, Query, maximum = 4294967295_u64,
            description = "only for a managed lock: tickets of higher priority are granted first; absent: 0"),
        ("lock_delay" = Option<Millis>, Query,
            description = "time for which the lock stays taken if the session expires")),
    responses((status = 200, description = "The ticket holds the lock", body = Ticket, example = shown_held),
        (status = 202,
            description = "The ticket waits in the queue; only with keep=true",
            body = Ticket, example = shown_waiting)))]
pub(crate) async fn acquire(call: Call) -> Answer {
    enter(call, "/v1/locks", None).await
}

/// Enters the queue of the lock whose path comes after `route` in the URL. `mode` is the lock mode;
/// `None` means that the query has the mode.
pub(crate) async fn enter(mut call: Call, route: &str, mode: Option<LockMode>) -> Answer {
    call.caller.session()?;
    let wish = wish(&mut call, route, mode)?;
    call.forget_head();
    let deadline = call.arrived + Duration::from_millis(wish.wait_ms);
    let path = wish.lock;
    // In an upgrade, a missing znode may be the reader's ticket instead of one of a used key.
    let is_upgrade = matches!(wish.op, Op::Upgrade(_));
    let (heartbeat, mut waiter) = propose(&mut call, wish.op, &path, wish.keep).await?;
    let entered = enqueue(&call.door, &mut waiter, &path).await;
    let refused = |problem: Problem| {
        if problem.is(Error::BlockedByOwnSession) {
            return problem.because(BLOCKED);
        }
        let problem = if is_upgrade { problem } else { problem.of_used_key() };
        let state = call.door.replica.state();
        let problem = problem.naming(&state, &wish.texts);
        wish.mode.map_or(problem.clone(), |mode| problem.with_permits(&call.identities, &state, &path, mode))
    };
    let (ticket, grant) = entered.map_err(refused)?;
    let _waiting = if grant.is_none() { call.waits() } else { None };
    let grant = match grant {
        Some(grant) => grant,
        None if wish.keep => match wait(&call.door, &ticket, deadline).await {
            Ok(Ok(grant)) => grant,
            // The client stays in the queue, so it must learn its ticket however the wait ended.
            Ok(Err(_)) | Err(_) => match standing(&call, &ticket, true)? {
                Standing::Held(grant) => grant,
                Standing::Waiting(answer) => return Ok(answer),
            },
        },
        None => {
            let left = wait_or_leave(&call.door, &mut waiter, &ticket, deadline).await;
            left.map_err(|problem| {
                let state = call.door.replica.state();
                holders::explained(problem, &call.identities, &state, &ticket, wish.wait_ms)
            })?
        }
    };
    let answer = held(&call, &ticket, &path, grant, heartbeat.safe_for_ms().await);
    deliver(&call.parts.extensions, waiter);
    Ok(answer)
}

/// Proposes an acquire, and sends a heartbeat of its session in parallel. Dropping the returned
/// [`Waiter`] withdraws the acquire, unless `keep` is true.
pub(crate) async fn propose(call: &mut Call, op: Op, lock: &ZPath, keep: bool) -> Result<(Heartbeat, Waiter), Problem> {
    let credential = call.caller.session()?;
    let attempt = new_attempt()?;
    let is_keyed = call.caller.key.is_some();
    // An acquire without a key gets a random key here, which becomes the UUID in the lock node's
    // name.
    call.caller.key.get_or_insert_with(|| RequestKey(Uuid::new_v4().into_bytes()));
    let permit = call.door.wait_permit()?;
    let heartbeat = Heartbeat::send(&call.door, credential);
    let request = znode::Request { attempt, ..call.request(op) };
    let deadline = call.door.propose_deadline();
    let pass = call.write_pass(&request, deadline).await?;
    let admitted = (request, pass, deadline);
    let mut waiter = Waiter::propose(&call.door, admitted, credential, lock.clone(), is_keyed, permit);
    if keep {
        waiter.stay();
    }
    Ok((heartbeat, waiter))
}

fn wish(call: &mut Call, route: &str, mode: Option<LockMode>) -> Result<Wish, Problem> {
    let lock = call.lock_path(route)?;
    let config = call.door.config.clone();
    let query = &mut call.query;
    let wait_ms = query.duration_ms("wait", config.wait_max_ms)?.unwrap_or(0);
    let label = query.take("label")?.unwrap_or_default();
    check_seen("label", &label)?;
    let keep = query.flag("keep")?;
    // An election has no upgrade.
    if let Some(reader) = if mode.is_none() { query.take("upgrade")? } else { None } {
        // The reader has a mode, owner and lock-delay already, so these parameters are refused as
        // unknown.
        std::mem::take(query).finish()?;
        let texts = [("label", label.len()), ("owner", 0)];
        let op = Op::Upgrade(Upgrade { ticket: reader_of(&lock, &reader)?, label });
        return Ok(Wish { op, lock, wait_ms, keep, texts, mode: None });
    }
    let mode = mode.map_or_else(|| convert::take_lock_mode(query), Ok)?;
    let owner = query.take("owner")?.unwrap_or_default();
    check_seen("owner", &owner)?;
    let priority = query.get("priority")?.unwrap_or(0);
    let keyless = call.caller.key.is_none() && owner.is_empty();
    let lock_delay_ms = query.duration_ms("lock_delay", u64::MAX)?;
    let lock_delay_ms = call.door.lock_delay_ms(lock_delay_ms)?;
    std::mem::take(query).finish()?;
    let texts = [("label", label.len()), ("owner", owner.len())];
    let acquire = Acquire { owner, label, lock_delay_ms, priority, keyless, ..Acquire::new(lock.clone(), mode) };
    let op = Op::Acquire(acquire);
    Ok(Wish { op, lock, wait_ms, keep, texts, mode: Some(mode) })
}

/// Draws a random number that identifies one attempt of an acquire. It is never 0, which stands for
/// no attempt.
fn new_attempt() -> Result<Attempt, Problem> {
    let drawn = getrandom::u64().map_err(|error| Problem::unavailable(error.to_string(), 1_000))?;
    Ok(Attempt(drawn.max(1)))
}

/// Parses the path of the ticket to upgrade, which must be a child of the lock's znode.
fn reader_of(lock: &ZPath, text: &str) -> Result<ZPath, Problem> {
    let reader = ZPath::parse(text).ok().filter(|reader| reader.parent().as_ref() == Some(lock));
    reader.ok_or_else(|| Problem::bad("upgrade", "not the path of a ticket of this lock"))
}

/// Waits for the outcome of the proposed acquire. Returns the ticket, and the grant if the lock was
/// granted at once.
pub(crate) async fn enqueue(door: &Door, waiter: &mut Waiter, lock: &ZPath) -> Result<(ZPath, Option<Grant>), Problem> {
    let TxnOutcome { zxid, reply, .. } = waiter.applied().await?;
    match reply {
        Ok(Reply::Acquired { ticket, held }) => {
            let grant = held.map(|held| Grant::answered(door, &ticket, held, zxid));
            Ok((ticket, grant))
        }
        // A retry of an acquire that was applied before, whose ticket has ended.
        Err(refusal) if refusal.error == Error::NoNode => {
            Err(Problem::ticket_gone(refusal.path.as_ref().unwrap_or(lock), zxid))
        }
        Err(refusal) => Err(Problem::refused(refusal, zxid)),
        Ok(Reply::Deadlock { cycle }) => {
            // In a multi-lock, the problem names the lock where the cycle begins.
            Err(Problem::deadlock(cycle.first().map_or(lock, |edge| &edge.lock), &cycle, zxid))
        }
        Ok(_) => Err(Problem::internal("an acquire was not answered as one")),
    }
}

/// Waits for the lock. When the wait ends without the lock, withdraws the ticket through the Raft
/// log. If the log granted the lock before the withdrawal, returns the grant.
pub(crate) async fn wait_or_leave(
    door: &Door,
    waiter: &mut Waiter,
    ticket: &ZPath,
    deadline: Instant,
) -> Result<Grant, Problem> {
    let (end, unclear) = match wait(door, ticket, deadline).await {
        Ok(Ok(grant)) => return Ok(grant),
        Ok(Err(WaitEnd::Deadline)) => (None, None),
        Ok(Err(WaitEnd::TooMany)) => (Some(WaitEnd::TooMany.into()), None),
        // The client's idempotency key finds the ticket, even if the lock is granted later.
        Ok(Err(end)) if waiter.is_keyed() => {
            waiter.stay();
            return Err(Problem::from(end).with_ticket_left(TICKET_STAYS));
        }
        Ok(Err(end)) => (Some(end.into()), Some(Problem::from(end).with_ticket_left(NOT_WITHDRAWN))),
        Err(problem) => (Some(problem), None),
    };
    // After an error the waiter stays armed, and retries the withdrawal when it is dropped.
    let applied = waiter.withdraw(ticket).await.map_err(|error| {
        let over = || format!("the wait is over, but whether the waiter has left is not known yet: {error}");
        unclear.unwrap_or_else(|| Problem::unknown(over()))
    })?;
    let problem = match withdrawn(door, applied, ticket)? {
        Ok(grant) => return Ok(grant),
        Err(problem) => problem,
    };
    waiter.disarm();
    Err(end.unwrap_or(problem))
}

/// Converts the log's reply to the withdrawal of a waiting ticket. The inner result is the grant if
/// the ticket already holds the lock, else the error answer for the client. The outer error means a
/// reply of the wrong type, which is a bug.
fn withdrawn(door: &Door, applied: TxnOutcome, ticket: &ZPath) -> Result<Result<Grant, Problem>, Problem> {
    let TxnOutcome { zxid, reply, .. } = applied;
    Ok(match reply {
        Ok(Reply::StillHeld(held)) => Ok(Grant::answered(door, ticket, held, zxid)),
        Ok(Reply::Withdrawn) => Err(Problem::not_acquired(ticket, zxid)),
        Ok(Reply::Superseded) => Err(Problem::superseded(ticket, zxid)),
        Err(refusal) if refusal.error == Error::NoNode => Err(Problem::ticket_gone(ticket, zxid)),
        Err(refusal) => Err(Problem::refused(refusal, zxid)),
        Ok(_) => return Err(Problem::internal("a withdrawal was not answered as one")),
    })
}

/// Waits until the ticket holds the lock, or until the deadline.
///
/// # Errors
/// As [`until`].
pub(crate) async fn wait(door: &Door, ticket: &ZPath, deadline: Instant) -> Result<Result<Grant, WaitEnd>, Problem> {
    let grant = |state: &State, status: LockStatus| match status {
        LockStatus::Held { token, holds } => Some(Grant::seen(state, ticket, token, holds)),
        LockStatus::Waiting { .. } => None,
    };
    until(door, ticket, deadline, grant).await
}

/// Waits until `wanted` returns a value for the ticket's status, and returns that value.
///
/// # Errors
/// The outer error is a 410 when the ticket has ended. The inner error is any other reason why the
/// wait ended, such as its deadline.
pub(crate) async fn until<T: Send>(
    door: &Door,
    ticket: &ZPath,
    deadline: Instant,
    wanted: impl Fn(&State, LockStatus) -> Option<T> + Send + Sync,
) -> Result<Result<T, WaitEnd>, Problem> {
    let replica = &door.replica;
    // One watch suffices: the ticket's node changes when the lock is granted, when the ticket is
    // asked back and when it ends.
    let step = |state: &State| match lock::status(state, ticket).map(|status| wanted(state, status)) {
        Ok(Some(now)) => Step::Ready(Ok(now)),
        Ok(None) => Step::Watch(WatchKey::Node(ticket.clone())),
        Err(error) => Step::Ready(Err((error, state.last_zxid()))),
    };
    let ended = tokio::select! {
        end = replica.wait_for(deadline, step) => end,
        () = door.stopped() => Err(WaitEnd::Stopped),
    };
    match ended {
        Ok(Ok(now)) => Ok(Ok(now)),
        Ok(Err((Error::NoNode, zxid))) => Err(history::ticket_gone(&replica.state(), ticket, zxid)),
        Ok(Err((error, zxid))) => Err(Problem::from(error).at(ticket, zxid)),
        Err(end) => Ok(Err(end)),
    }
}

/// Makes the answer (200) for a ticket that holds its lock. `safe_for_ms` is the time in which the
/// session cannot expire.
pub(crate) fn held(call: &Call, ticket: &ZPath, lock: &ZPath, grant: Grant, safe_for_ms: u64) -> Response {
    let body = Ticket::Held {
        ticket: ticket.as_str().into(),
        path: lock.as_str().into(),
        fencing_token: grant.token.0,
        holds: grant.holds,
        safe_for_ms,
        revoke: grant.revoke.map(|asked| *asked),
    };
    mixed_clients::warn(json(StatusCode::OK, grant.zxid, &body), &call.door.replica.state(), lock, &call.identities)
}

/// State of a ticket after a wait.
pub(crate) enum Standing {
    /// The ticket holds the lock.
    Held(Grant),
    /// The ticket waits; this is its answer (202).
    Waiting(Response),
}

/// Looks a ticket up after a wait. Read access is checked again, because the lock's ACL may have
/// changed during the wait. `was_own` is true if the ticket belonged to the request's session. Such
/// a request may learn the cause of the ticket's end without read access.
///
/// # Errors
/// 410 when the ticket has ended; 403 when the request may not read the ticket's lock.
pub(crate) fn standing(call: &Call, ticket: &ZPath, was_own: bool) -> Result<Standing, Problem> {
    let state = call.door.replica.state();
    let zxid = state.last_zxid();
    let problem = |error| match error {
        Error::NoNode if was_own => history::ticket_gone(&state, ticket, zxid),
        Error::NoNode => history::ticket_gone_for(&call.identities, &state, ticket),
        error => Problem::from(error).at(ticket, zxid),
    };
    let lock = ticket.parent().ok_or_else(|| problem(Error::BadArguments))?;
    let status = lock::status(&state, ticket).map_err(problem)?;
    if own_credential(call, &state, ticket).is_none() {
        check_readable(&call.identities, &state, &lock)?;
    }
    match status {
        LockStatus::Held { token, holds } => Ok(Standing::Held(Grant::seen(&state, ticket, token, holds))),
        LockStatus::Waiting { predecessor } => {
            let body = Ticket::Waiting {
                ticket: ticket.as_str().into(),
                path: lock.as_str().into(),
                position: lock::position(&state, ticket).map_err(problem)?,
                predecessor: shown_name(&call.identities, &state, &predecessor),
                revoke: lock::revocation(&state, ticket).map(convert::revocation_request),
            };
            let answer = json(StatusCode::ACCEPTED, zxid, &body);
            Ok(Standing::Waiting(mixed_clients::warn(answer, &state, &lock, &call.identities)))
        }
    }
}
