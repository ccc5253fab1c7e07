//! Bugs that can be planted here and take more than a condition (crate `plant`).

use std::collections::BTreeSet;
use std::time::Duration;

use plant::Planted;
use storage::StoredMembership;
use znode::{Acquire, Event, EventKind, LockMode, Op};

/// Whether the waits that an event concerns do not hear of it: [`Planted::LostGrant`] and
/// [`Planted::RarelyLostGrant`]. The same on every node, and in every run of a seed.
pub(crate) fn loses(event: &Event) -> bool {
    let one_in = match () {
        () if plant::is(Planted::LostGrant) => 20,
        () if plant::is(Planted::RarelyLostGrant) => 1_000,
        () => return false,
    };
    let of_lock_node = || event.path.as_str().rsplit('/').next().is_some_and(|name| name.contains("lock__"));
    let frees = match event.kind {
        EventKind::Granted => true,
        EventKind::Deleted => of_lock_node(),
        EventKind::Created | EventKind::DataChanged | EventKind::ChildrenChanged => false,
    };
    // Zxids of grants have a rhythm, which a large odd factor takes out of them.
    let drawn = event.zxid.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    frees && drawn.is_multiple_of(one_in)
}

/// Whether an event is told to no client of any node.
pub(crate) fn drops(event: &Event) -> bool {
    plant::is(Planted::ChildrenChangedDropped) && event.kind == EventKind::ChildrenChanged
}

/// Whom a leader counts instead of the voters: [`Planted::QuorumByFile`] and
/// [`Planted::LearnerCounts`], by which members without a vote take the places of voters.
pub(crate) fn miscounted(
    membership: &StoredMembership,
    own: u64,
    founders: impl FnOnce() -> BTreeSet<u64>,
) -> Option<Vec<BTreeSet<u64>>> {
    if plant::is(Planted::QuorumByFile) {
        return Some(vec![founders()]);
    }
    let with_learners = |set: &BTreeSet<u64>| {
        let learners = membership.nodes().map(|(id, _)| *id).filter(|id| !set.contains(id));
        let others = set.iter().copied().filter(|id| *id != own);
        [own].into_iter().chain(learners).chain(others).take(set.len()).collect()
    };
    plant::is(Planted::LearnerCounts).then(|| membership.get_joint_config().iter().map(with_learners).collect())
}

/// Whose answers a node without data waits for instead of the voters': [`Planted::GateByFile`].
pub(crate) fn misjudged(voters: &mut Vec<BTreeSet<u64>>, founders: impl Iterator<Item = u64>) {
    if plant::is(Planted::GateByFile) {
        *voters = vec![founders.collect()];
    }
}

/// Where bugs change what was asked for.
pub(crate) fn distort(op: &mut Op) {
    match op {
        Op::Acquire(acquire) if plant::is(Planted::LockDelayIgnored) => acquire.lock_delay_ms = 0,
        Op::Acquire(acquire) if plant::is(Planted::OnePermitLess) => {
            if let LockMode::Lease { permits, .. } = &mut acquire.mode
                && *permits > 1
            {
                *permits -= 1;
            }
        }
        Op::AcquireAll(wish) if plant::is(Planted::SharedPart) => {
            if let Some((_, mode)) = wish.parts.last_mut() {
                *mode = LockMode::Read;
            }
        }
        Op::Upgrade(upgrade) if plant::is(Planted::UpgradeReads) => {
            let (mode, owner, label) = (LockMode::Read, String::new(), upgrade.label.clone());
            if let Some(lock) = upgrade.ticket.parent() {
                let (lock_delay_ms, priority, keyless) = (0, 0, false);
                *op = Op::Acquire(Acquire { lock, mode, owner, label, lock_delay_ms, priority, keyless });
            }
        }
        Op::Revoke { deadline_ms: Some(deadline_ms), .. } if plant::is(Planted::LateDeadline) && *deadline_ms > 0 => {
            *deadline_ms += 10_000;
        }
        _ => {}
    }
}

/// Where [`Planted::WatchAfterLook`] lets the world go on between the look and the watch.
pub(crate) async fn dawdle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}
