//! Tests of proposals, and a leader for tests of other modules.

use std::time::Duration;

use futures_util::FutureExt;
use tokio::task::yield_now;
use znode::{Create, ZPath, ZnodeOp};

use super::*;
use crate::node::Node;
use crate::{Config, Member};

pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

pub(crate) fn create(name: &str) -> Request {
    Request::new(Op::Znode(ZnodeOp::Create(Create::new(ZPath::root(), name))))
}

/// Starts a node that is the only one of its ensemble, leads, and allows four proposals at the
/// same time.
pub(crate) async fn leader(data_dir: &tempfile::TempDir) -> Arc<Node> {
    leader_with(data_dir, |config| config.proposals_max = 4).await
}

/// Starts a node that is the only one of its ensemble, and leads. `change` adapts its
/// configuration.
pub(crate) async fn leader_with(data_dir: &tempfile::TempDir, change: impl FnOnce(&mut Config)) -> Arc<Node> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    let mut config = Config {
        node_id: 1,
        cluster_id: "test".into(),
        zxid_base: Some(0),
        members: vec![Member { id: 1, peer_addr: addr.clone(), http_addr: addr }],
        data_dir: data_dir.path().join("node"),
        free_disk_min_bytes: 0,
        ..Config::default()
    };
    change(&mut config);
    let node = Node::start(config, listener).await.unwrap();
    while let Err(error) = node.proposer.propose(create("first"), soon()).await {
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    }
    node
}

/// The disk stalls at the failpoint `log.flushed`. A proposal whose deadline passes or whose
/// client hangs up still counts for the limit on proposals, because Raft still holds it. Nodes
/// of other tests in this process stop at the failpoint, too, and only wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_keeps_its_place_until_raft_lets_go_of_it() {
    let data_dir = tempfile::TempDir::new().unwrap();
    let node = leader(&data_dir).await;
    fail::cfg("log.flushed", "pause").unwrap();
    let (mut own, mut of_peers) = (Vec::new(), Vec::new());
    let overdue = node.proposer.propose(create("overdue"), Instant::now() + Duration::from_millis(200)).await;
    for at in 1..20 {
        // The write has begun, and its future is dropped at once.
        own.push(node.proposer.propose(create(&format!("own-{at}")), soon()).now_or_never());
        yield_now().await;
        let request = encode_request(&create(&format!("peer-{at}")));
        of_peers.push(node.proposer.propose_for_peer(&request, soon()).now_or_never());
        yield_now().await;
    }
    fail::remove("log.flushed");
    assert!(matches!(overdue, Err(Error::Unknown { .. })), "{overdue:?}");
    assert!(own[..3].iter().all(Option::is_none) && of_peers[..4].iter().all(Option::is_none));
    assert!(own[3..].iter().all(|end| matches!(end, Some(Err(Error::Unavailable { .. })))), "{own:?}");
    let refused = |end: &Option<Answer>| matches!(end, Some(Answer::Propose(ProposeAnswer::Unavailable { .. })));
    assert!(of_peers[4..].iter().all(refused), "{of_peers:?}");
    // The disk goes on, and no proposal counts as under way any more.
    while node.proposer.proposals.count() + node.proposer.peer_proposals.count() > 0 {
        yield_now().await;
    }
    for at in 0..8 {
        node.proposer.propose(create(&format!("after-{at}")), soon()).await.unwrap();
    }
    let state = node.view.state();
    let exists = |name: &str| state.node(&ZPath::parse(name).unwrap()).is_some();
    assert!(exists("/overdue") && exists("/own-3") && exists("/peer-4") && !exists("/own-4") && !exists("/peer-5"));
    node.shutdown().await;
}

#[tokio::test]
async fn a_write_that_is_done_is_waited_for_also_while_its_node_cannot_serve() {
    let data_dir = tempfile::TempDir::new().unwrap();
    let node = leader(&data_dir).await;
    let next = Zxid(node.view.applied().0 + 1);
    let mut waits = std::pin::pin!(node.proposer.is_applied_here(next, soon()));
    assert_eq!(waits.as_mut().now_or_never(), None);
    node.view.suspend(true);
    assert_eq!(waits.as_mut().now_or_never(), None, "the outcome is known");
    node.view.suspend(false);
    node.proposer.propose(create("next"), soon()).await.unwrap();
    assert!(waits.await);
    let waits = node.proposer.is_applied_here(Zxid(u64::MAX), soon());
    let (applied, ()) = tokio::join!(waits, node.shutdown());
    assert!(!applied);
}

fn multi(ops: usize) -> Vec<u8> {
    let check = ZnodeOp::Check { path: ZPath::root(), version: -1 };
    encode_request(&Request::new(Op::Multi(vec![check; ops])))
}

// An entry that no replica can read would end every node, and again at each start.
#[tokio::test]
async fn a_txn_that_no_replica_could_read_back_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = leader(&dir).await;
    // The request is short enough to be proposed, and takes more memory than a reader allows.
    let ops = 200_000;
    assert!(!is_readable(&multi(ops), decode_request));
    let check = ZnodeOp::Check { path: ZPath::root(), version: -1 };
    let refused = node.proposer.propose(Request::new(Op::Multi(vec![check; ops])), soon()).await;
    assert!(matches!(refused, Err(Error::Refused(znode::Error::DataTooLarge))), "{refused:?}");
    node.proposer.propose(create("after"), soon()).await.unwrap();
    node.shutdown().await;
}

#[test]
fn what_counts_as_surely_readable_is() {
    // The smallest operations take the most memory for each byte of an entry.
    let bytes_each = multi(2_001).len() - multi(2_000).len();
    let most = multi(SURELY_READABLE_BYTES / bytes_each - 10);
    assert!(most.len() > SURELY_READABLE_BYTES - 1_000 && most.len() <= SURELY_READABLE_BYTES);
    assert!(decode_request(&most).is_ok());
    let beyond = multi(BYTES_MAX / bytes_each / 2);
    assert!(beyond.len() <= BYTES_MAX && !is_readable(&beyond, decode_request));
}
