//! The Rust client's barriers against real processes. Barriers are plain znodes, and the client
//! does every step itself.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::JoinHandle;
use zlock_client::{AclEntry, Client, DistributedDoubleBarrier, Error, ProblemType};

use crate::harness::{Cluster, Proxy, Rule, until};

fn client(cluster: &Cluster) -> Client {
    let builder = Client::builder(cluster.endpoints()).label("test");
    builder.poll_time(Duration::from_secs(2)).attempt_timeout(Duration::from_secs(1)).build().unwrap()
}

/// Names of the children of the double barrier `/start`, with `ready` among them once enough
/// clients have entered.
async fn children(client: &Client) -> Vec<String> {
    client.children("/start").await.unwrap_or_default()
}

async fn is_ready(client: &Client) -> bool {
    client.exists("/start/ready").await.unwrap().is_some()
}

fn entering(member: &DistributedDoubleBarrier) -> JoinHandle<Result<(), Error>> {
    let member = member.clone();
    tokio::spawn(async move { member.enter().await })
}

fn leaving(member: &DistributedDoubleBarrier) -> JoinHandle<Result<(), Error>> {
    let member = member.clone();
    tokio::spawn(async move { member.leave().await })
}

async fn all_done(tasks: Vec<JoinHandle<Result<(), Error>>>) {
    join_all(tasks).await.into_iter().for_each(|done| done.unwrap().unwrap());
}

#[tokio::test]
async fn barriers_bring_clients_together() {
    let cluster = Cluster::start().await;
    let (one, two) = (client(&cluster), client(&cluster));
    let gate = one.barrier("/dir/gate");
    gate.open().await.unwrap();
    two.barrier("/dir/gate").pass().await.unwrap();
    gate.close().await.unwrap();
    gate.close().await.unwrap();
    let passing = tokio::spawn({
        let barrier = two.barrier("/dir/gate");
        async move { barrier.pass().await }
    });
    gate.open().await.unwrap();
    passing.await.unwrap().unwrap();

    let (left, right) = (one.double_barrier("/pair", 2), two.double_barrier("/pair", 2));
    let (first, second) = tokio::join!(left.enter(), right.enter());
    first.and(second).unwrap();
    let (first, second) = tokio::join!(left.leave(), right.leave());
    first.and(second).unwrap();
    let error = one.double_barrier("/pair", 0).enter().await.unwrap_err();
    assert_eq!(error.code(), Some(ProblemType::BadRequest), "{error}");
}

#[tokio::test]
async fn a_barrier_stays_closed_over_a_leaders_death_and_then_lets_all_pass() {
    let mut cluster = Cluster::start().await;
    let (keeper, waiter) = (client(&cluster), client(&cluster));
    keeper.barrier("/gate").close().await.unwrap();
    let passing: Vec<_> = (0..6)
        .map(|_| {
            let barrier = waiter.barrier("/gate");
            tokio::spawn(async move { barrier.pass().await })
        })
        .collect();
    until("some wait", async || {
        for id in cluster.ids() {
            if cluster.status(id).await?.watches > 0 {
                return Some(());
            }
        }
        None
    })
    .await;
    let leader = cluster.leader().await;
    cluster.kill(leader);
    // Only the next leader can do this write.
    until("there is another leader", async || keeper.create("/other", "").await.ok()).await;
    assert!(passing.iter().all(|task| !task.is_finished()));
    keeper.barrier("/gate").open().await.unwrap();
    all_done(passing).await;
}

#[tokio::test]
async fn a_double_barrier_holds_all_back_until_the_last_comes_and_the_last_leaves() {
    let mut cluster = Cluster::start().await;
    let client = client(&cluster);
    let members: Vec<_> = (0..3).map(|_| client.double_barrier("/start", 3)).collect();
    let mut tasks: Vec<_> = members[..2].iter().map(entering).collect();
    until("two have come", async || (children(&client).await.len() == 2).then_some(())).await;
    let leader = cluster.leader().await;
    cluster.kill(leader);
    assert!(!is_ready(&client).await && tasks.iter().all(|task| !task.is_finished()), "nobody was let in");
    tasks.push(entering(&members[2]));
    all_done(tasks).await;
    // The members leave again, and the next leader dies meanwhile.
    cluster.restart(leader);
    cluster.all_ready().await;
    let mut tasks: Vec<_> = members[..2].iter().map(leaving).collect();
    until("two have left", async || (children(&client).await.len() == 2).then_some(())).await;
    let leader = cluster.leader().await;
    cluster.kill(leader);
    assert!(is_ready(&client).await && tasks.iter().all(|task| !task.is_finished()), "one is inside");
    tasks.push(leaving(&members[2]));
    all_done(tasks).await;
    assert!(children(&client).await.is_empty());
}

/// Three members enter and leave a double barrier ten times. A quick member may enter the next
/// round before a slow one has seen it leave; even so, all rounds must complete.
#[tokio::test]
async fn the_same_members_meet_at_a_double_barrier_again_and_again() {
    let cluster = Cluster::start().await;
    let clients: Vec<_> = (0..3).map(|_| client(&cluster)).collect();
    let rounds = clients.iter().map(async |client| {
        let member = client.double_barrier("/start", 3);
        for _ in 0..10 {
            member.enter().await?;
            member.leave().await?;
        }
        Ok::<_, Error>(())
    });
    let rounds = tokio::time::timeout(Duration::from_secs(100), join_all(rounds)).await;
    rounds.expect("no round waits for the next").into_iter().for_each(|done| done.unwrap());
    assert!(children(&clients[0]).await.is_empty());
}

/// Two members have entered a double barrier, and the first waits to leave. The second leaves and
/// enters again in one transaction: the first must not wait for the second to leave again.
#[tokio::test]
async fn who_leaves_a_double_barrier_waits_for_those_of_its_own_round_only() {
    let cluster = Cluster::start().await;
    let (one, two) = (client(&cluster), client(&cluster));
    let (first, second) = (one.double_barrier("/start", 2), two.double_barrier("/start", 2));
    all_done(vec![entering(&first), entering(&second)]).await;
    let slow = leaving(&first);
    until("one has left", async || (children(&two).await.len() == 2).then_some(())).await;
    assert!(!slow.is_finished());
    // The other member leaves and comes back in one entry. To `first` this looks like two steps
    // between which it did not look.
    let own = children(&two).await.into_iter().find(|name| name != "ready").unwrap();
    let path = format!("/start/{own}");
    two.txn()
        .delete(path.as_str(), None)
        .delete("/start/ready", None)
        .create_with(path.as_str(), "", zlock_client::Mode::Ephemeral)
        .commit()
        .await
        .unwrap();
    slow.await.unwrap().unwrap();
    let again = entering(&first);
    second.enter().await.unwrap();
    again.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_member_that_is_removed_or_whose_session_ends_is_told() {
    let cluster = Cluster::start().await;
    let (one, two) = (client(&cluster), client(&cluster));
    let member = one.double_barrier("/start", 2);
    for ends in [false, true] {
        let waiting = entering(&member);
        let own = until("it has come", async || children(&two).await.pop()).await;
        if ends {
            one.close().await.unwrap();
        } else {
            two.delete(format!("/start/{own}")).await.unwrap();
        }
        let error = waiting.await.unwrap().unwrap_err();
        assert_eq!(error.code(), Some(ProblemType::TicketGone), "{error}");
    }
    assert!(children(&two).await.is_empty());
}

/// A barrier uses the znodes of Curator's DistributedBarrier and DistributedDoubleBarrier. So a
/// client that creates and deletes these znodes itself can take part.
#[tokio::test]
async fn a_client_with_nothing_but_znodes_takes_part() {
    let cluster = Cluster::start().await;
    let (one, other) = (client(&cluster), client(&cluster));
    other.create("/gate", "").await.unwrap();
    let passing = tokio::spawn({
        let barrier = one.barrier("/gate");
        async move { barrier.pass().await }
    });
    other.delete("/gate").await.unwrap();
    passing.await.unwrap().unwrap();

    let member = one.double_barrier("/start", 2);
    let waiting = entering(&member);
    until("it has come", async || (children(&other).await.len() == 1).then_some(())).await;
    other.create("/start/by-hand", "").ephemeral().await.unwrap();
    waiting.await.unwrap().unwrap();
    assert!(is_ready(&other).await);
    let waiting = leaving(&member);
    until("it has left", async || (children(&other).await == ["by-hand", "ready"]).then_some(())).await;
    assert!(!waiting.is_finished());
    other.delete("/start/by-hand").await.unwrap();
    waiting.await.unwrap().unwrap();
    assert!(children(&other).await.is_empty());

    // `ready`, made by another client, means that all have entered.
    let waiting = entering(&member);
    until("it has come", async || (children(&other).await.len() == 1).then_some(())).await;
    other.create("/start/ready", "").await.unwrap();
    waiting.await.unwrap().unwrap();
    member.leave().await.unwrap();
}

/// Answers to a client's steps are lost, so the client sends them again. Each step has its own
/// idempotency key, so the step must be done once and answered as the first time.
#[tokio::test]
async fn a_step_of_a_barrier_whose_answers_are_lost_is_done_once() {
    let cluster = Cluster::start().await;
    let proxy = Proxy::start(cluster.endpoint(1)).await;
    let (behind, other) = (Client::builder([proxy.addr()]).build().unwrap(), client(&cluster));
    behind.session_id().await.unwrap();
    proxy.set(Rule::LoseAnswers);
    let closing = tokio::spawn({
        let barrier = behind.barrier("/gate");
        async move { barrier.close().await }
    });
    until("it is closed", async || other.exists("/gate").await.unwrap()).await;
    other.barrier("/gate").open().await.unwrap();
    proxy.set(Rule::Pass);
    closing.await.unwrap().unwrap();
    assert!(other.exists("/gate").await.unwrap().is_none(), "it is not closed a second time");

    let member = behind.double_barrier("/start", 2);
    proxy.set(Rule::LoseAnswers);
    let waiting = entering(&member);
    until("it has come", async || (children(&other).await.len() == 1).then_some(())).await;
    proxy.set(Rule::Pass);
    other.double_barrier("/start", 2).enter().await.unwrap();
    waiting.await.unwrap().unwrap();
    assert_eq!(children(&other).await.len(), 3, "it came once");
}

/// A client with permission in one directory makes the missing znodes in it, and needs no
/// permission above it.
#[tokio::test]
async fn a_barrier_needs_no_permission_above_the_directories_that_it_makes() {
    let cluster = Cluster::start().await;
    let client = client(&cluster);
    let anyone = |perms: &str| [AclEntry { perms: perms.into(), scheme: "world".into(), id: "anyone".into() }];
    client.create("/team", "").await.unwrap();
    client.set_acl("/", &anyone("r")).await.unwrap();
    let gate = client.barrier("/team/a/b/gate").acl(&anyone("cdr"));
    gate.close().await.unwrap();
    for path in ["/team/a", "/team/a/b", "/team/a/b/gate"] {
        assert_eq!(client.acl(path).await.unwrap().acl, anyone("cdr"), "{path}");
    }
    gate.open().await.unwrap();
    gate.pass().await.unwrap();
}
