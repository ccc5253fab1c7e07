//! The recipes of the Rust client against real processes: semaphores, elections, multi-locks, barriers, groups.

use std::time::Duration;

use zlock_client::{Client, LockMode, ProblemType};

use crate::harness::{Cluster, until};

fn client(cluster: &Cluster) -> Client {
    let builder = Client::builder(cluster.endpoints()).label("test");
    builder.poll_time(Duration::from_secs(2)).attempt_timeout(Duration::from_secs(1)).build().unwrap()
}

#[tokio::test]
async fn a_semaphore_lets_so_many_in_and_takes_permits_together() {
    let cluster = Cluster::start().await;
    let (one, two) = (client(&cluster), client(&cluster));
    let semaphore = one.semaphore("/s", 3);
    let (first, rest) = (semaphore.acquire().await.unwrap(), semaphore.permits(2).acquire().await.unwrap());
    assert!(two.semaphore("/s", 3).try_acquire().await.unwrap().is_none());
    let error = two.semaphore("/s", 4).try_acquire().await.unwrap_err();
    assert_eq!(error.code(), Some(ProblemType::LimitDiffers), "{error}");
    let waiting =
        tokio::spawn(async move { two.semaphore("/s", 3).permits(2).acquire().await.map(|guard| (two, guard)) });
    until("it waits", async || (one.lock_queue("/s").await.unwrap().waiters.len() == 1).then_some(())).await;
    first.release().await.unwrap();
    assert!(!waiting.is_finished());
    rest.release().await.unwrap();
    let (_two, guard) = waiting.await.unwrap().unwrap();
    assert!(guard.is_safe());
}

#[tokio::test]
async fn an_election_passes_on_when_its_leader_resigns_or_dies_and_observers_see_it() {
    let mut cluster = Cluster::start().await;
    let (one, two, watching) = (client(&cluster), client(&cluster), client(&cluster));
    let leadership = one.election("/e").campaign("one").await.unwrap();
    let mut observer = watching.election("/e").observe();
    assert_eq!(observer.next().await.unwrap().unwrap().data.as_deref(), Some("one"));
    leadership.proclaim("one speaks").await.unwrap();
    assert_eq!(observer.next().await.unwrap().unwrap().data.as_deref(), Some("one speaks"));

    let next = tokio::spawn(async move { two.election("/e").campaign("two").await.map(|leads| (two, leads)) });
    until("it stands", async || (one.lock_queue("/e").await.unwrap().waiters.len() == 1).then_some(())).await;
    let leader = cluster.leader().await;
    cluster.kill(leader);
    let token = leadership.fencing_token();
    leadership.resign().await.unwrap();
    let (_two, leads) = next.await.unwrap().unwrap();
    assert!(leads.fencing_token() > token && leads.is_safe());
    let seen = until("the observer sees it", async || observer.next().await.ok().flatten()).await;
    assert_eq!(seen.fencing_token, leads.fencing_token());
    assert_eq!(watching.election("/e").leader().await.unwrap().unwrap().data.as_deref(), Some("two"));
}

#[tokio::test]
async fn several_locks_are_taken_together_or_not_at_all() {
    let cluster = Cluster::start().await;
    let (one, two) = (client(&cluster), client(&cluster));
    let both = |client: &Client| client.multi_lock().and("/a", LockMode::Exclusive).and_permits("/b", 1, 2);
    let held = two.lock("/a").acquire().await.unwrap();
    assert!(both(&one).try_acquire().await.unwrap().is_none());
    assert!(both(&one).acquire_within(Duration::from_millis(100)).await.unwrap().is_none());
    assert_eq!(one.lock_queue("/b").await.unwrap().contenders, 0, "it has left both");
    let dropped = tokio::spawn({
        let both = both(&one);
        async move { both.acquire().await }
    });
    until("it waits", async || (one.lock_queue("/b").await.unwrap().contenders == 1).then_some(())).await;
    dropped.abort();
    until("it has left", async || (one.lock_queue("/b").await.unwrap().contenders == 0).then_some(())).await;
    held.release().await.unwrap();
    let guard = both(&one).acquire().await.unwrap();
    assert!(guard.is_safe() && guard.fencing_token("/a").is_some() && guard.fencing_token("/b").is_some());
    assert!(two.lock("/a").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    assert!(two.lock("/a").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn barriers_and_groups_bring_clients_together() {
    let cluster = Cluster::start().await;
    let (one, two) = (client(&cluster), client(&cluster));
    one.barrier("/gate").close().await.unwrap();
    let passing = tokio::spawn({
        let barrier = two.barrier("/gate");
        async move { barrier.pass().await }
    });
    one.barrier("/gate").open().await.unwrap();
    passing.await.unwrap().unwrap();

    let (left, right) = (one.double_barrier("/pair", 2), two.double_barrier("/pair", 2));
    let (first, second) = tokio::join!(left.enter(), right.enter());
    first.and(second).unwrap();
    let (first, second) = tokio::join!(left.leave(), right.leave());
    first.and(second).unwrap();

    let group = one.group("/team");
    group.join("one", "here").await.unwrap();
    let (members, changed) = two.group("/team").members().await.unwrap();
    assert_eq!((members.len(), members[0].data.as_deref()), (1, Some("here")));
    let (grown, ()) = tokio::join!(group.changed(changed), async {
        two.group("/team").join("two", "too").await.unwrap();
    });
    let (members, changed) = grown.unwrap();
    assert_eq!(members.iter().map(|member| member.member.as_str()).collect::<Vec<_>>(), ["one", "two"]);
    two.close().await.unwrap();
    assert_eq!(group.changed(changed).await.unwrap().0.len(), 1, "a member goes with its session");
    group.leave("one").await.unwrap();
}
