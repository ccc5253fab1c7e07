//! `/metrics` of three nodes.

use std::collections::BTreeMap;

use crate::harness::{Call, Cluster, until};

async fn scrape(cluster: &Cluster, id: u64) -> BTreeMap<String, f64> {
    let answer = cluster.client(id).send(Call::get("/metrics")).await.unwrap();
    assert_eq!(answer.status, 200);
    let text = std::str::from_utf8(&answer.body).unwrap();
    let samples = text.lines().filter(|line| !line.starts_with('#')).map(|line| line.rsplit_once(' ').unwrap());
    samples.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
}

#[tokio::test]
async fn one_node_leads_all_count_alike_and_one_that_comes_back_counts_anew() {
    let mut cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    let follower = cluster.ids().into_iter().find(|id| *id != leader).unwrap();
    let mut client = cluster.client(follower);
    let (lasting, silent) = (client.open_session(60_000).await, client.open_session(5_000).await);
    for session in [&silent, &lasting] {
        let acquire = Call::post("/v1/locks/l?keep").session(session).once();
        assert!(matches!(client.ask(acquire).await.status, 200 | 202));
    }
    until("every node has seen the expiry", async || {
        for id in cluster.ids() {
            let samples = scrape(&cluster, id).await;
            if samples["zlock_sessions_expired_total"] != 1.0 {
                return None;
            }
            assert_eq!((samples["zlock_sessions"], samples["zlock_members"]), (1.0, 3.0));
            assert_eq!((samples["zlock_lock_holders"], samples["zlock_lock_waiters"]), (1.0, 0.0));
        }
        Some(())
    })
    .await;
    until("one leads, and all say who", async || {
        let leads = cluster.leader().await;
        let samples = scrape(&cluster, leads).await;
        (samples["zlock_role{role=\"leader\"}"] == 1.0 && samples["zlock_leader_id"] == leads as f64).then_some(())
    })
    .await;
    cluster.kill(leader);
    cluster.restart(leader);
    cluster.all_ready().await;
    let samples = scrape(&cluster, leader).await;
    assert_eq!(samples["zlock_ready"], 1.0);
    assert_eq!((samples["zlock_sessions"], samples["zlock_sessions_expired_total"]), (1.0, 0.0));
}
