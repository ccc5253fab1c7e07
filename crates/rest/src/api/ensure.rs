//! Creation of ephemeral znodes with names that requests choose: members of groups, and simple
//! locks. One log entry checks and creates the znode.

use znode::{Create, CreateMode, Ensure, Error, Op, Reply, Stat, ZPath, ZnodeOp, Zxid};

use crate::api::history;
use crate::problem::Problem;
use crate::request::call::Call;

/// Creates an ephemeral znode of the request's session, unless the session has it already. Returns
/// the zxid of the log entry, and the znode's stat at that zxid.
///
/// # Errors
/// 409 `node-exists` when the znode belongs to another session, or, with [`Ensure::OwnWithData`],
/// when the znode has other data; 410 `ticket-gone` when this is a retry with an idempotency key,
/// and the znode of the first try has been deleted since.
pub(crate) async fn ensure(call: &Call, path: &ZPath, data: Vec<u8>, ensure: Ensure) -> Result<(Zxid, Stat), Problem> {
    let parent = path.parent().ok_or_else(|| Problem::bad("path", "the root is there already"))?;
    // With an empty ACL, the znode has the ACL of its parent.
    let (mode, acl) = (CreateMode::Ephemeral, Vec::new());
    let create = Create { data, mode, acl, ensure, ..Create::new(parent, path.name()) };
    match call.propose(Op::Znode(ZnodeOp::Create(create))).await {
        Ok((zxid, Reply::Created { stat, .. })) => Ok((zxid, stat)),
        Ok(_) => Err(Problem::internal("a create was not answered as one")),
        Err(problem) if problem.is(Error::NoNode) => Err(gone(call, path, problem.zxid).of_used_key()),
        Err(problem) => Err(problem),
    }
}

/// Returns the problem (410) for a znode that was deleted after the request had created it.
pub(crate) fn gone(call: &Call, path: &ZPath, zxid: Option<Zxid>) -> Problem {
    let state = call.door.replica.state();
    history::ticket_gone(&state, path, zxid.unwrap_or(state.last_zxid()))
}
