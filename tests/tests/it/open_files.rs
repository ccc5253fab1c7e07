//! Nodes that may have few files open: clients use up no descriptor that the disk or a peer needs.

use std::net::TcpStream;

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::harness::{Call, Client, Cluster, Options, until};

/// Limit of open files that is enough for the node's own files, but not for all connections that it
/// would accept.
const LIMIT: u64 = 512;

/// Limit of open files that is above the number of connections that the node accepts.
const ENOUGH: u64 = 1_024;

/// Log line of a node whose disk waits for a descriptor.
const OUT_OF_DESCRIPTORS: &str = "no descriptor is left for a file of the disk";

fn limited(open_files_max: u64) -> Options {
    Options { open_files_max: Some(open_files_max), ..Options::default() }
}

/// Body of one write.
const DATA: usize = 1_000_000;

/// Writes more than the 64 MiB that a file of the log holds: a new file is opened meanwhile.
async fn fill_log_file(writer: &mut Client) {
    for number in 0..70 {
        until(&format!("write {number} is done"), async || write(writer).await.then_some(())).await;
    }
}

/// Replaces the data of a znode, so that the log grows and the state does not. True if that is
/// done.
async fn write(writer: &mut Client) -> bool {
    writer.send(Call::put("/v1/znodes/w").body(vec![b'x'; DATA])).await.is_ok_and(|answer| answer.status == 200)
}

#[tokio::test]
async fn silent_connections_cost_no_node_its_log() {
    let mut cluster = Cluster::start_with(limited(LIMIT)).await;
    let leader = cluster.leader().await;
    let mut writer = cluster.client(leader);
    writer.create("/v1/znodes/w", "").await;
    // The connections are more than the node may have open.
    let silent: Vec<TcpStream> =
        (0..LIMIT + 100).map(|_| TcpStream::connect(cluster.endpoint(leader)).unwrap()).collect();
    fill_log_file(&mut writer).await;
    for id in cluster.ids() {
        assert!(cluster.ended(id).is_none(), "node {id} has ended:\n{}", cluster.log(id));
        assert!(cluster.log(id).contains("fewer connections than configured"), "{}", cluster.log(id));
    }
    drop(silent);
    cluster.all_ready().await;
}

/// Limits the descriptors that a running process may open to numbers below `below`.
fn let_open(process: Pid, below: u64) {
    let limit = Rlimit { current: Some(below), maximum: Some(ENOUGH) };
    prlimit(Some(process), Resource::Nofile, limit).unwrap();
}

/// The number after the highest descriptor that the process holds in reserve (open on `/`).
fn behind_the_spare_ones(process: Pid) -> u64 {
    let open = std::fs::read_dir(format!("/proc/{}/fd", process.as_raw_nonzero())).unwrap().map(Result::unwrap);
    let spare = open.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|file| file.as_os_str() == "/"));
    let highest = spare.filter_map(|fd| fd.file_name().to_str().unwrap().parse::<u64>().ok()).max();
    highest.unwrap_or(2) + 1
}

#[tokio::test]
async fn a_node_without_a_descriptor_for_its_log_goes_on_when_there_is_one() {
    let cluster =
        Cluster::start_with(Options { nodes: 1, settings: "disk.snapshot_log_bytes = \"16MiB\"", ..limited(ENOUGH) });
    let mut cluster = cluster.await;
    let leader = cluster.leader().await;
    let mut writer = cluster.client(leader);
    writer.create("/v1/znodes/w", "").await;
    let process = cluster.pid(leader);

    // Only the reserved descriptors are left: they are enough for a while.
    let_open(process, behind_the_spare_ones(process));
    fill_log_file(&mut writer).await;
    assert!(cluster.ended(leader).is_none(), "{}", cluster.log(leader));

    // No descriptor is left.
    let_open(process, 0);
    until("the node is out of descriptors", async || {
        assert!(cluster.ended(leader).is_none(), "{}", cluster.log(leader));
        write(&mut writer).await;
        cluster.log(leader).contains(OUT_OF_DESCRIPTORS).then_some(())
    })
    .await;
    let_open(process, ENOUGH);
    fill_log_file(&mut writer).await;
    assert!(cluster.ended(leader).is_none(), "{}", cluster.log(leader));
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
