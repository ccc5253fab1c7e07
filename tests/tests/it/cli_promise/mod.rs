//! The promise of `zlock lock`: a command never runs at the same time as the next holder's command,
//! and a lock is never held by a command that cannot be ended. Each test checks all events for one
//! [`Place`], a way of running `zlock`.

mod old_kernel;
mod running;

use std::time::Duration;

use rustix::io::Errno;
use rustix::process::Signal;
use zlock_client::Client;

use self::running::{Place, Running, can_contain};
use crate::cli::{LONG, SHORT, done};
use crate::harness::{Cluster, Options, kill, until};

/// Events that happen while the command runs, each with the exit code that `zlock` must end with;
/// `None` if any exit code is right.
const EVENTS: [(Event, Option<i32>); 7] = [
    (Event::ZlockKilled, None),
    (Event::WatchdogKilled, Some(121)),
    (Event::CommandKilled, Some(137)),
    (Event::Released, Some(121)),
    (Event::Terminated, Some(143)),
    (Event::Interrupted, Some(130)),
    (Event::ClusterLost, Some(121)),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// SIGKILL of `zlock`.
    ZlockKilled,
    WatchdogKilled,
    CommandKilled,
    /// Another client takes the lock away.
    Released,
    Terminated,
    Interrupted,
    /// SIGKILL of all nodes.
    ClusterLost,
}

/// Subcommands of `zlock` that run a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Lock,
    Elect,
    Semaphore,
    SessionExec,
}

async fn one_node() -> Cluster {
    Cluster::start_with(Options { nodes: 1, ..Options::default() }).await
}

/// Checks all events for one way of running `zlock`, each event with a new command.
async fn each_event(place: Place, verb: Verb) {
    let cluster = one_node().await;
    // A session cannot be taken away by another client.
    let happens = |event| match event {
        Event::ClusterLost => false,
        Event::Released => verb != Verb::SessionExec,
        _ => true,
    };
    let tries = EVENTS.into_iter().filter(|(event, _)| happens(*event));
    let tries = tries.map(|(event, expected)| one_event(place, verb, event, expected, &cluster));
    let lost = async {
        let mut cluster = one_node().await;
        let name = format!("{:?}", Event::ClusterLost);
        let mut running = start(place, verb, &cluster, &name, SHORT).await;
        cluster.kill(1);
        assert_eq!(running.exit().await, Some(121), "{place:?}, {verb:?}: the cluster is lost");
        assert!(!running.runs(), "{place:?}, {verb:?}: the command runs without a cluster");
        cluster.restart(1);
        cluster.all_ready().await;
        next_holder(verb, &cluster, &name, &running).await;
    };
    futures_util::future::join(futures_util::future::join_all(tries), lost).await;
}

async fn one_event(place: Place, verb: Verb, event: Event, expected: Option<i32>, cluster: &Cluster) {
    let name = format!("{event:?}");
    // Only these events free the lock by an expiry of the session, which needs a short timeout.
    let expires = event == Event::ZlockKilled || verb == Verb::SessionExec;
    let timeout = if expires { SHORT } else { LONG };
    let mut running = start(place, verb, cluster, &name, timeout).await;
    match event {
        Event::ZlockKilled => kill(running.zlock, Signal::KILL),
        Event::WatchdogKilled => kill(running.watchdog, Signal::KILL),
        Event::CommandKilled => running.command.iter().for_each(|pid| kill(*pid, Signal::KILL)),
        Event::Released => drop(done(cluster, &["break", &name, "--yes"]).await),
        Event::Terminated => kill(running.zlock, Signal::TERM),
        Event::Interrupted => running.interrupt(),
        Event::ClusterLost => unreachable!("it has a cluster of its own"),
    }
    // The check comes before `zlock` has ended, which is when two commands could run at once.
    if event != Event::WatchdogKilled && event != Event::Released {
        next_holder(verb, cluster, &name, &running).await;
    }
    let code = running.exit().await;
    assert!(expected.is_none() || code == expected, "{place:?}, {verb:?}, {event:?}: {code:?}");
    until("the command is ended", async || (!running.runs()).then_some(())).await;
    next_holder(verb, cluster, &name, &running).await;
}

async fn start(place: Place, verb: Verb, cluster: &Cluster, name: &str, timeout: &str) -> Running {
    let mut args = match verb {
        Verb::Lock => vec!["lock", name, "--quiet"],
        Verb::Elect => vec!["elect", name, "--quiet"],
        Verb::Semaphore => vec!["semaphore", name, "--permits-max", "1", "--quiet"],
        Verb::SessionExec => vec!["session", "exec", "--label", name],
    };
    args.extend(["--session-timeout", timeout]);
    // A program that is to be replaced waits for the lock meanwhile.
    let held = match place {
        Place::Replaced => Some(client(cluster).lock(format!("/{name}")).acquire().await.unwrap()),
        _ => None,
    };
    let give = async || {
        if let Some(held) = held {
            until("it waits", async || done(cluster, &["locks", name]).await.contains("waits").then_some(())).await;
            held.release().await.unwrap();
        }
    };
    Running::start(place, cluster, &args, give).await
}

fn client(cluster: &Cluster) -> Client {
    Client::builder(cluster.endpoints()).poll_time(Duration::from_secs(2)).build().unwrap()
}

/// Waits until another client could hold the lock, and checks at that moment that the command has
/// ended.
async fn next_holder(verb: Verb, cluster: &Cluster, name: &str, before: &Running) {
    let (client, path) = (client(cluster), format!("/{name}"));
    let alone = || assert!(!before.runs(), "{verb:?}, {name}: the command runs beside the next holder");
    match verb {
        Verb::Lock => {
            let guard = client.lock(path).acquire().await.unwrap();
            alone();
            guard.release().await.unwrap();
        }
        Verb::Elect => {
            let leads = client.election(path).campaign("next").await.unwrap();
            alone();
            leads.resign().await.unwrap();
        }
        Verb::Semaphore => {
            let permit = client.semaphore(path, 1).acquire().await.unwrap();
            alone();
            permit.release().await.unwrap();
        }
        Verb::SessionExec => {
            let ended = async || client.sessions().await.unwrap().iter().all(|session| session.label != name);
            until("the session has ended", async || ended().await.then_some(())).await;
            alone();
        }
    }
}

#[tokio::test]
async fn a_command_runs_beside_no_other() {
    each_event(Place::Plain, Verb::Lock).await;
}

#[tokio::test]
async fn a_leaders_command_runs_beside_no_other() {
    each_event(Place::Plain, Verb::Elect).await;
}

#[tokio::test]
async fn a_command_with_a_permit_runs_beside_no_other() {
    each_event(Place::Plain, Verb::Semaphore).await;
}

#[tokio::test]
async fn a_command_outlives_no_session() {
    each_event(Place::Plain, Verb::SessionExec).await;
}

#[tokio::test]
async fn a_kernel_without_descriptors_of_processes_keeps_the_promise() {
    each_event(Place::WithoutDescriptors(Errno::NOSYS), Verb::Lock).await;
}

#[tokio::test]
async fn a_profile_that_forbids_descriptors_of_processes_keeps_the_promise() {
    each_event(Place::WithoutDescriptors(Errno::PERM), Verb::Lock).await;
}

#[tokio::test]
async fn a_stopped_command_keeps_the_promise() {
    each_event(Place::Stopped, Verb::Lock).await;
}

#[tokio::test]
async fn a_replaced_program_keeps_the_promise() {
    each_event(Place::Replaced, Verb::Lock).await;
}

#[tokio::test]
async fn a_terminal_keeps_the_promise() {
    each_event(Place::Terminal, Verb::Lock).await;
}

#[tokio::test]
async fn a_container_keeps_the_promise() {
    if can_contain() {
        each_event(Place::Container, Verb::Lock).await;
    } else {
        eprintln!("NOT TESTED: zlock as the first process of a container: this user may make none");
    }
}
