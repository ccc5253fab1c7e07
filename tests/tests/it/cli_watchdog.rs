//! `zlock lock` and its watchdog process: signals to both, orphaned child processes, the output of
//! `--on-loss warn`, and a lock with a lock-delay.

use std::io::Read as _;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use zlock_client::Client;

use crate::cli::{LONG, Locked, SHORT, done, run, zlock};
use crate::harness::{Cluster, Options, PROGRAM, kill, until};

/// Kills the command if it still runs. Returns all that `zlock` and the command wrote to stderr.
fn said(locked: &mut Locked) -> String {
    if locked.runs() {
        locked.command.iter().for_each(|pid| kill(*pid, Signal::KILL));
    }
    let mut text = String::new();
    locked.cli.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    text
}

#[tokio::test]
async fn a_signal_to_all_processes_at_once_ends_the_command_in_its_own_way() {
    let cluster = Cluster::start().await;
    let script =
        "trap 'sleep 0.2; exit 7' TERM; echo $$ > \"$0.new\"; mv \"$0.new\" \"$0\"; while :; do sleep 0.1; done";
    let mut locked = Locked::start_script(&cluster, LONG, &[], script).await;
    for signal in [Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2] {
        kill(locked.watchdog, signal);
    }
    // A service manager signals both processes.
    kill(locked.watchdog, Signal::TERM);
    kill(locked.cli.id(), Signal::TERM);
    assert_eq!(locked.exit().await, 7, "{}", said(&mut locked));
}

#[tokio::test]
async fn orphans_of_the_command_that_have_ended_do_not_stay() {
    let cluster = Cluster::start().await;
    let script = "for n in 1 2 3; do (sleep 0.1 & echo $! >> \"$0.orphans\"); done; echo $$ | cat - \"$0.orphans\" > \"$0.new\"; mv \"$0.new\" \"$0\"; exec sleep 1000";
    let mut locked = Locked::start_script(&cluster, LONG, &[], script).await;
    let orphans = locked.command.split_off(1);
    assert_eq!(orphans.len(), 3);
    let there = || orphans.iter().any(|pid| Path::new(&format!("/proc/{pid}")).exists());
    until("the orphans have ended, and nothing is left of them", async || (!there()).then_some(())).await;
    kill(locked.command[0], Signal::TERM);
    assert_eq!(locked.exit().await, 143, "the command's own end is not overlooked");
}

#[tokio::test]
async fn with_warn_nothing_is_called_ended_that_goes_on() {
    let cluster = Cluster::start().await;
    let mut locked = Locked::start(&cluster, LONG, &["--on-loss", "warn"]).await;
    done(&cluster, &["break", "l", "--yes"]).await;
    kill(locked.cli.id(), Signal::TERM);
    assert_eq!(locked.exit().await, 143);
    let said_then = said(&mut locked);
    assert!(said_then.contains("/l was lost before the command had ended"), "{said_then}");
    assert!(!said_then.contains("but not the lock"), "{said_then}");

    // This lock may stay held until its session expires, if the release is late.
    let mut locked = Locked::start(&cluster, LONG, &["--on-loss", "warn"]).await;
    kill(locked.watchdog, Signal::KILL);
    assert_eq!(locked.exit().await, 121);
    assert!(locked.runs());
    let said_then = said(&mut locked);
    assert!(said_then.contains("the command goes on") && !said_then.contains("was ended"), "{said_then}");
}

#[tokio::test]
async fn a_lost_lock_with_a_delay_is_not_given_back() {
    let cluster = Cluster::start().await;
    let mut locked = Locked::start(&cluster, LONG, &["--lock-delay", "60s"]).await;
    kill(locked.watchdog, Signal::KILL);
    assert_eq!(locked.exit().await, 121);
    assert!(!locked.runs());
    let (code, _, stderr) = run(zlock(&cluster, &["lock", "l", "--wait", "0", "--", "true"])).await;
    assert_eq!(code, 124, "it is nobody's before the session has expired and the delay is over: {stderr}");
}

// Heartbeats go on, and would keep moving the deadline of a session whose lock is gone.
#[tokio::test]
async fn a_watchdog_that_is_stopped_does_not_keep_a_command_whose_lock_is_gone() {
    let cluster = Cluster::start().await;
    let mut locked = Locked::start(&cluster, SHORT, &[]).await;
    kill(locked.watchdog, Signal::STOP);
    done(&cluster, &["break", "l", "--yes"]).await;
    assert_eq!(locked.exit().await, 121);
    assert!(!locked.runs());
}

// The upgrade of a package replaces the file.
#[tokio::test]
async fn a_program_whose_file_is_replaced_while_it_waits_runs_its_command() {
    let cluster = Cluster::start_with(Options { nodes: 1, ..Options::default() }).await;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (program, new) = (dir.path().join("zlock"), dir.path().join("new"));
    std::fs::hard_link(PROGRAM, &program).unwrap();
    std::fs::write(&new, "no program").unwrap();
    let guard = Client::builder(cluster.endpoints()).build().unwrap().lock("/l").acquire().await.unwrap();
    let mut command = Command::new(&program);
    command.env("ZLOCK_ENDPOINTS", cluster.endpoints().join(",")).args(["lock", "l", "--quiet", "--", "sh", "-c"]);
    command.arg("cat /proc/$PPID/comm");
    let waits = tokio::spawn(run(command));
    until("it waits", async || done(&cluster, &["locks"]).await.contains("waits").then_some(())).await;
    std::fs::rename(&new, &program).unwrap();
    guard.release().await.unwrap();
    assert_eq!(waits.await.unwrap(), (0, "zlock\n".into(), String::new()), "the watchdog is known by its name");
}
