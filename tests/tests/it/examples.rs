//! The Rust client's examples, as they are, against a real cluster.

#![allow(dead_code, reason = "each has a main of its own")]

use std::time::Duration;

use zlock_client::Client;

use crate::harness::{Cluster, Options};

#[path = "../../../crates/client/examples/guarded_write.rs"]
mod guarded_write;
#[path = "../../../crates/client/examples/lock.rs"]
mod lock;
#[path = "../../../crates/client/examples/watch.rs"]
mod watch;

#[tokio::test]
async fn the_examples_run() {
    let cluster = Cluster::start_with(Options { nodes: 1, ..Options::default() }).await;
    lock::run(cluster.endpoints()).await.unwrap();
    guarded_write::run(cluster.endpoints()).await.unwrap();
    let client = Client::builder(cluster.endpoints()).operation_timeout(Duration::from_secs(60)).build().unwrap();
    let node = client.get("/example-state").await.unwrap();
    assert_eq!(&*node.data, b"written by the holder");
    // The watch goes on until the znode has gone.
    let gone = async {
        client.delete("/example-state").await.unwrap();
    };
    watch::run(cluster.endpoints(), "/example-state", Some(node.stat.mzxid - 1), gone).await.unwrap();
}
