//! Nodes that cannot reach each other: which calls they refuse, which go on, and the state when
//! they are connected again.

use std::time::Duration;

use crate::ensemble::{Ensemble, LONG, create, eventually, open_session, path, read_data, set, soon, write};
use replica::{
    Config, Consistency, Error, EventKinds, EventQuery, EventsError, Readiness, Replica, Role, Step, WaitEnd, WatchKey,
};
use tokio::time::Instant;
use znode::State;

/// Settings with long election timeouts, so that a busy machine causes no election.
fn patient(config: &mut Config) {
    config.election_timeout_min_ms = 1_000;
    config.election_timeout_max_ms = 2_000;
}

fn shortly() -> Instant {
    Instant::now() + Duration::from_millis(700)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_isolated_leader_serves_nothing_that_is_not_true_and_comes_back() {
    let mut ensemble = Ensemble::linked(3, patient).await;
    write(ensemble.node(0), create("/", "a", b"old")).await;
    let old = ensemble.leader().await;
    let session = open_session(ensemble.node(old), 60_000).await;
    ensemble.isolate(old, true);
    let isolated = ensemble.node(old);
    // At first the isolated leader may still put a write into its log, but cannot know that it is
    // committed.
    let write_alone = isolated.propose(set("/a", b"alone"), shortly()).await;
    assert!(matches!(write_alone, Err(Error::Unknown { .. } | Error::Unavailable { .. })), "{write_alone:?}");
    let others: Vec<usize> = (0..3).filter(|at| *at != old).collect();
    ensemble.elected_among(&others).await;
    for at in &others {
        let value = format!("new{at}").into_bytes();
        write(ensemble.node(*at), set("/a", &value)).await;
        assert_eq!(read_data(ensemble.node(others[0]), "/a").await, Some(value));
    }
    // The node still believes that it leads, and knows that it has no followers.
    let read = isolated.read(Consistency::Linearizable, shortly()).await;
    assert!(matches!(read, Err(Error::Unavailable { .. })), "{read:?}");
    let late = isolated.propose(set("/a", b"late"), shortly()).await;
    assert!(matches!(late, Err(Error::Unavailable { .. })), "{late:?}");
    let touch = isolated.touch(session, shortly()).await;
    assert!(matches!(touch, Err(Error::Unavailable { .. })), "{touch:?}");
    assert_eq!(isolated.status().ready, Readiness::NoQuorum);
    assert!(isolated.read(Consistency::Local { min_zxid: znode::Zxid(0) }, soon()).await.is_ok());

    ensemble.isolate(old, false);
    assert_eq!(read_data(isolated, "/a").await, Some(format!("new{}", others[1]).into_bytes()));
    ensemble.assert_equal_states().await;
    ensemble.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_hands_over_takes_no_heartbeats_any_more() {
    let mut ensemble = Ensemble::linked(3, patient).await;
    let leader = ensemble.leader().await;
    let old = ensemble.node(leader).clone();
    let session = open_session(&old, 60_000).await;
    assert!(old.touch(session, soon()).await.is_ok());
    // The leader cannot hear that its successor was elected, and no timeout has run out yet.
    ensemble.deafen(leader);
    let stopping = tokio::spawn({
        let old = old.clone();
        async move { old.shutdown().await }
    });
    let leads = |node: &Replica| node.status().role == Role::Leader && node.leader() != old.leader();
    eventually("another leads", || ensemble.running().any(leads)).await;
    // The successor has begun to count the session's time without a heartbeat, and does not get
    // this heartbeat.
    let touch = old.touch(session, shortly()).await;
    assert!(matches!(touch, Err(Error::Unavailable { .. })), "{touch:?}");
    stopping.await.unwrap();
    ensemble.stop_all().await;
}

/// A leader counts on its followers to elect no other leader for a time after they heard it. A
/// follower that is restarted in that time must not vote either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_is_started_again_elects_nobody_while_its_leader_counts_on_it() {
    let change: fn(&mut Config) = |config| {
        // The third node has short election timeouts. The leases of the other nodes are longer than
        // a restart takes.
        let (min, max) = if config.node_id == 3 { (200, 300) } else { (8_000, 8_500) };
        (config.election_timeout_min_ms, config.election_timeout_max_ms) = (min, max);
    };
    let mut ensemble = Ensemble::to_be_linked(3, change).await;
    for at in 0..3 {
        ensemble.start(at).await;
    }
    ensemble.leader().await;
    // The third node most likely leads. When it stops, it hands leadership over.
    ensemble.stop(2).await;
    let leader = ensemble.leader().await;
    ensemble.start(2).await;
    assert_eq!(ensemble.leader().await, leader);
    let old = ensemble.node(leader).clone();
    let session = open_session(&old, 60_000).await;
    ensemble.assert_equal_states().await;
    ensemble.part(leader, 2);
    let third = ensemble.node(2).clone();
    eventually("the third misses the leader", || third.status().ready == Readiness::NoQuorum).await;
    assert!(old.touch(session, shortly()).await.is_ok());

    let follower = 1 - leader;
    ensemble.part(leader, follower);
    ensemble.stop(follower).await;
    ensemble.start(follower).await;
    let leads = |node: &Replica| node.status().role == Role::Leader && node.leader() != old.leader();
    eventually("another leads", || [follower, 2].iter().any(|at| leads(ensemble.node(*at)))).await;
    let touch = old.touch(session, shortly()).await;
    assert!(matches!(touch, Err(Error::Unavailable { .. })), "{touch:?}");
    ensemble.stop_all().await;
}

/// The followers' answers to a write are held back until another leader is elected. When they reach
/// the old leader, they do not show that a quorum follows it now, so its linearizable read fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deposed_leader_takes_no_old_answer_for_one_to_a_read() {
    // The held answers come late, but the connection does not count as lost. The leader must append
    // the write before its lease is over.
    let mut ensemble = Ensemble::linked(3, |config| {
        (config.election_timeout_min_ms, config.election_timeout_max_ms) = (4_000, 5_000);
        config.peer_timeout_ms = 60_000;
    })
    .await;
    write(ensemble.node(0), create("/", "a", b"old")).await;
    let old = ensemble.leader().await;
    ensemble.assert_equal_states().await;
    let others: Vec<usize> = (0..3).filter(|at| *at != old).collect();
    others.iter().for_each(|at| ensemble.hold_answers(old, *at, true));
    // Both followers take this write, and their answers do not arrive.
    let deposed = ensemble.node(old).clone();
    let writing = deposed.clone();
    let logs = |at: &usize| ensemble.node(*at).status().last_log;
    let before = logs(&old);
    let last = tokio::spawn(async move { writing.propose(set("/a", b"last"), soon()).await });
    eventually("both have the write", || others.iter().all(|at| logs(at) > before)).await;
    ensemble.isolate(old, true);
    ensemble.elected_among(&others).await;
    write(ensemble.node(others[0]), set("/a", b"new")).await;

    let reader = deposed.clone();
    let read = tokio::spawn(async move { reader.read(Consistency::Linearizable, shortly()).await });
    let begun = Instant::now();
    eventually("the read has begun", || begun.elapsed().as_millis() > 100).await;
    // The first follower's answer comes now, so the write is committed. The leader tells the second
    // follower so before the second follower's own answer comes.
    ensemble.hold_answers(old, others[0], false);
    eventually("the write is committed", || last.is_finished()).await;
    let committed = Instant::now();
    eventually("the second is told", || committed.elapsed().as_millis() > 20).await;
    ensemble.hold_answers(old, others[1], false);
    let seen = read.await.unwrap().map(|state| state.node(&crate::ensemble::path("/a")).unwrap().data().to_vec());
    assert!(matches!(seen, Err(Error::Unavailable { .. })), "{:?}", seen.map(String::from_utf8));
    ensemble.isolate(old, false);
    ensemble.assert_equal_states().await;
    ensemble.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_isolated_follower_does_not_disturb_and_catches_up() {
    // The term must not change for another reason.
    let mut ensemble = Ensemble::linked(3, |config| {
        (config.election_timeout_min_ms, config.election_timeout_max_ms) = (3_000, 4_000);
    })
    .await;
    write(ensemble.node(0), create("/", "a", b"")).await;
    let leader = ensemble.leader().await;
    let term = ensemble.node(leader).status().term;
    let cut_off = ensemble.follower().await;
    ensemble.isolate(cut_off, true);
    let node = ensemble.node(cut_off);
    eventually("it misses the leader", || node.status().ready == Readiness::NoQuorum).await;
    for round in 0..50u8 {
        write(ensemble.node(leader), set("/a", &[round])).await;
    }
    let read = node.read(Consistency::Linearizable, shortly()).await;
    assert!(matches!(read, Err(Error::Unavailable { .. })), "{read:?}");
    ensemble.isolate(cut_off, false);
    assert_eq!(read_data(node, "/a").await, Some(vec![49]));
    eventually("it is ready", || node.status().ready == Readiness::Ready).await;
    // The node asked for a pre-vote before it stood, so the leader did not have to step down.
    assert_eq!((ensemble.leader().await, node.status().term), (leader, term));
    ensemble.assert_equal_states().await;
    ensemble.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_at_a_node_that_hears_no_leader_end_and_the_others_go_on() {
    let mut ensemble = Ensemble::linked(3, patient).await;
    let created = write(ensemble.node(0), create("/", "a", b"0")).await.zxid;
    let cut_off = ensemble.follower().await;
    let (node, other) = (ensemble.node(cut_off).clone(), ensemble.node(ensemble.leader().await).clone());
    ensemble.assert_equal_states().await;
    let wait = |node: &Replica| {
        let node = node.clone();
        tokio::spawn(async move { node.wait_for(soon(), is_set).await })
    };
    let events = |node: &Replica| {
        let (node, key) = (node.clone(), WatchKey::Node(path("/a")));
        let query = EventQuery { key, kinds: EventKinds::DATA, since: created, reader: None };
        tokio::spawn(async move { node.events(query, soon()).await.map(|batch| batch.upto) })
    };
    let (ended, told) = ((wait(&node), events(&node)), (wait(&other), events(&other)));
    eventually("all wait", || node.status().watches == 2 && other.status().watches == 2).await;
    ensemble.isolate(cut_off, true);
    assert_eq!(ended.0.await.unwrap(), Err(WaitEnd::CannotServe));
    assert_eq!(ended.1.await.unwrap(), Err(EventsError::Wait(WaitEnd::CannotServe)));
    // A new wait ends at once. A wait whose condition is already true is answered.
    assert_eq!(node.wait_for(soon(), is_set).await, Err(WaitEnd::CannotServe));
    assert_eq!(node.wait_for(soon(), |_| Step::Ready(())).await, Ok(()));
    let set_at = write(&other, set("/a", b"1")).await.zxid;
    assert_eq!((told.0.await.unwrap(), told.1.await.unwrap()), (Ok(()), Ok(set_at)));
    ensemble.isolate(cut_off, false);
    eventually("it is ready", || node.status().ready == Readiness::Ready).await;
    let again = async {
        while node.wait_for(soon(), is_set).await == Err(WaitEnd::CannotServe) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, again).await.unwrap();
    ensemble.stop_all().await;
}

fn is_set(state: &State) -> Step<()> {
    let is_set = state.node(&path("/a")).is_some_and(|node| **node.data() == *b"1");
    if is_set { Step::Ready(()) } else { Step::Watch(WatchKey::Node(path("/a"))) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_nodes_go_on_without_two() {
    let mut ensemble = Ensemble::started(5, |_| {}).await;
    write(ensemble.node(0), create("/", "a", b"")).await;
    for round in 0..2u8 {
        let leader = ensemble.leader().await;
        ensemble.stop(leader).await;
        let follower = ensemble.follower().await;
        write(ensemble.node(follower), set("/a", &[round])).await;
    }
    for at in 0..5 {
        if ensemble.nodes[at].is_none() {
            ensemble.start(at).await;
        }
        assert_eq!(read_data(ensemble.node(at), "/a").await, Some(vec![1]));
    }
    ensemble.assert_equal_states().await;
    ensemble.stop_all().await;
}
