//! Read access of requests. ACLs have the meaning that they have at the ZooKeeper door.

use znode::{Credential, Error, Identity, State, ZPath, Znode};

use crate::problem::Problem;
use crate::request::call::Call;

/// Gets a znode, which must exist, and whose ACL must grant one of the permissions to the request's
/// identities.
pub(crate) fn readable<'a>(
    identities: &[Identity],
    state: &'a State,
    path: &ZPath,
    perms: u32,
) -> Result<&'a Znode, Problem> {
    let node = node(state, path)?;
    if state.may(path, node, perms, identities) { Ok(node) } else { Err(forbidden(state, path)) }
}

/// Checks read access for a view of a znode that may be missing: a missing znode is readable.
pub(crate) fn check_readable(identities: &[Identity], state: &State, path: &ZPath) -> Result<(), Problem> {
    if state.may_read(path, identities) { Ok(()) } else { Err(forbidden(state, path)) }
}

/// Tells whether the request may see a znode's data.
pub(crate) fn shows(identities: &[Identity], state: &State, path: &ZPath) -> bool {
    state.node(path).is_some() && state.may_read(path, identities)
}

/// Returns a path, or an empty text where the request may not know its name. An example is the
/// ticket in front of the client's own.
pub(crate) fn shown_name(identities: &[Identity], state: &State, path: &ZPath) -> String {
    if state.may_read_name(path, identities) { path.as_str().into() } else { String::new() }
}

/// Returns the credential of the request's session, if the session owns the znode and the
/// credential is genuine.
pub(crate) fn own_credential(call: &Call, state: &State, path: &ZPath) -> Option<Credential> {
    let credential = call.caller.credential?;
    let own = state.owner_of(path) == Some(credential.session) && state.authenticate(&credential).is_ok();
    own.then_some(credential)
}

pub(crate) fn forbidden(state: &State, path: &ZPath) -> Problem {
    Problem::from(Error::NoAuth).at(path, state.last_zxid())
}

/// Gets a znode, which must exist.
pub(crate) fn node<'a>(state: &'a State, path: &ZPath) -> Result<&'a Znode, Problem> {
    state.node(path).ok_or_else(|| Problem::from(Error::NoNode).at(path, state.last_zxid()))
}
