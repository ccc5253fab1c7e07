//! SIGTERM: a node that is told to stop.

use std::time::Instant;

use zlock_client::api::{LockQueue, Ticket, TokenCheck};

use crate::harness::{Call, Client, Cluster, until};

#[tokio::test]
async fn a_stopped_leader_ends_cleanly_and_hands_over() {
    let mut cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    let others: Vec<u64> = cluster.ids().into_iter().filter(|id| *id != leader).collect();
    let mut client = cluster.client(others[0]);
    let (holder, waiter) = (client.open_session(60_000).await, client.open_session(60_000).await);
    let held: Ticket = client.send(Call::post("/v1/locks/one?wait=5s").session(&holder)).await.unwrap().json();
    let Ticket::Held { ticket, fencing_token, .. } = held else { panic!("the lock is free") };
    // This one waits on the node that stops: it is told so, and comes back to its place on another
    // node.
    let queued = client.send(Call::post("/v1/locks/one?wait=0&keep=true").session(&waiter)).await.unwrap();
    let Ticket::Waiting { ticket: waiting, .. } = queued.json() else { panic!("two holders") };
    let poll = Call::get(format!("/v1/tickets{waiting}?wait=60s"));
    let (mut on_leader, interrupted) = (cluster.client(leader), poll.clone());
    let interrupted = tokio::spawn(async move { on_leader.send(interrupted).await });

    let stopping = Instant::now();
    assert_eq!(cluster.stop(leader).await, Some(0), "the promised exit code");
    eprintln!("node {leader} stopped in {} ms", stopping.elapsed().as_millis());
    if let Ok(answer) = interrupted.await.unwrap() {
        assert!(matches!(answer.status, 202 | 503), "{answer:?}");
    }
    let next = cluster.leader_among(&others).await;
    eprintln!("node {next} leads {} ms after the signal", stopping.elapsed().as_millis());

    let check = Call::get(format!("/v1/locks/one?fencing_token={fencing_token}"));
    assert!(client.send(check).await.unwrap().json::<TokenCheck>().held);
    let mut on_next = cluster.client(next);
    let resumed = tokio::spawn(async move { on_next.send(poll).await });
    let release = Call::delete(format!("/v1/tickets{ticket}")).session(&holder);
    assert_eq!(client.send(release).await.unwrap().status, 200);
    assert!(matches!(resumed.await.unwrap().unwrap().json(), Ticket::Held { .. }));
    cluster.restart(leader);
    cluster.all_ready().await;
}

#[tokio::test]
async fn a_node_that_stops_leaves_no_ghosts_of_those_who_waited_at_it() {
    let mut cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    let follower = cluster.ids().into_iter().find(|id| *id != leader).unwrap();
    let mut client = cluster.client(leader);
    let (holder, waiter) = (client.open_session(60_000).await, client.open_session(60_000).await);
    client.send(Call::post("/v1/locks/one").session(&holder)).await.unwrap();
    let mut on_follower = cluster.client(follower);
    let acquire = Call::post("/v1/locks/one?wait=60s").session(&waiter);
    let waiting = tokio::spawn(async move { on_follower.send(acquire).await });
    until("it waits", async || contenders(&mut client).await.filter(|contenders| *contenders == 2)).await;

    assert_eq!(cluster.stop(follower).await, Some(0), "the promised exit code");
    let answer = waiting.await.unwrap().unwrap();
    assert_eq!(answer.status, 503, "nothing is left of it, and it may ask elsewhere: {answer:?}");
    assert_eq!(contenders(&mut client).await, Some(1));
}

async fn contenders(client: &mut Client) -> Option<u32> {
    let queue: LockQueue = client.send(Call::get("/v1/locks/one")).await.ok()?.json();
    Some(queue.contenders)
}
