//! A few seeds, that a seed repeats itself, and that planted bugs are found.

use plant::Planted;
use sim::cluster::{Outcome, Plan, run};
use sim::fault_injection::Plant;
use sim::trace::Detail;

fn play(seed: u64, plant: Option<Plant>) -> Outcome {
    run(Plan { seed, detail: Detail::Last, plant })
}

#[track_caller]
fn holds(seed: u64) -> Outcome {
    let outcome = play(seed, None);
    if let Some(failure) = &outcome.failure {
        panic!("seed {seed}: {failure}\n{}", outcome.last.join("\n"));
    }
    outcome
}

/// The bug is found by an invariant of these names: in the seeds that found it when this was
/// written, or, when the code has changed since and seeds play otherwise, in the next of the list.
/// About one seed in ten finds any of the bugs, and one in twenty the failed flush.
#[track_caller]
fn found(plant: Plant, at_first: &[u64], by: &[&str]) {
    for seed in at_first.iter().copied().chain(100..160) {
        if let Some(failure) = play(seed, Some(plant)).failure {
            assert!(by.iter().any(|name| failure.starts_with(name)), "seed {seed}: {failure}");
            return;
        }
    }
    panic!("{plant:?} was not found within seeds {at_first:?} and 100..160");
}

/// What finds that something acknowledged is gone. Raft itself may notice that its log went back,
/// and end.
const LOST: [&str; 6] = [
    "replicas agree",
    "acknowledged writes survive",
    "reads are fresh",
    "nodes can apply: node 1 ended itself: raft",
    "nodes can apply: node 2 ended itself: raft",
    "nodes can apply: node 3 ended itself: raft",
];

#[test]
fn seeds_hold_and_something_happens_in_them() {
    let outcomes: Vec<Outcome> = (0..6).map(holds).collect();
    let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    assert!(sum(|outcome| outcome.faults) > 40);
    assert!(sum(|outcome| outcome.acknowledged) > 400);
    let waited = |outcome: &&Outcome| outcome.grants > 0;
    assert_eq!(outcomes.iter().filter(waited).count(), outcomes.len(), "no client waited for a lock in the calm");
}

#[test]
fn the_same_seed_has_the_same_trace() {
    for seed in [11, 12] {
        let first = play(seed, None);
        let again = std::thread::spawn(move || play(seed, None)).join().unwrap();
        assert_eq!((first.hash, first.events), (again.hash, again.events), "seed {seed}");
        assert_ne!(first.hash, play(seed + 100, None).hash);
    }
}

#[test]
fn acknowledging_before_the_fsync_is_found() {
    found(Plant::AckBeforeFsync, &[58, 61, 55, 36], &LOST);
}

#[test]
fn going_on_after_a_failed_flush_is_found() {
    found(Plant::FailedFlush, &[10, 18, 45, 46], &LOST);
}

#[test]
fn forgotten_votes_are_found() {
    found(Plant::ForgottenVote, &[1, 18, 24, 28], &["one leader in a term", "replicas agree"]);
}

#[test]
fn reads_without_a_quorum_are_found() {
    found(Plant::Product(Planted::ReadsWithoutQuorum), &[27, 28, 60, 44], &["reads are fresh"]);
}

#[test]
fn expiries_by_a_deposed_leader_are_found() {
    found(Plant::Product(Planted::DeposedExpiry), &[11, 35], &["no early expiry", "one holder"]);
}

#[test]
fn watches_set_after_the_look_are_found() {
    found(Plant::Product(Planted::WatchAfterLook), &[5, 26, 4, 10], &["watches fire once"]);
}

#[test]
fn lost_grants_are_found() {
    let by = ["watches fire once", "grants are told"];
    found(Plant::Product(Planted::LostGrant), &[1, 5, 9, 14], &by);
    found(Plant::Product(Planted::RarelyLostGrant), &[62], &by);
}

#[test]
fn leaders_that_are_not_sure_to_lead_are_found() {
    // The two say it from two sides, and either may look first.
    let by = ["one sure leader", "one quorum"];
    found(Plant::Product(Planted::OldFramesCounted), &[11, 20, 21, 24], &by);
    found(Plant::Product(Planted::HeartbeatsAtHandOver), &[13, 35, 42], &by);
    found(Plant::Product(Planted::RestartLeaseSkipped), &[140, 162], &by);
}

#[test]
fn a_wiped_node_that_votes_is_found() {
    let by = LOST.into_iter().chain(["node"]).collect::<Vec<_>>();
    found(Plant::Product(Planted::WipedNodeVotes), &[1, 4, 13, 28], &by);
}

#[test]
fn a_node_that_forgets_where_it_was_is_found() {
    found(Plant::Product(Planted::RestartPositionIgnored), &[14, 16, 21, 30], &["restarts go on"]);
}

#[test]
fn what_is_wrong_with_sessions_is_found() {
    found(Plant::Product(Planted::StrangerTouches), &[0], &["strangers count for nothing"]);
    found(Plant::Product(Planted::ShorterTimeoutIgnored), &[4, 6, 43], &["silent sessions end"]);
    found(Plant::Product(Planted::LockDelayIgnored), &[58], &["delays last"]);
}

#[test]
fn events_that_are_not_told_are_found() {
    found(Plant::Product(Planted::EventsKeptOverSnapshot), &[2, 3, 6, 10], &["watches fire once"]);
    found(Plant::Product(Planted::ChildrenChangedDropped), &[7, 8, 9], &["watches fire once"]);
}

#[test]
fn what_a_snapshot_or_an_expiry_breaks_is_found() {
    found(Plant::Product(Planted::RepliesLostInSnapshot), &[2, 3, 10, 22], &["replicas agree"]);
    found(Plant::Product(Planted::SecondGranted), &[2, 34, 37], &["parents exist"]);
}
