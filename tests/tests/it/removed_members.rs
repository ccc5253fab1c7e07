//! A removed node that returns with its old data after the cluster has begun anew, from a backup or
//! from one survivor. The new cluster has no record of the removal; its uuid keeps the node out.

use std::path::Path;
use std::time::Duration;

use tokio::time::timeout;

use crate::harness::{Call, Cluster, until};
use crate::members::{named, operate, start};
use crate::restored_from_backup::{begin_from, done, text, zlock_as_operator};

/// Checks that the removed node, which has its old data, takes no part in the cluster of the nodes
/// `left`, also when only one of these runs.
async fn stays_out(cluster: &mut Cluster, removed: u64, left: &[u64]) {
    let before = cluster.log(removed).len();
    cluster.restart(removed);
    until("its peers turn it away by its uuid", async || {
        cluster.log(removed)[before..].contains("another cluster of the same name").then_some(())
    })
    .await;
    let leader = cluster.leader_among(left).await;
    let status = cluster.status(removed).await.unwrap();
    assert!(status.status != "ready" && status.leader != Some(removed), "{status:?}");
    cluster.client(left[0]).create("/v1/znodes/after", "").await;
    // One member and the removed node would be a quorum of the members that the removed node knows.
    for id in left.iter().filter(|id| **id != leader) {
        cluster.kill(*id);
    }
    let is_ready = async |id| cluster.status(id).await.is_some_and(|status| status.status == "ready");
    until("the leader has lost its quorum", async || (!is_ready(leader).await).then_some(())).await;
    let quorum = async || (is_ready(leader).await || is_ready(removed).await).then_some(());
    let quorum = timeout(Duration::from_secs(3), until("a quorum", quorum)).await;
    assert!(quorum.is_err(), "the removed node has a vote");
    assert_eq!(cluster.client(removed).send(Call::post("/v1/znodes/second")).await.unwrap().status, 503);
    for id in left.iter().filter(|id| **id != leader) {
        cluster.restart(*id);
    }
    cluster.leader_among(left).await;
    cluster.client(left[0]).create("/v1/znodes/on", "").await;
}

async fn kill_all(cluster: &mut Cluster) {
    for id in cluster.ids() {
        cluster.kill(id);
    }
}

/// Checks that a znode was kept by a restore.
async fn has_kept(cluster: &Cluster, id: u64) {
    assert_eq!(cluster.client(id).send(Call::get("/v1/znodes/kept")).await.unwrap().status, 200);
}

#[tokio::test]
async fn a_backup_brings_no_removed_member_back() {
    let mut cluster = start(3, 1).await;
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    cluster.client(1).create("/v1/znodes/kept", "").await;
    // In this backup the removed node is still a member.
    let (backup, seed) = (at("backup"), at("seed"));
    operate(&cluster, &["backup", "save", text(&backup)]).await;
    let leader = cluster.leader_among(&[1, 2, 3]).await;
    let dead = (1..=3).find(|id| *id != leader).unwrap();
    cluster.kill(dead);
    cluster.start_joining(4).await;
    let new = named(&cluster, 4);
    operate(&cluster, &["member", "replace", &dead.to_string(), &new, "--wait", "60s"]).await;
    kill_all(&mut cluster).await;
    let left: Vec<u64> = (1..=4).filter(|id| *id != dead).collect();
    let all = members_of(&cluster, &left);
    let prepare = ["restore", "prepare", text(&backup), "--members", &all, "--no-grace", "--out", text(&seed)];
    done(&cluster, &prepare).await;
    begin_from(&mut cluster, &left, &seed, &at("old")).await;
    has_kept(&cluster, left[0]).await;
    stays_out(&mut cluster, dead, &left).await;
}

#[tokio::test]
async fn a_recovery_brings_no_removed_member_back() {
    let mut cluster = start(3, 1).await;
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    cluster.start_joining(4).await;
    operate(&cluster, &["member", "add", &named(&cluster, 4), "--wait", "60s"]).await;
    let leader = cluster.leader().await;
    let removed = (1..=3).find(|id| *id != leader).unwrap();
    operate(&cluster, &["member", "remove", &removed.to_string(), "--wait", "60s"]).await;
    let status = until("the removed node has ended", async || cluster.ended(removed)).await;
    assert_eq!(status.code(), Some(4), "{}", cluster.log(removed));
    let left: Vec<u64> = (1..=4).filter(|id| *id != removed).collect();
    cluster.client(left[0]).create("/v1/znodes/kept", "").await;
    let survivor = left[1];
    cluster.catches_up(survivor, left[0]).await;
    // A node that is killed may have applied entries that are on the disks of the others only.
    cluster.stop(survivor).await;
    kill_all(&mut cluster).await;
    let all = members_of(&cluster, &left);
    let recover = async |from: &Path, seed: &Path| {
        let recover = ["recover", "--data-dir", text(from), "--members", &all, "--no-grace", "--out", text(seed)];
        zlock_as_operator(&cluster, &recover).await
    };
    // The removed node lacks the writes after its removal.
    let (code, said) = recover(cluster.data_dir(removed), &at("wrong")).await;
    assert!(code == 1 && said.contains("was removed from the cluster at zxid"), "{code}: {said}");
    let (code, said) = recover(cluster.data_dir(survivor), &at("seed")).await;
    assert_eq!(code, 0, "{said}");
    begin_from(&mut cluster, &left, &at("seed"), &at("old")).await;
    has_kept(&cluster, left[0]).await;
    // The removed node has applied the entry that notes its removal.
    cluster.restart(removed);
    let status = until("the removed node has ended again", async || cluster.ended(removed)).await;
    assert_eq!(status.code(), Some(4), "{}", cluster.log(removed));
    cluster.kill(removed);
    cluster.client(left[0]).create("/v1/znodes/after", "").await;
}

/// The members with these ids, in the form of the option `--members`.
fn members_of(cluster: &Cluster, ids: &[u64]) -> String {
    ids.iter().map(|id| named(cluster, *id)).collect::<Vec<_>>().join(",")
}
