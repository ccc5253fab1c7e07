//! A follower is cut off from its peers for a while.

use std::time::Duration;

use zlock_client::api::ZnodeInfo;

use crate::harness::{Call, Cluster, Options, until};

const WRITES: u64 = 200;

#[tokio::test]
async fn a_follower_that_was_cut_off_catches_up_and_disturbs_nobody() {
    let mut cluster = Cluster::start_with(Options {
        proxied: true,
        settings: "log.level=\"info,replica=debug,openraft=warn\"",
        ..Options::default()
    })
    .await;
    // On a busy machine an election may come by chance, but not at each of three returns.
    for round in 0..3 {
        let leader = cluster.leader().await;
        let far = cluster.ids().into_iter().find(|id| *id != leader).unwrap();
        let before = cut_off(&cluster, far, leader, round).await;
        cluster.heal();
        cluster.catches_up(far, leader).await;
        cluster.all_ready().await;
        let mut client = cluster.client(far);
        for n in 0..WRITES {
            let read = Call::get(format!("/v1/znodes/r{round}-{n}?consistency=local"));
            let found: ZnodeInfo = client.send(read).await.unwrap().json();
            assert_eq!(found.data, Some(format!("data {n}")));
        }
        if cluster.tenure(leader).await == before {
            return;
        }
    }
    panic!("each return has cost an election");
}

/// Cuts a node off, and writes without it. Returns the leader and its term at the end.
async fn cut_off(cluster: &Cluster, far: u64, leader: u64, round: u64) -> (Option<u64>, u64) {
    cluster.isolate(far);
    until("the node that is cut off knows it", async || {
        let answer = cluster.client(far).send(Call::get("/readyz")).await.unwrap();
        (answer.status == 503).then_some(())
    })
    .await;
    let mut client = cluster.client(leader);
    for n in 0..WRITES {
        client.create(&format!("/v1/znodes/r{round}-{n}"), format!("data {n}")).await;
    }
    // The node must not answer from its own state, which may not be the newest.
    let read = Call::get(format!("/v1/znodes/r{round}-{}", WRITES - 1)).within(Duration::from_secs(90));
    let answer = cluster.client(far).send(read).await.unwrap();
    assert_eq!(answer.status, 503, "{answer:?}");
    cluster.tenure(leader).await
}
