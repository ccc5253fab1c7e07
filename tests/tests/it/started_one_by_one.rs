//! The first start of a cluster, one node after the other.

use zlock_client::api::ZnodeInfo;

use crate::harness::{Call, Cluster, Options, until};

#[tokio::test]
async fn nodes_may_start_in_any_order_and_serve_once_all_have_met() {
    let mut cluster = Cluster::prepare(Options::default()).await;
    cluster.restart(3);
    until("the first node says why it is not ready", async || {
        let answer = cluster.client(3).send(Call::get("/readyz")).await.ok()?;
        assert_eq!(answer.status, 503, "one of three is no cluster");
        Some(())
    })
    .await;
    cluster.kill(3);
    cluster.restart(2);
    cluster.restart(3);
    cluster.restart(1);
    cluster.all_ready().await;
    cluster.client(2).create("/v1/znodes/early", "x").await;
    cluster.kill(2);
    let found = until("the two that are left serve", async || {
        cluster.client(1).send(Call::get("/v1/znodes/early")).await.ok().filter(|answer| answer.status == 200)
    })
    .await;
    assert_eq!(found.json::<ZnodeInfo>().data.as_deref(), Some("x"));
}
