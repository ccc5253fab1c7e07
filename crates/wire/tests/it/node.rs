//! Nodes that serve ZooKeeper clients, for tests.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use replica::{Config, Consistency, Member, Replica};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use wire::WireConfig;
use znode::ZPath;

use crate::client::Client;

/// Longest time for a step of a test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A node with its server for ZooKeeper clients. Dropping the node deletes its data directory.
pub(crate) struct Node {
    pub(crate) replica: Replica,
    pub(crate) addr: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    door: Option<JoinHandle<std::io::Result<()>>>,
    _dir: TempDir,
}

impl Node {
    pub(crate) async fn start() -> Node {
        Node::start_with(WireConfig::default(), |_| {}).await
    }

    pub(crate) async fn start_with(wire: WireConfig, edit: impl Fn(&mut Config)) -> Node {
        Node::start_many(1, wire, edit).await.remove(0)
    }

    /// Starts an ensemble, and waits until its nodes serve.
    pub(crate) async fn start_many(count: u64, wire: WireConfig, edit: impl Fn(&mut Config)) -> Vec<Node> {
        testkit::print_log();
        let listeners: Vec<TcpListener> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addr = |listener: &TcpListener| listener.local_addr().unwrap().to_string();
        let members: Vec<Member> = (1..)
            .zip(&listeners)
            .map(|(id, listener)| Member { id, peer_addr: addr(listener), http_addr: "127.0.0.1:1".into() })
            .collect();
        let starts = (1..).zip(listeners).map(|(node_id, listener)| {
            let (members, wire) = (members.clone(), wire.clone());
            let dir = tempfile::tempdir().unwrap();
            let mut config = Config {
                node_id,
                members,
                data_dir: dir.path().join("data"),
                free_disk_min_bytes: 0,
                ..Config::default()
            };
            if count > 1 {
                // Longer than a busy machine pauses a leader, which would not serve meanwhile.
                (config.election_timeout_min_ms, config.election_timeout_max_ms) = (2_000, 4_000);
            }
            edit(&mut config);
            async move {
                let limits = config.limits.clone();
                let replica = Replica::start_on(config, listener).await.unwrap();
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                let addr = listener.local_addr().unwrap();
                let (stop, stopped) = oneshot::channel();
                let door = tokio::spawn(wire::serve(listener, replica.clone(), wire, async {
                    let _ = stopped.await;
                }));
                let node = Node { replica, addr, stop: Some(stop), door: Some(door), _dir: dir };
                // The server writes this znode last at its start: tests begin after that.
                let config = ZPath::parse("/zookeeper/config").unwrap();
                let told = |state: &znode::State| state.node(&config).is_some_and(|node| !node.data().is_empty());
                node.wait_until(|state| *state.limits() == limits && told(state)).await;
                node
            }
        });
        futures_util::future::join_all(starts).await
    }

    /// Opens a client whose session has a timeout of 30 seconds.
    pub(crate) async fn client(&self) -> Client {
        Client::open(self.addr, 30_000).await
    }

    /// Waits until `wanted` is true for a linearizable read of the state at this node.
    pub(crate) async fn wait_until(&self, wanted: impl Fn(&znode::State) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if self.replica.read(Consistency::Linearizable, deadline).await.is_ok_and(|state| wanted(&state)) {
                return;
            }
            assert!(Instant::now() < deadline, "the state does not become as wanted");
            tokio::task::yield_now().await;
        }
    }

    /// Stops the server for ZooKeeper clients, as the end of the program does.
    pub(crate) async fn close_door(&mut self) {
        drop(self.stop.take());
        self.door.take().unwrap().await.unwrap().unwrap();
    }
}
