//! `upgrade`: from reading to writing and back, without anybody who writes in between.

use super::stay::{self, Clock};
use super::tenure::{self, Ends};
use super::{again, guarded};
use crate::history::Operation;
use crate::verdict::Verdict;

/// Judges `enqueue`, `await` and `release` of readers and writers; `upgrade`, with a number of its
/// own in the field `upgrade` that all that follows from it repeats; `downgrade`, which must hold
/// at once; `append` of an element to the list that was read before the upgrade; `look`.
pub(super) fn check(operations: &[Operation]) -> Verdict {
    let mut verdict = Verdict::default();
    let tenures = tenure::tenures(operations);
    tenure::check_exclusion(&tenures, &mut verdict);
    tenure::check_rising_tokens(&tenures, &mut verdict);
    tenure::check_kept(operations, &mut verdict);
    let stays = stay::check_holders(operations, &mut verdict);
    stay::check_looks(operations, &stays, &stay::waits(operations), &mut verdict);
    guarded::check_znode(operations, &mut verdict);
    check_conversions(operations, &mut verdict);
    again::check(operations, &mut verdict);
    verdict
}

/// What is promised of upgrades and downgrades themselves.
pub(super) fn check_conversions(operations: &[Operation], verdict: &mut Verdict) {
    check_one_at_a_time(operations, verdict);
    check_refusals(operations, verdict);
    check_downgrades(operations, verdict);
}

/// A reader is refused while another one of the same lock is being upgraded, or has been.
fn check_one_at_a_time(operations: &[Operation], verdict: &mut Verdict) {
    for clock in [Clock::History, Clock::Log] {
        let upgrades = stay::stays_by("upgrade", operations, clock);
        stay::check_alone("two-upgrades", &upgrades, clock, verdict);
    }
    let held = |op: &&Operation| op.number("upgrade").is_some() && op.number("token").is_some() && op.f != "append";
    let granted = |op: &&Operation| matches!(op.f.as_str(), "upgrade" | "await") && op.is_ok();
    verdict.figure("upgrades", operations.iter().filter(granted).filter(held).count());
}

/// One who is refused for another's sake: there must have been another.
fn check_refusals(operations: &[Operation], verdict: &mut Verdict) {
    let upgrades: Vec<&Operation> = operations.iter().filter(|operation| operation.f == "upgrade").collect();
    let ends = Ends::new(operations);
    let mut refused = 0;
    for refusal in upgrades.iter().filter(|operation| operation.error.as_deref() == Some("upgrade-conflict")) {
        refused += 1;
        let (lock, owner) = (refusal.text("lock"), refusal.number("owner"));
        // An end that is known and came first; of a lost session or an unknown outcome it may have
        // come at any time.
        let over = |other: &Operation| {
            let owner = other.number("owner").unwrap_or(0);
            let end = ends.first_after(owner, lock.unwrap_or_default(), Some("write"), other.call);
            end.is_some_and(|end| end.is_ok() && end.complete < refusal.call)
        };
        let in_the_way = |other: &&&Operation| {
            other.text("lock") == lock
                && other.number("owner") != owner
                && other.is_possible()
                && other.call < refusal.complete
                && !over(other)
        };
        if !upgrades.iter().any(|other| in_the_way(&other)) {
            let detail = format!("{}: nobody else was being upgraded", lock.unwrap_or_default());
            verdict.found("refused-alone", detail, &[refusal]);
        }
    }
    verdict.figure("second-upgrades-refused", refused);
}

/// A writer that wants to read on does so at once, also when others wait.
fn check_downgrades(operations: &[Operation], verdict: &mut Verdict) {
    let downgrades = operations.iter().filter(|operation| operation.f == "downgrade" && operation.is_ok());
    let mut count = 0;
    for downgrade in downgrades {
        count += 1;
        if downgrade.number("token").is_none() {
            let detail = format!("{}: the writer does not read at once", downgrade.text("lock").unwrap_or_default());
            verdict.found("downgrade-waits", detail, &[downgrade]);
        }
    }
    verdict.figure("downgrades", count);
}
