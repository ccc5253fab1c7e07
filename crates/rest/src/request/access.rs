//! What a request may read: ACLs mean here what they mean at the ZooKeeper door.

use znode::{Credential, Error, Identity, State, ZPath, Znode};

use crate::problem::Problem;
use crate::request::call::Call;

/// A znode that must be there, and whose ACL grants whom the request comes from one of the
/// permissions.
pub(crate) fn readable<'a>(
    identities: &[Identity],
    state: &'a State,
    path: &ZPath,
    perms: u32,
) -> Result<&'a Znode, Problem> {
    let node = node(state, path)?;
    if state.may(path, node, perms, identities) { Ok(node) } else { Err(forbidden(state, path)) }
}

/// The same for a view of what may not be there: nothing is as readable as anything.
pub(crate) fn check_readable(identities: &[Identity], state: &State, path: &ZPath) -> Result<(), Problem> {
    if state.may_read(path, identities) { Ok(()) } else { Err(forbidden(state, path)) }
}

/// Whether the request may see what a znode holds.
pub(crate) fn shows(identities: &[Identity], state: &State, path: &ZPath) -> bool {
    state.node(path).is_some() && state.may_read(path, identities)
}

/// A path, or nothing where its name is not for the request to know: that of the ticket before
/// one's own.
pub(crate) fn shown_name(identities: &[Identity], state: &State, path: &ZPath) -> String {
    if state.may_read_name(path, identities) { path.as_str().into() } else { String::new() }
}

/// The credential of the request's session, if it owns the znode and has proven to be itself.
pub(crate) fn own_credential(call: &Call, state: &State, path: &ZPath) -> Option<Credential> {
    let credential = call.caller.credential?;
    let own = state.owner_of(path) == Some(credential.session) && state.authenticate(&credential).is_ok();
    own.then_some(credential)
}

pub(crate) fn forbidden(state: &State, path: &ZPath) -> Problem {
    Problem::from(Error::NoAuth).at(path, state.last_zxid())
}

/// A znode that must be there.
pub(crate) fn node<'a>(state: &'a State, path: &ZPath) -> Result<&'a Znode, Problem> {
    state.node(path).ok_or_else(|| Problem::from(Error::NoNode).at(path, state.last_zxid()))
}
