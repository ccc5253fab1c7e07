//! `zlock lock` as cron and other job schedulers run it: its output, its exit when the lock is not
//! free, and a lock that is held longer than a short job runs.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use zlock_client::Client;

use crate::cli::{LONG, Locked, done, run, zlock};
use crate::harness::{Cluster, Options, PROGRAM, kill, until};

async fn one_node() -> Cluster {
    Cluster::start_with(Options { nodes: 1, ..Options::default() }).await
}

/// Starts `zlock lock` with a command that exits with code 7, and waits until that command has
/// ended. Because of the option `--hold-at-least`, `zlock` still holds the lock then.
async fn kept(cluster: &Cluster) -> Child {
    let dir = tempfile::tempdir().unwrap();
    let ran = dir.path().join("ran");
    let args = ["lock", "l", "--hold-at-least", "10m", "--", "sh", "-c", "touch \"$0\"; exit 7", ran.to_str().unwrap()];
    let holds = zlock(cluster, &args).stderr(Stdio::piped()).spawn().unwrap();
    let children = format!("/proc/{0}/task/{0}/children", holds.id());
    let has_ended = || ran.exists() && std::fs::read_to_string(&children).unwrap().is_empty();
    until("the command and its watchdog have ended", async || has_ended().then_some(())).await;
    holds
}

#[tokio::test]
async fn others_see_a_commands_name_and_nothing_of_its_arguments() {
    let cluster = one_node().await;
    for command in ["lock", "elect"] {
        let script = "\"$ZLOCK\" locks --json; \"$ZLOCK\" sessions --json";
        let mut runs = zlock(&cluster, &[command, "l", "--", "/bin/sh", "-c", script, "--password=secret"]);
        runs.env("ZLOCK", PROGRAM);
        let (code, stdout, _) = run(runs).await;
        assert!(code == 0 && stdout.contains("\"label\":\"sh\"") && !stdout.contains("secret"), "{stdout}");
    }
    let history = done(&cluster, &["locks", "l", "--history"]).await;
    assert!(history.contains(" sh ") && !history.contains("secret"), "{history}");
}

#[tokio::test]
async fn a_wait_is_told_of_after_a_second_also_without_a_terminal() {
    let cluster = one_node().await;
    let mut locked = Locked::start(&cluster, LONG, &["--label", "nightly"]).await;
    let mut waits = zlock(&cluster, &["lock", "l", "--", "true"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(waits.stderr.take().unwrap());
    let read = move || {
        let mut line = String::new();
        stderr.read_line(&mut line).map(|_| (line, stderr)).unwrap()
    };
    let (line, mut stderr) = tokio::task::spawn_blocking(read).await.unwrap();
    assert!(line.starts_with("zlock: waiting for /l, held by session ") && line.contains(" (nightly; "), "{line}");
    kill(locked.cli.id(), Signal::TERM);
    locked.exit().await;
    assert!(until("it has ended", async || waits.try_wait().unwrap()).await.success());
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "", "it says so once");
}

#[tokio::test]
async fn who_does_not_get_the_lock_ends_as_it_was_told_and_may_be_quiet() {
    let cluster = one_node().await;
    let client = Client::builder(cluster.endpoints()).build().unwrap();
    let lock = client.lock("/l").acquire().await.unwrap();
    let permit = client.semaphore("/s", 1).acquire().await.unwrap();
    let leads = client.election("/e").campaign("first").await.unwrap();
    for command in [&["lock", "l"][..], &["semaphore", "s", "--permits-max", "1"], &["elect", "e"]] {
        let tried = async |args: &[&str]| run(zlock(&cluster, &[command, args, &["--", "true"]].concat())).await;
        let ended = tried(&["--wait", "1500ms", "--quiet", "--busy-exit", "0"]).await;
        assert_eq!(ended, (0, String::new(), String::new()), "{command:?}");
        let (code, _, stderr) = tried(&["--wait", "0", "--busy-exit", "3"]).await;
        assert!(code == 3 && stderr.contains(" is not free"), "{command:?}: {code}: {stderr}");
        assert_eq!(tried(&["--wait", "0", "--quiet"]).await, (124, String::new(), String::new()), "{command:?}");
        assert_eq!(tried(&["--busy-exit", "0"]).await.0, 2, "without --wait it would never end so");
    }
    drop((lock, permit, leads));
}

#[tokio::test]
async fn a_lock_outlives_a_short_command_when_it_is_told_to() {
    let cluster = one_node().await;
    let began = Instant::now();
    let short = zlock(&cluster, &["lock", "l", "--hold-at-least", "1s", "--", "sh", "-c", "exit 7"]);
    assert_eq!(run(short).await.0, 7);
    assert!(began.elapsed() >= Duration::from_secs(1));

    let mut holds = kept(&cluster).await;
    assert_eq!(run(zlock(&cluster, &["lock", "l", "--wait", "0", "--", "true"])).await.0, 124, "it is kept");
    kill(holds.id(), Signal::USR1);
    assert_eq!(run(zlock(&cluster, &["lock", "l", "--wait", "0", "--", "true"])).await.0, 124, "it is kept");
    kill(holds.id(), Signal::TERM);
    assert_eq!(until("a signal ends it", async || holds.try_wait().unwrap()).await.code(), Some(7));
    assert_eq!(run(zlock(&cluster, &["lock", "l", "--wait", "0", "--", "true"])).await.0, 0, "it is free at once");

    let mut locked = Locked::start(&cluster, LONG, &["--hold-at-least", "10m"]).await;
    kill(locked.cli.id(), Signal::TERM);
    assert_eq!(locked.exit().await, 143, "what ends the command ends all");
}

#[tokio::test]
async fn a_lock_that_is_lost_after_its_command_has_ended_is_told_of() {
    let cluster = one_node().await;
    let mut holds = kept(&cluster).await;
    done(&cluster, &["break", "l", "--yes"]).await;
    let ended = until("it has ended", async || holds.try_wait().unwrap()).await;
    let mut said = String::new();
    holds.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(ended.code(), Some(121), "{said}");
    assert!(said.starts_with("zlock: the lock /l was lost before --hold-at-least was over: "), "{said}");
}

#[tokio::test]
async fn a_command_that_waits_for_its_own_lock_is_told_so() {
    let cluster = one_node().await;
    let nested = [PROGRAM, "lock", "l", "--wait", "0", "--", "true"];
    let (code, _, stderr) = run(zlock(&cluster, &[&["lock", "l", "--"][..], &nested].concat())).await;
    assert!(code == 124 && stderr.contains(", which runs this command and waits for its end; "), "{code}: {stderr}");
}
