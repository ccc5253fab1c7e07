//! `/v1/barriers` and `/v1/double-barriers`, on the znodes that Curator's DistributedBarrier and
//! DistributedDoubleBarrier make.

use axum::http::StatusCode;
use replica::{Step, WatchKey};
use uuid::Uuid;
use zlock_client::api::{Barrier, BarrierState, DoubleBarrier, MemberState, Outcome};
use znode::{CreateMode, Error, Op, State, ZPath, Zxid};

use crate::access::check_readable;
use crate::call::{Answer, Call, json};
use crate::caller::key_text;
use crate::own_znode::{self, child};
use crate::problem::Problem;
use crate::wait::Wait;

const ROUTE: &str = "/v1/barriers";
const DOUBLE_ROUTE: &str = "/v1/double-barriers";

/// The child whose presence says that all have entered.
const READY: &str = "ready";

/// Closes a barrier.
#[utoipa::path(put, path = "/v1/barriers/{path}", operation_id = "barriersClose", tag = "barriers",
    params(("path" = String, Path, description = "slashes plain or encoded"),
        ("ephemeral" = Option<bool>, Query, description = "it opens when the session ends")),
    responses((status = 201, description = "Closed", body = Barrier),
        (status = 200, description = "It was closed already", body = Barrier)))]
pub(crate) async fn close(mut call: Call) -> Answer {
    let path = call.path(ROUTE)?;
    let mode = if call.query.flag("ephemeral")? { CreateMode::Ephemeral } else { CreateMode::Persistent };
    std::mem::take(&mut call.query).finish()?;
    if let Some(parent) = path.parent() {
        own_znode::make_directories(&call, &parent).await?;
    }
    match call.propose(Op::Znode(own_znode::create(&path, Vec::new(), mode)?)).await {
        Ok((zxid, _)) => Ok(barrier(StatusCode::CREATED, &path, BarrierState::Closed, zxid)),
        Err(problem) if problem.is(Error::NodeExists) => {
            Ok(barrier(StatusCode::OK, &path, BarrierState::Closed, problem.zxid.unwrap_or(Zxid(0))))
        }
        Err(problem) => Err(problem),
    }
}

/// Opens a barrier: all who wait pass.
#[utoipa::path(delete, path = "/v1/barriers/{path}", operation_id = "barriersOpen", tag = "barriers",
    params(("path" = String, Path, description = "slashes plain or encoded")),
    responses((status = 200, description = "Open, by now or before", body = Barrier)))]
pub(crate) async fn open(mut call: Call) -> Answer {
    let path = call.path(ROUTE)?;
    std::mem::take(&mut call.query).finish()?;
    let (zxid, _) = own_znode::delete_if_there(&call, &path).await?;
    Ok(barrier(StatusCode::OK, &path, BarrierState::Open, zxid))
}

/// Says whether a barrier is open, waiting for it as long as `wait` says.
#[utoipa::path(get, path = "/v1/barriers/{path}", operation_id = "barriersPass", tag = "barriers",
    params(("path" = String, Path, description = "slashes plain or encoded"),
        ("wait" = Option<String>, Query, description = "absent: not at all")),
    responses((status = 200, description = "Open, or closed still", body = Barrier)))]
pub(crate) async fn pass(mut call: Call) -> Answer {
    let path = call.path(ROUTE)?;
    let wait = Wait::take(&mut call)?;
    let state = call.read().await?;
    std::mem::take(&mut call.query).finish()?;
    let closed = |state: &State| match state.node(&path) {
        None => Step::Ready(()),
        Some(_) => Step::Watch(WatchKey::Node(path.clone())),
    };
    check_readable(&call.identities, &state, &path)?;
    let (open, zxid) = wait.until(&call, state, closed).await?;
    let now = if open.is_some() { BarrierState::Open } else { BarrierState::Closed };
    Ok(barrier(StatusCode::OK, &path, now, zxid))
}

/// Enters a double barrier, waiting until `count` members have.
#[utoipa::path(post, path = "/v1/double-barriers/{path}", operation_id = "doubleBarriersEnter", tag = "barriers",
    params(("path" = String, Path, description = "slashes plain or encoded"),
        ("count" = Option<u32>, Query, description = "how many members it takes, the same for all; needed, here or in the body"),
        ("member" = Option<String>, Query, description = "a name; when absent, the text of the Idempotency-Key, or a UUID"),
        ("wait" = Option<String>, Query, description = "0, the default, is a try"),
        ("keep" = Option<bool>, Query, description = "stay a member when the wait ends")),
    responses((status = 200, description = "All have entered", body = DoubleBarrier),
        (status = 202, description = "Waiting, with keep=true", body = DoubleBarrier)))]
pub(crate) async fn enter(mut call: Call) -> Answer {
    call.caller.session()?;
    let path = call.path(DOUBLE_ROUTE)?;
    let wait = Wait::take(&mut call)?;
    let count = call.query.get::<u32>("count")?.filter(|count| *count > 0);
    let count = count.ok_or_else(|| Problem::bad("count", "how many members, at least 1"))?;
    let named = call.query.take("member")?;
    let keep = call.query.flag("keep")?;
    std::mem::take(&mut call.query).finish()?;
    let (from, member) = member_or_key(&call, named)?;
    let (own, ready) = (child(&path, from, &member)?, child(&path, "member", READY)?);
    if member == READY {
        return Err(Problem::bad(from, "the name is taken"));
    }
    own_znode::make(&call, &own, Vec::new()).await?;
    let gathering = Gathering { path, member, own, ready, count };
    // What follows is not the client's one write any more: neither its key nor its guard are for that.
    let keyed = call.caller.key.take().is_some();
    call.caller.guard = None;
    match gathering.complete(&call, &wait).await {
        Ok((Some(true), zxid)) => Ok(gathering.answer(&call, StatusCode::OK, MemberState::Entered, zxid)),
        Ok((Some(false), zxid)) => Err(Problem::ticket_gone(&gathering.own, zxid)),
        // However the wait ended: if the place is kept, the client must hear of its name.
        Ok((None, _)) | Err(_) if keep => gathering.standing(&call),
        Ok((None, _)) => gathering.take_out(&call, None).await,
        // Under its key it would not be let in again: a retry is to find its member.
        Err(problem) if keyed && problem.outcome() != Outcome::Refused => Err(problem.behind_a_write()),
        Err(problem) => gathering.take_out(&call, Some(problem)).await,
    }
}

/// What names a member, and its name: as the request says it, or else its key.
fn member_or_key(call: &Call, named: Option<String>) -> Result<(&'static str, String), Problem> {
    let key = key_text(call.headers())?;
    Ok(match (named, key) {
        (Some(member), _) => ("member", member),
        (None, Some(key)) => ("Idempotency-Key, which names the member where `member` is absent", key.to_owned()),
        (None, None) => ("member", Uuid::new_v4().to_string()),
    })
}

/// A double barrier, and who enters it.
struct Gathering {
    path: ZPath,
    member: String,
    own: ZPath,
    ready: ZPath,
    count: u32,
}

impl Gathering {
    /// Waits until all have entered: true; false when the member has gone.
    async fn complete(&self, call: &Call, wait: &Wait) -> Result<(Option<bool>, Zxid), Problem> {
        let all = |state: &State| members(state, &self.path) >= self.count && state.node(&self.ready).is_none();
        if all(&*own_znode::present(call).await?) {
            match call.propose(Op::Znode(own_znode::create(&self.ready, Vec::new(), CreateMode::Persistent)?)).await {
                Err(problem) if !problem.is(Error::NodeExists) => return Err(problem),
                _ => {}
            }
        }
        let state = own_znode::present(call).await?;
        let step = |state: &State| match (state.node(&self.ready), state.node(&self.own)) {
            (Some(_), _) => Step::Ready(true),
            (None, None) => Step::Ready(false),
            (None, Some(_)) => Step::Watch(WatchKey::Children(self.path.clone())),
        };
        wait.until(call, state, step).await
    }

    /// How it stands with a member that stays.
    fn standing(&self, call: &Call) -> Answer {
        let state = call.door.replica().state();
        let zxid = state.last_zxid();
        match (state.node(&self.ready), state.node(&self.own)) {
            (Some(_), _) => Ok(self.answer(call, StatusCode::OK, MemberState::Entered, zxid)),
            (None, Some(_)) => Ok(self.answer(call, StatusCode::ACCEPTED, MemberState::Entering, zxid)),
            (None, None) => Err(Problem::ticket_gone(&self.own, zxid)),
        }
    }

    /// Takes a member out that has waited in vain, or that cannot wait.
    async fn take_out(&self, call: &Call, end: Option<Problem>) -> Answer {
        let (zxid, _) = own_znode::delete(call, &self.own).await.map_err(Problem::behind_a_write)?;
        // All may have entered before the log took this one out: then it has entered, and has left already.
        let state = own_znode::present(call).await.map_err(Problem::behind_a_write)?;
        match state.node(&self.ready).is_some_and(|ready| ready.stat().czxid < zxid) {
            true => Ok(self.answer(call, StatusCode::OK, MemberState::Entered, zxid)),
            false => Err(end.unwrap_or_else(|| Problem::not_acquired(&self.own, zxid))),
        }
    }

    fn answer(&self, call: &Call, status: StatusCode, state: MemberState, zxid: Zxid) -> axum::response::Response {
        gathered(call, status, &self.path, &self.member, state, zxid)
    }
}

/// Leaves a double barrier, waiting until all members have.
#[utoipa::path(delete, path = "/v1/double-barriers/{path}", operation_id = "doubleBarriersLeave", tag = "barriers",
    params(("path" = String, Path, description = "slashes plain or encoded"),
        ("member" = String, Query, description = "the name under which it entered"),
        ("wait" = Option<String>, Query, description = "absent: not at all")),
    responses((status = 200, description = "All have left", body = DoubleBarrier),
        (status = 202, description = "It has left, others have not", body = DoubleBarrier)))]
pub(crate) async fn leave(mut call: Call) -> Answer {
    call.caller.session()?;
    let path = call.path(DOUBLE_ROUTE)?;
    let wait = Wait::take(&mut call)?;
    let member = call.query.take("member")?.ok_or_else(|| Problem::bad("member", "the name under which it entered"))?;
    std::mem::take(&mut call.query).finish()?;
    let (own, ready) = (child(&path, "member", &member)?, child(&path, "member", READY)?);
    own_znode::delete(&call, &own).await?;
    // What follows is not the client's one write any more: neither its key nor its guard are for that.
    (call.caller.key, call.caller.guard) = (None, None);
    let state = own_znode::present(&call).await.map_err(Problem::behind_a_write)?;
    let step = |state: &State| match members(state, &path) {
        0 => Step::Ready(()),
        _ => Step::Watch(WatchKey::Children(path.clone())),
    };
    // Who cannot wait any longer has left all the same.
    let now = state.last_zxid();
    let (left, zxid) = wait.until(&call, state, step).await.unwrap_or((None, now));
    if left.is_none() {
        return Ok(gathered(&call, StatusCode::ACCEPTED, &path, &member, MemberState::Leaving, zxid));
    }
    let (zxid, _) = own_znode::delete_if_there(&call, &ready).await.map_err(Problem::behind_a_write)?;
    Ok(gathered(&call, StatusCode::OK, &path, &member, MemberState::Left, zxid))
}

fn members(state: &State, path: &ZPath) -> u32 {
    let Some(node) = state.node(path) else { return 0 };
    let ready = path.child(READY).is_ok_and(|ready| state.node(&ready).is_some());
    node.stat().num_children - u32::from(ready)
}

fn barrier(status: StatusCode, path: &ZPath, state: BarrierState, zxid: Zxid) -> axum::response::Response {
    json(status, zxid, &Barrier { barrier: path.as_str().into(), state, zxid: zxid.0 })
}

fn gathered(
    call: &Call,
    status: StatusCode,
    path: &ZPath,
    member: &str,
    state: MemberState,
    zxid: Zxid,
) -> axum::response::Response {
    let members = members(&call.door.replica().state(), path);
    let body = DoubleBarrier { barrier: path.as_str().into(), member: member.into(), state, members, zxid: zxid.0 };
    json(status, zxid, &body)
}
