//! One release of a lock with 1,000 waiters wakes only the next one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use zlock_client::api::Ticket;

use crate::harness::{Call, Cluster, until};

const WAITERS: u64 = 1_000;
/// Number of watches that each waiter has: one, on its own ticket.
const WATCHES: u64 = 1;

async fn watches(cluster: &Cluster) -> u64 {
    let mut watches = 0;
    for id in cluster.ids() {
        watches += until("the node answers", async || cluster.status(id).await).await.watches;
    }
    watches
}

#[tokio::test]
async fn a_release_wakes_one_of_a_thousand_waiters() {
    let cluster = Cluster::start().await;
    let mut client = cluster.client(1);
    let session = client.open_session(120_000).await;
    let acquire = |owner: String, wait| {
        Call::post(format!("/v1/locks/herd?keep=true&wait={wait}&owner={owner}")).session(&session).once()
    };
    let first: Ticket = client.ask(acquire("first".into(), "5s")).await.json();
    let Ticket::Held { ticket: first, .. } = first else { panic!("the lock is free") };

    let answered = Arc::new(AtomicU64::new(0));
    let mut tickets = Vec::new();
    let mut polls = Vec::new();
    for n in 0..WAITERS {
        let Ticket::Waiting { ticket, position, .. } = client.ask(acquire(format!("w{n}"), "0")).await.json() else {
            panic!("two holders")
        };
        assert_eq!(u64::from(position), n + 1);
        let (mut poller, answered) = (cluster.client(1 + n % 3), Arc::clone(&answered));
        let poll = Call::get(format!("/v1/tickets{ticket}?wait=90s"));
        tickets.push(ticket);
        polls.push(tokio::spawn(async move {
            let answer = poller.send(poll).await.unwrap();
            answered.fetch_add(1, Ordering::SeqCst);
            answer
        }));
    }
    let set = WATCHES * WAITERS;
    until("every waiter has set its watches", async || (watches(&cluster).await == set).then_some(())).await;

    let mut before = first;
    for n in 0..3 {
        let release = Call::delete(format!("/v1/tickets{before}")).session(&session).once();
        assert_eq!(client.ask(release).await.status, 200);
        let granted = n + 1;
        until("the next one is woken", async || (answered.load(Ordering::SeqCst) >= granted).then_some(())).await;
        let next = &mut polls[usize::try_from(n).unwrap()];
        let Ticket::Held { ticket, .. } = next.await.unwrap().json() else { panic!("it was woken too early") };
        assert_eq!(ticket, tickets[usize::try_from(n).unwrap()]);
        assert_eq!(answered.load(Ordering::SeqCst), granted, "one release, one answer");
        let left = WATCHES * (WAITERS - granted);
        assert_eq!(watches(&cluster).await, left, "one release, one waiter's watches are gone");
        before = ticket;
    }
    polls.iter().for_each(|poll| poll.abort());
}
