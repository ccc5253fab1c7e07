//! A client that waits for a lock at a node that dies, with neither an `Idempotency-Key` nor an
//! owner name. Its ticket stays in the queue, and the client's further requests keep that ticket's
//! session alive.

use zlock_client::api::{LockQueue, Ticket};

use crate::harness::{Call, Cluster, Session, until};

async fn queue(cluster: &Cluster, id: u64) -> Option<LockQueue> {
    let answer = cluster.client(id).send(Call::get("/v1/locks/one")).await.ok()?;
    (answer.status == 200).then(|| answer.json())
}

/// Repeats an acquire without an idempotency key, until the node grants it, queues it or refuses it
/// with 409.
async fn tried(
    cluster: &Cluster,
    id: u64,
    query: &str,
    session: &Session,
) -> Result<Ticket, zlock_client::api::Problem> {
    until("the node decides", async || {
        let call = Call::post(format!("/v1/locks/one{query}")).session(session);
        let answer = cluster.client(id).send(call).await.ok()?;
        match answer.status {
            200 | 202 => Some(Ok(answer.json())),
            409 => Some(Err(answer.problem())),
            _ => None,
        }
    })
    .await
}

#[tokio::test]
async fn a_retry_without_a_key_does_not_wait_for_its_ghost_on_a_dead_node() {
    let mut cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    let others: Vec<u64> = cluster.ids().into_iter().filter(|id| *id != leader).collect();
    let (dies, lives) = (others[0], others[1]);
    let mut client = cluster.client(lives);
    let (holder, waiter) = (client.open_session(60_000).await, client.open_session(60_000).await);
    let held = tried(&cluster, lives, "", &holder).await.expect("the lock is free");
    let Ticket::Held { ticket: held, fencing_token, .. } = held else { panic!("it is not held: {held:?}") };

    let mut at_the_dying = cluster.client(dies);
    let call = Call::post("/v1/locks/one?wait=60s").session(&waiter);
    let waiting = tokio::spawn(async move { at_the_dying.send(call).await });
    until("it waits", async || queue(&cluster, lives).await.filter(|queue| queue.contenders == 2)).await;
    cluster.kill(dies);
    waiting.await.unwrap().expect_err("its node is dead");

    let ghost = until("the queue is shown", async || queue(&cluster, lives).await).await.waiters[0].ticket.clone();
    for query in ["", "?wait=30s"] {
        let refused = tried(&cluster, lives, query, &waiter).await.expect_err("its own ghost is before it");
        assert_eq!(refused.type_uri, zlock_client::api::ProblemType::BlockedByOwnSession.uri());
        assert_eq!(refused.path.as_deref(), Some(&*ghost));
    }
    let delete = Call::delete(format!("/v1/tickets{ghost}")).session(&waiter).once();
    assert_eq!(client.ask(delete).await.status, 200);
    let again = tried(&cluster, lives, "?keep=true", &waiter).await.expect("a place in the queue");
    let Ticket::Waiting { position: 1, ticket, .. } = again else { panic!("it does not wait: {again:?}") };
    assert_ne!(ticket, ghost);
    let release = Call::delete(format!("/v1/tickets{held}")).session(&holder).once();
    assert_eq!(client.ask(release).await.status, 200);
    let next = client.ask(Call::get(format!("/v1/tickets{ticket}?wait=30s")).session(&waiter)).await;
    let Ticket::Held { fencing_token: next, .. } = next.json() else { panic!("it is next") };
    assert!(next > fencing_token, "token {next} after {fencing_token}");
}
