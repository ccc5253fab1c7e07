//! Nodes without disk space for a snapshot's copy. A snapshot is read through a temporary copy, for
//! which first the leader and then a follower has no space.

use crate::ensemble::{Ensemble, create, eventually, path, set, write};
use replica::{Config, Readiness};

fn eager_snapshots(config: &mut Config) {
    config.snapshot_log_entries = 50;
    config.log_entries_kept = 10;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_whose_copy_does_not_fit_is_sent_when_it_does_and_ends_neither_node() {
    let _turn = fail::FailScenario::setup();
    let mut ensemble = Ensemble::started(3, eager_snapshots).await;
    let wiped = ensemble.follower().await;
    ensemble.stop(wiped).await;
    ensemble.wipe(wiped);
    let leader = ensemble.leader().await;
    for number in 0..60 {
        write(ensemble.node(leader), create("/", &format!("a{number}"), b"x")).await;
    }
    // Both nodes are checked, as another one may lead by then.
    let is_purged = || ensemble.running().all(|node| node.status().purged.0 > 0);
    eventually("the logs are purged behind snapshots", is_purged).await;
    fail::cfg("db.copy", "return(full)").unwrap();
    ensemble.start(wiped).await;
    let tried = || ensemble.running().map(|node| node.status().peers.snapshot_send_failures).sum::<u64>();
    eventually("leaders have tried twice", || tried() >= 2).await;
    for at in (0..3).filter(|at| *at != wiped) {
        write(ensemble.node(at), set("/a1", b"y")).await;
        eventually("it serves on", || ensemble.node(at).status().ready == Readiness::Ready).await;
    }
    // From here on the leader has space for the copy. The follower has none for its first two
    // copies.
    fail::cfg("db.copy", "1*off->2*return(full)->off").unwrap();
    eventually("the snapshot is installed", || ensemble.node(wiped).state().node(&path("/a30")).is_some()).await;
    fail::remove("db.copy");
    eventually("it is ready", || ensemble.node(wiped).status().ready == Readiness::Ready).await;
    ensemble.assert_equal_states().await;
    ensemble.stop_all().await;
}
