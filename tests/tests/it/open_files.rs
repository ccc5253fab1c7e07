//! Nodes that may have few files open: clients use up no descriptor that the disk or a peer needs.

use std::net::TcpStream;

use crate::harness::{Call, Cluster, Options, until};

/// Limit of open files: more than a node needs, and less than it would take from clients.
const LIMIT: u64 = 512;

fn limited(open_files_max: u64) -> Options {
    Options { open_files_max: Some(open_files_max), ..Options::default() }
}

#[tokio::test]
async fn silent_connections_cost_no_node_its_log() {
    let mut cluster = Cluster::start_with(limited(LIMIT)).await;
    let leader = cluster.leader().await;
    let mut writer = cluster.client(leader);
    writer.create("/v1/znodes/w", "").await;
    // More than it may have open.
    let silent: Vec<TcpStream> =
        (0..LIMIT + 100).map(|_| TcpStream::connect(cluster.endpoint(leader)).unwrap()).collect();
    // A file of the log holds 64 MiB: new ones are opened meanwhile.
    for number in 0..70 {
        let call = Call::post(format!("/v1/znodes/w/{number}")).body(vec![b'x'; 1_000_000]);
        let what = format!("write {number} is done");
        until(&what, async || {
            let answer = writer.send(call.clone()).await.ok()?;
            matches!(answer.status, 201 | 409).then_some(())
        })
        .await;
    }
    for id in cluster.ids() {
        assert!(cluster.ended(id).is_none(), "node {id} has ended:\n{}", cluster.log(id));
        assert!(cluster.log(id).contains("fewer connections than configured"), "{}", cluster.log(id));
    }
    drop(silent);
    cluster.all_ready().await;
}

#[tokio::test]
async fn a_node_that_may_have_too_few_open_does_not_start() {
    let mut cluster = Cluster::prepare(Options { nodes: 1, ..limited(100) }).await;
    cluster.restart(1);
    let ended = until("it has ended", async || cluster.ended(1)).await;
    assert!(!ended.success());
    assert!(cluster.log(1).contains("may have 100 open files, and a node needs 448 at least"), "{}", cluster.log(1));
}
