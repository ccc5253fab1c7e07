//! Two processes with the id of one member, as after a copy of its machine: the members serve the
//! first, refuse the second, and say so.

use std::path::Path;

use testkit::{Ports, Process, serve};

use crate::harness::{Cluster, PROGRAM, until};

#[tokio::test]
async fn a_second_process_with_one_id_is_refused() {
    let mut cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    let id = cluster.ids().into_iter().find(|id| *id != leader).unwrap();
    cluster.client(id).create("/v1/znodes/before", "").await;
    // The copy has the member's id and settings, addresses of its own, and an empty directory.
    let ports = Ports::claim(3).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (config, log) = (dir.path().join("copy.toml"), dir.path().join("copy.log"));
    std::fs::write(&config, copy(&cluster, id, &ports, dir.path())).unwrap();
    let mut twin = Process::start(serve(Path::new(PROGRAM), &config), &log).unwrap();
    let told = || std::fs::read_to_string(&log).unwrap_or_default();
    let own_words = "two nodes have the id of this node";
    until("the copy says why it is refused", async || told().contains(own_words).then_some(())).await;
    let words = format!("two nodes say that they are node {id}");
    until("the leader says so", async || cluster.log(leader).contains(&words).then_some(())).await;
    assert!(!told().contains("story: ready"), "{}", told());
    cluster.client(id).create("/v1/znodes/beside", "").await;
    // Once the first process is gone, the second is let in.
    let let_in = "a peer has come back with another data directory";
    assert!(!cluster.log(leader).contains(let_in), "{}", cluster.log(leader));
    cluster.kill(id);
    until("the copy is let in", async || cluster.log(leader).contains(let_in).then_some(())).await;
    assert!(twin.ended().unwrap().is_none());
}

/// Configuration of a member with other addresses of its own and another data directory.
fn copy(cluster: &Cluster, id: u64, ports: &Ports, dir: &Path) -> String {
    let text = std::fs::read_to_string(cluster.config(id)).unwrap();
    let lines = text.lines().map(|line| {
        if line.contains(&format!("{{ id = {id},")) {
            format!("  {{ id = {id}, peer_addr = \"{}\", http_addr = \"{}\" }},", ports.addr(0), ports.addr(1))
        } else if line.starts_with("peers.listen") {
            format!("peers.listen = \"{}\"", ports.addr(0))
        } else if line.starts_with("zookeeper.listen") {
            format!("zookeeper.listen = \"{}\"", ports.addr(2))
        } else if line.starts_with("node.data_dir") {
            format!("node.data_dir = {:?}", dir.join("data"))
        } else {
            line.to_owned()
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}
