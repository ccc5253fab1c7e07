//! The Rust client against real processes: nodes killed and paused, answers lost, the client itself
//! cut off.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use zlock_client::{Client, Error, EventKind, Guard, Loss, Mode, ProblemType, SessionState, WatchKind, WithError};

use crate::harness::{Cluster, Options, Proxy, Rule, until};

const LONG: Duration = Duration::from_secs(60);
/// Short session timeout, but long enough for a machine that is busy with other tests.
const SHORT: Duration = Duration::from_secs(4);

fn client(endpoints: Vec<String>, timeout: Duration) -> Client {
    let builder = Client::builder(endpoints).session_timeout(timeout).label("test");
    // These times are short enough for tests that pause a node.
    builder.poll_time(Duration::from_secs(2)).attempt_timeout(Duration::from_secs(1)).build().unwrap()
}

/// Makes a client that can be cut off: a proxy stands before every node.
async fn proxied(cluster: &Cluster, timeout: Duration) -> (Client, Vec<Proxy>) {
    let mut proxies = Vec::new();
    for endpoint in cluster.endpoints() {
        proxies.push(Proxy::start(&endpoint).await);
    }
    (client(proxies.iter().map(|proxy| proxy.addr().to_owned()).collect(), timeout), proxies)
}

/// Returns the numbers of holders and waiters.
async fn queue(client: &Client, lock: &str) -> (usize, usize) {
    let queue = client.lock_queue(lock).await.unwrap();
    (queue.holders.len(), queue.waiters.len())
}

async fn queue_becomes(client: &Client, lock: &str, expected: (usize, usize)) {
    let what = format!("{lock} has {expected:?} holders and waiters");
    until(&what, async || (queue(client, lock).await == expected).then_some(())).await;
}

#[tokio::test]
async fn locks_znodes_transactions_and_watches_work() {
    let cluster = Cluster::start().await;
    let (one, two) = (client(cluster.endpoints(), LONG), client(cluster.endpoints(), LONG));
    let guard = one.lock("/orders").label("first").acquire().await.unwrap();
    assert!(guard.is_safe() && guard.safe_until() > Instant::now() + LONG / 2);
    assert!(two.lock("/orders").try_acquire().await.unwrap().is_none());
    assert!(two.lock("/orders").acquire_within(Duration::from_millis(100)).await.unwrap().is_none());
    assert_eq!(queue(&two, "/orders").await, (1, 0), "who gave up has left");
    assert!(two.lock("/orders").is_held_with(guard.fencing_token()).await.unwrap());

    let created = one.create("/app", "hello").if_lock(&guard).await.unwrap();
    let mut watcher = two.watch("/app", WatchKind::Subtree);
    watcher.resume_from(created.zxid);
    let set = one.set("/app", [0xff, 0x00].as_slice()).version(0).await.unwrap();
    assert_eq!(&*two.get("/app").await.unwrap().data, [0xff, 0x00]);
    let done = one.txn().create("/app/a b", "1").check("/app", Some(1)).set("/app/a b", "2", None).commit().await;
    assert_eq!(done.unwrap().results.len(), 3);
    let refused = two.txn().delete("/app", None).commit().await.unwrap_err();
    assert_eq!(refused.code(), Some(ProblemType::NotEmpty), "{refused}");
    let event = watcher.next().await.unwrap();
    assert_eq!((event.zxid, event.kind, event.path.as_str()), (set.zxid, EventKind::DataChanged, "/app"));
    assert_eq!(watcher.next().await.unwrap().path, "/app/a b");
    assert_eq!(two.children("/app").await.unwrap(), ["a b"]);
    assert!(two.exists("/nothing").await.unwrap().is_none());

    let token = guard.fencing_token();
    let next = tokio::spawn(async move { two.lock("/orders").acquire().await.unwrap() });
    queue_becomes(&one, "/orders", (1, 1)).await;
    assert_eq!(guard.release().await.unwrap(), 0);
    let next: Guard = next.await.unwrap();
    assert!(next.fencing_token() > token);
    one.close().await.unwrap();
}

#[tokio::test]
async fn a_client_that_runs_work_closes_its_session_on_every_way_out() {
    let cluster = Cluster::start_with(Options { nodes: 1, ..Options::default() }).await;
    let other = client(cluster.endpoints(), LONG);
    let run = async |way: &'static str| {
        let work = client(cluster.endpoints(), LONG).run(async |client| {
            let guard = client.lock("/l").acquire().await?;
            match way {
                "return" => drop(guard),
                "error" => drop(client.get("/nothing").await?),
                "kept" => guard.leak(),
                _ => panic!("{way}"),
            }
            Ok::<(), Error>(())
        });
        AssertUnwindSafe(work).catch_unwind().await
    };
    for (way, is_error) in [("return", Some(false)), ("error", Some(true)), ("kept", Some(false)), ("panic", None)] {
        let ended = run(way).await;
        assert_eq!(ended.ok().map(|ended| ended.is_err()), is_error, "{way}");
        // The lock is free at once, long before the session would time out.
        assert_eq!((queue(&other, "/l").await, other.sessions().await.unwrap().len()), ((0, 0), 0), "{way}");
    }
}

#[tokio::test]
async fn readers_share_owners_reenter_and_a_released_guard_guards_nothing() {
    let cluster = Cluster::start().await;
    let (one, two) = (client(cluster.endpoints(), LONG), client(cluster.endpoints(), LONG));
    let lock = one.rw_lock("/shared");
    let (first, second) =
        (lock.read().acquire().await.unwrap(), two.rw_lock("/shared").read().acquire().await.unwrap());
    assert!(lock.write().try_acquire().await.unwrap().is_none());
    drop((first, second));
    let writer = lock.write().owner("me").acquire().await.unwrap();
    let again = lock.write().owner("me").acquire().await.unwrap();
    assert_eq!((again.ticket(), again.holds()), (writer.ticket(), 2));
    assert_eq!(writer.release().await.unwrap(), 1);
    one.create("/state", "").if_lock(&again).await.unwrap();
    let late = one.set("/state", "late").if_lock(&again);
    again.release().await.unwrap();
    assert_eq!(late.await.unwrap_err().code(), Some(ProblemType::LockNotHeld));
}

#[tokio::test]
async fn a_guard_outlives_the_leader_and_a_waiter_keeps_its_place() {
    let mut cluster = Cluster::start().await;
    let (one, two) = (client(cluster.endpoints(), LONG), client(cluster.endpoints(), LONG));
    let guard = one.lock("/l").acquire().await.unwrap();
    let waiter = tokio::spawn({
        let two = two.clone();
        async move { two.lock("/l").acquire().await.unwrap() }
    });
    queue_becomes(&one, "/l", (1, 1)).await;
    let waiting = one.lock_queue("/l").await.unwrap().waiters[0].ticket.clone();
    let leader = cluster.leader().await;
    cluster.kill(leader);
    // The client finds the new leader by itself, without a retry here.
    one.create("/after", "").if_lock(&guard).await.unwrap();
    assert!(guard.is_safe() && guard.lost().now_or_never().is_none());
    assert_eq!(guard.release().await.unwrap(), 0);
    let next = waiter.await.unwrap();
    assert_eq!(next.ticket(), waiting, "the place is the same");
}

#[tokio::test]
async fn a_waiter_at_a_node_that_hangs_is_granted_all_the_same() {
    let cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    let one = client(cluster.endpoints(), LONG);
    let guard = one.lock("/l").acquire().await.unwrap();
    // Nine readers are enough that some wait at each node.
    let waiters: Vec<_> = (0..9)
        .map(|_| {
            let two = client(cluster.endpoints(), LONG);
            tokio::spawn(async move { two.rw_lock("/l").read().acquire().await.map(|guard| (two, guard)) })
        })
        .collect();
    queue_becomes(&one, "/l", (1, 9)).await;
    let hangs = cluster.ids().into_iter().find(|id| *id != leader).unwrap();
    cluster.pause(hangs);
    guard.release().await.unwrap();
    for waiter in waiters {
        let (_client, guard) = waiter.await.unwrap().unwrap();
        assert!(guard.is_safe());
    }
    cluster.resume(hangs);
}

#[tokio::test]
async fn a_client_that_is_cut_off_knows_that_its_lock_is_lost_before_another_is_granted() {
    let cluster = Cluster::start().await;
    let (one, proxies) = proxied(&cluster, SHORT).await;
    let two = client(cluster.endpoints(), LONG);
    let mut events = one.session_events();
    let guard = one.lock("/l").acquire().await.unwrap();
    assert_eq!(events.next().await.unwrap().state, SessionState::Connected);
    let guard = Arc::new(guard);
    let first = Arc::clone(&guard);
    let granted = tokio::spawn(async move {
        let guard = two.lock("/l").acquire().await.unwrap();
        assert!(!first.is_safe(), "two clients hold the lock");
        (Instant::now(), guard, two)
    });
    queue_becomes(&client(cluster.endpoints(), LONG), "/l", (1, 1)).await;
    // The hold is longer than the timeout: heartbeats keep the session.
    let began = Instant::now();
    until("the timeout has passed", async || (began.elapsed() > SHORT * 3 / 2).then_some(())).await;
    assert!(guard.is_safe() && !granted.is_finished());

    proxies.iter().for_each(|proxy| proxy.set(Rule::Cut));
    assert_eq!(guard.lost().await, Loss::Expired);
    let lost = Instant::now();
    assert!(!guard.is_safe());
    let mut told = Vec::new();
    while told.last() != Some(&SessionState::Lost) {
        told.push(events.next().await.unwrap().state);
    }
    assert_eq!(told[told.len() - 2], SessionState::Suspended, "{told:?}");
    let (granted, next, _two) = granted.await.unwrap();
    assert!(next.fencing_token() > guard.fencing_token());
    eprintln!("another was granted {} ms after the loss", granted.duration_since(lost).as_millis());

    // The next call opens another session.
    proxies.iter().for_each(|proxy| proxy.set(Rule::Pass));
    let guard = Arc::into_inner(guard).unwrap();
    assert!(guard.release().await.is_err(), "there is nothing to release");
    let again = one.lock("/other").acquire().await.unwrap();
    assert!(again.is_safe());
}

#[tokio::test]
async fn a_dropped_acquire_leaves_no_waiter() {
    let cluster = Cluster::start().await;
    let (one, proxies) = proxied(&cluster, LONG).await;
    let two = client(cluster.endpoints(), LONG);
    let guard = two.lock("/l").acquire().await.unwrap();
    let acquire = |one: &Client| {
        let lock = one.lock("/l");
        tokio::spawn(async move { lock.acquire().await })
    };
    let waiting = acquire(&one);
    queue_becomes(&two, "/l", (1, 1)).await;
    waiting.abort();
    queue_becomes(&two, "/l", (1, 0)).await;

    // The acquire is dropped before it knows its ticket: the answers are lost on the way.
    proxies.iter().for_each(|proxy| proxy.set(Rule::LoseAnswers));
    let waiting = acquire(&one);
    queue_becomes(&two, "/l", (1, 1)).await;
    waiting.abort();
    proxies.iter().for_each(|proxy| proxy.set(Rule::Pass));
    queue_becomes(&two, "/l", (1, 0)).await;

    // The acquire is dropped after the grant, with its guard untaken.
    let waiting = acquire(&one);
    queue_becomes(&two, "/l", (1, 1)).await;
    guard.release().await.unwrap();
    drop(waiting.await.unwrap().unwrap());
    queue_becomes(&two, "/l", (0, 0)).await;
}

#[tokio::test]
async fn a_write_whose_answers_are_lost_is_done_once() {
    let cluster = Cluster::start().await;
    let (one, proxies) = proxied(&cluster, LONG).await;
    let two = client(cluster.endpoints(), LONG);
    two.create("/p", "").await.unwrap();
    one.session_id().await.unwrap();
    proxies.iter().for_each(|proxy| proxy.set(Rule::LoseAnswers));
    let create = one.create("/p/c-", "x").mode(Mode::PersistentSequential);
    let (acquire, lock) = (one.lock("/l").owner("me"), one.lock("/l"));
    let create = tokio::spawn(create.into_future());
    let acquire = tokio::spawn(async move { acquire.acquire().await });
    until("it was done", async || (two.children("/p").await.unwrap().len() == 1).then_some(())).await;
    queue_becomes(&two, "/l", (1, 0)).await;
    assert!(!create.is_finished() && !acquire.is_finished());
    proxies.iter().for_each(|proxy| proxy.set(Rule::Pass));
    assert_eq!(create.await.unwrap().unwrap().path, "/p/c-0000000000");
    assert_eq!(two.children("/p").await.unwrap().len(), 1);
    let guard = acquire.await.unwrap().unwrap();
    assert_eq!(guard.holds(), 1);
    guard.release().await.unwrap();
    assert!(lock.try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn a_guard_hears_that_it_shall_give_up_and_that_it_was_taken_away() {
    let cluster = Cluster::start().await;
    let (one, two) = (client(cluster.endpoints(), LONG), client(cluster.endpoints(), LONG));
    let guard = one.lock("/l").label("busy").acquire().await.unwrap();
    assert!(guard.revoked().now_or_never().is_none());
    two.set(guard.ticket(), "__REVOKE__").await.unwrap();
    assert_eq!(guard.revoked().await.due_at_ms, None);
    assert_eq!(two.revoke("/l", Some(LONG)).await.unwrap().tickets, [guard.ticket()]);
    let asked =
        until("it hears of the deadline", async || Some(guard.revoked().await).filter(|by| by.due_at_ms.is_some()));
    asked.await;
    assert!(guard.lost().now_or_never().is_none());
    let ticket = guard.ticket().to_owned();
    let (lost, deleted) = tokio::join!(guard.lost(), async { two.delete(ticket).await });
    let Loss::Deleted { by: Some(by) } = &lost else { panic!("{lost:?}") };
    assert_eq!((by.session, deleted.is_ok()), (Some(two.session_id().await.unwrap()), true));
    assert!(!guard.is_safe(), "another may hold it");
    let error = guard.release().await.unwrap_err();
    assert_eq!(error.code(), Some(ProblemType::TicketGone), "{error}");

    let guard = one.lock("/l").acquire().await.unwrap();
    // The deadline is long enough that the client hears of the request before the lock is gone.
    let both = async { tokio::join!(guard.revoked(), two.revoke("/l", Some(Duration::from_secs(3)))) };
    let (asked, revoked) = tokio::time::timeout(LONG, both).await.expect("it hears who asks");
    assert_eq!((asked.session, revoked.is_ok()), (Some(two.session_id().await.unwrap()), true));
    let Loss::Revoked { by: Some(by) } = guard.lost().await else { panic!("the past of the lock tells who asked") };
    assert_eq!((by.session, by.client.unwrap().pid), (asked.session, Some(std::process::id())));

    let reader = one.rw_lock("/book").read().acquire().await.unwrap();
    let other = two.rw_lock("/book").read().acquire().await.unwrap();
    let writing = tokio::spawn(async move { reader.upgrade().await.map(|writer| (reader, writer)) });
    until("it wants to write", async || (two.lock_queue("/book").await.unwrap().contenders == 3).then_some(())).await;
    assert_eq!(other.upgrade().await.unwrap_err().code(), Some(ProblemType::UpgradeConflict));
    other.release().await.unwrap();
    let (reader, writer) = writing.await.unwrap().unwrap();
    assert!(writer.fencing_token() > reader.fencing_token());
    let writer_ticket = writer.ticket().to_owned();
    writer.release().await.unwrap();
    assert!(reader.is_safe() && two.rw_lock("/book").read().try_acquire().await.unwrap().is_some());
    let history = two.lock_history("/book").await.unwrap().history;
    assert!(history.iter().any(|past| past.ticket.as_deref() == Some(writer_ticket.as_str())), "{history:?}");
}

#[tokio::test]
async fn work_is_dropped_when_its_lock_is_taken_away_or_cut_off() {
    let cluster = Cluster::start().await;
    let (one, proxies) = proxied(&cluster, SHORT).await;
    let two = client(cluster.endpoints(), LONG);
    let work = async |guard: &Guard, then: Option<&Client>| {
        match then {
            Some(two) => drop(two.delete(guard.ticket()).await.unwrap()),
            None => proxies.iter().for_each(|proxy| proxy.set(Rule::Cut)),
        }
        std::future::pending::<()>().await;
    };
    let ended = one.lock("/l").with(async |guard| work(guard, Some(&two)).await).await;
    assert!(matches!(ended, Err(WithError::Lost(Loss::Deleted { .. }))), "{ended:?}");
    assert_eq!(one.lock("/l").with(async |guard| guard.lock().to_owned()).await.unwrap(), "/l");
    queue_becomes(&two, "/l", (0, 0)).await;
    let ended = one.lock("/l").with(async |guard| work(guard, None).await).await;
    assert!(matches!(ended, Err(WithError::Lost(Loss::Expired))), "{ended:?}");
}

#[tokio::test]
async fn without_a_quorum_calls_end_as_unavailable_or_unknown() {
    let mut cluster = Cluster::start().await;
    let one = Client::builder(cluster.endpoints()).operation_timeout(Duration::from_secs(3)).build().unwrap();
    let guard = one.lock("/l").acquire().await.unwrap();
    let leader = cluster.leader().await;
    cluster.kill(leader);
    cluster.kill(leader % 3 + 1);
    let began = Instant::now();
    let error = one.set("/l", "x").await.unwrap_err();
    assert!(error.code().is_none(), "{error}");
    assert!(began.elapsed() < Duration::from_secs(10));
    assert!(guard.is_safe(), "the session's own deadline has not passed");
    cluster.kill((leader + 1) % 3 + 1);
    let error = one.get("/l").await.unwrap_err();
    assert!(error.did_nothing(), "{error}");
}
