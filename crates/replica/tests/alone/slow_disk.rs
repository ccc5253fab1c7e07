//! A follower with a slow disk that receives a snapshot.

use std::thread::park_timeout;
use std::time::Duration;

use crate::ensemble::{Ensemble, create, eventually, path, write};
use replica::Config;

fn eager_snapshots(config: &mut Config) {
    config.snapshot_log_entries = 50;
    config.log_entries_kept = 10;
    config.peer_timeout_ms = 500;
}

/// The leader has sent the whole snapshot and waits for an answer, while most of the bytes wait for
/// the follower's disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_comes_to_a_follower_whose_disk_takes_longer_than_a_peer_may_be_silent() {
    let _turn = fail::FailScenario::setup();
    let mut ensemble = Ensemble::started(3, eager_snapshots).await;
    let wiped = ensemble.follower().await;
    ensemble.stop(wiped).await;
    ensemble.wipe(wiped);
    let leader = ensemble.leader().await;
    let mut noise = 1u32;
    for number in 0..60 {
        let data: Vec<u8> = std::iter::repeat_with(|| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (noise >> 24) as u8
        })
        .take(50_000)
        .collect();
        write(ensemble.node(leader), create("/", &format!("a{number}"), &data)).await;
    }
    eventually("the log is purged behind a snapshot", || ensemble.node(leader).status().purged.0 > 0).await;
    fail::cfg_callback("receive.chunk", || park_timeout(Duration::from_millis(15))).unwrap();
    fail::cfg_callback("receive.verified", || park_timeout(Duration::from_millis(1_500))).unwrap();
    ensemble.start(wiped).await;
    let node = ensemble.node(wiped);
    eventually("the snapshot is installed", || node.state().node(&path("/a30")).is_some()).await;
    fail::remove("receive.chunk");
    fail::remove("receive.verified");
    ensemble.assert_equal_states().await;
    ensemble.stop_all().await;
}
