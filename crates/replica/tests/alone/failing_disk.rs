//! A node whose disk fails stops.

use std::time::Duration;

use crate::ensemble::{Ensemble, LONG, create, path, set, soon, write};
use replica::{Error, Readiness, Step, WaitEnd, WatchKey};
use tokio::time::{Instant, timeout};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_disk_fails_says_so_and_serves_nothing_any_more() {
    let _turn = fail::FailScenario::setup();
    let mut ensemble = Ensemble::started(1, |_| {}).await;
    let node = ensemble.node(0).clone();
    write(&node, create("/", "a", b"")).await;
    let failed = node.failed();
    fail::cfg("log.flush", "return").unwrap();
    let outcome = node.propose(set("/a", b"x"), Instant::now() + Duration::from_secs(3)).await;
    assert!(matches!(outcome, Err(Error::Unknown { .. })), "{outcome:?}");
    let reason = timeout(LONG, failed).await.unwrap();
    assert!(!reason.to_string().is_empty());
    assert_eq!(node.status().ready, Readiness::Stopped);
    let outcome = node.propose(set("/a", b"x"), soon()).await;
    assert!(matches!(outcome, Err(Error::Unavailable { .. })), "{outcome:?}");
    let wait = node.wait_for(soon(), |_| Step::<()>::Watch(WatchKey::Node(path("/a")))).await;
    assert_eq!(wait, Err(WaitEnd::Stopped));
    fail::remove("log.flush");
    ensemble.stop_all().await;
}
