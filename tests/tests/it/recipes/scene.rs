//! A cluster with its clients for the tests of recipes, and the fault (a killed or paused leader)
//! in the middle of a recipe.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use zlock_client::api::{LockQueue, NewSession, Release, Ticket};

use crate::harness::{Answer, Call, Client, Cluster, Options, Pace, Session, until};

/// Session timeout that is longer than any test.
const LONG_MS: u64 = 120_000;

/// Three nodes with their clients.
pub(crate) struct Scene {
    pub(crate) cluster: Cluster,
    nodes: Nodes,
    down: watch::Sender<Option<u64>>,
}

/// The nodes as clients know them: their addresses, and the node that is down at present. The test
/// itself says which node is down, so that clients need not wait for a timeout.
#[derive(Clone)]
struct Nodes {
    endpoints: Arc<[(u64, String)]>,
    down: watch::Receiver<Option<u64>>,
    turn: Arc<AtomicUsize>,
}

impl Nodes {
    /// The next node that is up, in turn.
    fn next(&self) -> &(u64, String) {
        let down = *self.down.borrow();
        let up: Vec<_> = self.endpoints.iter().filter(|(id, _)| Some(*id) != down).collect();
        up[self.turn.fetch_add(1, Ordering::Relaxed) % up.len()]
    }

    /// Sends a call, and repeats it at the next node while its outcome is unknown.
    async fn ask(&self, call: Call) -> Answer {
        let mut pace = Pace::new("a node answers");
        loop {
            pace.next().await;
            let (id, endpoint) = self.next();
            let (mut down, mut client) = (self.down.clone(), Client::new(endpoint));
            let answer = tokio::select! {
                answer = client.send(call.clone()) => answer.ok(),
                _ = down.wait_for(|down| *down == Some(*id)) => None,
            };
            if let Some(answer) = answer.filter(|answer| !matches!(answer.status, 503 | 504)) {
                return answer;
            }
        }
    }
}

/// A request in the background that waits at a node, and goes to another node when that one is
/// down.
pub(crate) struct Waiting(JoinHandle<Answer>);

impl Waiting {
    /// Waits for the answer.
    pub(crate) async fn answer(self) -> Answer {
        self.0.await.unwrap()
    }

    /// Waits until the request has acquired the lock.
    pub(crate) async fn held(self) -> Held {
        Held::of(&self.answer().await)
    }
}

/// A held lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) ticket: String,
    pub(crate) token: u64,
    pub(crate) holds: u32,
}

impl Held {
    #[track_caller]
    pub(crate) fn of(answer: &Answer) -> Held {
        match answer.json() {
            Ticket::Held { ticket, fencing_token, holds, .. } => Held { ticket, token: fencing_token, holds },
            Ticket::Waiting { .. } => panic!("it waits: {answer:?}"),
        }
    }
}

impl Scene {
    /// Starts three nodes, and waits until they are ready.
    pub(crate) async fn set() -> Scene {
        Scene::set_with(Options::default()).await
    }

    /// Starts nodes, and waits until they are ready.
    pub(crate) async fn set_with(options: Options) -> Scene {
        let cluster = Cluster::start_with(options).await;
        let endpoints = cluster.ids().into_iter().map(|id| (id, cluster.endpoint(id).to_owned())).collect();
        let (down, seen) = watch::channel(None);
        Scene { cluster, nodes: Nodes { endpoints, down: seen, turn: Arc::default() }, down }
    }

    /// Kills the leader by SIGKILL. Returns its id.
    pub(crate) async fn kill_leader(&mut self) -> u64 {
        let leader = self.cluster.leader().await;
        self.kill(leader);
        leader
    }

    /// Kills a node by SIGKILL.
    pub(crate) fn kill(&mut self, id: u64) {
        self.cluster.kill(id);
        self.down.send_replace(Some(id));
    }

    /// Pauses the leader by SIGSTOP, so that a client that waits at the leader has an open
    /// connection without an answer. Returns the leader's id.
    pub(crate) async fn pause_leader(&self) -> u64 {
        let leader = self.cluster.leader().await;
        self.cluster.pause(leader);
        self.down.send_replace(Some(leader));
        leader
    }

    /// Resumes the paused node, and waits until it has applied all entries that another node has.
    pub(crate) async fn resume(&self, id: u64) {
        self.cluster.resume(id);
        self.down.send_replace(None);
        let other = self.cluster.ids().into_iter().find(|other| *other != id).unwrap();
        self.cluster.catches_up(id, other).await;
    }

    /// Restarts a killed node, and waits until all nodes are ready.
    pub(crate) async fn restart(&mut self, id: u64) {
        self.cluster.restart(id);
        self.cluster.all_ready().await;
        self.down.send_replace(None);
    }

    /// Nodes that are not down.
    pub(crate) fn up(&self) -> Vec<u64> {
        let down = *self.down.borrow();
        self.cluster.ids().into_iter().filter(|id| Some(*id) != down).collect()
    }

    /// Sends a repeatable call until a node answers with its outcome.
    pub(crate) async fn ask(&self, call: Call) -> Answer {
        self.nodes.ask(call).await
    }

    /// Sends a call to one node until the node can answer.
    pub(crate) async fn ask_at(&self, id: u64, call: Call) -> Answer {
        let what = format!("node {id} answers");
        until(&what, async || {
            let answer = self.cluster.client(id).send(call.clone()).await.ok();
            answer.filter(|answer| !matches!(answer.status, 503 | 504))
        })
        .await
    }

    /// Sends a call as [`Scene::ask`] does, in the background.
    pub(crate) fn ask_later(&self, call: Call) -> Waiting {
        let nodes = self.nodes.clone();
        Waiting(tokio::spawn(async move { nodes.ask(call).await }))
    }

    /// Reads a path over HTTP, and parses the answer as JSON.
    pub(crate) async fn read(&self, path: impl Into<String>) -> Value {
        self.ask(Call::get(path)).await.json()
    }

    /// Opens a session that outlives the test.
    pub(crate) async fn session(&self) -> Session {
        self.session_for(LONG_MS).await
    }

    /// Opens a session with this timeout. The test must send its heartbeats.
    pub(crate) async fn session_for(&self, timeout_ms: u64) -> Session {
        let body = format!("{{\"timeout\":\"{timeout_ms}ms\",\"label\":\"test\"}}");
        let opened: NewSession = self.ask(Call::post("/v1/sessions").body(body)).await.json();
        Session { id: opened.session, key: opened.session_key, timeout_ms: u64::from(opened.timeout_ms) }
    }

    /// Writes the settings of a lock, given as JSON.
    pub(crate) async fn settings(&self, lock: &str, settings: &'static str) {
        assert_eq!(self.ask(Call::put(format!("/v1/settings{lock}")).body(settings)).await.status, 200);
    }

    /// Sends an acquire with an idempotency key. `wish` is the lock's path and the query.
    pub(crate) async fn acquire(&self, session: &Session, wish: &str) -> Answer {
        self.ask(acquiring(session, wish)).await
    }

    /// Acquires a free lock. `wish` is the lock's path and the query.
    pub(crate) async fn hold(&self, session: &Session, wish: &str) -> Held {
        Held::of(&self.acquire(session, wish).await)
    }

    /// Queues for a lock in the background. Returns when the lock's queue shows a ticket with this
    /// label. `wish` is the lock's path and the query.
    pub(crate) async fn wait(&self, session: &Session, wish: &str, label: &str) -> Waiting {
        let joint = if wish.contains('?') { '&' } else { '?' };
        let waiting = self.ask_later(acquiring(session, &format!("{wish}{joint}wait=100s&label={label}")));
        let lock = wish.split('?').next().unwrap();
        let what = format!("{label} waits");
        until(&what, async || self.queue(lock).await.split(['|', ' ']).any(|one| one == label).then_some(())).await;
        waiting
    }

    /// Releases one hold of a ticket, which may have several.
    pub(crate) async fn release(&self, session: &Session, ticket: &str) -> Release {
        self.ask(Call::delete(format!("/v1/tickets{ticket}")).session(session).once()).await.json()
    }

    /// The lock's queue as text: `holders | waiters`, each as a list of their labels.
    pub(crate) async fn queue(&self, lock: &str) -> String {
        let queue: LockQueue = self.ask(Call::get(format!("/v1/locks{lock}"))).await.json();
        let labels =
            |of: &[zlock_client::api::Contender]| of.iter().map(|one| &*one.label).collect::<Vec<_>>().join(" ");
        format!("{} | {}", labels(&queue.holders), labels(&queue.waiters))
    }

    /// Tells whether the holder with this fencing token holds the lock at present. A resource
    /// server would send this request.
    pub(crate) async fn token_holds(&self, lock: &str, token: u64) -> bool {
        self.ask(Call::get(format!("/v1/fence?path={lock}&fencing_token={token}"))).await.status == 204
    }
}

fn acquiring(session: &Session, wish: &str) -> Call {
    Call::post(format!("/v1/locks{wish}")).session(session).once()
}

/// The last part of the problem's type URI. Panics if the answer is no problem.
#[track_caller]
pub(crate) fn problem(answer: &Answer) -> String {
    answer.problem().type_uri.trim_start_matches(zlock_client::api::PROBLEM_TYPE_BASE).to_owned()
}
