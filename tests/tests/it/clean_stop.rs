//! A node that is told to stop by SIGTERM.

use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use zlock_client::api::{LockQueue, Outcome, Ticket};

use crate::harness::{Answer, Call, Client, Cluster, Session, until};

#[tokio::test]
async fn a_stopped_leader_ends_cleanly_and_hands_over() {
    let mut cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    let others: Vec<u64> = cluster.ids().into_iter().filter(|id| *id != leader).collect();
    let mut client = cluster.client(others[0]);
    let (holder, waiter) = (client.open_session(60_000).await, client.open_session(60_000).await);
    let held: Ticket = client.ask(Call::post("/v1/locks/one?wait=5s").session(&holder).once()).await.json();
    let Ticket::Held { ticket, fencing_token, .. } = held else { panic!("the lock is free") };
    // This client waits at the node that stops. The node tells the client so, and the client finds
    // its place in the queue at another node.
    let queued = client.ask(Call::post("/v1/locks/one?wait=0&keep=true").session(&waiter).once()).await;
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

    let check = Call::get(format!("/v1/fence?path=/one&fencing_token={fencing_token}"));
    assert_eq!(client.ask(check).await.status, 204);
    let mut on_next = cluster.client(next);
    let resumed = tokio::spawn(async move { on_next.ask(poll).await });
    let release = Call::delete(format!("/v1/tickets{ticket}")).session(&holder).once();
    assert_eq!(client.ask(release).await.status, 200);
    assert!(matches!(resumed.await.unwrap().json(), Ticket::Held { .. }));
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
    client.ask(Call::post("/v1/locks/one").session(&holder).once()).await;
    let waiting = wait_at(&cluster, follower, acquire(&waiter));
    queued(&mut client, 2).await;

    assert_eq!(cluster.stop(follower).await, Some(0), "the promised exit code");
    let answer = waiting.await.unwrap();
    assert_eq!((answer.status, answer.problem().outcome), (503, Outcome::Unavailable), "nothing is left: {answer:?}");
    assert_eq!(contenders(&mut client).await, 1);
}

#[tokio::test]
async fn a_node_that_stops_leaves_the_places_of_those_who_waited_at_it_with_a_key() {
    let mut cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    let follower = cluster.ids().into_iter().find(|id| *id != leader).unwrap();
    let mut client = cluster.client(leader);
    let (holder, late) = (client.open_session(60_000).await, client.open_session(60_000).await);
    let held: Ticket = client.ask(Call::post("/v1/locks/one").session(&holder).once()).await.json();
    let Ticket::Held { ticket, .. } = held else { panic!("the lock is free") };
    let mut waiting = Vec::new();
    for number in 0..3 {
        let session = client.open_session(60_000).await;
        let call = acquire(&session).header("idempotency-key", format!("place-{number}"));
        waiting.push((wait_at(&cluster, follower, call.clone()), call, session));
        queued(&mut client, 2 + number).await;
    }
    let behind = wait_at(&cluster, leader, acquire(&late));
    queued(&mut client, 5).await;

    assert_eq!(cluster.stop(follower).await, Some(0), "the promised exit code");
    // Each client asks again at another node, in the reverse order of their arrival.
    let mut again = Vec::new();
    for (answer, call, session) in waiting.into_iter().rev() {
        let answer = answer.await.unwrap();
        assert_eq!((answer.status, answer.problem().outcome), (503, Outcome::Unknown), "{answer:?}");
        again.insert(0, (wait_at(&cluster, leader, call), session));
    }
    let release =
        |ticket: String, session: &Session| Call::delete(format!("/v1/tickets{ticket}")).session(session).once();
    assert_eq!(client.ask(release(ticket, &holder)).await.status, 200);
    for (granted, session) in again {
        let granted = granted.await.unwrap();
        assert!(!behind.is_finished(), "it came later");
        let Ticket::Held { ticket, .. } = granted.json() else { panic!("{granted:?}") };
        assert_eq!(client.ask(release(ticket, &session)).await.status, 200);
    }
    assert_eq!(behind.await.unwrap().status, 200);
}

fn acquire(session: &Session) -> Call {
    Call::post("/v1/locks/one?wait=60s").session(session).within(Duration::from_secs(70))
}

/// Sends a call that waits, in the background.
fn wait_at(cluster: &Cluster, node: u64, call: Call) -> JoinHandle<Answer> {
    let mut client = cluster.client(node);
    tokio::spawn(async move { client.send(call).await.unwrap() })
}

async fn queued(client: &mut Client, count: u32) {
    until("they queue", async || (contenders(client).await == count).then_some(())).await;
}

async fn contenders(client: &mut Client) -> u32 {
    let queue: LockQueue = client.ask(Call::get("/v1/locks/one")).await.json();
    queue.contenders
}
