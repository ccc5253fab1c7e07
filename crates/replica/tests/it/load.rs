//! Many proposals at the same time, and proposals with much data.

use std::sync::Arc;
use std::time::Duration;

use crate::ensemble::{Ensemble, create, eventually, read_data, set, soon, write};
use replica::{Config, Error};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Settings with which a leader that is short of processor time keeps its quorum, and no other one
/// is elected.
fn patient(config: &mut Config) {
    (config.election_timeout_min_ms, config.election_timeout_max_ms) = (4_000, 5_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_proposals_at_once_are_all_done_exactly_once() {
    let mut ensemble = Ensemble::started(3, patient).await;
    write(ensemble.node(0), create("/", "a", b"")).await;
    let term = ensemble.node(0).state().last_term();
    let mut writes = JoinSet::new();
    for at in 0..2_000 {
        let node = ensemble.node(at % 3).clone();
        writes.spawn(async move { node.propose(set("/a", b"x"), soon()).await });
    }
    let outcomes = writes.join_all().await;
    let mut zxids: Vec<_> = outcomes.iter().flatten().map(|applied| applied.zxid).collect();
    zxids.sort_unstable();
    zxids.dedup();
    let done = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    assert_eq!(zxids.len(), done);
    write(ensemble.node(0), create("/", "b", b"")).await;
    ensemble.assert_equal_states().await;
    let state = ensemble.node(0).state();
    // Only an election meanwhile, which a busy machine may cause, can fail a proposal or leave its
    // outcome unknown.
    assert!(done == 2_000 || state.last_term() > term, "{done} of 2000: {:?}", outcomes.iter().find(|it| it.is_err()));
    let unknown = outcomes.iter().filter(|outcome| matches!(outcome, Err(Error::Unknown { .. }))).count();
    let version = state.node(&crate::ensemble::path("/a")).unwrap().stat().version as usize;
    assert!((done..=done + unknown).contains(&version), "{version} were done; {done} told, {unknown} unknown");
    ensemble.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proposals_beyond_the_bound_are_unavailable_at_once_and_do_nothing() {
    // An election meanwhile would leave the outcome of a proposal unknown.
    let mut ensemble = Ensemble::started(3, |config| {
        config.proposals_max = 8;
        patient(config);
    })
    .await;
    let follower = ensemble.follower().await;
    write(ensemble.node(follower), create("/", "a", b"")).await;
    let node = Arc::new(ensemble.node(follower).clone());
    let mut writes = JoinSet::new();
    for _ in 0..2_000 {
        let node = Arc::clone(&node);
        writes.spawn(async move { node.propose(set("/a", b"x"), soon()).await });
    }
    let outcomes = writes.join_all().await;
    let done = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    let refused = outcomes.iter().filter(|outcome| matches!(outcome, Err(Error::Unavailable { .. }))).count();
    assert!(done >= 8 && refused > 0 && done + refused == 2_000, "{done} {refused}");
    let version = node.state().node(&crate::ensemble::path("/a")).unwrap().stat().version;
    assert_eq!(version as usize, done);
    ensemble.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_entries_replicate_and_snapshots_purge_the_log() {
    let change = |config: &mut Config| {
        config.snapshot_log_bytes = 4 << 20;
        config.log_entries_kept = 4;
    };
    let mut ensemble = Ensemble::started(3, change).await;
    let late = ensemble.follower().await;
    let data = vec![b'x'; 1_000_000];
    write(ensemble.node(late), create("/", "a", b"")).await;
    ensemble.stop(late).await;
    let other = ensemble.leader().await;
    for _ in 0..24 {
        write(ensemble.node(other), set("/a", &data)).await;
    }
    eventually("a snapshot by bytes", || ensemble.node(other).status().snapshot.zxid.0 > 8).await;
    ensemble.start(late).await;
    assert_eq!(read_data(ensemble.node(late), "/a").await, Some(data));
    ensemble.assert_equal_states().await;
    ensemble.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_quorum_writes_end_and_say_whether_anything_may_have_happened() {
    let mut ensemble = Ensemble::started(3, |_| {}).await;
    write(ensemble.node(0), create("/", "a", b"")).await;
    let leader = ensemble.leader().await;
    for at in (0..3).filter(|at| *at != leader) {
        ensemble.stop(at).await;
    }
    let node = ensemble.node(leader);
    let deadline = Instant::now() + Duration::from_secs(5);
    let mut last = None;
    while !matches!(last, Some(Err(Error::Unavailable { .. }))) && Instant::now() < deadline {
        let outcome = node.propose(set("/a", b"x"), Instant::now() + Duration::from_millis(500)).await;
        assert!(outcome.is_err(), "{outcome:?}");
        last = Some(outcome);
    }
    // Once the lease is over, a write is not even tried.
    assert!(matches!(last, Some(Err(Error::Unavailable { .. }))), "{last:?}");
    let read = node.read(replica::Consistency::Linearizable, Instant::now() + Duration::from_millis(500)).await;
    assert!(matches!(read, Err(Error::Unavailable { .. })));
    ensemble.stop_all().await;
}
