//! A lock that guards a znode: what is promised of it whatever else is done with it.

use super::stay::{self, Stay};
use super::{fenced, tenure};
use crate::history::Operation;
use crate::verdict::Verdict;

/// Judges a lock that is held alone and granted in the order of its queue, and the znode that it
/// guards. The grants are counted under this name; answers with what the log proves of holders.
///
/// A holder may lose the lock at any time: what answers prove counts, and not when it was given
/// back.
pub(super) fn check_lock<'a>(operations: &'a [Operation], grants: &str, verdict: &mut Verdict) -> Vec<Stay<'a>> {
    let tenures = tenure::tenures(operations);
    tenure::check_tokens(&tenures, verdict);
    verdict.figure(grants, tenures.len());
    let stays = stay::check_holders(operations, verdict);
    stay::check_order(&stay::waits(operations), &stays, verdict);
    check_znode(operations, verdict);
    stays
}

/// Judges the znode that is written under the lock, `append` and at the end `read-all`: no write is
/// lost, and none is taken under an older token.
pub(super) fn check_znode(operations: &[Operation], verdict: &mut Verdict) {
    fenced::check_updates(operations, true, verdict);
    fenced::check_accepted(operations, "append", "version", verdict);
}
