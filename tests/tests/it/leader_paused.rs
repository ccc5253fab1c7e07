//! SIGSTOP of the leader for longer than the session timeout.

use std::time::{Duration, Instant};

use zlock_client::api::{LockQueue, Ticket};

use crate::harness::{Call, Cluster, Session, until};

const TIMEOUT_MS: u64 = 4_000;

async fn holders(cluster: &Cluster, id: u64) -> Vec<u64> {
    let queue: LockQueue = cluster.client(id).ask(Call::get("/v1/locks/one")).await.json();
    queue.holders.iter().map(|holder| holder.session.unwrap()).collect()
}

async fn lives(cluster: &Cluster, id: u64, session: &Session) -> bool {
    let answer = cluster.client(id).ask(Call::get(format!("/v1/sessions/{}", session.id))).await;
    assert!(matches!(answer.status, 200 | 410), "{answer:?}");
    answer.status == 200
}

/// Checks for the time `long` that the session `holder` stays the only holder of the lock.
async fn watch_for(cluster: &Cluster, node: u64, holder: u64, long: Duration) {
    let began = Instant::now();
    until("the time has passed", async || {
        assert_eq!(holders(cluster, node).await, [holder], "the only holder stays the holder");
        (began.elapsed() > long).then_some(())
    })
    .await;
}

#[tokio::test]
async fn sessions_that_keep_heartbeating_outlive_a_paused_leader() {
    let cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    let others: Vec<u64> = cluster.ids().into_iter().filter(|id| *id != leader).collect();
    let endpoints: Vec<String> = others.iter().map(|id| cluster.endpoint(*id).to_owned()).collect();
    let mut client = cluster.client(others[0]);
    let holder = client.open_session(TIMEOUT_MS).await;
    let waiter = client.open_session(TIMEOUT_MS).await;
    let silent = client.open_session(TIMEOUT_MS).await;
    let _kept = (holder.keep_alive(endpoints.clone()), waiter.keep_alive(endpoints));

    let held: Ticket = client.ask(Call::post("/v1/locks/one?wait=5s").session(&holder).once()).await.json();
    let Ticket::Held { fencing_token, .. } = held else { panic!("the lock is free") };
    let queued: Ticket = client.ask(Call::post("/v1/locks/one?wait=0&keep=true").session(&waiter).once()).await.json();
    let Ticket::Waiting { ticket: waiting, .. } = queued else { panic!("two holders") };

    cluster.pause(leader);
    let paused = Instant::now();
    let next = cluster.leader_among(&others).await;
    eprintln!("node {next} leads {} ms after the pause of node {leader}", paused.elapsed().as_millis());
    watch_for(&cluster, next, holder.id, Duration::from_millis(TIMEOUT_MS * 3 / 2)).await;
    until("the silent session is expired", async || (!lives(&cluster, next, &silent).await).then_some(())).await;

    // The old leader wakes up with its old clock and may believe for a moment that it leads.
    cluster.resume(leader);
    cluster.catches_up(leader, next).await;
    watch_for(&cluster, leader, holder.id, Duration::from_millis(TIMEOUT_MS * 3 / 2)).await;
    for id in cluster.ids() {
        assert!(lives(&cluster, id, &holder).await, "node {id} has lost the holder's session");
        assert!(lives(&cluster, id, &waiter).await, "node {id} has lost the waiter's session");
    }
    let check = Call::get(format!("/v1/fence?path=/one&fencing_token={fencing_token}"));
    assert_eq!(cluster.client(leader).ask(check).await.status, 204);
    let ticket = cluster.client(leader).ask(Call::get(format!("/v1/tickets{waiting}?wait=0"))).await;
    assert!(matches!(ticket.json(), Ticket::Waiting { position: 1, .. }), "{ticket:?}");
}
