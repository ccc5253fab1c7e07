//! A leader whose fsync hangs.

use std::sync::{Arc, Condvar, Mutex};
use std::thread::ThreadId;

use crate::ensemble::{Ensemble, create, eventually, open_session, path, read_data, set, soon, write};
use replica::{Config, Consistency, Error, Readiness, Step, WaitEnd, WatchKey};
use testkit::Lines;
use tracing::Level;

const STALLS: &str = "the disk does not answer: this node is not ready, and takes no votes";
const ANSWERS: &str = "the disk answers again";

/// Threads that flush the nodes' logs, in the order in which the nodes were started. `hangs` is the
/// thread whose flushes hang now; `None` for none.
#[derive(Default)]
struct Disks {
    threads: Vec<ThreadId>,
    hangs: Option<ThreadId>,
}

type SharedDisks = Arc<(Mutex<Disks>, Condvar)>;

fn watched() -> SharedDisks {
    let shared = SharedDisks::default();
    let disks = Arc::clone(&shared);
    let pass = move || {
        let (disks, changed) = &*disks;
        let own = std::thread::current().id();
        let mut disks = disks.lock().unwrap();
        if !disks.threads.contains(&own) {
            disks.threads.push(own);
        }
        while disks.hangs == Some(own) {
            disks = changed.wait(disks).unwrap();
        }
    };
    fail::cfg_callback("log.flushed", pass).unwrap();
    shared
}

/// Guard whose drop lets the hanging flush go on. A failed test needs it, because the node waits
/// for the end of the flushing thread.
struct HangGuard(SharedDisks);

impl Drop for HangGuard {
    fn drop(&mut self) {
        hang(&self.0, None);
    }
}

fn hang(disks: &SharedDisks, node: Option<usize>) {
    let mut locked = disks.0.lock().unwrap();
    locked.hangs = node.map(|at| locked.threads[at]);
    disks.1.notify_all();
}

/// Step of a wait that never becomes ready.
fn never() -> Step<()> {
    Step::Watch(WatchKey::Node(path("/never")))
}

/// Settings in which a real disk under load causes no stall, and a busy machine no election.
fn patient(config: &mut Config) {
    config.disk_stall_max_ms = 2_000;
    (config.election_timeout_min_ms, config.election_timeout_max_ms) = (2_000, 4_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_fsync_hangs_hands_over_and_comes_back_as_a_follower() {
    let _turn = fail::FailScenario::setup();
    let (disks, lines) = (watched(), Lines::of("replica", Level::INFO).gather());
    let mut ensemble = Ensemble::started(3, patient).await;
    let _released = HangGuard(Arc::clone(&disks));
    let leader = ensemble.leader().await;
    let other = ensemble.follower().await;
    let stalled = ensemble.node(leader).clone();
    write(&stalled, create("/", "a", b"0")).await;
    let session = open_session(&stalled, 60_000).await;
    let told = || lines.among(&[STALLS, ANSWERS]);
    assert_eq!(told(), [""; 0]);
    hang(&disks, Some(leader));
    let waiting = stalled.clone();
    let wait = tokio::spawn(async move { waiting.wait_for(soon(), |_| never()).await });
    // The other nodes are a quorum, so the first write is done. The leader's own disk hangs at this
    // write.
    write(&stalled, set("/a", b"1")).await;
    let member = leader as u64 + 1;
    let others: Vec<usize> = (0..3).filter(|at| *at != leader).collect();
    eventually("another leads", || {
        let leads = |at: &usize| ensemble.node(*at).leader().is_some_and(|leader| leader.id != member);
        others.iter().all(leads)
    })
    .await;
    write(ensemble.node(other), set("/a", b"2")).await;
    assert_eq!(read_data(ensemble.node(other), "/a").await, Some(b"2".to_vec()));
    eventually("it says why it is not ready", || stalled.status().ready == Readiness::DiskStalled).await;
    let refused = stalled.propose(set("/a", b"3"), soon()).await;
    assert!(matches!(refused, Err(Error::Unavailable { .. })), "{refused:?}");
    let refused = stalled.read(Consistency::Linearizable, soon()).await;
    assert!(matches!(refused, Err(Error::Unavailable { .. })), "{refused:?}");
    assert_eq!(wait.await.unwrap(), Err(WaitEnd::CannotServe), "it would not be told");
    // Sessions do not depend on the disk of the node that their clients talk to.
    assert_eq!(stalled.touch(session, soon()).await.unwrap().session, session.session);
    let status = stalled.status();
    assert!(
        status.disk_waits.as_millis() >= 2_000 && status.disk_stalls,
        "{:?} {}",
        status.disk_waits,
        status.disk_stalls
    );
    let term = ensemble.node(other).status().term;
    // The change is logged once, however often the disk was checked since.
    eventually("its log says so", || told() == [STALLS]).await;
    hang(&disks, None);
    eventually("it is ready again", || stalled.status().ready == Readiness::Ready).await;
    eventually("its log says so", || told() == [STALLS, ANSWERS]).await;
    hang(&disks, Some(leader));
    // A flush hangs only if there are entries to write, and these come from the new leader.
    write(ensemble.node(other), set("/a", b"5")).await;
    eventually("it is not ready once more", || stalled.status().ready == Readiness::DiskStalled).await;
    hang(&disks, None);
    eventually("and ready once more", || stalled.status().ready == Readiness::Ready).await;
    eventually("its log says so", || told() == [STALLS, ANSWERS, STALLS, ANSWERS]).await;
    write(&stalled, set("/a", b"4")).await;
    ensemble.assert_equal_states().await;
    assert_eq!(read_data(&stalled, "/a").await, Some(b"4".to_vec()));
    assert!(stalled.state().session(session.session).is_some());
    assert_eq!((stalled.status().term, stalled.status().leader == Some(member)), (term, false));
    fail::remove("log.flushed");
    ensemble.stop_all().await;
}
