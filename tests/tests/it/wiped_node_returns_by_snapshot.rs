//! A node that has lost its disk and comes back with an empty one.

use zlock_client::api::ZnodeInfo;

use crate::harness::{Call, Cluster, Options};

/// Settings for early snapshots, so that the log's beginning is gone when the node returns.
const SETTINGS: &str = "disk.snapshot_log_entries = 100\ndisk.kept_log_entries = 10";

async fn write(cluster: &Cluster, node: u64, range: std::ops::Range<u64>) {
    let mut client = cluster.client(node);
    for n in range {
        client.create(&format!("/v1/znodes/n{n}"), format!("data {n}")).await;
    }
}

#[tokio::test]
async fn a_wiped_node_gets_a_snapshot_and_serves_again() {
    let mut cluster = Cluster::start_with(Options { settings: SETTINGS, ..Options::default() }).await;
    let leader = cluster.leader().await;
    let wiped = cluster.ids().into_iter().find(|id| *id != leader).unwrap();
    write(&cluster, leader, 0..300).await;
    cluster.log_is_purged(leader).await;
    cluster.kill(wiped);
    cluster.wipe(wiped);
    write(&cluster, leader, 300..350).await;

    cluster.restart(wiped);
    cluster.all_ready().await;
    cluster.catches_up(wiped, leader).await;
    let status = cluster.status(wiped).await.unwrap();
    assert!(status.snapshot.zxid >= 100, "it came by snapshot: {status:?}");
    let mut client = cluster.client(wiped);
    for n in 0..350 {
        let found: ZnodeInfo =
            client.send(Call::get(format!("/v1/znodes/n{n}?consistency=local"))).await.unwrap().json();
        assert_eq!(found.data, Some(format!("data {n}")));
    }
    // The node is a full member again: with one other node down, the two left are a quorum.
    let other = cluster.ids().into_iter().find(|id| *id != leader && *id != wiped).unwrap();
    cluster.kill(other);
    write(&cluster, leader, 350..360).await;
}
