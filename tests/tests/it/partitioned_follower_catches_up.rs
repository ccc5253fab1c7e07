//! A follower is cut off from its peers for a while.

use std::time::Duration;

use zlock_client::api::ZnodeInfo;

use crate::harness::{Call, Cluster, Options, until};

#[tokio::test]
async fn a_follower_that_was_cut_off_catches_up_and_disturbs_nobody() {
    let mut cluster = Cluster::start_with(Options {
        proxied: true,
        settings: "log.level=\"info,replica=debug,openraft=warn\"",
        ..Options::default()
    })
    .await;
    let leader = cluster.leader().await;
    let far = cluster.ids().into_iter().find(|id| *id != leader).unwrap();
    let term = cluster.status(leader).await.unwrap().term;

    cluster.isolate(far);
    until("the node that is cut off knows it", async || {
        let answer = cluster.client(far).send(Call::get("/readyz")).await.unwrap();
        (answer.status == 503).then_some(())
    })
    .await;
    let mut client = cluster.client(leader);
    for n in 0..200 {
        client.create(&format!("/v1/znodes/n{n}"), format!("data {n}")).await;
    }
    // The node must not answer from its own state, which may not be the newest.
    let read = Call::get("/v1/znodes/n199").within(Duration::from_secs(90));
    let answer = cluster.client(far).send(read).await.unwrap();
    assert_eq!(answer.status, 503, "{answer:?}");

    cluster.heal();
    cluster.catches_up(far, leader).await;
    cluster.all_ready().await;
    let mut client = cluster.client(far);
    for n in 0..200 {
        let found: ZnodeInfo =
            client.send(Call::get(format!("/v1/znodes/n{n}?consistency=local"))).await.unwrap().json();
        assert_eq!(found.data, Some(format!("data {n}")));
    }
    let status = cluster.status(leader).await.unwrap();
    assert_eq!((status.leader, status.term), (Some(leader), term), "its return must not cost an election");
}
