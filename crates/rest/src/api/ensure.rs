//! Ephemeral znodes whose names the requests give, each made by one entry of the log: members of
//! groups and simple locks.

use znode::{Create, CreateMode, Ensure, Error, Op, Reply, Stat, ZPath, ZnodeOp, Zxid};

use crate::api::history;
use crate::problem::Problem;
use crate::request::call::Call;

/// Creates the znode, unless the session has it already. Returns the zxid of the decision, and the
/// znode's stat there.
///
/// # Errors
/// 409 `node-exists` when another session's or owner's znode is there; 410 `ticket-gone` when a
/// retry with a key finds that the znode has gone since.
pub(crate) async fn ensure(call: &Call, path: &ZPath, data: Vec<u8>, ensure: Ensure) -> Result<(Zxid, Stat), Problem> {
    let parent = path.parent().ok_or_else(|| Problem::bad("path", "the root is there already"))?;
    // The ACL is empty, so that the znode has that of its directory.
    let (mode, acl) = (CreateMode::Ephemeral, Vec::new());
    let create = Create { data, mode, acl, ensure, ..Create::new(parent, path.name()) };
    match call.propose(Op::Znode(ZnodeOp::Create(create))).await {
        Ok((zxid, Reply::Created { stat, .. })) => Ok((zxid, stat)),
        Ok(_) => Err(Problem::internal("a create was not answered as one")),
        Err(problem) if problem.is(Error::NoNode) => Err(gone(call, path, problem.zxid).of_used_key()),
        Err(problem) => Err(problem),
    }
}

/// Returns the problem of a request whose znode has gone since (410).
pub(crate) fn gone(call: &Call, path: &ZPath, zxid: Option<Zxid>) -> Problem {
    let state = call.door.replica.state();
    history::ticket_gone(&state, path, zxid.unwrap_or(state.last_zxid()))
}
