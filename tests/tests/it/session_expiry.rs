//! A session without heartbeats expires, and its locks go to the next tickets in their queues.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use zlock_client::api::{LockQueue, Ticket};

use crate::harness::{Call, Cluster, until};

const WAITERS: usize = 12;

#[tokio::test]
async fn an_expiry_releases_every_lock_and_wakes_one_waiter_of_each() {
    let cluster = Cluster::start().await;
    let mut client = cluster.client(1);
    let silent = client.open_session(5_000).await;
    let waiter = client.open_session(60_000).await;
    let mut tokens = Vec::new();
    for lock in ["a", "b"] {
        let call = Call::post(format!("/v1/locks/{lock}?wait=5s")).session(&silent).once();
        let Ticket::Held { fencing_token, .. } = client.ask(call).await.json() else { panic!("it is free") };
        tokens.push(fencing_token);
    }
    let granted = Arc::new(AtomicU64::new(0));
    let mut waiting = Vec::new();
    for n in 0..WAITERS {
        let lock = if n % 2 == 0 { "a" } else { "b" };
        let call = Call::post(format!("/v1/locks/{lock}?wait=90s&owner=w{n}")).session(&waiter);
        let (mut client, granted) = (cluster.client(1 + n as u64 % 3), Arc::clone(&granted));
        waiting.push(tokio::spawn(async move {
            let answer = client.send(call).await.unwrap();
            granted.fetch_add(1, Ordering::SeqCst);
            answer
        }));
    }
    until("both locks have a waiter as holder", async || {
        for (lock, token) in ["a", "b"].into_iter().zip(&tokens) {
            let queue: LockQueue = client.ask(Call::get(format!("/v1/locks/{lock}"))).await.json();
            let holder = queue.holders.first()?;
            if holder.session != Some(waiter.id) || queue.waiters.len() != WAITERS / 2 - 1 {
                return None;
            }
            assert!(holder.fencing_token > Some(*token));
        }
        (granted.load(Ordering::SeqCst) >= 2).then_some(())
    })
    .await;
    // A later write has passed every node, so a client that an earlier entry woke has its answer.
    for id in cluster.ids() {
        cluster.client(id).create(&format!("/v1/znodes/later{id}"), "").await;
    }
    assert_eq!(granted.load(Ordering::SeqCst), 2, "one waiter of each lock");
    let gone = client.ask(Call::get(format!("/v1/sessions/{}", silent.id))).await;
    assert_eq!(gone.status, 410, "it is remembered how the session ended");
    let how = gone.problem().ended.map(|ended| serde_json::to_value(ended.how).unwrap());
    assert_eq!(how, Some("expired".into()));
    waiting.iter().for_each(|waiting| waiting.abort());
}
