//! Members that run different programs: raising the cluster's format level (version of its entries'
//! format), and nodes whose program does not know the new level.
//!
//! A node plays an older or a newer program: its configuration says which levels it knows.

use crate::ensemble::{Ensemble, LONG, create, eventually, set, soon, write};
use crate::members::{new_member, order, three_of};
use replica::{
    Config, Error, Failure, FinalizeOutcome, Order, OrderError, Program, RefusedOrder, Replica, StartError,
    UpgradeStatus,
};
use tokio::time::timeout;
use znode::{Levels, Op, OtherLevel, Request};

fn knows(config: &mut Config, max: u16) {
    config.program = Program { version: format!("0.{max}.0"), levels: Levels { min: 1, max } };
}

fn old(config: &mut Config) {
    knows(config, 1);
}

fn new(config: &mut Config) {
    knows(config, 2);
}

fn new_with_small_snapshots(config: &mut Config) {
    config.snapshot_log_entries = 50;
    config.log_entries_kept = 10;
    new(config);
}

fn refusal() -> OtherLevel {
    OtherLevel { level: 2, known: Levels { min: 1, max: 1 } }
}

async fn restart(ensemble: &mut Ensemble, at: usize, change: fn(&mut Config)) {
    ensemble.stop(at).await;
    ensemble.change = change;
    ensemble.start(at).await;
}

async fn finalize(ensemble: &Ensemble, at: usize, level: Option<u16>) -> Result<FinalizeOutcome, Error> {
    loop {
        match ensemble.node(at).finalize(level, soon()).await {
            Err(Error::Unavailable { .. }) => tokio::task::yield_now().await,
            end => return end,
        }
    }
}

/// Asks a node for the programs of all members, until a leader answers it.
async fn upgrade_status(node: &Replica) -> UpgradeStatus {
    loop {
        match node.upgrade(soon()).await {
            Err(Error::Unavailable { .. }) => tokio::task::yield_now().await,
            end => return end.unwrap(),
        }
    }
}

/// Takes a refusal to raise the format level. Returns the level that was asked for, and the ids of
/// the members that are not ready for it.
fn hindered(finalized: FinalizeOutcome) -> (u16, Vec<u64>) {
    let FinalizeOutcome::NotReady { level, status } = finalized else { panic!("{finalized:?}") };
    let hindering = status.members.iter().filter(|member| !member.is_ready_for(level));
    (level, hindering.map(|member| member.id).collect())
}

/// Waits until the leader knows that the members run programs of these versions, and is in contact
/// with all. The leader may still know an older program of a member that was started again.
async fn met(ensemble: &Ensemble, versions: [&str; 3]) -> UpgradeStatus {
    let node = ensemble.running().next().unwrap();
    loop {
        let status = upgrade_status(node).await;
        let known = status.members.iter().map(|member| member.program.as_ref().map(|program| &*program.version));
        if known.eq(versions.map(Some)) && status.members.iter().all(|member| member.reachable) {
            return status;
        }
        tokio::task::yield_now().await;
    }
}

/// Starts a node whose program does not know the cluster's format level, and waits until the node
/// fails: at its start, or soon after.
async fn end_of(ensemble: &Ensemble, at: usize) -> OtherLevel {
    match ensemble.try_start(at, None).await {
        Err(StartError::Level(other)) => other,
        Err(error) => panic!("{error}"),
        Ok(node) => {
            let failure = timeout(LONG, node.failed()).await.expect("it does not go on");
            node.shutdown().await;
            let Failure::Level(other) = failure else { panic!("{failure}") };
            other
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_upgraded_node_by_node_and_finalised_once_all_know_the_level() {
    let mut ensemble = Ensemble::started(3, old).await;
    write(ensemble.node(0), create("/", "a", b"")).await;
    restart(&mut ensemble, 0, new).await;
    restart(&mut ensemble, 1, new).await;
    let status = met(&ensemble, ["0.2.0", "0.2.0", "0.1.0"]).await;
    assert_eq!((status.level, status.next_level()), (1, None));
    for at in 0..3 {
        assert_eq!(hindered(finalize(&ensemble, at, None).await.unwrap()), (2, vec![3]));
    }
    // A member goes back to the old program, and then forward again.
    restart(&mut ensemble, 0, old).await;
    restart(&mut ensemble, 0, new).await;
    restart(&mut ensemble, 2, new).await;
    met(&ensemble, ["0.2.0"; 3]).await;
    assert_eq!(hindered(finalize(&ensemble, 0, Some(3)).await.unwrap()), (3, vec![1, 2, 3]));
    let follower = ensemble.follower().await;
    let finalized = finalize(&ensemble, follower, None).await.unwrap();
    assert!(matches!(finalized, FinalizeOutcome::Done(status) if status.level == 2));
    assert_eq!(ensemble.node(follower).state().level(), 2);
    // A second time changes nothing, and the level is never lowered.
    let again = finalize(&ensemble, 0, Some(2)).await.unwrap();
    assert!(matches!(again, FinalizeOutcome::Done(status) if status.level == 2));
    let refused = finalize(&ensemble, 1, Some(1)).await;
    assert_eq!(refused, Err(Error::Refused(znode::Error::BadArguments)));
    write(ensemble.node(0), create("/", "b", b"")).await;
    ensemble.assert_equal_states().await;
    ensemble.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_away_holds_up_the_level() {
    let mut ensemble = Ensemble::started(3, new).await;
    met(&ensemble, ["0.2.0"; 3]).await;
    let away = ensemble.follower().await;
    ensemble.stop(away).await;
    let leader = ensemble.leader().await;
    // A stopped member counts as a follower until it has been silent for the peer timeout.
    let mut finalized = finalize(&ensemble, leader, Some(3)).await.unwrap();
    while hindered(finalized).1.len() != 3 {
        finalized = finalize(&ensemble, leader, Some(3)).await.unwrap();
    }
    while upgrade_status(ensemble.node(leader)).await.members[away].reachable {}
    assert_eq!(hindered(finalize(&ensemble, leader, None).await.unwrap()), (2, vec![away as u64 + 1]));
    ensemble.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_does_not_know_the_level_does_not_run_on_any_directory() {
    let mut ensemble = Ensemble::started(3, new_with_small_snapshots).await;
    met(&ensemble, ["0.2.0"; 3]).await;
    assert!(matches!(finalize(&ensemble, 0, None).await, Ok(FinalizeOutcome::Done(_))));
    let at = ensemble.follower().await;
    eventually("the level is applied everywhere", || ensemble.running().all(|node| node.state().level() == 2)).await;
    ensemble.stop(at).await;
    ensemble.change = old;
    // The node hears of the level from its log, at the start or when the entry is applied.
    assert_eq!(end_of(&ensemble, at).await, refusal());
    assert_eq!(end_of(&ensemble, at).await, refusal(), "and again");
    // The node hears of the level from its snapshot.
    ensemble.change = new_with_small_snapshots;
    ensemble.start(at).await;
    for number in 0..120 {
        write(ensemble.node(at), create("/", &format!("n{number}"), b"")).await;
    }
    eventually("a snapshot is there", || ensemble.node(at).status().snapshot.zxid.0 > 50).await;
    ensemble.stop(at).await;
    ensemble.change = old;
    let refused = ensemble.try_start(at, None).await;
    assert!(matches!(refused, Err(StartError::Level(other)) if other == refusal()), "{:?}", refused.map(drop));
    // The node hears of the level from the other members.
    ensemble.wipe(at);
    assert_eq!(end_of(&ensemble, at).await, refusal());
    // The newer program goes on with the same directory.
    ensemble.change = new_with_small_snapshots;
    ensemble.start(at).await;
    write(ensemble.node(at), create("/", "end", b"")).await;
    ensemble.assert_equal_states().await;
    ensemble.stop_all().await;
}

/// An operator may put a node back to its old program just as the format level is raised. The node
/// runs until the entry that raises the level comes, and then fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_runs_ends_at_the_entry_that_raises_the_level_beyond_its_program() {
    let mut ensemble = Ensemble::started(3, new).await;
    let leader = ensemble.leader().await;
    let at = ensemble.follower().await;
    restart(&mut ensemble, at, old).await;
    write(ensemble.node(at), create("/", "a", b"")).await;
    let node = ensemble.take(at);
    write(ensemble.node(leader), Request::new(Op::SetLevel { level: 2 })).await;
    let failure = timeout(LONG, node.failed()).await.unwrap();
    assert_eq!(failure, Failure::Level(refusal()));
    assert_eq!(failure.to_string(), "this cluster is at level 2; this zlock knows only 1: start a newer zlock");
    node.shutdown().await;
    write(ensemble.node(leader), create("/", "b", b"")).await;
    ensemble.change = new;
    ensemble.start(at).await;
    write(ensemble.node(at), create("/", "c", b"")).await;
    ensemble.assert_equal_states().await;
    ensemble.stop_all().await;
}

/// A node that is to join runs a program that has no format level in common with the cluster. The
/// operator hears so, in the direction that is wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_at_another_level_does_not_join() {
    let mut ensemble = three_of(5).await;
    let leader = ensemble.leader().await;
    ensemble.change = |config| {
        config.join = true;
        let levels = if config.node_id == 4 { Levels { min: 7, max: 8 } } else { Levels { min: 1, max: 8 } };
        config.program = Program { version: "0.8.0".into(), levels };
        config.members.retain(|member| member.id <= 3);
    };
    ensemble.start(3).await;
    ensemble.start(4).await;
    let add = async |at: usize| order(ensemble.node(leader), Order::Add(new_member(&ensemble, at))).await;
    match add(3).await {
        Err(OrderError::Refused { kind: RefusedOrder::MemberUnreachable, why }) => {
            let words = ["knows levels of the format 7 to 8, and this node needs", "start an older zlock there"];
            assert!(words.iter().all(|part| why.contains(part)), "{why}");
        }
        done => panic!("{done:?}"),
    }
    // What a stranger says of levels does not end the leader.
    add(4).await.unwrap();
    ensemble.stop_all().await;
}

/// A leader may append the entry that raises the format level just as the other nodes go back to
/// the old program. They can never take the entry, so they elect another leader, which removes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raise_that_old_programs_refuse_does_not_stop_the_cluster() {
    // The leader must append the entry before the lease of its cut-off followers is over.
    let patient: fn(&mut Config) = |config| {
        new(config);
        (config.election_timeout_min_ms, config.election_timeout_max_ms) = (4_000, 5_000);
    };
    let mut ensemble = Ensemble::linked(3, patient).await;
    met(&ensemble, ["0.2.0"; 3]).await;
    write(ensemble.node(0), create("/", "a", b"")).await;
    let leader = ensemble.leader().await;
    let others: Vec<usize> = (0..3).filter(|at| *at != leader).collect();
    ensemble.isolate(leader, true);
    {
        let node = ensemble.node(leader);
        let raised = node.propose(Request::new(Op::SetLevel { level: 2 }), soon());
        let appended = eventually("the entry is appended", || node.status().last_log > node.status().committed);
        tokio::select! {
            outcome = raised => panic!("{outcome:?}"),
            () = appended => {}
        }
    }
    for at in &others {
        ensemble.stop(*at).await;
    }
    ensemble.change = |config| {
        old(config);
        (config.election_timeout_min_ms, config.election_timeout_max_ms) = (4_000, 5_000);
    };
    for at in &others {
        ensemble.start(*at).await;
    }
    ensemble.isolate(leader, false);
    write(ensemble.node(others[0]), set("/a", b"b")).await;
    assert!(ensemble.running().all(|node| node.state().level() == 1));
    ensemble.assert_equal_states().await;
    ensemble.stop_all().await;
}

/// Any node refuses an operation of the next format level until the cluster is at that level.
#[cfg(feature = "next-level")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_came_with_the_next_level_is_refused_before_it_is_finalised() {
    let mut ensemble = Ensemble::started(3, |_| {}).await;
    met(&ensemble, [&Program::default().version; 3]).await;
    let note = || Request::new(Op::SetNote { text: "by hand".into() });
    for node in ensemble.running() {
        let refused = node.propose(note(), soon()).await;
        assert_eq!(refused, Err(Error::Refused(znode::Error::LevelTooLow)));
    }
    assert!(matches!(finalize(&ensemble, 0, None).await, Ok(FinalizeOutcome::Done(_))));
    let all_have = |wanted: fn(Option<&str>) -> bool| {
        ensemble.running().all(|node| wanted(node.state().cluster().and_then(|it| it.note())))
    };
    // The leader writes a note of its own if there is none. That note must not replace this one.
    eventually("all have the leader's note", || all_have(|note| note.is_some())).await;
    let follower = ensemble.follower().await;
    write(ensemble.node(follower), note()).await;
    eventually("all have the note", || all_have(|note| note == Some("by hand"))).await;
    ensemble.assert_equal_states().await;
    ensemble.stop_all().await;
}
