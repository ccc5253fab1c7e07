//! The leader is killed by SIGKILL while 50 clients take and release locks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use zlock_client::api::{LockQueue, Ticket};

use crate::harness::{Answer, Call, Client, Cluster, Pace, Session, until};

const CLIENTS: usize = 50;
const LOCKS: usize = 5;

/// A resource that a lock protects. It panics when two clients use it at once, or when a client's
/// fencing token is not higher than the token before.
#[derive(Default)]
struct Resource {
    inside: Option<usize>,
    last_token: u64,
    grants: u64,
}

impl Resource {
    fn enter(&mut self, client: usize, token: u64) {
        assert_eq!(self.inside, None, "client {client} enters with token {token}");
        assert!(token > self.last_token, "token {token} after {}", self.last_token);
        self.inside = Some(client);
        self.last_token = token;
        self.grants += 1;
    }

    fn leave(&mut self, client: usize) {
        assert_eq!(self.inside.take(), Some(client));
    }
}

struct Load {
    resources: Vec<Mutex<Resource>>,
    cycles: Vec<AtomicU64>,
    stop: AtomicBool,
    endpoints: Vec<String>,
}

impl Load {
    fn grants(&self) -> u64 {
        self.resources.iter().map(|resource| resource.lock().unwrap().grants).sum()
    }

    /// Takes and releases a lock until told to stop.
    async fn cycle(&self, client: usize, session: Session) {
        let lock = client % LOCKS;
        let mut turn = client;
        let mut connection = Client::new(&self.endpoints[turn % self.endpoints.len()]);
        while !self.stop.load(Ordering::Relaxed) {
            // A waiter that is withdrawn at the end of its wait asks again with a new key.
            let acquire = Call::post(format!("/v1/locks/busy/{lock}?wait=20s")).session(&session).once();
            let answer = self.persist(&mut connection, &mut turn, acquire).await;
            if answer.status == 409 {
                assert_eq!(answer.problem().name.as_deref(), None, "{:?}", answer.problem());
                continue;
            }
            let Ticket::Held { ticket, fencing_token, .. } = answer.json() else { panic!("{answer:?}") };
            self.resources[lock].lock().unwrap().enter(client, fencing_token);
            tokio::task::yield_now().await;
            // The client leaves the resource before it sends the release, after which another may
            // enter.
            self.resources[lock].lock().unwrap().leave(client);
            let release = Call::delete(format!("/v1/tickets{ticket}")).session(&session).once();
            let answer = self.persist(&mut connection, &mut turn, release).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            self.cycles[client].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sends a call to one node after the other, until the outcome is known.
    async fn persist(&self, connection: &mut Client, turn: &mut usize, call: Call) -> Answer {
        let mut pace = Pace::new("a call has an outcome");
        loop {
            pace.next().await;
            match connection.send(call.clone().within(Duration::from_secs(30))).await {
                Ok(answer) if !matches!(answer.status, 503 | 504) => return answer,
                _ => {
                    *turn += 1;
                    *connection = Client::new(&self.endpoints[*turn % self.endpoints.len()]);
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_loses_no_waiter_and_grants_nothing_twice() {
    let mut cluster = Cluster::start().await;
    let load = Arc::new(Load {
        resources: (0..LOCKS).map(|_| Mutex::default()).collect(),
        cycles: (0..CLIENTS).map(|_| AtomicU64::new(0)).collect(),
        stop: AtomicBool::new(false),
        endpoints: cluster.endpoints(),
    });
    let mut clients = Vec::new();
    for client in 0..CLIENTS {
        // The timeout is longer than the test: an expiry is another test's matter.
        let session = cluster.client(1 + client as u64 % 3).open_session(120_000).await;
        let load = Arc::clone(&load);
        clients.push(tokio::spawn(async move { load.cycle(client, session).await }));
    }
    until("the load runs", async || (load.grants() > 200).then_some(())).await;

    let leader = cluster.leader().await;
    cluster.kill(leader);
    let (killed, before) = (Instant::now(), load.grants());
    let marks: Vec<u64> = load.cycles.iter().map(|cycles| cycles.load(Ordering::Relaxed)).collect();
    // Grants that were on their way when the leader died do not show that the service is back.
    let survivors: Vec<u64> = cluster.ids().into_iter().filter(|id| *id != leader).collect();
    let next = cluster.leader_among(&survivors).await;
    let grants = load.grants();
    until("locks are granted again", async || (load.grants() > grants).then_some(())).await;
    let back = killed.elapsed();
    eprintln!("node {next} leads; service back {} ms after kill -9 of node {leader}", back.as_millis());
    assert!(back < Duration::from_secs(20), "back after {back:?}");

    until("every client went through two more cycles", async || {
        let now = load.cycles.iter().map(|cycles| cycles.load(Ordering::Relaxed));
        now.zip(&marks).all(|(now, mark)| now >= mark + 2).then_some(())
    })
    .await;
    cluster.restart(leader);
    cluster.all_ready().await;
    load.stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    eprintln!("{before} grants before the kill, {} in all", load.grants());
    for lock in 0..LOCKS {
        let answer = cluster.client(leader).send(Call::get(format!("/v1/locks/busy/{lock}"))).await.unwrap();
        // A lock directory without contenders may have been collected already.
        if answer.status != 404 {
            let queue: LockQueue = answer.json();
            assert_eq!((queue.holders.len(), queue.waiters.len()), (0, 0), "a ghost in {queue:?}");
        }
    }
}
