//! Changes of the members while the ensemble serves clients.

use futures_util::FutureExt;
use replica::{Config, Failure, MemberReport, NewMember, Order, OrderError, OrderOutcome, RefusedOrder, Replica};
use tokio::time::{Instant, timeout};

use crate::ensemble::{Ensemble, LONG, create, eventually, open_session, pause, soon, write};

/// Settings of a node of which the first three are the founders, and later ones join.
fn growing(config: &mut Config) {
    config.join = config.node_id > 3;
    config.promote_after_ms = 100;
    config.members.retain(|member| member.id <= 3);
}

/// Starts an ensemble of three founders. The `size - 3` further nodes are made and not started;
/// they are to join.
pub(crate) async fn three_of(size: usize) -> Ensemble {
    let mut ensemble = Ensemble::new(size, growing);
    for at in 0..3 {
        ensemble.start(at).await;
    }
    ensemble.leader().await;
    ensemble
}

/// Starts an ensemble of three founders, adds node 4 as a learner, and stops node 4 once it has
/// applied a write.
pub(crate) async fn three_and_a_stopped_learner() -> Ensemble {
    let mut ensemble = three_of(4).await;
    ensemble.start(3).await;
    let learner = NewMember { manual: true, ..new_member(&ensemble, 3) };
    order(ensemble.node(0), Order::Add(learner)).await.unwrap();
    write(ensemble.node(3), create("/", "here", b"")).await;
    ensemble.stop(3).await;
    ensemble
}

pub(crate) fn new_member(ensemble: &Ensemble, at: usize) -> NewMember {
    NewMember {
        id: at as u64 + 1,
        peer_addr: ensemble.addr(at).to_string(),
        http_addr: format!("127.0.0.1:{}", 8_000 + at),
        ..NewMember::default()
    }
}

/// Gives a node an order. Tries again while a change is under way or there is no leader. Also tries
/// again when the outcome of an addition or a removal is unknown. It is done if the next try finds
/// that it is.
pub(crate) async fn order(node: &Replica, order: Order) -> Result<OrderOutcome, OrderError> {
    let deadline = soon();
    let mut unknown = false;
    loop {
        match (node.order(order.clone(), deadline).await, &order) {
            (Err(OrderError::Unavailable(_)), _)
            | (Err(OrderError::Refused { kind: RefusedOrder::ChangeInProgress, .. }), _) => {}
            (Err(OrderError::Unknown(_)), Order::Add(_) | Order::Remove { .. }) if Instant::now() < deadline => {
                unknown = true;
            }
            (Err(OrderError::Refused { kind: RefusedOrder::AlreadyMember, .. }), Order::Add(_))
            | (Err(OrderError::Refused { kind: RefusedOrder::NoMember, .. }), Order::Remove { .. })
                if unknown =>
            {
                return Ok(OrderOutcome::Members(node.members()));
            }
            (done, _) => return done,
        }
        tokio::task::yield_now().await;
    }
}

pub(crate) fn roles(node: &Replica) -> Vec<(u64, String)> {
    node.members().members.into_iter().map(|member| (member.id, member.role)).collect()
}

pub(crate) fn voters(ids: &[u64]) -> Vec<(u64, String)> {
    ids.iter().map(|id| (*id, "voter".to_owned())).collect()
}

/// Waits until the leader notices that a member has stopped.
async fn is_silent(leader: &Replica, stopped: usize) {
    eventually("its silence is noticed", || {
        let members = leader.members().members;
        members.iter().any(|member| member.id == stopped as u64 + 1 && member.last_contact_ms.is_none_or(|ms| ms > 800))
    })
    .await;
}

/// Transfers leadership, and returns the ids of the former and of the new leader. Tries again while
/// the leader has not heard from its successor, or for some time.
async fn transferred(node: &Replica, to: Option<u64>) -> (u64, u64) {
    loop {
        match order(node, Order::Transfer { to }).await {
            Ok(OrderOutcome::Transferred { from, to, .. }) => return (from, to),
            Err(OrderError::Refused { kind: RefusedOrder::TransferFailed, .. }) => tokio::task::yield_now().await,
            done => panic!("{done:?}"),
        }
    }
}

/// Checks the reason for which an order was refused.
#[track_caller]
fn refused(done: Result<OrderOutcome, OrderError>, expected: RefusedOrder) {
    match done {
        Err(OrderError::Refused { kind, .. }) => assert_eq!(kind, expected),
        done => panic!("{done:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_voter_is_replaced_by_one_order_and_may_not_come_back() {
    let mut ensemble = three_of(4).await;
    write(ensemble.node(0), create("/", "before", b"1")).await;
    let leader = ensemble.leader().await;
    let dead = (0..3).find(|at| *at != leader).unwrap();
    ensemble.stop(dead).await;
    let new = NewMember { replaces: Some(dead as u64 + 1), ..new_member(&ensemble, 3) };
    // The leader asks the new node first, which does not run.
    refused(order(ensemble.node(leader), Order::Add(new.clone())).await, RefusedOrder::MemberUnreachable);
    ensemble.start(3).await;
    order(ensemble.node(leader), Order::Add(new)).await.unwrap();
    let left: Vec<u64> = (1..=4).filter(|id| *id != dead as u64 + 1).collect();
    for at in (0..4).filter(|at| *at != dead) {
        eventually("the members are others", || roles(ensemble.node(at)) == voters(&left)).await;
    }
    write(ensemble.node(3), create("/", "after", b"2")).await;
    ensemble.assert_equal_states().await;
    // A removed node is told so, and ends.
    eventually("the removal is noted", || ensemble.node(leader).members().removed.len() == 1).await;
    ensemble.start(dead).await;
    let removed = ensemble.take(dead);
    assert!(matches!(timeout(LONG, removed.failed()).await.unwrap(), Failure::Removed { .. }));
    removed.shutdown().await;
    let again = new_member(&ensemble, dead);
    refused(order(ensemble.node(3), Order::Add(again)).await, RefusedOrder::IdUsedBefore);
    ensemble.stop_all().await;
}

/// None of the members in the configuration of node 4 runs, but the leader calls node 4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_node_also_asks_the_members_that_call_it() {
    let mut ensemble = Ensemble::new(4, |config| {
        let (own, gone) = (config.node_id, 3);
        growing(config);
        config.members.retain(|member| own <= 3 || member.id == gone);
    });
    for at in 0..3 {
        ensemble.start(at).await;
    }
    let leader = ensemble.leader().await;
    if leader == 2 {
        transferred(ensemble.node(2), Some(1)).await;
    }
    // Node 4 takes calls of members that it does not know once they know the uuid of the cluster.
    write(ensemble.node(0), create("/", "founded", b"")).await;
    ensemble.stop(2).await;
    ensemble.start(3).await;
    order(ensemble.node(0), Order::Add(new_member(&ensemble, 3))).await.unwrap();
    eventually("node 4 has a vote", || roles(ensemble.node(3)) == voters(&[1, 2, 3, 4])).await;
    ensemble.stop_all().await;
}

/// A client orders a transfer of leadership and hangs up at once; the leader must still complete
/// the transfer. If the leader stopped halfway, after it told its successor the sessions' times
/// without a heartbeat, it would still lead, but acknowledge no heartbeat any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_that_nobody_waits_for_is_done_to_its_end() {
    let mut ensemble = Ensemble::started(3, |_| {}).await;
    let leader = ensemble.leader().await;
    let (node, id) = (ensemble.node(leader), leader as u64 + 1);
    let session = open_session(node, 60_000).await.session;
    let listens = || node.silences(&[session]).is_some_and(|silences| silences[0].is_some());
    eventually("it listens to the session", listens).await;
    eventually("another one leads", || {
        // The leader is not sure to lead any more once the order has begun.
        if node.sure_to_lead().is_some() {
            let _ = node.order(Order::Transfer { to: None }, soon()).now_or_never();
        }
        node.leader().is_some_and(|leader| leader.id != id)
    })
    .await;
    ensemble.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ensemble_grows_to_five_and_shrinks_to_three_others() {
    let mut ensemble = three_of(5).await;
    for at in [3, 4] {
        ensemble.start(at).await;
        order(ensemble.node(at % 3), Order::Add(new_member(&ensemble, at))).await.unwrap();
        eventually("it votes", || {
            roles(ensemble.node(0)).len() == at + 1 && roles(ensemble.node(0)) == voters_to(at + 1)
        })
        .await;
    }
    write(ensemble.node(4), create("/", "five", b"")).await;
    // The leader is one of the removed members, and hands leadership over first.
    let leader = ensemble.leader().await;
    let gone = [leader, (leader + 1) % 3];
    // After an election on a busy machine, the leader may be one of the new members.
    let stays = [3, 4].into_iter().find(|at| !gone.contains(at)).unwrap();
    for at in gone {
        let id = at as u64 + 1;
        order(ensemble.node(stays), Order::Remove { id, force: false }).await.unwrap();
        let removed = ensemble.take(at);
        eventually("it is no member", || roles(ensemble.node(stays)).iter().all(|(other, _)| *other != id)).await;
        assert!(matches!(timeout(LONG, removed.failed()).await.unwrap(), Failure::Removed { .. }));
        removed.shutdown().await;
    }
    ensemble.leader().await;
    write(ensemble.node(stays), create("/", "three", b"")).await;
    ensemble.assert_equal_states().await;
    // Three members are left, so one more may fail, and then a quorum is both others.
    assert_eq!(roles(ensemble.node(stays)).len(), 3);
    ensemble.stop_all().await;
}

/// Starts three voters and, as the fourth, an observer that has all their entries.
async fn three_and_an_observer() -> Ensemble {
    let mut ensemble = three_of(4).await;
    ensemble.start(3).await;
    let observer = NewMember { observer: true, ..new_member(&ensemble, 3) };
    order(ensemble.node(0), Order::Add(observer)).await.unwrap();
    write(ensemble.node(3), create("/", "here", b"")).await;
    ensemble.assert_equal_states().await;
    ensemble
}

fn voters_to(count: usize) -> Vec<(u64, String)> {
    voters(&(1..=count as u64).collect::<Vec<_>>())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_serves_and_never_votes() {
    let mut ensemble = three_and_an_observer().await;
    eventually("the observer knows its part", || roles(ensemble.node(3)).contains(&(4, "observer".to_owned()))).await;
    refused(order(ensemble.node(1), Order::Promote { id: 4 }).await, RefusedOrder::BadOrder);
    let leader = ensemble.leader().await;
    eventually("the leader counts it apart from those that vote", || {
        let status = ensemble.node(leader).status();
        (status.voters, status.followers.synced, status.observers.synced) == (3, 2, 1)
    })
    .await;
    // An observer counts in no quorum: with one voter of three a write is not done.
    for at in (0..3).filter(|at| *at != leader) {
        ensemble.stop(at).await;
    }
    eventually("the leader knows", || ensemble.node(leader).sure_to_lead().is_none()).await;
    ensemble.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_leader_gives_leadership_to_a_voter_and_to_no_observer() {
    let mut ensemble = three_and_an_observer().await;
    let sure = |not: Option<usize>| {
        (0..4).filter(|at| Some(*at) != not).find_map(|at| ensemble.node(at).sure_to_lead().zip(Some(at)))
    };
    let mut led = None;
    eventually("a leader is sure to lead", || {
        led = sure(None);
        led.is_some()
    })
    .await;
    let (term, leader) = led.unwrap();
    ensemble.node(leader).set_drained(true).await;
    let mut next = None;
    eventually("another one leads", || {
        next = sure(Some(leader));
        next.is_some()
    })
    .await;
    let (next_term, at) = next.unwrap();
    // On a busy machine, the voter may need more than one election.
    assert!(at < 3 && next_term > term, "node {} leads in term {}, after {}", at + 1, next_term.0, term.0);
    ensemble.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_goes_where_it_is_told_to() {
    let mut ensemble = three_of(3).await;
    for round in 0..3 {
        let leader = ensemble.leader().await;
        let to = (leader + 1) % 3;
        let (_, new) = transferred(ensemble.node(round % 3), Some(to as u64 + 1)).await;
        assert_eq!(new, to as u64 + 1);
        assert_eq!(ensemble.leader().await, to);
        write(ensemble.node(round % 3), create("/", &round.to_string(), b"")).await;
    }
    let leader = ensemble.leader().await;
    let dead = (leader + 1) % 3;
    ensemble.stop(dead).await;
    is_silent(ensemble.node(leader), dead).await;
    let term = ensemble.node(leader).status().term;
    let done = order(ensemble.node(leader), Order::Transfer { to: Some(dead as u64 + 1) }).await;
    refused(done, RefusedOrder::TransferFailed);
    refused(order(ensemble.node(leader), Order::Transfer { to: Some(9) }).await, RefusedOrder::TransferFailed);
    eventually("it leads all the same", || ensemble.node(leader).sure_to_lead().is_some()).await;
    assert_eq!(ensemble.node(leader).status().term, term, "a transfer that is refused changes nothing");
    ensemble.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_would_cost_the_quorum_is_refused() {
    let mut ensemble = three_of(3).await;
    let leader = ensemble.leader().await;
    let dead = (leader + 1) % 3;
    let other = (leader + 2) % 3;
    ensemble.stop(dead).await;
    is_silent(ensemble.node(leader), dead).await;
    assert_eq!(ensemble.node(leader).members().failure_tolerance, 0);
    let id = other as u64 + 1;
    refused(order(ensemble.node(leader), Order::Remove { id, force: false }).await, RefusedOrder::WouldLoseQuorum);
    refused(order(ensemble.node(leader), Order::Remove { id: 7, force: false }).await, RefusedOrder::NoMember);
    refused(order(ensemble.node(leader), Order::Promote { id: 7 }).await, RefusedOrder::NoMember);
    refused(order(ensemble.node(leader), Order::Add(new_member(&ensemble, other))).await, RefusedOrder::AlreadyMember);
    // Now the dead member can be removed.
    let id = dead as u64 + 1;
    order(ensemble.node(leader), Order::Remove { id, force: false }).await.unwrap();
    eventually("two are left", || roles(ensemble.node(leader)).len() == 2).await;
    write(ensemble.node(other), create("/", "two", b"")).await;
    ensemble.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_goes_by_itself_to_the_preferred_voter() {
    let mut ensemble = three_of(4).await;
    ensemble.change = |config| {
        growing(config);
        config.leader_priority = 51;
    };
    ensemble.start(3).await;
    order(ensemble.node(0), Order::Add(new_member(&ensemble, 3))).await.unwrap();
    let leads = || ensemble.running().all(|node| node.leader().is_some_and(|leader| leader.id == 4));
    // A leader whose transfer fails, as on a machine that pauses, tries again after a minute.
    let moved = async {
        while !leads() {
            pause().await;
        }
    };
    timeout(3 * LONG, moved).await.expect("the preferred voter leads");
    write(ensemble.node(0), create("/", "after", b"")).await;
    ensemble.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_to_no_voter_by_name_goes_to_the_preferred_one() {
    // No leader gives leadership away by itself within the test. Followers count as in contact for
    // longer than a busy machine pauses.
    let mut ensemble = Ensemble::started(3, |config| {
        // The smallest id is preferred. Of equal voters, the largest would be chosen.
        config.leader_priority = 50 - config.node_id as u8;
        config.promote_after_ms = 600_000;
        (config.election_timeout_min_ms, config.election_timeout_max_ms) = (2_000, 5_000);
    })
    .await;
    for _ in 0..3 {
        let leader = ensemble.leader().await;
        // A voter whose progress is not known yet counts as one that lacks many entries.
        eventually("the progress of all is known", || {
            let is_known = |member: &MemberReport| member.last_contact_ms.is_some() && member.lag_entries.is_some();
            ensemble.node(leader).members().members.iter().all(is_known)
        })
        .await;
        let (from, to) = transferred(ensemble.node(leader), None).await;
        assert_eq!(to, if from == 1 { 2 } else { 1 });
        assert_eq!(ensemble.leader().await as u64 + 1, to);
    }
    ensemble.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_learner_that_has_stopped_gets_no_vote() {
    let mut ensemble = three_and_a_stopped_learner().await;
    let leader = ensemble.leader().await;
    is_silent(ensemble.node(leader), 3).await;
    refused(order(ensemble.node(leader), Order::Promote { id: 4 }).await, RefusedOrder::LearnerSilent);
    assert!(roles(ensemble.node(leader)).contains(&(4, "learner".to_owned())));
    ensemble.start(3).await;
    let promoted = loop {
        match order(ensemble.node(leader), Order::Promote { id: 4 }).await {
            // The leader has not heard from the learner yet.
            Err(OrderError::Refused { kind: RefusedOrder::LearnerSilent | RefusedOrder::LearnerLagging, .. }) => {
                pause().await;
            }
            done => break done,
        }
    };
    assert!(matches!(promoted, Ok(OrderOutcome::Members(_))), "{promoted:?}");
    eventually("it votes", || roles(ensemble.node(leader)) == voters_to(4)).await;
    ensemble.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voter_that_is_to_be_removed_does_not_count() {
    let mut ensemble = Ensemble::started(2, |_| {}).await;
    let leader = ensemble.leader().await;
    let remove =
        async |at: usize| order(ensemble.node(leader), Order::Remove { id: at as u64 + 1, force: false }).await;
    remove(1 - leader).await.unwrap();
    let second = loop {
        match remove(leader).await {
            Err(OrderError::Refused { kind: RefusedOrder::ChangeInProgress, .. }) => pause().await,
            done => break done,
        }
    };
    refused(second, RefusedOrder::LastVoter);
    ensemble.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_voter_is_not_removed_even_by_force() {
    let mut ensemble = Ensemble::started(1, |_| {}).await;
    write(ensemble.node(0), create("/", "alone", b"")).await;
    for force in [false, true] {
        refused(order(ensemble.node(0), Order::Remove { id: 1, force }).await, RefusedOrder::LastVoter);
    }
    assert_eq!(roles(ensemble.node(0)), voters(&[1]));
    write(ensemble.node(0), create("/", "still", b"")).await;
    ensemble.stop_all().await;
}
