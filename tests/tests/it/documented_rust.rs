//! The Rust lines of docs/client.md and of the client's README.md, run as they are written against
//! a real cluster, with the test's endpoints. The last test checks that this file has every line of
//! these pages, in order.

#![allow(unused_variables, reason = "the pages name what they get")]

use std::path::Path;
use std::time::Duration;

use tokio::try_join;
use zlock_client::{Error, Guard, Leadership, LockMode, LockSettings, Mode, WatchKind};

use crate::harness::{Cluster, Options, until};

/// Endpoints in the Rust lines of docs/client.md and README.md. The tests use those of their own
/// cluster instead.
const ENDPOINTS: &str = "[\"node1:7001\",\"node2:7001\",\"node3:7001\"]";

type Ended = Result<(), Box<dyn std::error::Error>>;

async fn one_node() -> (Cluster, zlock_client::Client) {
    let cluster = Cluster::start_with(Options { nodes: 1, ..Options::default() }).await;
    let client = zlock_client::Client::connect(cluster.endpoints()).await.unwrap();
    (cluster, client)
}

#[tokio::test]
async fn the_lines_of_the_readme_run() -> Ended {
    let (cluster, _client) = one_node().await;
    let work = async |token: u64| assert!(token > 0);
    // Lines of the client's README.md.
    use zlock_client::Client;

    let client = Client::connect(cluster.endpoints()).await?;
    let done = client.run(async |client| {
        let lock = client.lock("/orders");
        let done = lock.with(async |guard| {
            // Show the token to what the lock protects: it rises with every grant.
            work(guard.fencing_token()).await
        });
        done.await
    });
    done.await?;
    Ok(())
}

#[tokio::test]
async fn the_first_lines_of_the_page_run() -> Ended {
    let (cluster, _client) = one_node().await;
    // Lines of docs/client.md.
    use zlock_client::Client;

    let client = Client::connect(cluster.endpoints()).await?;
    client
        .run(async |client| {
            let guard = client.lock("/orders").acquire().await?;
            client.create("/orders-done", "batch 7").if_lock(&guard).await?;
            guard.release().await
        })
        .await?;
    let client = Client::builder(cluster.endpoints()).session_timeout(Duration::from_secs(10)).build()?;
    client.get("/orders-done").await?;
    Ok(())
}

#[tokio::test]
async fn the_lines_about_locks_run() -> Ended {
    let (_cluster, client) = one_node().await;
    let work = async |guard: &Guard| guard.fencing_token();
    let lock = client.lock("/orders").owner("me").label("worker 7").lock_delay(Duration::from_secs(15));
    let guard = lock.acquire().await?;
    guard.release().await?;
    let maybe = lock.acquire_within(Duration::from_secs(30)).await?;
    maybe.unwrap().release().await?;
    let maybe = lock.try_acquire().await?;
    maybe.unwrap().release().await?;
    let sum = client.lock("/orders").with(async |guard| work(guard).await).await?;
    let reader = client.rw_lock("/catalogue").read().acquire().await?;
    let simple = client.simple_lock("/cron").acquire().await?;
    assert!(sum > 0 && reader.is_safe() && simple.is_safe());
    Ok(())
}

#[tokio::test]
async fn the_lines_about_the_other_recipes_run() -> Ended {
    let (cluster, client) = one_node().await;
    let permits = client.semaphore("/workers", 10).permits(3).acquire().await?;
    let permit = client.semaphore("/workers", None).acquire().await?;
    let both = client.multi_lock().and("/a", LockMode::Write).and_permits("/workers", 1, 10).acquire().await?;
    let again = client.multi_lock().and("/x", LockMode::Exclusive).owner("thread 3").acquire().await?;
    let leadership = client.election("/leader").campaign("node 7").await?;
    leadership.proclaim("10.0.0.7:80").await?;
    let lead = async |leadership: &Leadership| {
        let leader = client.election("/leader").leader().await.unwrap().unwrap();
        assert_eq!(leader.fencing_token, leadership.fencing_token());
    };
    leadership.run(async |leadership| lead(leadership).await).await?;
    let mut observer = client.election("/leader").observe();
    // The loop ends when the election has no leader.
    while let Some(leader) = observer.next().await? { /* its data, its fencing token */ }
    client.set_settings("/deploy", LockSettings { managed: true, waiters_max: Some(10), permits_max: None }).await?;
    let mut urgent = client.lock("/deploy").priority(5).acquire().await?;
    let waiter = client.clone();
    let waiting = tokio::spawn(async move { waiter.lock("/deploy").acquire().await });
    until("it waits", async || (client.lock_queue("/deploy").await.unwrap().contenders == 2).then_some(())).await;
    let next = client.lock("/deploy").queue().await?.waiters.remove(0);
    urgent.hand_over(&next.ticket).await?;
    assert_eq!(waiting.await??.ticket(), next.ticket);
    client.barrier("/gate").pass().await?;
    let others = async || {
        let one = zlock_client::Client::connect(cluster.endpoints()).await?;
        one.double_barrier("/start", 5).enter().await.map(|_| one)
    };
    let this = async {
        let together = client.double_barrier("/start", 5);
        together.enter().await?;
        Ok::<(), Error>(())
    };
    try_join!(this, others(), others(), others(), others())?;
    let (members, zxid) = client.group("/team").members().await?;
    assert!(permits.is_safe() && both.is_safe() && again.is_safe());
    Ok(())
}

#[tokio::test]
async fn the_lines_about_znodes_run() -> Ended {
    let (_cluster, client) = one_node().await;
    client.create("/app", "").await?;
    client.create("/app/b", "").await?;
    let created = client.create("/app/task-", "x").mode(Mode::PersistentSequential).await?;
    let node = client.get("/app").await?;
    client.set("/app", "y").version(node.stat.version).await?;
    // The version is 2 then.
    client.set("/app", "z").await?;
    client.txn().check("/app", Some(2)).create("/app/a", "1").delete("/app/b", None).commit().await?;

    let mut watcher = client.watch("/app", WatchKind::Subtree);
    watcher.resume_from(node.zxid);
    let event = watcher.next().await?;
    assert_eq!(event.path, "/app");
    Ok(())
}

/// The code of a page's Rust blocks, without comments and white space.
fn lines(page: &str) -> Vec<String> {
    let blocks = page.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default());
    let code = |line: &str| bare(line.split("// ").next().unwrap_or_default());
    blocks.flat_map(str::lines).map(code).filter(|line| !line.is_empty()).collect()
}

fn bare(text: &str) -> String {
    text.split_whitespace().collect()
}

#[test]
fn every_rust_line_of_the_pages_stands_here_in_their_order() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let here = bare(include_str!("documented_rust.rs"));
    let mut rest = here.as_str();
    for (name, least) in [("crates/client/README.md", 6), ("docs/client.md", 30)] {
        let lines = lines(&std::fs::read_to_string(root.join(name)).unwrap());
        assert!(lines.len() >= least, "{name} has {} lines of Rust", lines.len());
        for line in lines {
            let line = line.replace(ENDPOINTS, "cluster.endpoints()");
            let at = rest.find(&line).unwrap_or_else(|| panic!("{name}: no test here runs this line: {line}"));
            rest = &rest[at + line.len()..];
        }
    }
}
