//! Ephemeral znodes with a name of their own: members of groups and of double barriers.

use std::sync::Arc;

use axum::http::StatusCode;
use replica::Consistency;
use znode::lock;
use znode::{
    Create, CreateMode, Ensure, Error, FencingToken, Kind, LockGuard, Op, Reply, Request, SessionId, State, ZPath,
    ZnodeOp, Zxid,
};

use crate::call::Call;
use crate::problem::Problem;

/// What became of a wish for a znode.
pub(crate) enum Made {
    /// It was created by this request.
    Now(Zxid),
    /// The same session had it already: this is a retry.
    Before(Zxid),
}

impl Made {
    pub(crate) fn zxid(&self) -> Zxid {
        match self {
            Made::Now(zxid) | Made::Before(zxid) => *zxid,
        }
    }

    /// 201 or 200.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Made::Now(_) => StatusCode::CREATED,
            Made::Before(_) => StatusCode::OK,
        }
    }
}

/// Creates the session's own znode, with its directory. A retry whose first answer was lost finds its own.
///
/// # Errors
/// 409 `node-exists` when it is another session's.
pub(crate) async fn make(call: &Call, path: &ZPath, data: Vec<u8>) -> Result<Made, Problem> {
    let credential = call.caller.session()?;
    if let Some(parent) = path.parent() {
        make_directories(call, &parent).await?;
    }
    match call.propose(Op::Znode(create(path, data, CreateMode::Ephemeral)?)).await {
        // With a key it may be the answer of an earlier request, and the name be another session's by now.
        Ok((zxid, _)) if call.caller.key.is_some() => {
            let state = present(call).await.map_err(Problem::behind_a_write)?;
            match owner(&state, path) {
                Some(owner) if owner != credential.session => Err(Problem::ticket_gone(path, state.last_zxid())),
                _ => Ok(Made::Now(zxid)),
            }
        }
        Ok((zxid, _)) => Ok(Made::Now(zxid)),
        Err(problem) if problem.is(Error::NodeExists) => {
            let state = present(call).await?;
            // The session is compared, not a name: a znode of an earlier session of the same client is about to vanish
            // (CURATOR-604).
            match owner(&state, path) {
                Some(owner) if owner == credential.session => Ok(Made::Before(state.last_zxid())),
                _ => Err(problem),
            }
        }
        Err(problem) => Err(problem),
    }
}

/// Deletes the session's own znode; true when it was there.
///
/// # Errors
/// 412 `lock-not-held` when it is another session's.
pub(crate) async fn delete(call: &Call, path: &ZPath) -> Result<(Zxid, bool), Problem> {
    let credential = call.caller.session()?;
    let state = present(call).await?;
    if state.node(path).is_none() {
        return Ok((state.last_zxid(), false));
    }
    if owner(&state, path) != Some(credential.session) {
        return Err(Problem::from(Error::LockNotHeld).at(path, state.last_zxid()));
    }
    let guard = call.caller.guard.clone().or_else(|| this_very(&state, path));
    drop(state);
    // Without any ACL: it is the session's.
    match take_out(call, Op::Release { ticket: path.clone() }, guard.clone()).await {
        // It is not there any more, and perhaps another one is.
        Err(problem) if problem.is(Error::LockNotHeld) && guard != call.caller.guard => {
            Ok((problem.zxid.unwrap_or(Zxid(0)), false))
        }
        answer => answer,
    }
}

/// That a znode is still this one when a write is applied: in the meantime it may have become another session's. Nothing of
/// the kind can be said of one whose name is that of a lock node.
fn this_very(state: &State, path: &ZPath) -> Option<LockGuard> {
    let token = FencingToken(state.node(path)?.stat().czxid.0);
    lock::is_held_with(state, path, token).then(|| LockGuard { lock: path.clone(), token })
}

/// Deletes a znode, whoever made it.
pub(crate) async fn delete_if_there(call: &Call, path: &ZPath) -> Result<(Zxid, bool), Problem> {
    let delete = Op::Znode(ZnodeOp::Delete { path: path.clone(), version: -1 });
    take_out(call, delete, call.caller.guard.clone()).await
}

async fn take_out(call: &Call, op: Op, guard: Option<LockGuard>) -> Result<(Zxid, bool), Problem> {
    match call.propose_guarded(op, guard).await {
        Ok((zxid, _)) => Ok((zxid, true)),
        Err(problem) if problem.is(Error::NoNode) => Ok((problem.zxid.unwrap_or(Zxid(0)), false)),
        Err(problem) => Err(problem),
    }
}

/// Makes what is missing of a directory and its parents, as containers: they go when nobody uses them any more.
pub(crate) async fn make_directories(call: &Call, path: &ZPath) -> Result<(), Problem> {
    let state = present(call).await?;
    let mut missing = Vec::new();
    let mut at = Some(path.clone());
    while let Some(directory) = at.filter(|directory| state.node(directory).is_none()) {
        at = directory.parent();
        missing.push(directory);
    }
    drop(state);
    for directory in missing.iter().rev() {
        // Not under the client's key, which is for what it asked for.
        let op = Op::Znode(create(directory, Vec::new(), CreateMode::Container)?);
        let (guard, identities) = (call.caller.guard.clone(), call.identities.clone());
        let request = Request { guard, identities, ..Request::new(op) };
        let applied = call.door.replica().propose(request, call.door.propose_deadline()).await?;
        match applied.reply {
            Ok(Reply::Created { .. }) => {}
            Err(refusal) if refusal.error == Error::NodeExists => {}
            Err(refusal) => return Err(Problem::refused(refusal, applied.zxid)),
            Ok(_) => return Err(Problem::internal("a create was not answered as one")),
        }
    }
    Ok(())
}

/// A create of the znode at a path, with the ACL of its directory.
pub(crate) fn create(path: &ZPath, data: Vec<u8>, mode: CreateMode) -> Result<ZnodeOp, Problem> {
    let parent = path.parent().ok_or_else(|| Problem::bad("path", "the root is there already"))?;
    Ok(ZnodeOp::Create(Create { parent, name: path.name().into(), data, mode, acl: Vec::new(), ensure: Ensure::New }))
}

/// A child whose name comes from the client.
pub(crate) fn child(parent: &ZPath, what: &str, name: &str) -> Result<ZPath, Problem> {
    parent.child(name).map_err(|_| Problem::bad(what, "not the name of a znode"))
}

/// The session that an ephemeral znode belongs to.
pub(crate) fn owner(state: &State, path: &ZPath) -> Option<SessionId> {
    match state.node(path)?.kind() {
        Kind::Ephemeral { owner } => Some(owner),
        _ => None,
    }
}

/// The state, linearizable.
pub(crate) async fn present(call: &Call) -> Result<Arc<State>, Problem> {
    Ok(call.door.replica().read(Consistency::Linearizable, call.door.read_deadline()).await?)
}
