//! `mixed`: readers, writers, leases and multi-locks in the same locks.

use super::stay::{self, Clock};
use super::{again, multi_lock, queue, tenure, upgrade};
use crate::history::Operation;
use crate::verdict::Verdict;

/// Judges what `upgrade`, `semaphore` and `multi-lock` have, in one history: `enqueue` of one lock,
/// to read, to write or for `permits` of `limit`, or of several in the field `locks`; `await`,
/// `release`, `upgrade`, `downgrade` and `look`.
pub(super) fn check(operations: &[Operation]) -> Verdict {
    let mut verdict = Verdict::default();
    multi_lock::check_whole(operations, &mut verdict);
    let parts = multi_lock::split(operations);
    let tenures = tenure::tenures(&parts);
    tenure::check_exclusion(&tenures, &mut verdict);
    stay::check_limit(&stay::of_tenures(&tenures), Clock::History, &mut verdict);
    tenure::check_rising_tokens(&tenures, &mut verdict);
    tenure::check_kept(&parts, &mut verdict);
    stay::check_limit(&stay::stays(&parts, Clock::History), Clock::History, &mut verdict);
    let stays = stay::check_holders(&parts, &mut verdict);
    stay::check_limit(&stays, Clock::Log, &mut verdict);
    queue::check_places(&parts, &mut verdict);
    stay::check_looks(&parts, &stays, &stay::waits(&parts), &mut verdict);
    upgrade::check_conversions(operations, &mut verdict);
    again::check(operations, &mut verdict);
    let leases = tenures.iter().filter(|tenure| tenure.grant.number("permits").is_some()).count();
    verdict.figure("leases", leases);
    verdict.figure("locks-granted", tenures.len());
    verdict
}
