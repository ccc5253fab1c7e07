//! A lock that goes from one client to the next by long-poll. Each client waits at another node.

use zlock_client::api::{LockQueue, Release, Ticket};

use crate::harness::{Call, Cluster, until};

#[tokio::test]
async fn a_lock_is_handed_over_across_three_nodes() {
    let cluster = Cluster::start().await;
    let (mut first, mut second, mut third) = (cluster.client(1), cluster.client(2), cluster.client(3));
    let (holder, waiter) = (first.open_session(30_000).await, second.open_session(30_000).await);

    let acquire = |session| Call::post("/v1/locks/orders?wait=60s").session(session);
    let Ticket::Held { ticket, fencing_token, holds: 1, .. } = first.send(acquire(&holder)).await.unwrap().json()
    else {
        panic!("the lock is free");
    };
    let call = acquire(&waiter);
    let waiting = tokio::spawn(async move { second.send(call).await });
    let queue = until("the second client waits", async || {
        let queue: LockQueue = third.send(Call::get("/v1/locks/orders")).await.unwrap().json();
        (queue.waiters.len() == 1).then_some(queue)
    })
    .await;
    assert_eq!(queue.holders.iter().map(|one| one.session).collect::<Vec<_>>(), [Some(holder.id)]);
    assert_eq!(queue.waiters.iter().map(|one| one.session).collect::<Vec<_>>(), [Some(waiter.id)]);
    assert!(!waiting.is_finished());

    let released: Release =
        third.send(Call::delete(format!("/v1/tickets{ticket}")).session(&holder)).await.unwrap().json();
    assert_eq!(released.holds, 0);
    let Ticket::Held { fencing_token: next, .. } = waiting.await.unwrap().unwrap().json() else {
        panic!("the waiter is next");
    };
    assert!(next > fencing_token, "token {next} after {fencing_token}");
}

#[tokio::test]
async fn every_node_takes_any_request() {
    let cluster = Cluster::start().await;
    for id in cluster.ids() {
        let mut client = cluster.client(id);
        let path = format!("/v1/znodes/by{id}");
        client.create(&path, "here").await;
        for other in cluster.ids() {
            let read = Call::get(&path).header("accept", "application/octet-stream");
            let answer = cluster.client(other).send(read).await.unwrap();
            assert_eq!((answer.status, &*answer.body), (200, b"here".as_slice()), "node {other} reads {path}");
            assert_eq!(answer.headers["zlock-node"], other.to_string().as_str());
        }
    }
}
