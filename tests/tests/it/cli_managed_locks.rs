//! `zlock lock` on simple locks (one znode, no queue) and on managed locks (queues with priorities
//! and hand-over); `zlock settings`.

use std::net::TcpListener;
use std::process::{Child, Stdio};
use std::time::Duration;

use zlock_client::Client;

use crate::cli::{SHORT, done, run, zlock};
use crate::harness::{Cluster, Options, until};

/// Starts `zlock lock` with a command that writes a line and ends at once.
fn locked(cluster: &Cluster, args: &[&str], file: &str) -> Child {
    let mut all = vec!["lock", "l"];
    all.extend(args);
    let script = "echo $1 >> $0";
    all.extend(["--", "sh", "-c", script, file, args.last().unwrap()]);
    zlock(cluster, &all).spawn().unwrap()
}

async fn ended(mut child: Child) {
    assert!(until("it has ended", async || child.try_wait().unwrap()).await.success());
}

fn client(cluster: &Cluster) -> Client {
    Client::builder(cluster.endpoints()).poll_time(Duration::from_secs(2)).build().unwrap()
}

#[tokio::test]
async fn a_managed_lock_goes_by_priority_and_to_the_one_named_although_the_leader_dies() {
    let mut cluster = Cluster::start().await;
    let client = client(&cluster);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("order").to_str().unwrap().to_owned();
    let hand_over = ["lock", "l", "--hand-over", "low", "--wait", "0", "--", "true"];
    let (code, _, stderr) = run(zlock(&cluster, &hand_over)).await;
    assert!(code == 125 && stderr.contains("zlock settings /l --managed"), "{code}: {stderr}");
    assert_eq!(done(&cluster, &["settings", "l"]).await, "as any lock\n");
    assert_eq!(done(&cluster, &["settings", "l", "--managed"]).await, "managed\n");
    let more = done(&cluster, &["settings", "l", "--waiters-max", "3"]).await;
    assert_eq!(more, "managed, at most 3 waiters\n", "what is not named stays");
    assert_eq!(done(&cluster, &["settings", "l", "--json"]).await, "{\"managed\":true,\"waiters_max\":3}\n");

    let held = client.lock("/l").acquire().await.unwrap();
    let mut children = Vec::new();
    let wishes: [&[&str]; 3] = [
        &["--label", "low"],
        &["--priority", "1", "--label", "middle"],
        &["--priority", "2", "--hand-over", "low", "--label", "high"],
    ];
    for (n, wish) in wishes.into_iter().enumerate() {
        children.push(locked(&cluster, wish, &file));
        until("it waits", async || (client.lock_queue("/l").await.unwrap().waiters.len() == n + 1).then_some(())).await;
    }
    let shown = done(&cluster, &["locks", "l"]).await;
    assert!(shown.contains("waits with priority 2"), "{shown}");
    let (code, _, stderr) = run(zlock(&cluster, &["lock", "l", "--", "true"])).await;
    assert!(code == 125 && stderr.lines().count() == 1, "the queue is full: {code}: {stderr}");
    let leader = cluster.leader().await;
    cluster.kill(leader);
    held.release().await.unwrap();
    for child in children {
        ended(child).await;
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "high\nlow\nmiddle\n");
    assert_eq!(done(&cluster, &["settings", "l", "--none"]).await, "as any lock\n");
}

#[tokio::test]
async fn a_simple_lock_is_one_znode_that_goes_with_the_command() {
    let cluster = Cluster::start().await;
    let client = client(&cluster);
    let show = ["lock", "cron", "--simple", "--label", "job", "--"];
    let script = ["sh", "-c", "echo $ZLOCK_TICKET $ZLOCK_FENCING_TOKEN"];
    let shown = done(&cluster, &[&show[..], &script].concat()).await;
    assert!(shown.starts_with("/cron "), "{shown}");
    let guard = client.simple_lock("/cron").owner("me").acquire().await.unwrap();
    assert!(guard.fencing_token() > shown.trim().rsplit(' ').next().unwrap().parse().unwrap());
    let (code, _, stderr) = run(zlock(&cluster, &["lock", "cron", "--simple", "--wait", "0", "--", "true"])).await;
    assert!(code == 124 && stderr.contains("`zlock get /cron`"), "{code}: {stderr}");
    assert_eq!(done(&cluster, &["get", "cron"]).await, "me");
    let waiting = zlock(&cluster, &["lock", "cron", "--simple", "--wait", "60s", "--", "true"]).spawn().unwrap();
    guard.release().await.unwrap();
    ended(waiting).await;
    assert!(client.simple_lock("/cron").holder().await.unwrap().is_none());
    assert_eq!(run(zlock(&cluster, &["lock", "cron", "--simple", "--shared", "--", "true"])).await.0, 2);
}

/// Child process that is killed when the test fails.
struct Waiting(Child);

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// First arguments of `zlock lock`: for a lock with a queue, and for a simple lock.
const KINDS: [&[&str]; 2] = [&["lock", "l"], &["lock", "s", "--simple"]];

#[tokio::test]
async fn no_lock_is_waited_for_where_no_node_answers() {
    let cluster = Cluster::prepare(Options { nodes: 1, ..Options::default() }).await;
    // The kernel accepts connections to this port, but no byte is ever sent on them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().map(|addr| (silent, addr.to_string())).unwrap();
    for kind in KINDS {
        for endpoint in ["127.0.0.1:1", &silent.1] {
            let options = ["--endpoints", endpoint, "--timeout", "1s", "--", "true"];
            let (code, _, stderr) = run(zlock(&cluster, &[kind, &options].concat())).await;
            assert!(code == 125 && stderr.contains(endpoint), "{kind:?}: {code}: {stderr}");
        }
    }
}

#[tokio::test]
async fn a_wait_without_an_end_ends_when_its_cluster_is_gone() {
    for goes in [|cluster: &mut Cluster| cluster.kill(1), |cluster: &mut Cluster| cluster.pause(1)] {
        let mut cluster = Cluster::start_with(Options { nodes: 1, ..Options::default() }).await;
        let client = client(&cluster);
        let held = (client.lock("/l").acquire().await.unwrap(), client.simple_lock("/s").acquire().await.unwrap());
        let waits = KINDS.map(|kind| {
            let options = ["--session-timeout", SHORT, "--label", "waits", "--", "true"];
            Waiting(zlock(&cluster, &[kind, &options].concat()).stderr(Stdio::null()).spawn().unwrap())
        });
        until("they have sessions", async || {
            let sessions = client.sessions().await.unwrap();
            (sessions.iter().filter(|session| session.label == "waits").count() == waits.len()).then_some(())
        })
        .await;
        goes(&mut cluster);
        for mut wait in waits {
            let ended = until("the wait has ended", async || wait.0.try_wait().unwrap()).await;
            assert_eq!(ended.code(), Some(125));
        }
        drop(held);
    }
}

#[tokio::test]
async fn a_limit_is_raised_and_lowered_in_use() {
    let cluster = Cluster::start_with(Options { nodes: 1, ..Options::default() }).await;
    let client = Client::builder(cluster.endpoints()).build().unwrap();
    let permits = client.semaphore("/pool", 2);
    let (one, two) = (permits.acquire().await.unwrap(), permits.acquire().await.unwrap());
    assert!(permits.try_acquire().await.unwrap().is_none());
    let said = done(&cluster, &["settings", "pool", "--permits-max", "3"]).await;
    assert_eq!(said, "a semaphore of 3 permits\n");
    let any = client.semaphore("/pool", None);
    let three = any.try_acquire().await.unwrap().unwrap();
    let (code, _, stderr) = run(zlock(&cluster, &["semaphore", "pool", "--permits-max", "2", "--", "true"])).await;
    assert!(code == 125 && stderr.contains("the semaphore has 3 permits, and permits_max is 2"), "{stderr}");

    done(&cluster, &["settings", "pool", "--permits-max", "1"]).await;
    one.release().await.unwrap();
    two.release().await.unwrap();
    assert!(three.is_safe() && any.try_acquire().await.unwrap().is_none(), "one holds, and there is one");
    let (code, _, stderr) = run(zlock(&cluster, &["semaphore", "pool", "--permits", "2", "--", "true"])).await;
    assert!(code == 125 && stderr.contains("2 are asked for, and the semaphore has 1"), "{stderr}");
    three.release().await.unwrap();
    done(&cluster, &["semaphore", "pool", "--wait", "0", "--", "true"]).await;

    let held = any.acquire().await.unwrap();
    let (code, _, stderr) = run(zlock(&cluster, &["settings", "pool", "--none"])).await;
    assert!(code == 1 && stderr.contains("zlock locks") && !stderr.contains("zlock rm"), "{stderr}");
    held.release().await.unwrap();
    let (_, _, stderr) = run(zlock(&cluster, &["semaphore", "new", "--", "true"])).await;
    assert!(stderr.contains("permits_max: it is missing"), "{stderr}");
}
