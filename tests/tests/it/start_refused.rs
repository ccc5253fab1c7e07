//! A node that must not start: it prints the reason, and ends with the documented exit code.

use crate::harness::{Call, Cluster, Options, run_to_end, until};

const REFUSED: i32 = 1;
const USAGE: i32 = 2;

#[track_caller]
fn check((code, stderr): (i32, String), want: i32, parts: &[&str]) {
    assert_eq!(code, want, "{stderr}");
    for part in parts {
        assert!(stderr.contains(part), "`{part}` is not in: {stderr}");
    }
}

#[tokio::test]
async fn a_wrong_configuration_is_refused_with_a_reason() {
    let cluster = Cluster::prepare(Options::default()).await;
    let config = cluster.config(1);
    let good = std::fs::read_to_string(config).unwrap();
    std::fs::write(config, format!("{good}\nelection_timout_min = 400\n")).unwrap();
    let name = config.display().to_string();
    let near = "unknown key `election_timout_min`; did you mean `raft.election_timeout_min`?";
    check(run_to_end(["serve"], Some(config)), REFUSED, &[near, &name]);
    std::fs::write(config, good).unwrap();
    check(
        run_to_end(["serve", "--raft-heartbeat-interval", "soon"], Some(config)),
        REFUSED,
        &["--raft-heartbeat-interval", "`soon`"],
    );
    check(run_to_end(["serve", "--raft-heartbeet", "1s"], Some(config)), USAGE, &["--raft-heartbeat-interval"]);
    check(run_to_end(["serve"], None), REFUSED, &["node.id is missing"]);
}

#[tokio::test]
async fn another_nodes_or_clusters_data_is_refused() {
    let mut cluster = Cluster::start().await;
    cluster.client(1).create("/v1/znodes/x", "").await;
    let taken = run_to_end(["serve"], Some(cluster.config(1)));
    check(taken, REFUSED, &["http.listen: cannot listen on", "in use"]);

    cluster.kill(1);
    let node2 = std::fs::read_to_string(cluster.config(2)).unwrap();
    let node1 = std::fs::read_to_string(cluster.config(1)).unwrap();
    let data1 = node1.lines().find(|line| line.starts_with("node.data_dir")).unwrap();
    let data2 = node2.lines().find(|line| line.starts_with("node.data_dir")).unwrap();
    cluster.kill(2);
    std::fs::write(cluster.config(2), node2.replace(data2, data1)).unwrap();
    check(run_to_end(["serve"], Some(cluster.config(2))), REFUSED, &["node 1", "node 2"]);
    std::fs::write(cluster.config(2), node2).unwrap();
    check(
        run_to_end(["serve", "--node-cluster-id", "other"], Some(cluster.config(1))),
        REFUSED,
        &["\"test\"", "\"other\""],
    );

    // The data is untouched: both start as before.
    cluster.restart(1);
    cluster.restart(2);
    cluster.all_ready().await;
    until("the znode is there", async || {
        cluster.client(1).send(Call::get("/v1/znodes/x")).await.ok().filter(|answer| answer.status == 200)
    })
    .await;
}
