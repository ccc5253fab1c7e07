//! Drained nodes, which leave leadership to other nodes, and the cluster's health while members are
//! lost.

use std::time::Duration;

use tokio::time::timeout;

use crate::ensemble::{Ensemble, eventually, open_session, soon};
use replica::{Health, Part};

/// Waits until a node other than `not` leads and no other node can have been elected. Returns its
/// index.
async fn other_leader(ensemble: &Ensemble, not: usize) -> usize {
    let leads = |at: &usize| ensemble.nodes[*at].as_ref().is_some_and(|node| node.sure_to_lead().is_some());
    let mut found = None;
    eventually("another node leads", || {
        found = (0..ensemble.nodes.len()).find(|at| *at != not && leads(at));
        found.is_some()
    })
    .await;
    found.unwrap()
}

/// Waits until the health of the cluster, as the node at `at` reports it, is as wanted.
async fn health(ensemble: &Ensemble, at: usize, what: &str, wanted: impl Fn(&Health) -> bool) -> Health {
    let mut found = None;
    eventually(what, || {
        found = Some(ensemble.node(at).health()).filter(|health| wanted(health));
        found.is_some()
    })
    .await;
    found.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_drained_gives_leadership_away_and_does_so_again_when_it_comes_back() {
    let mut ensemble = Ensemble::started(3, |_| {}).await;
    let first = ensemble.leader().await;
    let node = ensemble.node(first).clone();
    assert!(node.set_drained(true).await && node.is_drained());
    assert!(!node.set_drained(true).await, "it was so before");
    let second = other_leader(&ensemble, first).await;
    ensemble.stop(3 - first - second).await;
    // If all running nodes are drained, one of them leads all the same.
    ensemble.node(second).set_drained(true).await;
    assert_eq!(other_leader(&ensemble, second).await, first);
    ensemble.node(second).set_drained(false).await;
    assert_eq!(other_leader(&ensemble, first).await, second);
    assert!(node.set_drained(false).await && !node.is_drained());
}

/// Of the two followers, the one with the higher preference is drained.
#[tokio::test(flavor = "multi_thread")]
async fn a_drained_leader_gives_leadership_to_a_voter_that_is_not_drained() {
    let ensemble = Ensemble::started(3, |config| config.leader_priority = 50 + config.node_id as u8).await;
    let first = ensemble.leader().await;
    let [lower, higher] = [0, 1, 2].into_iter().filter(|at| *at != first).collect::<Vec<_>>()[..] else { panic!() };
    ensemble.node(higher).set_drained(true).await;
    ensemble.node(first).set_drained(true).await;
    // If the drained voter did not answer in time, it leads for a moment.
    eventually("the voter that is not drained leads", || ensemble.node(lower).sure_to_lead().is_some()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_whose_client_hangs_up_still_gives_leadership_away() {
    let ensemble = Ensemble::started(3, |_| {}).await;
    let first = ensemble.leader().await;
    let node = ensemble.node(first);
    let session = open_session(node, 60_000).await;
    assert!(node.touch(session, soon()).await.is_ok());
    // The drain is polled once and dropped, most likely while the leader tells its successor about
    // the session.
    let _ = timeout(Duration::ZERO, node.set_drained(true)).await;
    assert!(node.set_drained(false).await);
    other_leader(&ensemble, first).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_knows_how_many_more_may_fail_and_a_follower_speaks_of_itself_and_its_leader() {
    let mut ensemble = Ensemble::started(3, |_| {}).await;
    let leader = ensemble.leader().await;
    let well = health(&ensemble, leader, "all are well", |health| health.failure_tolerance == Some(1)).await;
    assert!(well.healthy && well.voters == 3 && well.learners == 0, "{well:?}");
    assert_eq!(well.members.iter().filter(|member| member.part == Part::Leader).count(), 1);
    let (follower, third) = ((leader + 1) % 3, (leader + 2) % 3);
    let seen = health(&ensemble, follower, "a follower hears its leader", |health| health.healthy).await;
    assert_eq!((seen.failure_tolerance, seen.leader), (None, Some(leader as u64 + 1)));
    assert_eq!(seen.members[third].reachable, None, "{seen:?}");

    ensemble.stop(follower).await;
    // A busy machine may take the quorum from the leader for a moment, and then no more may fail
    // either.
    let fewer = health(&ensemble, leader, "the loss is known", |health| {
        health.failure_tolerance == Some(0) && health.members[follower].reachable == Some(false)
    });
    let fewer = fewer.await;
    assert!(!fewer.healthy, "{fewer:?}");
    ensemble.stop(third).await;
    let alone = health(&ensemble, leader, "the quorum is lost", |health| {
        health.members.iter().filter(|member| member.reachable == Some(true)).count() <= 1
    });
    let alone = alone.await;
    assert!(!alone.healthy && alone.failure_tolerance.is_none_or(|more| more == 0), "{alone:?}");
}
