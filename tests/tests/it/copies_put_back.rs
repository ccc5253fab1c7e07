//! Old copies of data directories that are put back, and snapshots that are lost.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Cluster, Options, until};

const CONTRADICTION: i32 = 5;

async fn write(cluster: &Cluster, node: u64, range: std::ops::Range<u64>) {
    let mut client = cluster.client(node);
    for n in range {
        client.create(&format!("/v1/znodes/n{n}"), "data").await;
    }
}

/// Copies a node's data, as an operator would.
fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

/// Stops a node for as long as it takes to copy its data. Returns the path of the copy.
async fn backed_up(cluster: &mut Cluster, id: u64, dir: &tempfile::TempDir) -> PathBuf {
    assert_eq!(cluster.stop(id).await, Some(0));
    let backup = dir.path().join("backup");
    copy(cluster.data_dir(id), &backup);
    cluster.restart(id);
    cluster.all_ready().await;
    backup
}

fn restored(cluster: &Cluster, id: u64, backup: &Path) {
    std::fs::remove_dir_all(cluster.data_dir(id)).unwrap();
    copy(backup, cluster.data_dir(id));
}

async fn ends_with_a_contradiction(cluster: &mut Cluster, id: u64, words: &str) {
    let status = until("the node has ended", async || cluster.ended(id)).await;
    let log = cluster.log(id);
    assert_eq!(status.code(), Some(CONTRADICTION), "{log}");
    assert!(log.contains(words) && log.contains("docs/storage-trouble.md"), "{log}");
}

/// Two nodes have forgotten committed entries: one restarts with an old copy of its data, the other
/// was down. They elect each other. The third node, which has the entries, must stop.
#[tokio::test]
async fn a_node_that_knows_more_than_its_leader_stops() {
    let mut cluster = Cluster::start().await;
    let dir = tempfile::tempdir().unwrap();
    let knows = cluster.leader().await;
    let others: Vec<u64> = cluster.ids().into_iter().filter(|id| *id != knows).collect();
    let (old, cut_off) = (others[0], others[1]);
    write(&cluster, knows, 0..5).await;
    let backup = backed_up(&mut cluster, old, &dir).await;
    cluster.kill(cut_off);
    write(&cluster, knows, 5..25).await;
    cluster.kill(knows);
    cluster.kill(old);

    restored(&cluster, old, &backup);
    cluster.restart(old);
    cluster.restart(cut_off);
    cluster.leader_among(&others).await;
    write(&cluster, cut_off, 5..7).await;

    cluster.restart(knows);
    ends_with_a_contradiction(&mut cluster, knows, "is committed here, and the leader").await;
    // The others go on.
    write(&cluster, cut_off, 7..9).await;
}

/// A follower restarts with an old copy of its data. The leader remembers which entries the
/// follower has reported as on its disk, so the follower must stop.
#[tokio::test]
async fn a_follower_with_an_old_copy_of_its_data_stops() {
    let mut cluster = Cluster::start().await;
    // On a busy machine another leader may be elected, which does not remember it.
    for round in 0..3 {
        let (dir, first) = (tempfile::tempdir().unwrap(), 100 * round);
        let leader = cluster.leader().await;
        let old = cluster.ids().into_iter().find(|id| *id != leader).unwrap();
        write(&cluster, leader, first..first + 5).await;
        let backup = backed_up(&mut cluster, old, &dir).await;
        let before = cluster.tenure(leader).await;
        write(&cluster, leader, first + 5..first + 25).await;
        cluster.catches_up(old, leader).await;
        cluster.kill(old);
        restored(&cluster, old, &backup);
        cluster.restart(old);
        let ended = until("the node ends, or another leader is elected", async || {
            let ended = cluster.ended(old).is_some();
            (ended || cluster.tenure(leader).await != before).then_some(ended)
        })
        .await;
        if ended {
            ends_with_a_contradiction(&mut cluster, old, "was on this node's disk, whose log ends at").await;
        }
        write(&cluster, leader, first + 25..first + 30).await;
        // With an empty disk the node may come back.
        cluster.kill(old);
        cluster.wipe(old);
        cluster.restart(old);
        cluster.all_ready().await;
        cluster.catches_up(old, leader).await;
        if ended {
            return;
        }
    }
    panic!("another leader was elected in each round");
}

/// A node that has lost its snapshot gets it from the leader, without an operator who wipes its
/// disk.
#[tokio::test]
async fn a_node_whose_snapshot_is_lost_has_it_from_the_leader() {
    let settings = "disk.snapshot_log_entries = 100\ndisk.kept_log_entries = 10";
    let mut cluster = Cluster::start_with(Options { settings, ..Options::default() }).await;
    let leader = cluster.leader().await;
    let lost = cluster.ids().into_iter().find(|id| *id != leader).unwrap();
    write(&cluster, leader, 0..300).await;
    cluster.log_is_purged(lost).await;
    cluster.kill(lost);
    std::fs::remove_dir_all(cluster.data_dir(lost).join("sled")).unwrap();
    cluster.restart(lost);
    cluster.all_ready().await;
    cluster.catches_up(lost, leader).await;
    assert!(cluster.log(lost).contains("this node has lost its state"), "{}", cluster.log(lost));
    // The node is a full member again: with one other node down, the two left are a quorum.
    let other = cluster.ids().into_iter().find(|id| *id != leader && *id != lost).unwrap();
    cluster.kill(other);
    write(&cluster, leader, 300..310).await;
}
