//! SIGTERM: a node that is told to stop.

use std::time::Instant;

use protocol::{Ticket, TokenCheck};

use crate::harness::{Call, Cluster};

#[tokio::test]
async fn a_stopped_leader_ends_cleanly_and_hands_over() {
    let mut cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    let others: Vec<u64> = cluster.ids().into_iter().filter(|id| *id != leader).collect();
    let mut client = cluster.client(others[0]);
    let (holder, waiter) = (client.open_session(60_000).await, client.open_session(60_000).await);
    let held: Ticket = client.send(Call::post("/v1/locks/one?wait=5s").session(&holder)).await.unwrap().json();
    let Ticket::Held { ticket, fencing_token, .. } = held else { panic!("the lock is free") };
    // This one waits on the node that stops: it is told so, and comes back to its place on another node.
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
