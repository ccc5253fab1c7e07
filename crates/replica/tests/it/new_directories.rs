//! Nodes with new data directories: new clusters, and disks that were lost.

use std::time::Duration;

use crate::ensemble::{Ensemble, create, eventually, read_data, set, write};
use replica::{Config, Error, Readiness, Replica, Role, StartError};
use tokio::time::{Instant, timeout};

/// Settings with which a node often takes a snapshot, and keeps few entries in its log.
fn eager_snapshots(config: &mut Config) {
    config.snapshot_log_entries = 50;
    config.log_entries_kept = 10;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cluster_is_founded_when_all_have_come_and_not_before() {
    let mut ensemble = Ensemble::new(3, |_| {});
    ensemble.start(0).await;
    assert_eq!(ensemble.node(0).status().ready, Readiness::Recovering);
    ensemble.start(2).await;
    // Two of three members do not found a cluster: one may have lost its disk, and the third may
    // have all entries.
    let early = ensemble.node(2).propose(create("/", "early", b""), Instant::now() + Duration::from_secs(2)).await;
    assert!(matches!(early, Err(Error::Unavailable { .. })), "{early:?}");
    ensemble.start(1).await;
    ensemble.leader().await;
    write(ensemble.node(0), create("/", "a", b"1")).await;
    assert_eq!(read_data(ensemble.node(1), "/a").await, Some(b"1".to_vec()));
    eventually("the last node is ready", || ensemble.node(1).status().ready == Readiness::Ready).await;
    ensemble.assert_equal_states().await;
    ensemble.stop_all().await;
}

/// With one line missing in one configuration file, two parts of the members could found two
/// clusters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_with_different_lists_of_members_found_no_cluster() {
    for short in 1..=2 {
        let mut ensemble = Ensemble::new(
            3,
            match short {
                1 => |config| config.members.truncate(if config.node_id == 1 { 2 } else { 3 }),
                _ => |config| config.members.truncate(if config.node_id == 2 { 2 } else { 3 }),
            },
        );
        for at in 0..3 {
            ensemble.start(at).await;
        }
        let write = ensemble.node(1).propose(create("/", "a", b""), Instant::now() + Duration::from_secs(2)).await;
        assert!(matches!(write, Err(Error::Unavailable { .. })), "node {short} has the short list: {write:?}");
        for at in 0..3 {
            let status = ensemble.node(at).status();
            assert_eq!((status.term.0, status.ready), (0, Readiness::Recovering), "node {short} has the short list");
        }
        ensemble.stop_all().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wiped_node_returns_by_snapshot_and_has_a_vote_again() {
    let mut ensemble = Ensemble::started(3, eager_snapshots).await;
    let wiped = ensemble.follower().await;
    write(ensemble.node(wiped), create("/", "a", b"")).await;
    ensemble.stop(wiped).await;
    ensemble.wipe(wiped);
    let leader = ensemble.leader().await;
    for round in 0..200u8 {
        write(ensemble.node(leader), set("/a", &[round])).await;
    }
    eventually("the log is purged behind a snapshot", || ensemble.node(leader).status().purged.0 > 0).await;
    ensemble.start(wiped).await;
    assert_eq!(read_data(ensemble.node(wiped), "/a").await, Some(vec![199]));
    eventually("the wiped node is ready", || ensemble.node(wiped).status().ready == Readiness::Ready).await;
    ensemble.assert_equal_states().await;
    // The wiped node's vote counts: without it, the third node alone has no majority.
    let third = (0..3).find(|at| *at != wiped && *at != leader).unwrap();
    ensemble.stop(leader).await;
    write(ensemble.node(third), set("/a", b"on")).await;
    assert_eq!(read_data(ensemble.node(wiped), "/a").await, Some(b"on".to_vec()));
    ensemble.stop_all().await;
}

/// The old leader is stopped, one member lags, and the member that acknowledged the newest entries
/// has lost its disk. If the member without its disk voted, the lagging member would lead, and
/// acknowledged writes would be lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wiped_node_does_not_vote_before_it_has_caught_up() {
    let mut ensemble = Ensemble::started(3, |_| {}).await;
    write(ensemble.node(0), create("/", "a", b"old")).await;
    let lagging = ensemble.follower().await;
    ensemble.stop(lagging).await;
    let leader = ensemble.leader().await;
    let wiped = (0..3).find(|at| *at != lagging && *at != leader).unwrap();
    write(ensemble.node(leader), set("/a", b"new")).await;
    ensemble.stop(wiped).await;
    ensemble.stop(leader).await;
    ensemble.wipe(wiped);

    ensemble.start(lagging).await;
    ensemble.start(wiped).await;
    let elected = eventually("a leader", || ensemble.running().any(|node| node.status().role == Role::Leader));
    assert!(timeout(Duration::from_secs(3), elected).await.is_err(), "a wiped node voted");
    assert_eq!(ensemble.node(wiped).status().ready, Readiness::Recovering);
    let refused = ensemble.node(lagging).propose(set("/a", b"lost"), Instant::now() + Duration::from_millis(300)).await;
    assert!(matches!(refused, Err(replica::Error::Unavailable { .. })), "{refused:?}");

    ensemble.start(leader).await;
    for node in ensemble.running() {
        assert_eq!(read_data(node, "/a").await, Some(b"new".to_vec()));
    }
    eventually("the wiped node is ready", || ensemble.node(wiped).status().ready == Readiness::Ready).await;
    ensemble.assert_equal_states().await;
    ensemble.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lone_wiped_node_does_not_found_a_cluster() {
    let mut ensemble = Ensemble::started(3, |_| {}).await;
    write(ensemble.node(0), create("/", "a", b"")).await;
    ensemble.stop_all().await;
    ensemble.wipe(1);
    ensemble.start(1).await;
    let elected = eventually("a leader", || ensemble.node(1).leader().is_some());
    assert!(timeout(Duration::from_secs(1), elected).await.is_err());
    assert_eq!(ensemble.node(1).state().last_zxid().0, 0);
    ensemble.start(0).await;
    ensemble.start(2).await;
    assert_eq!(read_data(ensemble.node(1), "/a").await, Some(Vec::new()));
    ensemble.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_of_another_node_or_cluster_is_refused() {
    let mut ensemble = Ensemble::started(1, |_| {}).await;
    let (config, addr) = (ensemble.config(0), ensemble.addr(0));
    ensemble.stop(0).await;
    let start = async |change: fn(&mut Config)| {
        let mut config = config.clone();
        change(&mut config);
        let listener = std::net::TcpListener::bind(addr).unwrap();
        match Replica::start_on(config, listener).await {
            Err(StartError::Storage(why)) => why,
            other => panic!("{other:?}"),
        }
    };
    let other_cluster = start(|config| config.cluster_id = "other".into()).await;
    assert!(other_cluster.contains("test") && other_cluster.contains("other"), "{other_cluster}");
    let other_node = start(|config| {
        config.node_id = 2;
        config.members[0].id = 2;
    })
    .await;
    assert!(other_node.contains("node 1"), "{other_node}");
    ensemble.stop_all().await;
}
