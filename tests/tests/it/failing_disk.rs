//! A disk that takes no more bytes: the node ends and says so, and the others go on.

use rustix::process::{Resource, Rlimit, prlimit};
use zlock_client::api::ZnodeInfo;

use crate::harness::{Call, Cluster, until};

const FAILED: i32 = 3;
const FILE_MAX: u64 = 1 << 20;
const DATA: usize = 100_000;

#[tokio::test]
async fn a_node_whose_disk_fails_ends_and_comes_back_with_all_it_acknowledged() {
    let mut cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    let others: Vec<u64> = cluster.ids().into_iter().filter(|id| *id != leader).collect();
    // No file of the leader may grow beyond `FILE_MAX`: so writes to the Raft log fail, and lines
    // on stderr still fit.
    let limit = Rlimit { current: Some(FILE_MAX), maximum: Some(FILE_MAX) };
    prlimit(Some(cluster.pid(leader)), Resource::Fsize, limit).unwrap();

    let mut client = cluster.client(leader);
    let data = "x".repeat(DATA);
    let mut written = Vec::new();
    let code = until("the node has ended", async || {
        let path = format!("/v1/znodes/n{}", written.len());
        match client.send(Call::post(&path).body(data.clone())).await {
            Ok(answer) if answer.status == 201 => written.push(path),
            _ => {}
        }
        cluster.ended(leader).map(|status| status.code())
    })
    .await;
    assert_eq!(code, Some(FAILED), "{}", cluster.log(leader));
    assert!(cluster.log(leader).contains("this node cannot go on"), "{}", cluster.log(leader));
    eprintln!("{} writes were acknowledged before the disk failed", written.len());

    cluster.leader_among(&others).await;
    let mut client = cluster.client(others[0]);
    client.create("/v1/znodes/after", data.clone()).await;
    written.push("/v1/znodes/after".into());
    cluster.kill(leader);
    cluster.restart(leader);
    cluster.all_ready().await;
    let mut client = cluster.client(leader);
    for path in written {
        let found: ZnodeInfo = client.send(Call::get(&path)).await.unwrap().json();
        assert_eq!(found.data.as_ref(), Some(&data));
    }
}
