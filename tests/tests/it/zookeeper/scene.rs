//! Three nodes that serve ZooKeeper clients, and clients of these nodes.

use std::time::Duration;

use futures_util::FutureExt as _;
use spawns_core::{Spawn, Task, enter};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use zookeeper_client::{
    Acls, Client, Connector, CreateMode, CreateOptions, Error, OneshotWatcher, PersistentWatcher, SessionId, Stat,
    WatchedEvent,
};

use crate::harness::{Cluster, Options, Pace, until};
use crate::recipes;

/// Session timeout that is longer than any test, and than any election.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// Longest wait for a watch event. Generous: machines that run tests are slow at times.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const PERSISTENT: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());
pub(crate) const CONTAINER: CreateOptions<'static> = CreateMode::Container.with_acls(Acls::anyone_all());
pub(crate) const EPHEMERAL: CreateOptions<'static> = CreateMode::Ephemeral.with_acls(Acls::anyone_all());

/// Three nodes with their ZooKeeper clients.
pub(crate) struct Scene {
    /// The nodes as HTTP clients know them.
    pub(crate) http: recipes::scene::Scene,
}

/// Spawner of the client's background tasks.
struct Tokio;

impl Spawn for Tokio {
    fn spawn(&self, task: Task) {
        tokio::spawn(Box::into_pin(task.future));
    }
}

impl Scene {
    /// Starts three nodes, and waits until they are ready.
    pub(crate) async fn set() -> Scene {
        // The client spawns tasks in the thread that connects or drops a guard, which is the test's
        // thread. The runtime stays entered until this thread ends.
        std::mem::forget(enter(&Tokio));
        let settings = "zookeeper.four_letter_words = \"*\"\n";
        let options = Options { zookeeper: true, settings, ..Options::default() };
        Scene { http: recipes::scene::Scene::set_with(options).await }
    }

    /// The cluster of node processes.
    pub(crate) fn cluster(&self) -> &Cluster {
        &self.http.cluster
    }

    /// Returns a client that knows one node only.
    pub(crate) async fn client_of(&self, id: u64) -> Client {
        connect(connector(), self.cluster().zookeeper_endpoint(id)).await
    }

    /// Returns a client that knows all nodes.
    pub(crate) async fn client(&self) -> Client {
        connect(connector(), &self.endpoints()).await
    }

    /// Returns a client that knows all nodes and is connected to the node `id`.
    pub(crate) async fn client_at(&self, id: u64) -> Client {
        until("a client has chosen the node", async || {
            let client = self.client().await;
            (self.node_of(client.session_id()).await == id).then_some(client)
        })
        .await
    }

    /// Addresses of all nodes, as the client library expects them.
    pub(crate) fn endpoints(&self) -> String {
        let all: Vec<_> = self.cluster().ids().into_iter().map(|id| self.cluster().zookeeper_endpoint(id)).collect();
        all.join(",")
    }

    /// A node's answer to a four-letter word; `None` when the node does not run.
    pub(crate) async fn word(&self, id: u64, word: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.cluster().zookeeper_endpoint(id)).await.ok()?;
        stream.write_all(word.as_bytes()).await.ok()?;
        let mut answer = String::new();
        timeout(PATIENCE, stream.read_to_string(&mut answer)).await.ok()?.ok()?;
        Some(answer)
    }

    /// Id of the node that the session's client is connected to.
    pub(crate) async fn node_of(&self, session: SessionId) -> u64 {
        let line = format!("sid={session},");
        until("the session is at a node", async || {
            for id in self.cluster().ids() {
                if self.word(id, "cons").await.is_some_and(|answer| answer.contains(&line)) {
                    return Some(id);
                }
            }
            None
        })
        .await
    }
}

/// Returns a connector of the client library, with a session timeout that is longer than the test.
pub(crate) fn connector() -> Connector {
    Client::connector().with_session_timeout(LONG)
}

/// Connects, and tries again when an election interrupts the connect.
pub(crate) async fn connect(connector: Connector, endpoints: &str) -> Client {
    until("the client is connected", async || connector.clone().connect(endpoints).await.ok()).await
}

/// Returns what two clients of two nodes see in a new scene. The first client watches. An election
/// may cut it off, and some events of that time are lost: then both look again in another scene.
pub(crate) async fn seen<T>(look: impl AsyncFn(&Client, &Client) -> T) -> T {
    for _ in 0..3 {
        let scene = Scene::set().await;
        let (watching, writing) = (scene.client_of(1).await, scene.client_of(2).await);
        let mut states = watching.state_watcher();
        states.state();
        let seen = tokio::select! {
            biased;
            _ = states.changed() => continue,
            seen = look(&watching, &writing) => seen,
        };
        if states.changed().now_or_never().is_none() {
            return seen;
        }
    }
    panic!("each client that watched was cut off");
}

/// Waits for the event of a one-shot watch.
pub(crate) async fn fired(watcher: OneshotWatcher) -> WatchedEvent {
    timeout(PATIENCE, watcher.changed()).await.expect("the watch fires")
}

/// The event of a one-shot watch; `None` if the watch has not fired yet.
pub(crate) fn told(watcher: OneshotWatcher) -> Option<WatchedEvent> {
    watcher.changed().now_or_never()
}

/// Waits for the next event of a persistent watch. Events about the connection are skipped.
pub(crate) async fn next(watcher: &mut PersistentWatcher) -> WatchedEvent {
    let next = async {
        loop {
            let event = watcher.changed().await;
            if !event.path.is_empty() {
                return event;
            }
        }
    };
    timeout(PATIENCE, next).await.expect("there is another event")
}

/// Repeats a repeatable request until an answer has come.
pub(crate) async fn answered<T>(what: &str, mut ask: impl AsyncFnMut() -> Result<T, Error>) -> T {
    until(what, async || match ask().await {
        Ok(answer) => Some(answer),
        Err(Error::ConnectionLoss) => None,
        Err(error) => panic!("{what}: {error}"),
    })
    .await
}

/// Creates a new znode, even if the connection is lost half-way.
pub(crate) async fn create(client: &Client, path: &str, data: &str, options: &CreateOptions<'_>) -> Stat {
    let mut pace = Pace::new("the znode is created");
    let mut unknown = false;
    loop {
        pace.next().await;
        match client.create(path, data.as_bytes(), options).await {
            Ok((stat, _)) => return stat,
            Err(Error::NodeExists) if unknown => {}
            Err(Error::ConnectionLoss) => {
                unknown = true;
                continue;
            }
            Err(error) => panic!("{path}: {error}"),
        }
        if let Ok(Some(stat)) = client.check_stat(path).await {
            return stat;
        }
    }
}

/// Sets the data of a znode of this version, even if the connection is lost half-way.
pub(crate) async fn set(client: &Client, path: &str, data: &str, version: i32) {
    let mut pace = Pace::new("the znode is set");
    let mut unknown = false;
    loop {
        pace.next().await;
        match client.set_data(path, data.as_bytes(), Some(version)).await {
            Ok(_) => return,
            Err(Error::BadVersion) if unknown => return,
            Err(Error::ConnectionLoss) => unknown = true,
            Err(error) => panic!("{path}: {error}"),
        }
    }
}

/// Deletes a znode, even if the connection is lost half-way.
pub(crate) async fn delete(client: &Client, path: &str) {
    let mut pace = Pace::new("the znode is deleted");
    let mut unknown = false;
    loop {
        pace.next().await;
        match client.delete(path, None).await {
            Ok(()) => return,
            Err(Error::NoNode) if unknown => return,
            Err(Error::ConnectionLoss) => unknown = true,
            Err(error) => panic!("{path}: {error}"),
        }
    }
}

/// The znode's stat, or `None` if it does not exist.
pub(crate) async fn stat(client: &Client, path: &str) -> Option<Stat> {
    answered("the znode is looked at", async || client.check_stat(path).await).await
}

/// Waits until the client's node has applied all earlier writes.
pub(crate) async fn sync(client: &Client) {
    answered("the node is up to date", async || client.sync("/").await).await;
}
