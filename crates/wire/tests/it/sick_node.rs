//! Clients of a node that cannot serve, such as one with a stalled disk.

use std::time::{Duration, Instant};

use jute::ConnectRequest;
use wire::WireConfig;

use crate::client::{Client, create, greet};
use crate::node::{Node, PATIENCE};

/// Longest time from the stall of a node's disk until its clients are disconnected. It is below the
/// session timeout, and far above the time after which a disk counts as stalled.
const LET_GO: Duration = Duration::from_secs(15);
/// Flag of a create whose znode gets a number, so that it can be repeated.
const SEQUENTIAL: i32 = 2;

/// Guard that ends the simulated stall of the disk, even if the test fails: the end of the node
/// waits for the disk's thread.
struct DiskStall;

impl DiskStall {
    fn begin() -> DiskStall {
        fail::cfg("log.flushed", "pause").unwrap();
        DiskStall
    }
}

impl Drop for DiskStall {
    fn drop(&mut self) {
        fail::remove("log.flushed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_a_node_whose_disk_hangs_are_sent_away_and_come_back_to_their_sessions() {
    let node = Node::start_with(WireConfig::default(), |config| config.disk_stall_max_ms = 1_500).await;
    let (mut writer, mut idle) = (node.client().await, node.client().await);
    let (stalled, begun) = (DiskStall::begin(), Instant::now());
    writer.send(&create("/a", 0)).await;
    assert_eq!(writer.packet().await, None, "the connection is closed");
    assert_eq!(idle.packet().await, None, "also of one that writes nothing");
    assert!(begun.elapsed() < LET_GO, "{:?}", begun.elapsed());
    for asked in [ConnectRequest { timeout_ms: 9_000, ..ConnectRequest::default() }, idle.resumption()] {
        assert!(greet(node.addr, &asked).await.2.is_none(), "it lets no client in meanwhile");
    }
    drop(stalled);
    node.wait_until(|state| state.session_count() == 2).await;
    // The node may still send clients away for a moment after its first read.
    let deadline = Instant::now() + PATIENCE;
    let created = loop {
        let mut idle = Client::resume(node.addr, &idle).await;
        idle.send(&create("/b-", SEQUENTIAL)).await;
        if let Some(answer) = idle.packet().await {
            break answer;
        }
        assert!(Instant::now() < deadline, "the node does not keep its client");
    };
    assert_eq!(created.error, 0);
}
