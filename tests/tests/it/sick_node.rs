//! Clients that wait for a lock at a node that cannot serve: the node answers them in time, and
//! they keep their places in the lock's queue.

use std::time::{Duration, Instant};

use zlock_client::api::{LockQueue, Outcome, ProblemType, Ticket};

use crate::harness::{Answer, Call, Cluster, Options, until};

const KEY: &str = "67e55044-10b1-426f-9247-bb680e5fe0c8";
/// Time within which the node must answer a waiting request: less than the requested wait, and far
/// more than an election takes.
const LET_GO: Duration = Duration::from_secs(25);
/// Time limit of an acquire, longer than its requested wait.
const PATIENCE: Duration = Duration::from_secs(70);

fn acquire(session: &impl AsRef<str>) -> Call {
    Call::post("/v1/locks/one?wait=60s").session(session).within(PATIENCE)
}

/// Checks that the answer is a 503 with this outcome of the request.
fn refused(answer: &Answer, outcome: Outcome) {
    let problem = answer.problem();
    let said = (answer.status, problem.kind(), problem.outcome);
    assert_eq!(said, (503, Some(ProblemType::Unavailable), outcome), "{problem:?}");
}

#[tokio::test]
async fn waits_at_a_node_that_is_cut_off_end_and_a_key_finds_its_place_at_another() {
    let cluster = Cluster::start_with(Options { proxied: true, ..Options::default() }).await;
    let leader = cluster.leader().await;
    let cut_off = cluster.ids().into_iter().find(|id| *id != leader).unwrap();
    let mut client = cluster.client(leader);
    let [holder, first, second, keyless] = [
        client.open_session(60_000).await,
        client.open_session(60_000).await,
        client.open_session(60_000).await,
        client.open_session(60_000).await,
    ];
    let held: Ticket = client.send(Call::post("/v1/locks/one").session(&holder)).await.unwrap().json();
    let Ticket::Held { ticket, .. } = held else { panic!("the lock is free") };
    let send = |call: Call| {
        let mut client = cluster.client(cut_off);
        tokio::spawn(async move { client.send(call).await.unwrap() })
    };
    let waiting = send(acquire(&first).header("idempotency-key", KEY));
    contenders(&cluster, leader, 2).await;
    let behind = send(acquire(&keyless));
    contenders(&cluster, leader, 3).await;
    let mut on_leader = cluster.client(leader);
    let last = acquire(&second);
    let last = tokio::spawn(async move { on_leader.send(last).await.unwrap() });
    contenders(&cluster, leader, 4).await;
    let watch = send(Call::get("/v1/znodes/one?watch=data&wait=60s").within(PATIENCE));
    let poll = send(Call::get(format!("/v1/tickets{ticket}?until=revoked&wait=60s")).within(PATIENCE));

    let begun = Instant::now();
    cluster.isolate(cut_off);
    refused(&waiting.await.unwrap(), Outcome::Unknown);
    refused(&behind.await.unwrap(), Outcome::Unknown);
    refused(&watch.await.unwrap(), Outcome::Unavailable);
    refused(&poll.await.unwrap(), Outcome::Unavailable);
    assert!(begun.elapsed() < LET_GO, "{:?}", begun.elapsed());

    // The ticket is granted while no request waits. The client finds it at any node by its key.
    let release = Call::delete(format!("/v1/tickets{ticket}")).session(&holder);
    assert_eq!(client.send(release).await.unwrap().status, 200);
    let granted: Ticket = client.send(acquire(&first).header("idempotency-key", KEY)).await.unwrap().json();
    let Ticket::Held { ticket, holds, .. } = granted else { panic!("{granted:?}") };
    assert_eq!(holds, 1);
    assert!(!last.is_finished(), "it came later");
    // These two clients leave the queue, so that the last one gets the lock.
    let close = Call::delete(format!("/v1/sessions/{}", keyless.id)).session(&keyless);
    assert_eq!(client.send(close).await.unwrap().status, 200);
    let release = Call::delete(format!("/v1/tickets{ticket}")).session(&first);
    assert_eq!(client.send(release).await.unwrap().status, 200);
    assert_eq!(last.await.unwrap().status, 200);
}

/// Waits until this many clients contend for the lock.
async fn contenders(cluster: &Cluster, node: u64, count: u32) {
    let mut client = cluster.client(node);
    until("they queue", async || {
        let queue: LockQueue = client.send(Call::get("/v1/locks/one")).await.ok()?.json();
        (queue.contenders == count).then_some(())
    })
    .await;
}
