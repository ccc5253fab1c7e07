//! Checks of read access to znodes. An ACL means the same as for ZooKeeper clients.

use znode::{Credential, Error, Identity, State, ZPath, Znode};

use crate::problem::Problem;
use crate::request::call::Call;

/// Returns a znode. Its ACL must grant one of the permissions `perms` to the request's identities.
///
/// # Errors
/// 404 when the znode is missing, 403 when its ACL does not grant the permission.
pub(crate) fn readable<'a>(
    identities: &[Identity],
    state: &'a State,
    path: &ZPath,
    perms: u32,
) -> Result<&'a Znode, Problem> {
    let node = node(state, path)?;
    if state.may(path, node, perms, identities) { Ok(node) } else { Err(forbidden(state, path)) }
}

/// Checks whether the request may read a znode. A missing znode passes, for answers that show a
/// lock or group that does not exist yet.
pub(crate) fn check_readable(identities: &[Identity], state: &State, path: &ZPath) -> Result<(), Problem> {
    if state.may_read(path, identities) { Ok(()) } else { Err(forbidden(state, path)) }
}

/// Tells whether a znode exists and the request may see its data.
pub(crate) fn shows(identities: &[Identity], state: &State, path: &ZPath) -> bool {
    state.node(path).is_some() && state.may_read(path, identities)
}

/// Returns a path, or an empty text if the request may not know its name, such as the path of
/// another client's ticket.
pub(crate) fn shown_name(identities: &[Identity], state: &State, path: &ZPath) -> String {
    if state.may_read_name(path, identities) { path.as_str().into() } else { String::new() }
}

/// Returns the credential of the request's session, if that session owns the znode and the secret
/// is right.
pub(crate) fn own_credential(call: &Call, state: &State, path: &ZPath) -> Option<Credential> {
    let credential = call.caller.credential?;
    let own = state.owner_of(path) == Some(credential.session) && state.authenticate(&credential).is_ok();
    own.then_some(credential)
}

pub(crate) fn forbidden(state: &State, path: &ZPath) -> Problem {
    Problem::from(Error::NoAuth).at(path, state.last_zxid())
}

/// Returns a znode.
///
/// # Errors
/// 404 when the znode is missing.
pub(crate) fn node<'a>(state: &'a State, path: &ZPath) -> Result<&'a Znode, Problem> {
    state.node(path).ok_or_else(|| Problem::from(Error::NoNode).at(path, state.last_zxid()))
}
