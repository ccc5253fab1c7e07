//! The recipes of the Rust client against real processes: semaphores, elections, multi-locks
//! (several locks that are acquired together or not at all), and groups.

use std::time::Duration;

use futures_util::FutureExt as _;
use zlock_client::{Client, LockMode, LockSettings, Loss, ProblemType};

use crate::harness::{Cluster, Options, Proxy, Rule, until};

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
    assert_eq!(error.code(), Some(ProblemType::PermitsMaxDiffers), "{error}");
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
async fn a_leader_works_until_its_work_is_done_or_the_leadership_is_taken_away() {
    let cluster = Cluster::start().await;
    let (one, two) = (client(&cluster), client(&cluster));
    let leadership = one.election("/e").campaign("one").await.unwrap();
    let said = leadership.run(async |leadership| leadership.proclaim("works").await).await;
    said.expect("nobody took it away").expect("the leader may speak");
    assert!(two.election("/e").leader().await.unwrap().is_none(), "it has resigned");

    let leadership = one.election("/e").campaign("one").await.unwrap();
    let ticket = leadership.ticket().to_owned();
    let (began, begun) = tokio::sync::oneshot::channel();
    let work = tokio::spawn(leadership.run(async |_| {
        began.send(()).unwrap();
        std::future::pending::<()>().await
    }));
    begun.await.unwrap();
    two.delete(ticket.as_str()).await.unwrap();
    assert!(matches!(work.await.unwrap(), Err(Loss::Deleted { by: Some(_) })));
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
    let owned = || both(&one).owner("thread 1");
    let once = owned().acquire().await.unwrap();
    let twice = owned().acquire_within(Duration::from_secs(20)).await.unwrap().unwrap();
    assert_eq!((once.holds(), twice.holds(), once.parts()), (1, 2, twice.parts()));
    let other = one.lock("/c").owner("thread 2").acquire().await.unwrap();
    let waits = tokio::spawn({
        let lock = one.semaphore("/b", 2).permits(2).owner("thread 2");
        async move { lock.acquire().await }
    });
    until("it waits", async || (one.lock_queue("/b").await.unwrap().contenders == 2).then_some(())).await;
    let third = one.multi_lock().and("/c", LockMode::Write).and("/d", LockMode::Read).owner("thread 1");
    assert_eq!(third.acquire().await.unwrap_err().code(), Some(ProblemType::Deadlock));
    assert_eq!(once.release().await.unwrap(), 1);
    assert_eq!(twice.release().await.unwrap(), 0);
    waits.await.unwrap().unwrap().release().await.unwrap();
    other.release().await.unwrap();
}

#[tokio::test]
async fn the_holder_of_several_locks_hears_who_asks_for_one_and_when_all_are_taken_away() {
    let cluster = Cluster::start().await;
    let (one, two) = (client(&cluster), client(&cluster));
    let guard = one.multi_lock().and("/a", LockMode::Exclusive).and("/b", LockMode::Read).acquire().await.unwrap();
    let part = guard.parts()[1].clone();
    let (heard, asked) = tokio::join!(guard.revoked(), two.revoke(&part.ticket, None));
    asked.unwrap();
    assert_eq!((heard.0, heard.1.due_at_ms), (&part, None));
    assert!(guard.lost().now_or_never().is_none(), "it was asked, no more");
    two.revoke(&part.ticket, Some(Duration::ZERO)).await.unwrap();
    guard.lost().await;
    assert!(two.lock("/a").try_acquire().await.unwrap().is_some());
    assert_eq!(guard.release().await.unwrap_err().code(), Some(ProblemType::TicketGone));
}

#[tokio::test]
async fn groups_bring_clients_together() {
    let cluster = Cluster::start().await;
    let (one, two) = (client(&cluster), client(&cluster));
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

#[tokio::test]
async fn a_simple_lock_goes_to_one_of_those_who_wait_although_the_leader_dies() {
    let mut cluster = Cluster::start().await;
    let (one, two) = (client(&cluster), client(&cluster));
    let lock = one.simple_lock("/dir/cron").owner("one");
    let guard = lock.acquire().await.unwrap();
    assert_eq!(two.simple_lock("/dir/cron").holder().await.unwrap().unwrap().owner, "one");
    assert!(two.simple_lock("/dir/cron").owner("one").try_acquire().await.unwrap().is_none(), "of another session");
    assert!(two.simple_lock("/dir/cron").acquire_within(Duration::from_millis(100)).await.unwrap().is_none());
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let lock = two.simple_lock("/dir/cron");
            tokio::spawn(async move {
                let guard = lock.acquire().await?;
                let token = guard.fencing_token();
                guard.release().await.map(|_| token)
            })
        })
        .collect();
    let leader = cluster.leader().await;
    cluster.kill(leader);
    one.create("/dir/guarded", "").if_lock(&guard).await.unwrap();
    assert!(guard.is_safe() && waiting.iter().all(|task| !task.is_finished()));
    let mut tokens = vec![guard.fencing_token()];
    guard.release().await.unwrap();
    for task in waiting {
        tokens.push(task.await.unwrap().unwrap());
    }
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 4, "each held it alone");
    assert!(lock.holder().await.unwrap().is_none());
}

#[tokio::test]
async fn a_simple_lock_whose_answers_are_lost_is_held_once_or_not_at_all() {
    let cluster = Cluster::start().await;
    let proxy = Proxy::start(cluster.endpoint(1)).await;
    let builder = Client::builder([proxy.addr()]).operation_timeout(Duration::from_secs(5));
    let (behind, other) = (builder.build().unwrap(), client(&cluster));
    behind.session_id().await.unwrap();
    proxy.set(Rule::LoseAnswers);
    let lock = behind.simple_lock("/cron");
    let acquiring = tokio::spawn(async move { lock.acquire().await });
    until("it was taken", async || other.simple_lock("/cron").holder().await.unwrap()).await;
    let error = acquiring.await.unwrap().unwrap_err();
    assert!(!error.did_nothing(), "{error}");
    // A lock whose acquire lost its answer is given back as soon as a node answers.
    let taken = tokio::spawn(async move { other.simple_lock("/cron").acquire().await.map(|guard| (other, guard)) });
    proxy.set(Rule::Pass);
    let (other, guard) = taken.await.unwrap().unwrap();
    // A release is retried after a lost answer, finds another holder, and is still answered as
    // done.
    let lock = behind.simple_lock("/cron");
    let (again, released) = tokio::join!(lock.acquire_within(Duration::from_secs(20)), guard.release());
    released.unwrap();
    let again = again.unwrap().unwrap();
    proxy.set(Rule::LoseAnswers);
    let releasing = tokio::spawn(again.release());
    let _next = other.simple_lock("/cron").acquire().await.unwrap();
    proxy.set(Rule::Pass);
    let released = releasing.await.unwrap();
    assert!(released.is_ok() || released.as_ref().is_err_and(|error| !error.did_nothing()), "{released:?}");
}

#[tokio::test]
async fn the_loss_of_a_simple_lock_is_told_although_the_events_since_are_gone() {
    let cluster = Cluster::start_with(Options { settings: "node.kept_events_max = 10", ..Options::default() }).await;
    let (one, two) = (client(&cluster), client(&cluster));
    two.create("/other", "").await.unwrap();
    let forget = async || {
        for _ in 0..20 {
            two.set("/other", "x").await.unwrap();
        }
    };
    let delete = async || two.delete("/cron").await.unwrap();
    for lost_before in [false, true] {
        let guard = one.simple_lock("/cron").acquire().await.unwrap();
        if lost_before {
            delete().await;
        }
        forget().await;
        let both = async {
            tokio::join!(guard.lost(), async {
                if !lost_before {
                    delete().await;
                }
            })
        };
        let told = tokio::time::timeout(Duration::from_secs(60), both).await;
        assert!(told.is_ok(), "nobody told of the loss, lost before: {lost_before}");
    }
}

#[tokio::test]
async fn a_managed_lock_goes_by_priority_and_is_handed_over_although_the_leader_dies() {
    let mut cluster = Cluster::start().await;
    let (one, two) = (client(&cluster), client(&cluster));
    let error = one.lock("/l").priority(1).try_acquire().await.unwrap_err();
    assert_eq!(error.code(), Some(ProblemType::LockNotManaged), "{error}");
    let managed = LockSettings { managed: true, waiters_max: Some(3), permits_max: None };
    assert_eq!(one.set_settings("/l", managed).await.unwrap().settings, managed);
    let mut held = one.lock("/l").acquire().await.unwrap();
    let mut waiting = Vec::new();
    for (n, priority) in [(1, 1), (2, 7), (3, 0)] {
        let lock = two.lock("/l").priority(priority).label(priority.to_string());
        waiting.push(tokio::spawn(async move { lock.acquire().await }));
        until("it waits", async || (one.lock_queue("/l").await.unwrap().waiters.len() == n).then_some(())).await;
    }
    let error = two.lock("/l").acquire().await.unwrap_err();
    assert_eq!(error.code(), Some(ProblemType::TooMany), "{error}");
    let leader = cluster.leader().await;
    cluster.kill(leader);
    let queue = one.lock("/l").queue().await.unwrap();
    let last = queue.waiters.iter().find(|one| one.label == "0").unwrap();
    assert_eq!(held.hand_over("/l/nobody-0000000099").await.unwrap_err().code(), Some(ProblemType::HandOverRefused));
    held.hand_over(&last.ticket).await.unwrap();
    drop(held);
    let named = waiting.pop().unwrap().await.unwrap().unwrap();
    assert_eq!(named.ticket(), last.ticket);
    named.release().await.unwrap();
    let urgent = waiting.pop().unwrap().await.unwrap().unwrap();
    assert!(!waiting[0].is_finished(), "priority 1 waits for priority 7");
    urgent.release().await.unwrap();
    waiting.pop().unwrap().await.unwrap().unwrap();
}
