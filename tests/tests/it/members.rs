//! Members of a cluster of processes, which come and go by an operator's commands while clients
//! write.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::cli::{done, run, zlock};
use crate::harness::{Call, Client, Cluster, Options, Pace, Ports, until};

/// Settings: the password of the super user is `secret`, and members become voters soon.
const SETTINGS: &str = "admin.super_digest = \"super:lK75jTNcA+U9vtVEw5vB51mj/w4=\"\nraft.promotion_delay = \"200ms\"";

pub(crate) async fn start(nodes: u64, joining: u64) -> Cluster {
    Cluster::start_with(Options { nodes, joining, settings: SETTINGS, ..Options::default() }).await
}

fn operator(cluster: &Cluster, args: &[&str]) -> Command {
    let mut command = zlock(cluster, args);
    command.env("ZLOCK_USER", "super:secret");
    command
}

/// Runs a command as an operator, and returns its output.
pub(crate) async fn operate(cluster: &Cluster, args: &[&str]) -> String {
    let (code, stdout, stderr) = run(operator(cluster, args)).await;
    assert_eq!(code, 0, "{args:?}: {stderr}");
    stdout
}

/// Runs a command that is refused. Returns its exit code and stderr.
async fn refused(cluster: &Cluster, args: &[&str]) -> (i32, String) {
    let (code, _, stderr) = run(operator(cluster, args)).await;
    assert_ne!(code, 0, "{args:?}");
    (code, stderr)
}

/// Waits until the list of the members has these words.
async fn listed(cluster: &Cluster, words: &str) {
    let what = format!("the members' list says `{words}`");
    until(&what, async || operate(cluster, &["member", "list"]).await.contains(words).then_some(())).await;
}

/// Returns a node as `ID=PEER/HTTP`, with the addresses in its configuration file.
pub(crate) fn named(cluster: &Cluster, id: u64) -> String {
    let text = std::fs::read_to_string(cluster.config(id)).unwrap();
    let line = text.lines().find(|line| line.contains(&format!("id = {id},"))).unwrap();
    let value = |key: &str| line.split(&format!("{key} = \"")).nth(1).unwrap().split('"').next().unwrap().to_owned();
    format!("{id}={}/{}", value("peer_addr"), value("http_addr"))
}

/// Writer that creates one znode after the other, until it is told to stop. It goes to the next
/// node when a node fails.
struct Load {
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<(u64, u64, Duration)>,
}

impl Load {
    fn start(endpoints: Vec<String>) -> Load {
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let task = tokio::spawn(async move {
            let mut clients: Vec<Client> = endpoints.iter().map(|endpoint| Client::new(endpoint)).collect();
            let (mut written, mut failed, mut longest, mut turn) = (0u64, 0u64, Duration::ZERO, 0);
            let mut last = Instant::now();
            let mut pace = Pace::new("a node writes");
            while !stopped.load(Ordering::Relaxed) {
                let count = clients.len();
                let call = Call::post(format!("/v1/znodes/w{written}")).within(Duration::from_secs(5));
                match clients[turn % count].send(call).await {
                    Ok(answer) if matches!(answer.status, 201 | 409) => {
                        longest = longest.max(last.elapsed());
                        last = Instant::now();
                        written += 1;
                    }
                    Ok(answer) if !matches!(answer.status, 503 | 504) => panic!("{answer:?}"),
                    _ => {
                        failed += 1;
                        turn += 1;
                        pace.next().await;
                    }
                }
            }
            (written, failed, longest)
        });
        Load { stop, task }
    }

    /// Stops the writer. Returns the number of writes, the failed tries, and the longest time
    /// without a write.
    async fn end(self) -> (u64, u64, Duration) {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

#[tokio::test]
async fn a_dead_node_is_replaced_by_one_command_under_load_and_may_not_come_back() {
    let mut cluster = start(3, 1).await;
    let leader = cluster.leader_among(&[1, 2, 3]).await;
    let dead = (1..=3).find(|id| *id != leader).unwrap();
    let load = Load::start(cluster.endpoints());
    cluster.kill(dead);
    let new = named(&cluster, 4);
    let (_, words) = refused(&cluster, &["member", "replace", &dead.to_string(), &new]).await;
    assert!(words.contains("start it first, with `node.joining = true`"), "{words}");
    cluster.start_joining(4).await;
    let began = Instant::now();
    operate(&cluster, &["member", "replace", &dead.to_string(), &new, "--wait", "60s"]).await;
    let took = began.elapsed();
    listed(&cluster, "one voter may fail").await;
    let left: Vec<u64> = (1..=4).filter(|id| *id != dead).collect();
    cluster.leader_among(&left).await;
    let (written, failed, longest) = load.end().await;
    eprintln!("replaced in {took:?}: {written} writes, {failed} failed tries, longest pause {longest:?}");
    assert!(written > 0);
    // Two of these three nodes are a quorum, and the new node is one of the two.
    let other = left.iter().copied().find(|id| *id != 4).unwrap();
    cluster.kill(other);
    cluster.client(4).create("/v1/znodes/after", "").await;
    cluster.restart(other);
    // The node that was replaced comes back with its old data.
    cluster.restart(dead);
    let status = until("the removed node has ended", async || cluster.ended(dead)).await;
    assert_eq!(status.code(), Some(4), "{}", cluster.log(dead));
    assert!(cluster.log(dead).contains("was removed from the cluster at zxid"), "{}", cluster.log(dead));
    let again = named(&cluster, dead);
    let (_, words) = refused(&cluster, &["member", "add", &again]).await;
    assert!(words.contains("an id is never used again"), "{words}");
}

#[tokio::test]
async fn three_nodes_become_five_and_the_leader_goes_where_it_is_told_to() {
    let mut cluster = start(3, 2).await;
    for id in [4, 5] {
        cluster.start_joining(id).await;
        let listed = operate(&cluster, &["member", "add", &named(&cluster, id), "--zone", "east"]).await;
        assert_eq!(listed.matches("  voter  ").count(), id as usize, "{listed}");
    }
    listed(&cluster, "2 voters may fail").await;
    // A busy machine may change the leader meanwhile, or delay the successor's answers, without
    // which the leader refuses.
    let to = until("the leadership is transferred", async || {
        let leader = cluster.leader().await;
        let to = if leader == 5 { 4 } else { 5 };
        let (code, told, words) = run(operator(&cluster, &["leader", "transfer", &to.to_string()])).await;
        eprintln!("node {leader} leads: {told}{words}");
        (code == 0 && told.starts_with(&format!("node {to} leads instead of node {leader}"))).then_some(to)
    })
    .await;
    assert_eq!(cluster.leader().await, to);
    // The new leader is removed: another one leads, and five become four.
    operate(&cluster, &["member", "remove", &to.to_string()]).await;
    let status = until("the removed leader has ended", async || cluster.ended(to)).await;
    assert_eq!(status.code(), Some(4), "{}", cluster.log(to));
    let left: Vec<u64> = (1..=5).filter(|id| *id != to).collect();
    cluster.leader_among(&left).await;
    cluster.client(1).create("/v1/znodes/four", "").await;
    let (_, words) = refused(&cluster, &["leader", "transfer", &to.to_string()]).await;
    assert!(words.contains("is no voter"), "{words}");
    // Only an operator can change the members.
    let (code, _, stderr) = run(zlock(&cluster, &["member", "remove", "1"])).await;
    assert!(code != 0 && stderr.contains("operators"), "{stderr}");
}

#[tokio::test]
async fn a_node_of_another_cluster_does_not_join() {
    let mut cluster = start(3, 1).await;
    // Node 4 was a cluster of its own, of the same name.
    let config = cluster.config(4).to_owned();
    let joining = std::fs::read_to_string(&config).unwrap();
    let own: String = joining
        .lines()
        .filter(|line| !(1..4).any(|id| line.contains(&format!("{{ id = {id},"))))
        .collect::<Vec<_>>()
        .join("\n");
    std::fs::write(&config, own.replace("node.joining = true", "node.joining = false")).unwrap();
    cluster.restart(4);
    until("it is a cluster of its own", async || cluster.status(4).await.filter(|status| status.leader == Some(4)))
        .await;
    cluster.client(4).create("/v1/znodes/own", "").await;
    cluster.stop(4).await;
    std::fs::write(&config, joining).unwrap();
    cluster.start_joining(4).await;
    // The order does not go to node 4: as a cluster of its own it would say that it is a member
    // already.
    let mut add = operator(&cluster, &["member", "add", &named(&cluster, 4)]);
    add.env("ZLOCK_ENDPOINTS", cluster.endpoints()[..3].join(","));
    let (code, _, words) = run(add).await;
    assert!(code != 0 && words.contains("their uuids differ"), "{words}");
    let status = done(&cluster, &["status"]).await;
    assert_eq!(status.lines().filter(|line| line.starts_with("127.0.0.1:")).count(), 4, "{status}");
}

/// Address of a node's listener for peers, as its configuration file has it.
fn peer_addr(cluster: &Cluster, id: u64) -> String {
    named(cluster, id).split(['=', '/']).nth(1).unwrap().to_owned()
}

#[tokio::test]
async fn a_member_that_has_moved_is_found_at_its_new_address() {
    let mut cluster = start(3, 0).await;
    // A node 3 of a cluster of the same name that is not founded yet has no uuid, but other data.
    let mut other = Cluster::prepare(Options { settings: SETTINGS, ..Options::default() }).await;
    other.start_joining(3).await;
    cluster.stop(3).await;
    cluster.leader_among(&[1, 2]).await;
    let (_, words) = refused(&cluster, &["member", "update", "3", "--peer", &peer_addr(&other, 3)]).await;
    assert!(words.contains("has another data directory than node 3"), "{words}");
    let (_, words) = refused(&cluster, &["member", "update", "3", "--peer", &peer_addr(&cluster, 2)]).await;
    assert!(words.contains("node 3 does not answer at"), "{words}");
    other.kill(3);

    let ports = Ports::claim(1).unwrap();
    let (old, new) = (peer_addr(&cluster, 3), ports.addr(0));
    let config = std::fs::read_to_string(cluster.config(3)).unwrap();
    std::fs::write(cluster.config(3), config.replace(&old, &new)).unwrap();
    cluster.start_joining(3).await;
    let listed = operate(&cluster, &["member", "update", "3", "--peer", &new]).await;
    assert!(listed.contains(&new) && !listed.contains(&old), "{listed}");
    // With one of the others, the moved node is a quorum.
    let leader = cluster.leader().await;
    cluster.kill(if leader == 1 { 2 } else { 1 });
    cluster.client(3).create("/v1/znodes/moved", "").await;
}

#[tokio::test]
async fn a_learner_votes_once_promoted_and_an_observer_never() {
    let mut cluster = start(3, 2).await;
    cluster.start_joining(4).await;
    let listed = operate(&cluster, &["member", "add", &named(&cluster, 4), "--no-promote"]).await;
    assert!(listed.contains("4     learner "), "{listed}");
    cluster.start_joining(5).await;
    let listed = operate(&cluster, &["member", "add", &named(&cluster, 5), "--observer"]).await;
    assert!(listed.contains("5     observer "), "{listed}");

    // The observer serves reads and watches.
    cluster.client(1).create("/v1/znodes/seen", "by all").await;
    let read = until("the observer serves", async || {
        let answer = cluster.client(5).send(Call::get("/v1/znodes/seen")).await.ok()?;
        (answer.status == 200).then_some(answer)
    })
    .await;
    cluster.client(1).send(Call::delete("/v1/znodes/seen")).await.unwrap();
    let watch = format!("/v1/znodes/seen?watch=data&since={}&wait=60s", read.zxid().unwrap());
    let told = cluster.client(5).send(Call::get(watch)).await.unwrap();
    assert!(told.status == 200 && String::from_utf8_lossy(&told.body).contains("deleted"), "{told:?}");

    let (_, words) = refused(&cluster, &["member", "promote", "5"]).await;
    assert!(words.contains("node 5 is an observer"), "{words}");
    // The learner has all entries by now, and still waits for the order.
    cluster.catches_up(4, 1).await;
    assert_eq!(operate(&cluster, &["member", "list"]).await.matches("  voter  ").count(), 3);
    let listed = until("the learner is promoted", async || {
        let (code, stdout, _) = run(operator(&cluster, &["member", "promote", "4"])).await;
        (code == 0).then_some(stdout)
    })
    .await;
    assert!(listed.matches("  voter  ").count() == 4 && listed.contains("5     observer "), "{listed}");
}
